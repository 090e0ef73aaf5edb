// Reads files of named tensors: safetensors (safetensors.h), PyTorch's state dicts (torch_state_dict.h) and
// TensorFlow's checkpoints (tensorflow_checkpoint.h).
//
//   const formats::TensorFile file = formats::open_tensor_file("resnet50.pth");
//   for (const formats::StoredTensor& tensor : file.tensors()) use(tensor.name, file.read_floats(tensor));
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/export.h"
#include "trainyard/core/files/file_system.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::formats {

enum class TensorType : uint8_t {
  kBool,
  kUint8,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kFloat16,
  kBfloat16,
  kFloat32,
  kFloat64,
  kUint16,
  kUint32,
  kUint64
};

std::string_view tensor_type_name(TensorType type);  // "float32", as PyTorch prints it
size_t tensor_type_bytes(TensorType type);           // of one element

struct StoredTensor {
  std::string name{};
  TensorType type = TensorType::kFloat32;
  std::vector<int64_t> shape{};    // none: a single number
  std::vector<int64_t> strides{};  // in elements, none negative; one for each dimension
  uint64_t offset = 0;             // of the first element in the file, bytes

  int64_t count() const;  // elements
};

// Tensors with more dimensions are an error: in a pickle many tensors may share one long list of sizes, which each of
// them would copy.
inline constexpr size_t kMaxDimensions = 64;

// Returns "float32 [64, 3, 7, 7]".
[[nodiscard]] std::string describe(const StoredTensor& tensor);

// Returns the place of an error for its message: "resnet50.pth, tensor 'fc.weight'", or the file alone without a
// tensor.
[[nodiscard]] std::string tensor_place(const std::string& path, std::string_view tensor);

// Returns the strides of an array in C order.
[[nodiscard]] std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& shape);

// What a file was written as. The names and layouts of TensorFlow's tensors are not those of the other formats.
enum class TensorFileFormat : uint8_t { kSafetensors, kTorch, kTensorFlow };

// The tensors of a file, which have been checked to be inside of it. Copies share the open file. Any thread may use it.
class TensorFile {
 public:
  TensorFile(std::unique_ptr<core::ReadableFile> file, std::vector<StoredTensor> tensors,
             std::map<std::string, std::string> metadata = {},
             TensorFileFormat format = TensorFileFormat::kSafetensors);

  // Returns the same file with other names and layouts: the places of `tensors` must be those of this file's tensors.
  [[nodiscard]] TensorFile with_tensors(std::vector<StoredTensor> tensors) const;

  const std::string& path() const { return file_->path(); }
  const std::vector<StoredTensor>& tensors() const { return tensors_; }  // in the file's order
  // Returns the metadata of safetensors files, texts by name; "global_step" of TensorFlow's checkpoints that have one.
  // State dicts have none.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  TensorFileFormat format() const { return format_; }
  const StoredTensor* find(std::string_view name) const;  // null when there is none

  // Returns the elements in C order, as float32. 16-bit types are exact; integers are exact if float32 can represent
  // them; float64 is rounded.
  [[nodiscard]] std::vector<float> read_floats(const StoredTensor& tensor) const;
  // Returns the elements in C order as they are stored, each in little-endian order.
  [[nodiscard]] std::string read_bytes(const StoredTensor& tensor) const;

 private:
  std::vector<char> read_extent(const StoredTensor& tensor) const;

  std::shared_ptr<const core::ReadableFile> file_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, std::string> metadata_;
  TensorFileFormat format_ = TensorFileFormat::kSafetensors;
};

// Opens a file of one of the formats. Its first bytes decide, not its name; but TensorFlow's checkpoints are known by
// their names (is_tensorflow_checkpoint()), and are given as find_tensorflow_checkpoint() takes them. Removes "module."
// and "_orig_mod." in front of all names, which data-parallel training and torch.compile add. Executes nothing in the
// file, and allocates no more than the file's size. Throws kNotFound, kUnsupported, kCorruptData naming the tensor.
TensorFile open_tensor_file(const std::string& path, core::FileSystem& files = core::local_file_system());

// Throws kCorruptData unless shape and strides are valid and all elements are within the bytes [begin, end) of the
// file. For the readers of all formats.
void check_stored_tensor(const StoredTensor& tensor, uint64_t begin, uint64_t end, const std::string& path);

}  // namespace trainyard::formats
TRAINYARD_EXPORT_END
