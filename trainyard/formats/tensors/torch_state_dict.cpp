#include "trainyard/formats/tensors/torch_state_dict.h"

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/formats/containers/pickle.h"
#include "trainyard/formats/containers/zip.h"

namespace trainyard::formats {
namespace {

using Kind = PickleValue::Kind;

// The tensors are described in some hundred bytes each.
constexpr uint64_t kMaxPickleBytes = uint64_t{64} << 20;
constexpr std::string_view kPickleName = "/data.pkl", kOrderName = "/byteorder";
constexpr const char* kContainers[] = {"state_dict", "model_state_dict", "model"};

constexpr std::pair<std::string_view, TensorType> kStorages[] = {
    {"BoolStorage", TensorType::kBool},     {"ByteStorage", TensorType::kUint8},
    {"CharStorage", TensorType::kInt8},     {"ShortStorage", TensorType::kInt16},
    {"IntStorage", TensorType::kInt32},     {"LongStorage", TensorType::kInt64},
    {"HalfStorage", TensorType::kFloat16},  {"BFloat16Storage", TensorType::kBfloat16},
    {"FloatStorage", TensorType::kFloat32}, {"DoubleStorage", TensorType::kFloat64},
};

core::Error corrupt_state_dict(const core::ReadableFile& file, std::string_view tensor, std::string problem,
                               std::string expected = "", std::string actual = "") {
  return {core::ErrorCode::kCorruptData,
          {.problem = std::move(problem),
           .where = tensor_place(file.path(), tensor),
           .expected = std::move(expected),
           .actual = std::move(actual),
           .remedy = "write the file again with torch.save(model.state_dict(), path)"}};
}

std::string read_member(const core::ReadableFile& file, const ZipMember& member) {
  std::string bytes(member.size, '\0');
  file.read_at(member.offset, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

// The archive's members by their name behind the archive's own folder.
class Archive {
 public:
  explicit Archive(const core::ReadableFile& file) {
    for (ZipMember& member : read_zip_directory(file)) {
      const size_t folder = member.name.find('/');
      if (folder == std::string::npos) continue;
      std::string name = member.name.substr(folder);
      members_.emplace(std::move(name), std::move(member));
    }
  }

  const ZipMember* find(std::string_view name) const {
    const auto found = members_.find(name);
    return found == members_.end() ? nullptr : &found->second;
  }

 private:
  std::map<std::string, ZipMember, std::less<>> members_;
};

std::vector<int64_t> numbers(const PickleValue& tuple, const core::ReadableFile& file, std::string_view name) {
  if (tuple.items.size() > kMaxDimensions) {
    throw corrupt_state_dict(file, name, "tensor has impossibly many dimensions",
                             fmt::format("at most {}", kMaxDimensions), fmt::format("{}", tuple.items.size()));
  }
  std::vector<int64_t> result;
  for (const PickleValue* item : tuple.items) {
    if (item->kind != Kind::kInteger)
      throw corrupt_state_dict(file, name, "tensor's shape or strides are no whole numbers");
    result.push_back(item->integer);
  }
  return result;
}

// `value`: what _rebuild_tensor_v2 was called with: (storage, offset, shape, strides, ...); a storage is the tuple
// ("storage", class, key, device, elements).
StoredTensor tensor_of(std::string_view name, const PickleValue& value, const Archive& archive,
                       const core::ReadableFile& file) {
  const auto has = [](const PickleValue& tuple, size_t i, Kind kind) {
    return i < tuple.items.size() && tuple.items[i]->kind == kind;
  };
  if (!has(value, 0, Kind::kStorage) || !has(value, 1, Kind::kInteger) || !has(value, 2, Kind::kTuple) ||
      !has(value, 3, Kind::kTuple)) {
    throw corrupt_state_dict(file, name, "tensor is described in an unknown way");
  }
  const PickleValue& storage = *value.items[0];
  if (!has(storage, 1, Kind::kFunction) || !has(storage, 2, Kind::kString)) {
    throw corrupt_state_dict(file, name, "tensor's storage is described in an unknown way");
  }
  const auto type = std::find_if(std::begin(kStorages), std::end(kStorages),
                                 [&](const auto& known) { return known.first == storage.items[1]->text; });
  if (type == std::end(kStorages)) {
    throw core::Error(core::ErrorCode::kUnsupported,
                      {.problem = "tensor's numbers are of a type that is not read",
                       .where = tensor_place(file.path(), name),
                       .expected = "bool, uint8, int8 to int64, float16, bfloat16, float32 or float64",
                       .actual = std::string(storage.items[1]->text.substr(0, 40)),
                       .remedy = "save the weights in one of these types, without the tensors that no model needs"});
  }
  const ZipMember* const member = archive.find(fmt::format("/data/{}", storage.items[2]->text));
  if (member == nullptr) {
    throw corrupt_state_dict(file, name, "tensor's numbers are not in the file",
                             fmt::format("a member 'data/{}'", storage.items[2]->text));
  }
  StoredTensor tensor{.name = std::string(name),
                      .type = type->second,
                      .shape = numbers(*value.items[2], file, name),
                      .strides = numbers(*value.items[3], file, name)};
  const int64_t first = value.items[1]->integer;
  if (first < 0 || static_cast<uint64_t>(first) > member->size / tensor_type_bytes(tensor.type)) {
    throw corrupt_state_dict(file, name, "tensor begins outside of its storage", "", fmt::format("element {}", first));
  }
  tensor.offset = member->offset + static_cast<uint64_t>(first) * tensor_type_bytes(tensor.type);
  check_stored_tensor(tensor, member->offset, member->offset + member->size, file.path());
  return tensor;
}

const PickleValue& state_dict_of(const PickleValue& root) {
  for (const char* key : kContainers) {
    const PickleValue* const inner = root.find(key);
    if (inner != nullptr && inner->kind == Kind::kDictionary) return *inner;
  }
  return root;
}

// "epoch, net, ...": the first keys of a dictionary.
std::string keys_of(const PickleValue& dict) {
  constexpr size_t kShown = 8, kLongest = 40;
  std::string text;
  for (size_t i = 0; i + 1 < dict.items.size() && i < 2 * kShown; i += 2) {
    const PickleValue& key = *dict.items[i];
    text += fmt::format("{}{}", i == 0 ? "" : ", ", key.kind == Kind::kString ? key.text.substr(0, kLongest) : "?");
  }
  return text + (dict.items.size() > 2 * kShown ? ", ..." : "");
}

}  // namespace

bool looks_like_torch(const core::ReadableFile& file) {
  if (looks_like_zip(file)) return true;
  // Before 1.6: a pickle of the magic number, ten bytes long. As the length of a safetensors header it would be too
  // much.
  char first[4] = {};
  if (file.size() < sizeof(first)) return false;
  file.read_at(0, std::as_writable_bytes(std::span(first)));
  return first[0] == '\x80' && first[1] <= 5 && first[2] == '\x8a' && first[3] == 10;
}

std::vector<StoredTensor> read_torch_state_dict(const core::ReadableFile& file) {
  if (!looks_like_zip(file)) {
    throw core::Error(core::ErrorCode::kUnsupported,
                      {.problem = "state dict in the format from before PyTorch 1.6",
                       .where = file.path(),
                       .remedy = "load it in Python and save it again: torch.save(torch.load(path), path)"});
  }
  const Archive archive(file);
  const ZipMember* const described = archive.find(kPickleName);
  if (described == nullptr)
    throw corrupt_state_dict(file, "", "zip archive is none of PyTorch's", "a member 'data.pkl'");
  if (described->size > kMaxPickleBytes)
    throw corrupt_state_dict(file, "", "state dict has an impossibly large description");
  if (const ZipMember* const order = archive.find(kOrderName); order != nullptr && order->size < 16) {
    if (const std::string text = read_member(file, *order); text != "little") {
      throw core::Error(core::ErrorCode::kUnsupported,
                        {.problem = "state dict in another byte order",
                         .where = file.path(),
                         .expected = "little",
                         .actual = text,
                         .remedy = "load it in Python on a little-endian machine and save it again: "
                                   "torch.save(torch.load(path), path)"});
    }
  }
  const std::string description = read_member(file, *described);
  std::vector<StoredTensor> tensors;
  try {
    const Pickle pickle = Pickle::parse(description, PickleVocabulary::kTorchStateDict);
    const PickleValue& dict = state_dict_of(pickle.root());
    if (dict.kind != Kind::kDictionary)
      throw corrupt_state_dict(file, "", "file holds no state dict", "a dictionary of tensors");
    for (size_t i = 0; i + 1 < dict.items.size(); i += 2) {
      const PickleValue &key = *dict.items[i], &value = *dict.items[i + 1];
      if (key.kind == Kind::kString && value.kind == Kind::kTensor) {
        tensors.push_back(tensor_of(key.text, value, archive, file));
      }
    }
    if (tensors.empty()) {
      throw corrupt_state_dict(
          file, "", "file holds no tensors",
          "a state dict, or a checkpoint with one under 'state_dict', 'model_state_dict' or 'model'",
          dict.items.empty() ? "nothing" : "a dictionary of " + keys_of(dict));
    }
  } catch (const core::Error& error) {
    if (error.detail().where.starts_with(file.path())) throw;
    throw error.in(fmt::format("{}, data.pkl", file.path()));
  }
  return tensors;
}

}  // namespace trainyard::formats
