// The windows of attention (nn::Attention): the pixels of an image that attend to each other.
#pragma once

#include <cstdint>
#include <vector>

#include "trainyard/nn/graph/ops.h"

namespace trainyard::nn {

struct AttentionWindows {
  int64_t count = 1;             // of an image
  int64_t tokens = 1;            // pixels of a window
  std::vector<int32_t> pixels;   // [count, tokens]: row * width + column; each pixel of the image once
  std::vector<int32_t> regions;  // [count, tokens]: tokens of different numbers are not neighbours; empty: all are
};

// Returns the windows of an image of height x width, which must fit the operation. Without windows there is one, of all
// pixels.
AttentionWindows attention_windows(const Attention& op, int64_t height, int64_t width);

// Returns [window^4]: the row of the table that has the bias of query pixel i and key pixel j of a window, both counted
// row by row: (i.row - j.row + window - 1) * (2 * window - 1) + (i.column - j.column + window - 1).
std::vector<int64_t> relative_positions(int64_t window);

}  // namespace trainyard::nn
