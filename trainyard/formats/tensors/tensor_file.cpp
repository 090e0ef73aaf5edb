#include "trainyard/formats/tensors/tensor_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/formats/containers/little_endian.h"
#include "trainyard/formats/tensors/safetensors.h"
#include "trainyard/formats/tensors/tensorflow_checkpoint.h"
#include "trainyard/formats/tensors/torch_state_dict.h"

namespace trainyard::formats {
namespace {

struct TypeInfo {
  std::string_view name;
  size_t bytes;
};

// By TensorType.
constexpr TypeInfo kTypeInfos[] = {{"bool", 1},   {"uint8", 1},   {"int8", 1},     {"int16", 2},   {"int32", 4},
                                   {"int64", 8},  {"float16", 2}, {"bfloat16", 2}, {"float32", 4}, {"float64", 8},
                                   {"uint16", 2}, {"uint32", 4},  {"uint64", 8}};

float half_to_float(uint16_t bits) {
  const uint32_t sign = (bits & 0x8000U) << 16, exponent = (bits >> 10) & 0x1FU, fraction = bits & 0x3FFU;
  if (exponent == 0) {  // zero or subnormal: fraction * 2^-24
    const float size = static_cast<float>(fraction) * 0x1p-24F;
    return sign != 0 ? -size : size;
  }
  const uint32_t wide = exponent == 31 ? 0xFFU : exponent + 112;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

float element(const char* bytes, TensorType type) {
  switch (type) {
    case TensorType::kBool:
    case TensorType::kUint8:
      return load_little_endian<uint8_t>(bytes);
    case TensorType::kInt8:
      return load_little_endian<int8_t>(bytes);
    case TensorType::kInt16:
      return load_little_endian<int16_t>(bytes);
    case TensorType::kInt32:
      return static_cast<float>(load_little_endian<int32_t>(bytes));
    case TensorType::kInt64:
      return static_cast<float>(load_little_endian<int64_t>(bytes));
    case TensorType::kFloat16:
      return half_to_float(load_little_endian<uint16_t>(bytes));
    case TensorType::kBfloat16:
      return std::bit_cast<float>(static_cast<uint32_t>(load_little_endian<uint16_t>(bytes)) << 16);
    case TensorType::kFloat32:
      return load_little_endian<float>(bytes);
    case TensorType::kFloat64:
      return static_cast<float>(load_little_endian<double>(bytes));
    case TensorType::kUint16:
      return load_little_endian<uint16_t>(bytes);
    case TensorType::kUint32:
      return static_cast<float>(load_little_endian<uint32_t>(bytes));
    case TensorType::kUint64:
      return static_cast<float>(load_little_endian<uint64_t>(bytes));
  }
  return 0;
}

// Elements from the first to behind the last, gaps included. Shape and strides have been checked.
uint64_t extent(const StoredTensor& tensor) {
  uint64_t last = 0;
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    if (tensor.shape[i] == 0) return 0;
    last += static_cast<uint64_t>(tensor.shape[i] - 1) * static_cast<uint64_t>(tensor.strides[i]);
  }
  return last + 1;
}

// Calls `use` with the offset in bytes of each element, from the first one, in C order. There is at least one.
template <typename Use>
void for_each_element(const StoredTensor& tensor, const Use& use) {
  const size_t width = tensor_type_bytes(tensor.type);
  std::vector<int64_t> index(tensor.shape.size());
  uint64_t at = 0;
  for (int64_t left = tensor.count(); left > 0; --left) {
    use(at * width);
    for (size_t i = index.size(); i > 0; --i) {
      at += static_cast<uint64_t>(tensor.strides[i - 1]);
      if (++index[i - 1] < tensor.shape[i - 1]) break;
      at -= static_cast<uint64_t>(tensor.shape[i - 1]) * static_cast<uint64_t>(tensor.strides[i - 1]);
      index[i - 1] = 0;
    }
  }
}

// Takes `wrapper` from the front of all names, and returns true, where all begin with it.
bool drop_wrapper(std::string_view wrapper, std::vector<StoredTensor>& tensors) {
  const auto has_it = [&](const StoredTensor& tensor) { return tensor.name.starts_with(wrapper); };
  if (tensors.empty() || !std::all_of(tensors.begin(), tensors.end(), has_it)) return false;
  for (StoredTensor& tensor : tensors) tensor.name.erase(0, wrapper.size());
  return true;
}

// What training in parallel, averaging and compiling put in front of all names, whichever is inside the other.
void drop_wrappers(std::vector<StoredTensor>& tensors) {
  constexpr std::string_view kParallel = "module.", kCompiled = "_orig_mod.", kAverages = "n_averaged";
  constexpr int kMostLevels = 4;  // averaged, parallel, and compiled within and around
  // PyTorch's AveragedModel has a count next to the model, which it calls as data-parallel training does.
  const auto is_count = [&](const StoredTensor& tensor) { return tensor.name == kAverages; };
  const auto is_averaged = [&](const StoredTensor& tensor) {
    return is_count(tensor) || tensor.name.starts_with(kParallel);
  };
  bool is_parallel = false;  // once: a part of the model may have this name, too
  for (int level = 0; level < kMostLevels; ++level) {
    if (drop_wrapper(kCompiled, tensors)) continue;
    const bool averaged = std::any_of(tensors.begin(), tensors.end(), is_count) && tensors.size() > 1 &&
                          std::all_of(tensors.begin(), tensors.end(), is_averaged);
    if (averaged) {
      std::erase_if(tensors, is_count);
      drop_wrapper(kParallel, tensors);
    } else if (is_parallel || !drop_wrapper(kParallel, tensors)) {
      return;
    } else {
      is_parallel = true;
    }
  }
}

// Throws for files of other programs, which a reader of safetensors would call damaged.
void refuse_other_formats(const core::ReadableFile& file) {
  constexpr const char* kExpected = "safetensors, a state dict of torch.save or a checkpoint";
  constexpr std::string_view kHdf5 = "\x89HDF\r\n\x1a\n";
  constexpr size_t kHeaderPlace = 8;  // of safetensors' JSON
  char first[kHeaderPlace + 1] = {};
  if (file.size() < sizeof(first)) return;
  file.read_at(0, std::as_writable_bytes(std::span(first)));
  if (first[0] == '\x80' && first[1] >= 2 && first[1] <= 5 && first[kHeaderPlace] != '{') {
    throw core::Error(core::ErrorCode::kUnsupported,
                      {.problem = "weights are not read from plain pickles, such as Paddle's .pdparams",
                       .where = file.path(),
                       .expected = kExpected,
                       .remedy = "write them as safetensors, under the names of the model here"});
  }
  const bool hdf5 = std::string_view(first, kHdf5.size()) == kHdf5;
  const bool onnx = file.path().ends_with(".onnx") && first[kHeaderPlace] != '{';
  if (!hdf5 && !onnx) return;
  throw core::Error(core::ErrorCode::kUnsupported,
                    {.problem = "weights are not read from files of this format, which are written for other programs",
                     .where = file.path(),
                     .expected = kExpected,
                     .actual = hdf5 ? "HDF5" : "ONNX",
                     .remedy = "name the run that it was written from, or its export as safetensors"});
}

}  // namespace

std::string_view tensor_type_name(TensorType type) {
  return kTypeInfos[static_cast<size_t>(type)].name;
}

size_t tensor_type_bytes(TensorType type) {
  return kTypeInfos[static_cast<size_t>(type)].bytes;
}

int64_t StoredTensor::count() const {
  int64_t product = 1;
  for (int64_t size : shape) product *= size;
  return product;
}

std::string describe(const StoredTensor& tensor) {
  return fmt::format("{} [{}]", tensor_type_name(tensor.type), fmt::join(tensor.shape, ", "));
}

std::string tensor_place(const std::string& path, std::string_view tensor) {
  constexpr size_t kLongest = 200;  // longest part of a name from an untrusted file in a message
  return tensor.empty() ? path : fmt::format("{}, tensor '{}'", path, tensor.substr(0, kLongest));
}

std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i > 0; --i) {
    strides[i - 1] = stride;
    if (__builtin_mul_overflow(stride, std::max<int64_t>(shape[i - 1], 1), &stride)) stride = 0;  // refused later
  }
  return strides;
}

void check_stored_tensor(const StoredTensor& tensor, uint64_t begin, uint64_t end, const std::string& path) {
  const auto error = [&](std::string problem, std::string expected = "", std::string actual = "") {
    return core::Error(core::ErrorCode::kCorruptData, {.problem = std::move(problem),
                                                       .where = tensor_place(path, tensor.name),
                                                       .expected = std::move(expected),
                                                       .actual = std::move(actual),
                                                       .remedy = "write the file again"});
  };
  if (tensor.strides.size() != tensor.shape.size()) throw error("tensor has another number of strides than sizes");
  uint64_t count = 1, last = 0;
  bool possible = true;
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    const int64_t size = tensor.shape[i], stride = tensor.strides[i];
    uint64_t reach = 0;
    possible = possible && size >= 0 && stride >= 0 &&
               !__builtin_mul_overflow(count, static_cast<uint64_t>(std::max<int64_t>(size, 1)), &count) &&
               !__builtin_mul_overflow(static_cast<uint64_t>(std::max<int64_t>(size, 1) - 1),
                                       static_cast<uint64_t>(stride), &reach) &&
               !__builtin_add_overflow(last, reach, &last);
  }
  const uint64_t width = tensor_type_bytes(tensor.type);
  if (!possible || last >= (uint64_t{1} << 60) || count > (uint64_t{1} << 60)) {
    throw error("tensor has an impossible shape", "", describe(tensor));
  }
  const uint64_t bytes = extent(tensor) * width,
                 room = begin <= end && tensor.offset >= begin && tensor.offset <= end ? end - tensor.offset : 0;
  if (bytes > room || tensor.offset < begin || tensor.offset > end) {
    throw error("tensor does not lie inside its data", fmt::format("{} bytes of {}", bytes, describe(tensor)),
                fmt::format("{}", room));
  }
  // Strides of zero would make much of little.
  if (count * width > end - begin && extent(tensor) != 0) {
    throw error("tensor has more elements than its data", fmt::format("at most {}", (end - begin) / width),
                fmt::format("{}", count));
  }
}

TensorFile::TensorFile(std::unique_ptr<core::ReadableFile> file, std::vector<StoredTensor> tensors,
                       std::map<std::string, std::string> metadata, TensorFileFormat format)
    : file_(std::move(file)), tensors_(std::move(tensors)), metadata_(std::move(metadata)), format_(format) {}

TensorFile TensorFile::with_tensors(std::vector<StoredTensor> tensors) const {
  TensorFile same = *this;
  same.tensors_ = std::move(tensors);
  return same;
}

const StoredTensor* TensorFile::find(std::string_view name) const {
  const auto found =
      std::find_if(tensors_.begin(), tensors_.end(), [&](const StoredTensor& tensor) { return tensor.name == name; });
  return found == tensors_.end() ? nullptr : &*found;
}

std::vector<char> TensorFile::read_extent(const StoredTensor& tensor) const {
  std::vector<char> bytes(tensor.count() == 0 ? 0 : extent(tensor) * tensor_type_bytes(tensor.type));
  file_->read_at(tensor.offset, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

std::vector<float> TensorFile::read_floats(const StoredTensor& tensor) const {
  const std::vector<char> bytes = read_extent(tensor);
  std::vector<float> values(static_cast<size_t>(tensor.count()));
  if (values.empty()) return values;
  if (tensor.type == TensorType::kFloat32 && tensor.strides == contiguous_strides(tensor.shape)) {
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  size_t next = 0;
  for_each_element(tensor, [&](uint64_t place) { values[next++] = element(bytes.data() + place, tensor.type); });
  return values;
}

std::string TensorFile::read_bytes(const StoredTensor& tensor) const {
  const std::vector<char> bytes = read_extent(tensor);
  const size_t width = tensor_type_bytes(tensor.type);
  std::string content;
  if (bytes.empty()) return content;
  content.reserve(static_cast<size_t>(tensor.count()) * width);
  for_each_element(tensor, [&](uint64_t place) { content.append(bytes.data() + place, width); });
  return content;
}

TensorFile open_tensor_file(const std::string& path, core::FileSystem& files) {
  if (is_tensorflow_checkpoint(path, files)) return open_tensorflow_checkpoint(path, files).tensors;
  auto file = files.open_read(path);
  std::map<std::string, std::string> metadata;
  const bool torch = looks_like_torch(*file);
  if (!torch) refuse_other_formats(*file);
  std::vector<StoredTensor> tensors = torch ? read_torch_state_dict(*file) : read_safetensors_header(*file, &metadata);
  drop_wrappers(tensors);
  return {std::move(file), std::move(tensors), std::move(metadata),
          torch ? TensorFileFormat::kTorch : TensorFileFormat::kSafetensors};
}

}  // namespace trainyard::formats
