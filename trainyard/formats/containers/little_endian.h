// Reads and writes numbers of a fixed width in little-endian byte order, which all formats here have, and all machines
// that the library runs on.
#pragma once

#include <bit>
#include <cstring>
#include <string>
#include <type_traits>

namespace trainyard::formats {

static_assert(std::endian::native == std::endian::little, "numbers are copied from and to files as they are");

// Returns the number whose bytes begin at `bytes`, which needs no alignment.
template <typename T>
T load_little_endian(const char* bytes) {
  static_assert(std::is_arithmetic_v<T>);
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

template <typename T>
void append_little_endian(std::string& bytes, T value) {
  static_assert(std::is_arithmetic_v<T>);
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

}  // namespace trainyard::formats
