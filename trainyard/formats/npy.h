// NumPy's .npy files: one array with its type and shape (docs/formats/npy.md).
//
//   const formats::NpyArray input = formats::read_npy(*core::local_file_system().open_read("x.npy"));
//   std::span<const float> values = input.values<float>();  // throws when the file holds another type
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainyard/core/error.h"
#include "trainyard/core/file_system.h"

namespace trainyard::formats {

enum class NpyType : uint8_t { kUint8, kInt64, kFloat32, kFloat64 };

// "float32", as NumPy prints it; "<f4", as files have it; bytes of one element.
std::string_view npy_type_name(NpyType type);
std::string_view npy_type_code(NpyType type);
size_t npy_type_bytes(NpyType type);

template <typename T>
struct NpyTypeOf;
template <>
struct NpyTypeOf<uint8_t> {
  static constexpr NpyType value = NpyType::kUint8;
};
template <>
struct NpyTypeOf<int64_t> {
  static constexpr NpyType value = NpyType::kInt64;
};
template <>
struct NpyTypeOf<float> {
  static constexpr NpyType value = NpyType::kFloat32;
};
template <>
struct NpyTypeOf<double> {
  static constexpr NpyType value = NpyType::kFloat64;
};

// An array in C order: the last index runs fastest.
struct NpyArray {
  NpyType type = NpyType::kFloat32;
  std::vector<int64_t> shape;    // none: a single number
  std::vector<std::byte> bytes;  // the product of the shape times npy_type_bytes(type)

  // The elements. Throws kInvalidArgument when they are of another type.
  template <typename T>
  std::span<const T> values() const {
    check_type(NpyTypeOf<T>::value);
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }

 private:
  void check_type(NpyType asked) const;
};

// Reads format versions 1.0 and 2.0 in C order. Throws kCorruptData with path and offset when the file does not follow
// the format or its size is not that of the array, before memory for it is taken; kUnsupported for other types, Fortran
// order and big-endian numbers.
NpyArray read_npy(const core::ReadableFile& file);

// The array as the content of a file of version 1.0. `values` has the product of `shape` elements, else
// kInvalidArgument.
template <typename T>
std::string encode_npy(std::span<const int64_t> shape, std::span<const T> values);

// The part of encode_npy before the elements, which has a multiple of 64 bytes.
std::string encode_npy_header(NpyType type, std::span<const int64_t> shape, size_t count);

template <typename T>
std::string encode_npy(std::span<const int64_t> shape, std::span<const T> values) {
  std::string content = encode_npy_header(NpyTypeOf<T>::value, shape, values.size());
  content.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  return content;
}

}  // namespace trainyard::formats
