// Hostile cases: inputs that are drawn from a seed, with the outcome that each must have. A case throws a Fault when
// the outcome is another one. What no case may do whatever it is given (crash, hang, take memory without bound) is seen
// by the program that runs them, hostile.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "trainyard/core/base/error.h"
#include "trainyard/core/random/random.h"

namespace trainyard::hostile {

class Fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline void check(bool holds, const std::string& message) {
  if (!holds) throw Fault(message);
}

// What a case has to draw from, and a folder of its own, which is empty at first and removed afterwards.
struct Case {
  core::RandomStream draw;
  std::string folder;

  // Returns a number in [0, n).
  int64_t below(int64_t n) { return static_cast<int64_t>(draw.below(static_cast<uint64_t>(n))); }
  int64_t between(int64_t low, int64_t high) { return low + below(high - low + 1); }
  std::string bytes(int64_t count) {
    std::string drawn;
    for (int64_t i = 0; i < count; ++i) drawn += static_cast<char>(draw.below(256));
    return drawn;
  }
  void flip_bit(std::string& content) {
    char& byte = content[static_cast<size_t>(below(static_cast<int64_t>(content.size())))];
    byte = static_cast<char>(byte ^ (1 << below(8)));
  }
};

// A kind of cases: returns in a word or two what was drawn, "bit flipped".
struct Kind {
  std::string_view name;
  std::string (*run)(Case& drawn);
};

std::string run_images(Case& drawn);
std::string run_records(Case& drawn);
std::string run_weights(Case& drawn);
std::string run_configs(Case& drawn);
std::string run_checkpoints(Case& drawn);

// Calls `read`, which must throw a core::Error of this code. Returns its message.
inline std::string refused(core::ErrorCode code, const std::string& what, const std::function<void()>& read) {
  try {
    read();
  } catch (const core::Error& error) {
    check(error.code() == code, what + ": expected " + std::string(core::error_code_name(code)) + ", got " +
                                    std::string(core::error_code_name(error.code())) + ": " + error.what());
    return error.what();
  }
  throw Fault(what + ": was taken");
}

// Calls `read`, which may throw a core::Error that says the input is at fault. Returns true when it threw none.
inline bool taken(const std::string& what, const std::function<void()>& read) {
  try {
    read();
  } catch (const core::Error& error) {
    check(error.code() == core::ErrorCode::kCorruptData || error.code() == core::ErrorCode::kUnsupported ||
              error.code() == core::ErrorCode::kInvalidArgument,
          what + ": refused as " + std::string(core::error_code_name(error.code())) + ": " + error.what());
    return false;
  }
  return true;
}

inline std::span<const std::byte> as_file(const std::string& content) {
  return std::as_bytes(std::span(content.data(), content.size()));
}

inline std::string as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace trainyard::hostile
