#include "trainyard/nn/cpu/convolution/grouped/blocked_groups.h"

namespace trainyard::nn::cpu {
namespace {

int64_t up(int64_t value, int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

BlockedGroups blocked_groups(const ConvolutionShape& s, int64_t block) {
  const int64_t all_in = up(s.in_channels, block), all_out = up(s.out_channels, block);
  const int64_t group_in = s.in_channels / s.groups, group_out = s.out_channels / s.groups;
  for (int64_t merged = 1; merged < s.groups; ++merged) {
    const BlockedGroups whole{up(s.groups, merged) / merged, merged * group_in, merged * group_out};
    if (whole.in % block != 0 || whole.out % block != 0) continue;
    if (whole.count * whole.in == all_in && whole.count * whole.out == all_out) return whole;
  }
  return {1, all_in, all_out};
}

}  // namespace trainyard::nn::cpu
