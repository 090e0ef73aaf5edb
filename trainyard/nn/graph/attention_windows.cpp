#include "trainyard/nn/graph/attention_windows.h"

#include <numeric>

namespace trainyard::nn {
namespace {

// The region of a row or column in a shifted image: 0 before the last window, 1 in it, 2 in the part of it that came
// around the edge.
int32_t part_of(int64_t place, int64_t extent, int64_t window, int64_t shift) {
  return (place >= extent - window ? 1 : 0) + (place >= extent - shift ? 1 : 0);
}

}  // namespace

AttentionWindows attention_windows(const Attention& op, int64_t height, int64_t width) {
  AttentionWindows windows;
  if (op.window == 0) {
    windows.tokens = height * width;
    windows.pixels.resize(static_cast<size_t>(windows.tokens));
    std::iota(windows.pixels.begin(), windows.pixels.end(), 0);
    return windows;
  }
  const int64_t rows = height / op.window, columns = width / op.window;
  const int64_t down = rows > 1 ? op.shift : 0, right = columns > 1 ? op.shift : 0;
  windows.count = rows * columns;
  windows.tokens = op.window * op.window;
  for (int64_t w = 0; w < windows.count; ++w) {
    for (int64_t t = 0; t < windows.tokens; ++t) {
      const int64_t row = w / columns * op.window + t / op.window, column = w % columns * op.window + t % op.window;
      windows.pixels.push_back(static_cast<int32_t>((row + down) % height * width + (column + right) % width));
      if (down == 0 && right == 0) continue;
      windows.regions.push_back((down > 0 ? 3 * part_of(row, height, op.window, down) : 0) +
                                (right > 0 ? part_of(column, width, op.window, right) : 0));
    }
  }
  return windows;
}

std::vector<int64_t> relative_positions(int64_t window) {
  std::vector<int64_t> places;
  const int64_t pixels = window * window;
  for (int64_t i = 0; i < pixels; ++i) {
    for (int64_t j = 0; j < pixels; ++j) {
      const int64_t rows = i / window - j / window + window - 1, columns = i % window - j % window + window - 1;
      places.push_back(rows * (2 * window - 1) + columns);
    }
  }
  return places;
}

}  // namespace trainyard::nn
