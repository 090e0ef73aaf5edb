#include "trainyard/train/checkpoint/checkpoint_manifest.h"

#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/files/crc32c.h"

namespace trainyard::train {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFormat = "trainyard-checkpoint";
constexpr std::string_view kDamage = "damaged checkpoint: ";
constexpr int kMaxDepth = 8;  // a manifest's own is 4

constexpr std::array<std::pair<at::ScalarType, std::string_view>, 10> kDtypes{{
    {at::kFloat, "float32"},
    {at::kDouble, "float64"},
    {at::kHalf, "float16"},
    {at::kBFloat16, "bfloat16"},
    {at::kByte, "uint8"},
    {at::kChar, "int8"},
    {at::kShort, "int16"},
    {at::kInt, "int32"},
    {at::kLong, "int64"},
    {at::kBool, "bool"},
}};

// The last bytes of a manifest whose other bytes are `body`.
std::string trailer(std::string_view body) {
  return fmt::format("\"crc32c\": \"0x{:08x}\"\n}}\n", core::crc32c(body));
}
constexpr size_t kTrailerBytes = std::string_view("\"crc32c\": \"0x00000000\"\n}\n").size();

// Numbers that JSON has no words for are strings.
Json real_to_json(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

std::optional<double> real_from_json(const Json& json) {
  if (json.is_number_float()) return json.get<double>();
  if (json == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (json == "inf") return std::numeric_limits<double>::infinity();
  if (json == "-inf") return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

std::string to_hex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

std::optional<std::string> from_hex(std::string_view text) {
  const auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; };
  if (text.size() % 2 != 0) return std::nullopt;
  std::string bytes;
  for (size_t i = 0; i < text.size(); i += 2) {
    if (digit(text[i]) < 0 || digit(text[i + 1]) < 0) return std::nullopt;
    bytes += static_cast<char>(digit(text[i]) * 16 + digit(text[i + 1]));
  }
  return bytes;
}

std::string value_line(const std::string& name, const ManifestValue& value) {
  Json line{{"name", name}};
  if (const auto* integer = std::get_if<int64_t>(&value)) line["integer"] = *integer;
  if (const auto* real = std::get_if<double>(&value)) line["real"] = real_to_json(*real);
  const auto* text = std::get_if<std::string>(&value);
  if (text == nullptr) return line.dump();
  try {
    line["text"] = *text;
    return line.dump();
  } catch (const Json::type_error&) {  // not UTF-8, which JSON cannot hold
    line.erase("text");
    line["text_hex"] = to_hex(*text);
    return line.dump();
  }
}

template <typename Range, typename Line>
std::string joined_lines(const Range& range, Line line) {
  std::string text;
  for (const auto& entry : range) text += (text.empty() ? "\n" : ",\n") + line(entry);
  return text + "\n";
}

// Takes fields out of the JSON of one manifest; what is missing or of another type is an error that names its place.
class Decoder {
 public:
  explicit Decoder(const std::string& path) : path_(path) {}

  Manifest decode(std::string_view text) {
    const Json root = parse(text);
    if (string(root, "format", "manifest") != kFormat)
      fail("not a checkpoint", "", std::string(kFormat), "another format");
    if (const uint64_t version = number(root, "version", "manifest"); version != kCheckpointVersion) {
      throw core::Error(core::ErrorCode::kUnsupported,
                        {.problem = "checkpoint of another version",
                         .where = path_,
                         .expected = fmt::format("version {}", kCheckpointVersion),
                         .actual = fmt::format("{}", version),
                         .remedy = "load it with the release of trainyard that wrote it"});
    }
    Manifest manifest;
    manifest.global_step = step(root);
    const Json& identity = member(root, "identity", "manifest");
    manifest.identity.model = string(identity, "model", "identity");
    manifest.identity.dataset = string(identity, "dataset", "identity");
    manifest.identity.num_classes = static_cast<int64_t>(number(identity, "num_classes", "identity"));
    for (const Json& json : array(root, "tensors")) decode_tensor(json, manifest);
    for (const Json& json : array(root, "values")) decode_value(json, manifest);
    if (const uint64_t bytes = number(root, "tensor_file_bytes", "manifest"); bytes != manifest.tensor_file_bytes) {
      fail("tensors do not fill their file", "", fmt::format("{} bytes", manifest.tensor_file_bytes),
           fmt::format("{}", bytes));
    }
    return manifest;
  }

 private:
  [[noreturn]] void fail(const std::string& problem, const std::string& where, const std::string& expected,
                         const std::string& actual) const {
    throw damaged_checkpoint(problem, where.empty() ? path_ : path_ + ", " + where, expected, actual);
  }

  Json parse(std::string_view text) const {
    try {
      return Json::parse(text, [&](int depth, Json::parse_event_t, Json&) {
        if (depth > kMaxDepth) fail("manifest is nested too deeply", "", fmt::format("{} levels", kMaxDepth), "more");
        return true;
      });
    } catch (const Json::exception& error) {
      fail("manifest is no JSON", "", "", error.what());
    }
  }

  const Json& member(const Json& object, const char* key, const std::string& where) const {
    if (!object.is_object() || !object.contains(key)) fail("manifest lacks a field", where, key, "none");
    return object.at(key);
  }
  uint64_t number(const Json& object, const char* key, const std::string& where) const {
    const Json& json = member(object, key, where);
    if (!json.is_number_unsigned() || json.get<uint64_t>() > std::numeric_limits<int64_t>::max()) {
      fail("manifest field is no count", where + ", " + key, "0 .. 2^63 - 1", json.dump());
    }
    return json.get<uint64_t>();
  }
  std::string string(const Json& object, const char* key, const std::string& where) const {
    const Json& json = member(object, key, where);
    if (!json.is_string()) fail("manifest field is no string", where + ", " + key, "a string", json.type_name());
    return json.get<std::string>();
  }
  const Json& array(const Json& object, const char* key) const {
    const Json& json = member(object, key, "manifest");
    if (!json.is_array()) fail("manifest field is no list", key, "a list", json.type_name());
    return json;
  }
  int64_t step(const Json& root) const { return static_cast<int64_t>(number(root, "global_step", "manifest")); }

  std::string unique_name(const Json& json, const char* kind) {
    std::string name = string(json, "name", kind);
    if (name.empty() || name.size() > kMaxNameBytes) {
      fail("bad name in the manifest", kind, fmt::format("1 .. {} bytes", kMaxNameBytes),
           fmt::format("{}", name.size()));
    }
    if (!names_.insert(name).second) fail("name occurs twice in the manifest", name, "", "");
    return name;
  }

  void decode_tensor(const Json& json, Manifest& manifest) {
    TensorEntry entry;
    entry.name = unique_name(json, "tensor");
    const std::string where = "tensor " + entry.name;
    entry.dtype = dtype(string(json, "dtype", where), where);
    uint64_t bytes = c10::elementSize(entry.dtype);
    const Json& shape = member(json, "shape", where);
    if (!shape.is_array() || shape.size() > kMaxDimensions) {
      fail("bad shape", where, fmt::format("a list of at most {} sizes", kMaxDimensions), shape.type_name());
    }
    for (const Json& size : shape) {
      if (!size.is_number_unsigned()) fail("bad shape", where, "sizes from 0", size.type_name());
      const auto value = size.get<uint64_t>();
      if (value > std::numeric_limits<int64_t>::max() || __builtin_mul_overflow(bytes, value, &bytes) ||
          bytes > std::numeric_limits<int64_t>::max()) {
        fail("shape is too large", where, "less than 2^63 bytes", shape.dump());
      }
      entry.shape.push_back(static_cast<int64_t>(value));
    }
    entry.bytes = number(json, "bytes", where);
    if (entry.bytes != bytes) {
      fail("length does not fit the shape", where, fmt::format("{} bytes", bytes), fmt::format("{}", entry.bytes));
    }
    entry.offset = number(json, "offset", where);
    if (entry.offset != manifest.tensor_file_bytes) {
      fail("tensors overlap or leave a gap", where, fmt::format("offset {}", manifest.tensor_file_bytes),
           fmt::format("{}", entry.offset));
    }
    const uint64_t checksum = number(json, "crc32c", where);
    if (checksum > std::numeric_limits<uint32_t>::max()) fail("bad checksum", where, "32 bits", "more");
    entry.checksum = static_cast<uint32_t>(checksum);
    manifest.tensor_file_bytes += entry.bytes;  // no overflow: both are below 2^63
    if (manifest.tensor_file_bytes > std::numeric_limits<int64_t>::max()) {
      fail("tensors are too large", where, "less than 2^63 bytes in all", "more");
    }
    manifest.tensors.push_back(std::move(entry));
  }

  at::ScalarType dtype(const std::string& name, const std::string& where) const {
    for (const auto& [type, known] : kDtypes) {
      if (name == known) return type;
    }
    fail("unknown dtype", where, "float32, int64, ...", name);
  }

  void decode_value(const Json& json, Manifest& manifest) {
    const std::string name = unique_name(json, "value");
    if (json.size() != 2) fail("value needs a name and one content", name, "2 fields", fmt::format("{}", json.size()));
    const auto content = std::next(json.begin());
    const std::optional<double> real = real_from_json(*content);
    const std::optional<std::string> bytes =
        content->is_string() ? from_hex(content->get<std::string>()) : std::nullopt;
    ManifestValue& value = manifest.values[name];
    if (content.key() == "integer" && content->is_number_integer() &&
        (!content->is_number_unsigned() || content->get<uint64_t>() <= std::numeric_limits<int64_t>::max())) {
      value = content->get<int64_t>();
    } else if (content.key() == "real" && real) {
      value = *real;
    } else if (content.key() == "text" && content->is_string()) {
      value = content->get<std::string>();
    } else if (content.key() == "text_hex" && bytes) {
      value = *bytes;
    } else {
      fail("bad value in the manifest", name, "integer, real, text or text_hex", content.key());
    }
  }

  const std::string& path_;
  std::set<std::string> names_;
};

}  // namespace

std::string encode_manifest(const Manifest& manifest) try {
  const Json identity{{"model", manifest.identity.model},
                      {"dataset", manifest.identity.dataset},
                      {"num_classes", manifest.identity.num_classes}};
  // One entry a line, so that manifests can be read and compared by people.
  const std::string tensors = joined_lines(manifest.tensors, [](const TensorEntry& entry) {
    return Json{{"name", entry.name},   {"dtype", dtype_name(entry.dtype)},
                {"shape", entry.shape}, {"offset", entry.offset},
                {"bytes", entry.bytes}, {"crc32c", entry.checksum}}
        .dump();
  });
  const std::string values =
      joined_lines(manifest.values, [](const auto& entry) { return value_line(entry.first, entry.second); });
  std::string text = fmt::format(
      "{{\n\"format\": \"{}\",\n\"version\": {},\n\"global_step\": {},\n\"identity\": {},\n\"tensor_file_bytes\": {},\n"
      "\"tensors\": [{}],\n\"values\": [{}],\n",
      kFormat, kCheckpointVersion, manifest.global_step, identity.dump(), manifest.tensor_file_bytes, tensors, values);
  return text + trailer(text);
} catch (const Json::type_error& error) {
  throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "a name in the checkpoint is not UTF-8",
                                                        .actual = error.what(),
                                                        .remedy = "rename the model, data set or layer"});
}

bool manifest_is_intact(std::string_view text) {
  if (text.size() < kTrailerBytes) return false;
  const std::string_view body = text.substr(0, text.size() - kTrailerBytes);
  return text.substr(body.size()) == trailer(body);
}

Manifest decode_manifest(std::string_view text, const std::string& path) {
  if (!manifest_is_intact(text)) {
    throw damaged_checkpoint("manifest is damaged or cut off", path, "its last line to be the CRC32C of the others",
                             "another");
  }
  return Decoder(path).decode(text);
}

std::string_view dtype_name(at::ScalarType dtype) {
  for (const auto& [type, name] : kDtypes) {
    if (type == dtype) return name;
  }
  throw core::Error(core::ErrorCode::kUnsupported, {.problem = "checkpoints do not hold tensors of this type",
                                                    .actual = c10::toString(dtype),
                                                    .remedy = "convert it to a real floating-point or integer type"});
}

std::string describe_tensor(at::ScalarType dtype, const std::vector<int64_t>& shape) {
  return fmt::format("{} [{}]", dtype_name(dtype), fmt::join(shape, ", "));
}

core::Error damaged_checkpoint(std::string problem, std::string where, std::string expected, std::string actual) {
  return {core::ErrorCode::kCorruptData,
          {.problem = std::string(kDamage) + std::move(problem),
           .where = std::move(where),
           .expected = std::move(expected),
           .actual = std::move(actual),
           .remedy = "copy the checkpoint here again, or pass --ignore_damaged_checkpoints to go on from the newest "
                     "intact one"}};
}

bool is_damage(const core::Error& error) {
  return error.code() == core::ErrorCode::kCorruptData && error.detail().problem.starts_with(kDamage);
}

}  // namespace trainyard::train
