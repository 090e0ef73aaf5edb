// The common part of the grouped convolutions: rows of an image as floats with zero padding, and numbers of a register
// copied to groups of lanes. Follows the rules of compiled_for.h.
#pragma once

#include <omp.h>

#include "trainyard/nn/cpu/simd/output.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

// Copies the i-th lane of each group of `lanes` neighbours to all lanes of the group.
template <int lanes>
struct Spread {
  Ints indices[lanes];

  Spread() {
    for (int i = 0; i < lanes; ++i) indices[i] = (lanes_from(0) & -lanes) + i;
  }
  [[gnu::always_inline]] Floats operator()(Floats value, int i) const {
    return lanes == 1 ? value : pick(value, indices[i]);
  }
};

using Size = decltype(sizeof(0));

// A thread's part of the scratch memory, and the rows of one block's image in it. Row r is stored at r modulo the
// number of rows that are kept, until another replaces it.
template <typename T>
class Rows {
 public:
  // `margin` pixels of zeros precede each row. Rows of the image have `width` pixels.
  Rows(const GroupedConvolution& a, int64_t margin, int64_t width)
      : count_(a.kept_rows()), pixels_(a.row_pixels()), margin_(margin), width_(width) {
    rows_ = static_cast<float*>(a.scratch) + omp_get_thread_num() * thread_stride(a.thread_scratch() * 4) / 4;
    sums_ = rows_ + count_ * pixels_ * kLanes;
    held_ = reinterpret_cast<int64_t*>(sums_ + a.sum_pixels() * kLanes);
    const int64_t after = (pixels_ - margin_ - width_) * kLanes;
    for (int64_t i = 0; i < count_; ++i) {
      float* const row = rows_ + i * pixels_ * kLanes;
      __builtin_memset(row, 0, static_cast<Size>(margin_ * kLanes) * sizeof(float));
      __builtin_memset(row + (margin_ + width_) * kLanes, 0, static_cast<Size>(after) * sizeof(float));
    }
    invalidate();
  }

  // Drops all rows, for another image.
  void invalidate() {
    for (int64_t i = 0; i < count_; ++i) held_[i] = -1;
  }
  // Returns row `row` of `image`, from its margin on.
  const float* get(const T* image, int64_t row) {
    const int64_t place = row % count_;
    float* const begin = rows_ + place * pixels_ * kLanes;
    if (held_[place] != row) {
      const T* const from = image + row * width_ * kLanes;
      float* const to = begin + margin_ * kLanes;
      for (int64_t x = 0; x < width_; ++x) store(to + x * kLanes, load(from + x * kLanes));
      held_[place] = row;
    }
    return begin;
  }
  float* sums() const { return sums_; }
  // Returns spare words: one for each row of a window, and one for each of its columns in each phase.
  int64_t* words() const { return held_ + count_; }

 private:
  int64_t count_, pixels_, margin_, width_;
  float *rows_, *sums_;
  int64_t* held_;
};

// Calls use(constant) with `lanes` as a number known when compiling.
template <int value>
struct Lanes {
  static constexpr int kValue = value;
};
template <typename Use>
inline void with_lanes(int64_t lanes, const Use& use) {
  if (lanes == 1) return use(Lanes<1>());
  if (lanes == 2) return use(Lanes<2>());
  if (lanes == 4) return use(Lanes<4>());
#if defined(TRAINYARD_KERNELS_AVX512)
  if (lanes == 8) return use(Lanes<8>());
#endif
  use(Lanes<static_cast<int>(kLanes)>());
}

}  // namespace
}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
