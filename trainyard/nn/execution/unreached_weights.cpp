#include "trainyard/nn/execution/unreached_weights.h"

#include <algorithm>

namespace trainyard::nn {
namespace {

// Returns whether place k meets a pixel. The first window whose place does not lie in front of the image decides: it
// lies further to the left than that of any later one.
bool meets_pixel(const WindowAxis& axis, int64_t k) {
  const int64_t at_first = k * axis.dilation - axis.before;
  const int64_t window = at_first >= 0 ? 0 : (-at_first + axis.stride - 1) / axis.stride;
  return window < axis.out && at_first + window * axis.stride < axis.in;
}

std::vector<bool> met_places(const WindowAxis& axis) {
  std::vector<bool> met;
  for (int64_t k = 0; k < axis.kernel; ++k) met.push_back(meets_pixel(axis, k));
  return met;
}

}  // namespace

UnreachedWeights::UnreachedWeights(const WindowAxis& rows, const WindowAxis& columns)
    : window_(rows.kernel * columns.kernel) {
  const std::vector<bool> row_meets = met_places(rows), column_meets = met_places(columns);
  int64_t place = 0;
  for (const bool row : row_meets) {
    for (const bool column : column_meets) {
      if (!row || !column) places_.push_back(place);
      ++place;
    }
  }
}

void UnreachedWeights::clear(float* weights, int64_t windows) const {
  if (places_.empty()) return;
  for (int64_t w = 0; w < windows; ++w) {
    for (const int64_t place : places_) weights[w * window_ + place] = 0;
  }
}

}  // namespace trainyard::nn
