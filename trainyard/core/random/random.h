// Counter-based random streams: the n-th number of a stream is a pure function of (seed, name, ids, n), so the same
// numbers come out on any thread, in any order, and after a resume.
//
//   RandomStream stream(seed, "augment", {epoch, sample});
//   float p = stream.uniform();
//
// Philox 4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "trainyard/core/base/export.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::core {

// Returns one Philox 4x32 block with ten rounds.
[[nodiscard]] std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// Returns the 64-bit FNV-1a hash of `text`: the identity of a name in streams and files. It never changes, because
// checkpoints depend on it. `before` is the hash of what comes before the text.
[[nodiscard]] uint64_t stable_hash(std::string_view text, uint64_t before = 0xCBF29CE484222325);

// A stream of random numbers. Not thread-safe: make one where it is used, construction is cheap.
class RandomStream {
 public:
  // Streams of different (seed, name, ids) are independent for all practical purposes (64-bit mixed key and identity).
  RandomStream(uint64_t seed, std::string_view name, std::initializer_list<uint64_t> ids = {});

  uint32_t next_u32();
  uint64_t next_u64();
  // Returns a number in [0, 1) with 24 random bits.
  [[nodiscard]] float uniform();
  // Returns a number in [low, high).
  [[nodiscard]] float uniform(float low, float high);
  // Returns a number in [0, 1) with 53 random bits.
  [[nodiscard]] double uniform_double();
  // Returns a number in [0, n), without modulo bias (Lemire 2019). Throws kInvalidArgument when n is 0.
  [[nodiscard]] uint64_t below(uint64_t n);
  bool next_bool() { return (next_u32() & 1) != 0; }
  // Returns a normal number with mean 0 and standard deviation 1 (Box-Muller).
  [[nodiscard]] float normal();
  // Returns a normal number that is drawn again while it is outside two standard deviations (TensorFlow's
  // truncated_normal).
  [[nodiscard]] float truncated_normal();
  // Each fills out[0] to out[count - 1] with what as many calls of its single form would return, ten times as fast.
  void next_u32s(uint32_t* out, int64_t count);
  void uniforms(float low, float high, float* out, int64_t count);
  void normals(float* out, int64_t count);
  void truncated_normals(float* out, int64_t count);

 private:
  std::array<uint32_t, 2> key_;
  std::array<uint32_t, 4> counter_;
  std::array<uint32_t, 4> block_{};
  int used_ = 4;
  float spare_normal_ = 0;
  bool has_spare_normal_ = false;
};

}  // namespace trainyard::core
TRAINYARD_EXPORT_END
