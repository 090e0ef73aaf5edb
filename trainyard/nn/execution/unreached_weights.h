// The positions of a convolution's kernel that meet no pixel of the image in any window, because of the padding: the
// outer ones of a 3x3 kernel with padding 1 on a map of one pixel. The gradients of their weights are zero by
// definition.
//
// oneDNN up to 3.10, which is in LibTorch 2.11, leaves them uninitialized in bfloat16 when the horizontal stride is
// above 1. So callers of its gradient of weights set these positions to zero.
#pragma once

#include <cstdint>
#include <vector>

namespace trainyard::nn {

// One axis of a convolution: position k of window o is pixel o * stride + k * dilation - before; pixels are 0 .. in -
// 1, windows 0 .. out - 1, positions 0 .. kernel - 1.
struct WindowAxis {
  int64_t in = 1, out = 1, kernel = 1, stride = 1, dilation = 1, before = 0;
};

class UnreachedWeights {
 public:
  UnreachedWeights() = default;  // none
  UnreachedWeights(const WindowAxis& rows, const WindowAxis& columns);

  [[nodiscard]] bool empty() const { return places_.empty(); }
  // Returns the positions within a window, row * columns.kernel + column, in ascending order.
  [[nodiscard]] const std::vector<int64_t>& places() const { return places_; }
  // Sets these positions of `windows` consecutive windows at `weights` to zero.
  void clear(float* weights, int64_t windows) const;

 private:
  int64_t window_ = 0;  // positions of a window
  std::vector<int64_t> places_{};
};

}  // namespace trainyard::nn
