// Reads and writes NumPy's .npy files: one array with its type and shape (docs/formats/npy.md).
//
//   const formats::NpyArray input = formats::read_npy(*core::local_file_system().open_read("x.npy"));
//   std::span<const float> values = input.values<float>();  // throws when the file holds another type
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"

namespace trainyard::formats {

enum class NpyType : uint8_t { kUint8, kInt64, kFloat32, kFloat64 };

// Return the type's name as NumPy prints it ("float32"), its code as files have it ("<f4"), and the bytes of one
// element.
[[nodiscard]] std::string_view npy_type_name(NpyType type);
[[nodiscard]] std::string_view npy_type_code(NpyType type);
[[nodiscard]] size_t npy_type_bytes(NpyType type);

template <typename T>
constexpr NpyType npy_type_of() {
  static_assert(std::is_same_v<T, uint8_t> || std::is_same_v<T, int64_t> || std::is_same_v<T, float> ||
                std::is_same_v<T, double>);
  if constexpr (std::is_same_v<T, uint8_t>) return NpyType::kUint8;
  if constexpr (std::is_same_v<T, int64_t>) return NpyType::kInt64;
  if constexpr (std::is_same_v<T, float>) return NpyType::kFloat32;
  return NpyType::kFloat64;
}

// An array in C order: the last index runs fastest.
struct NpyArray {
  NpyType type = NpyType::kFloat32;
  std::vector<int64_t> shape{};    // none: a single number
  std::vector<std::byte> bytes{};  // the product of the shape times npy_type_bytes(type)

  // Returns the elements. Throws kInvalidArgument when they are of another type.
  template <typename T>
  std::span<const T> values() const {
    check_type(npy_type_of<T>());
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }

 private:
  void check_type(NpyType asked) const;
};

// Reads format versions 1.0 and 2.0 in C order. Throws kCorruptData with path and offset when the file does not follow
// the format or its size is not that of the array, before memory for it is allocated; kUnsupported for other types,
// Fortran order and big-endian numbers.
NpyArray read_npy(const core::ReadableFile& file);

// Returns the array as the content of a file of version 1.0. `values` has the product of `shape` elements, else throws
// kInvalidArgument.
template <typename T>
std::string encode_npy(std::span<const int64_t> shape, std::span<const T> values);

// Returns the header before the elements; its length is a multiple of 64 bytes.
[[nodiscard]] std::string encode_npy_header(NpyType type, std::span<const int64_t> shape, size_t count);

template <typename T>
std::string encode_npy(std::span<const int64_t> shape, std::span<const T> values) {
  std::string content = encode_npy_header(npy_type_of<T>(), shape, values.size());
  content.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  return content;
}

}  // namespace trainyard::formats
