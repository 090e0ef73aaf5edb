// Combines groups of channels into whole channel blocks. Maps are padded with zeros to whole blocks, so a grouped
// convolution can run on whole blocks: neighbouring groups become one group whose weights are zero from one to another,
// and narrow channels are padded with zero weights. The gradients of these zeros are dropped.
#pragma once

#include <cstdint>

#include "trainyard/nn/cpu/convolution/convolution.h"

namespace trainyard::nn::cpu {

struct BlockedGroups {
  int64_t count = 1;        // groups
  int64_t in = 0, out = 0;  // channels of one: multiples of the block
};

// Returns the smallest groups of whole blocks that hold the groups of `shape` and together fill the maps' padded
// channels.
BlockedGroups blocked_groups(const ConvolutionShape& shape, int64_t block);

// Returns where the weights from input channel `in` to output channel `out` (counted over all groups, pads beyond the
// last) are in the plain [out, in / groups, height, width], counted in windows; -1 when they are zero.
inline int64_t plain_window(const ConvolutionShape& s, int64_t out, int64_t in) {
  const int64_t group_out = s.out_channels / s.groups, group_in = s.in_channels / s.groups;
  if (out >= s.out_channels || in >= s.in_channels || out / group_out != in / group_in) return -1;
  return out * group_in + in % group_in;
}

}  // namespace trainyard::nn::cpu
