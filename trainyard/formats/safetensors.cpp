#include "trainyard/formats/safetensors.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trainyard/formats/little_endian.h"

namespace trainyard::formats {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kLengthBytes = 8;
// The format's own limit: headers of the largest models there are have some megabytes.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
// {"name": {"shape": [1]}}: objects and lists inside each other.
constexpr int kMaxDepth = 3;

constexpr std::pair<std::string_view, TensorType> kTypes[] = {
    {"BOOL", TensorType::kBool},   {"U8", TensorType::kUint8},      {"I8", TensorType::kInt8},
    {"I16", TensorType::kInt16},   {"I32", TensorType::kInt32},     {"I64", TensorType::kInt64},
    {"F16", TensorType::kFloat16}, {"BF16", TensorType::kBfloat16}, {"F32", TensorType::kFloat32},
    {"F64", TensorType::kFloat64},
};

core::Error corrupt(const core::ReadableFile& file, std::string_view tensor, std::string problem,
                    std::string expected = "", std::string actual = "") {
  return {core::ErrorCode::kCorruptData,
          {.problem = std::move(problem),
           .where = tensor_place(file.path(), tensor),
           .expected = std::move(expected),
           .actual = std::move(actual),
           .remedy = "a weights file is safetensors or a state dict that torch.save wrote; get or write it again"}};
}

// Refuses what the parser would take without a word: deep nesting, and names that come twice.
class HeaderCheck {
 public:
  explicit HeaderCheck(const core::ReadableFile& file) : file_(file) {}

  bool operator()(int depth, Json::parse_event_t event, const Json& parsed) {
    if (depth >= kMaxDepth &&
        (event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start)) {
      throw corrupt(file_, "", "safetensors header is nested too deeply");
    }
    if (event == Json::parse_event_t::key && depth == 1) {
      const std::string name = parsed.get<std::string>();
      if (!names_.insert(name).second) throw corrupt(file_, name, "safetensors header names a tensor twice");
    }
    return true;
  }

 private:
  const core::ReadableFile& file_;
  std::set<std::string> names_;
};

uint64_t whole_number(const Json& value, const core::ReadableFile& file, const std::string& name) {
  // Up to 2^53: what every JSON reader agrees on.
  if (!value.is_number_unsigned() || value.get<uint64_t>() > (uint64_t{1} << 53)) {
    throw corrupt(file, name, "safetensors header holds an impossible number", "a whole number up to 2^53",
                  value.dump().substr(0, 40));
  }
  return value.get<uint64_t>();
}

struct Entry {
  StoredTensor tensor;
  uint64_t begin = 0, end = 0;  // in the data
};

Entry entry_of(const std::string& name, const Json& value, const core::ReadableFile& file) {
  const auto member = [&](const char* key) -> const Json& {
    const auto found = value.is_object() ? value.find(key) : value.end();
    if (!value.is_object() || found == value.end()) {
      throw corrupt(file, name, fmt::format("safetensors header has no '{}'", key));
    }
    return *found;
  };
  Entry entry;
  entry.tensor.name = name;
  const Json& dtype = member("dtype");
  const auto type = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const auto& known) {
    return dtype.is_string() && dtype.get_ref<const std::string&>() == known.first;
  });
  if (type == std::end(kTypes)) {
    throw corrupt(file, name, "tensor of an unknown type", "BOOL, U8, I8 to I64, F16, BF16, F32 or F64",
                  dtype.dump().substr(0, 40));
  }
  entry.tensor.type = type->second;
  const Json &shape = member("shape"), &offsets = member("data_offsets");
  if (!shape.is_array() || !offsets.is_array() || offsets.size() != 2) {
    throw corrupt(file, name, "safetensors header holds a malformed entry");
  }
  for (const Json& size : shape) entry.tensor.shape.push_back(static_cast<int64_t>(whole_number(size, file, name)));
  entry.tensor.strides = contiguous_strides(entry.tensor.shape);
  entry.begin = whole_number(offsets[0], file, name);
  entry.end = whole_number(offsets[1], file, name);
  return entry;
}

Json parse_header(const core::ReadableFile& file, const std::string& text) {
  try {
    Json header = Json::parse(text, HeaderCheck(file));
    if (header.is_object()) return header;
  } catch (const Json::exception&) {
    // Said below, without the parser's excerpts of binary data.
  }
  throw corrupt(file, "", "file does not begin with a safetensors header", "an object in JSON");
}

}  // namespace

std::vector<StoredTensor> read_safetensors_header(const core::ReadableFile& file) {
  char length_bytes[kLengthBytes] = {};
  if (file.size() < kLengthBytes) throw corrupt(file, "", "file is too short for a safetensors header");
  file.read_at(0, std::as_writable_bytes(std::span(length_bytes)));
  const auto length = load_little_endian<uint64_t>(length_bytes);
  if (length > file.size() - kLengthBytes || length > kMaxHeaderBytes) {
    throw corrupt(file, "", "safetensors header is longer than its file",
                  fmt::format("at most {} bytes", std::min(file.size() - kLengthBytes, kMaxHeaderBytes)),
                  fmt::format("{}", length));
  }
  std::string text(length, '\0');
  file.read_at(kLengthBytes, std::as_writable_bytes(std::span(text)));
  const Json header = parse_header(file, text);

  std::vector<Entry> entries;
  for (const auto& [name, value] : header.items()) {
    if (name != "__metadata__") entries.push_back(entry_of(name, value, file));
  }
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  const uint64_t data = kLengthBytes + length, data_bytes = file.size() - data;
  uint64_t place = 0;
  std::vector<StoredTensor> tensors;
  for (Entry& entry : entries) {
    StoredTensor& tensor = entry.tensor;
    if (entry.begin != place) {
      throw corrupt(file, tensor.name, entry.begin < place ? "tensor overlaps another" : "tensor leaves a gap",
                    fmt::format("data from {}", place), fmt::format("{}", entry.begin));
    }
    tensor.offset = data + entry.begin;
    if (entry.end < entry.begin || entry.end > data_bytes) {
      throw corrupt(file, tensor.name, "tensor ends behind the file", fmt::format("at most {}", data_bytes),
                    fmt::format("{}", entry.end));
    }
    check_stored_tensor(tensor, tensor.offset, data + entry.end, file.path());
    const uint64_t bytes = static_cast<uint64_t>(tensor.count()) * tensor_type_bytes(tensor.type);
    if (bytes != entry.end - entry.begin) {
      throw corrupt(file, tensor.name, "tensor's shape and place disagree", fmt::format("{} bytes", bytes),
                    fmt::format("{}", entry.end - entry.begin));
    }
    place = entry.end;
    tensors.push_back(std::move(tensor));
  }
  if (place != data_bytes) {
    throw corrupt(file, "", "safetensors file goes on behind its last tensor", fmt::format("{} bytes", data + place),
                  fmt::format("{}", file.size()));
  }
  return tensors;
}

void write_safetensors(const std::string& path, std::span<const FloatTensor> tensors,
                       const std::map<std::string, std::string>& metadata, core::FileSystem& files) {
  nlohmann::ordered_json header;
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t place = 0;
  for (const FloatTensor& tensor : tensors) {
    StoredTensor stored{.name = tensor.name, .shape = tensor.shape};
    if (header.contains(tensor.name) || stored.count() != static_cast<int64_t>(tensor.values.size())) {
      throw core::Error(core::ErrorCode::kInvalidArgument,
                        {.problem = header.contains(tensor.name) ? "a tensor's name comes twice"
                                                                 : "a tensor's shape does not fit its numbers",
                         .where = tensor_place(path, tensor.name),
                         .expected = fmt::format("{} numbers", stored.count()),
                         .actual = fmt::format("{}", tensor.values.size())});
    }
    const uint64_t end = place + tensor.values.size_bytes();
    header[tensor.name] = {{"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {place, end}}};
    place = end;
  }
  std::string text = header.is_null() ? "{}" : header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // so that the numbers are aligned
  std::string content;
  content.reserve(kLengthBytes + text.size() + place);
  append_little_endian<uint64_t>(content, text.size());
  content += text;
  for (const FloatTensor& tensor : tensors) {
    content.append(reinterpret_cast<const char*>(tensor.values.data()), tensor.values.size_bytes());
  }
  files.write_file_atomically(path, content);
}

}  // namespace trainyard::formats
