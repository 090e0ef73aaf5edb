// Computes the weighted input pixels of each output pixel along one axis: the definition of the resize methods.
#pragma once

#include <span>
#include <vector>

#include "trainyard/data/image/resize.h"
#include "trainyard/data/image/tap.h"

namespace trainyard::data {

// The taps of the outputs of one axis.
struct Axis {
  std::vector<Tap> taps;
  std::vector<int> first = {0};  // output i has taps [first[i], first[i + 1])

  void end_output() { first.push_back(static_cast<int>(taps.size())); }
  std::span<const Tap> of(int output) const { return {taps.data() + first[output], taps.data() + first[output + 1]}; }
};

// Returns the taps of the rows [begin, begin + count), when `input` rows are resized to `output` rows.
Axis make_axis(int input, int output, int begin, int count, const ResizeOptions& options);
// Returns the same for columns. With options.mirror they are those of the mirrored image.
Axis make_column_axis(int input, int output, int begin, int count, const ResizeOptions& options);

}  // namespace trainyard::data
