// Damaged copies of a good file or message, the same ones in every run, to show that a reader answers each of them with
// a value or a core::Error and nothing else. For tests only.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <string_view>

#include "trainyard/core/base/error.h"

namespace trainyard::formats {

// Calls `read`, which may throw a core::Error and nothing else: for fuzz targets, which any other exception ends.
inline void expect_value_or_error(const std::function<void()>& read) {
  try {
    read();
  } catch (const core::Error&) {
    // An answer as good as a value.
  }
}

// Runs a fuzz target: `read` gets the bytes as they are, and once more as `repaired` returns them, with the checksums
// or the container that a reader insists on. Returns 0.
template <typename Read, typename Repair>
int read_twice(const uint8_t* bytes, size_t size, const Read& read, const Repair& repaired) {
  const std::string content(reinterpret_cast<const char*>(bytes), size);
  read(content);
  read(repaired(content));
  return 0;
}

// Calls `read` with every shorter prefix of `good`.
inline void for_each_truncation(std::string_view good, const std::function<void(std::string_view)>& read) {
  for (size_t length = 0; length < good.size(); ++length) {
    const std::string copy(good.substr(0, length));  // of its own, so that a sanitizer sees reads behind its end
    read(copy);
  }
}

// Calls `read` with `count` copies, each with one to four changes: a byte replaced, a bit flipped, a run of bytes
// removed or doubled, or a byte set to an extreme value.
inline void for_each_mutation(std::string_view good, int count, const std::function<void(const std::string&)>& read) {
  std::mt19937_64 random(20170101);
  for (int i = 0; i < count; ++i) {
    std::string copy(good);
    for (uint64_t changes = 1 + random() % 4; changes > 0 && !copy.empty(); --changes) {
      const size_t place = random() % copy.size();
      switch (random() % 5) {
        case 0:
          copy[place] = static_cast<char>(random());
          break;
        case 1:
          copy[place] = static_cast<char>(copy[place] ^ (1 << (random() % 8)));
          break;
        case 2:
          copy.erase(place, 1 + random() % 9);
          break;
        case 3:
          copy.insert(place, copy.substr(place, 1 + random() % 9));
          break;
        default:
          copy[place] = (random() & 1) != 0 ? '\xff' : '\x7f';
      }
    }
    copy.shrink_to_fit();
    read(copy);
  }
}

}  // namespace trainyard::formats
