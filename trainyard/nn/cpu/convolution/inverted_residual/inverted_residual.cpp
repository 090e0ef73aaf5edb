#include "trainyard/nn/cpu/convolution/inverted_residual/inverted_residual.h"

#include <algorithm>

#include <c10/util/BFloat16.h>

#include "trainyard/nn/cpu/simd/isa.h"

namespace trainyard::nn::cpu {

namespace avx512 {
void inverted_residual_forward(const InvertedResidualForward& a);
void bf16_inverted_residual_forward(const InvertedResidualForward& a);
}  // namespace avx512

namespace {

constexpr int64_t kPanelBlocks = 2;  // as in kernel.h
constexpr int64_t kScratchAlignment = 64;
// The expanded rows that a thread keeps fit its first cache twice, or its second one together with the hidden maps of a
// band and the weights.
constexpr int64_t kRingBytes = 64 << 10, kHiddenBytes = 384 << 10;
// Output maps of at most so many pixels are shared out by channels where images are few: their bands would have few
// rows, and the rows next to a band are expanded twice.
constexpr int64_t kSharedPixels = 14 * 14;

int64_t channel_blocks(int64_t channels) {
  return (channels + channel_block() - 1) / channel_block();
}

int64_t multiple_of(int64_t value, int64_t to) {
  return (value + to - 1) / to * to;
}

}  // namespace

bool has_inverted_residual(DataType dtype) {
  return isa() == Isa::kAvx512Bf16 || (isa() == Isa::kAvx512 && dtype == DataType::kFloat);
}

InvertedResidualPlan plan_inverted_residual(const InvertedResidualShape& s, DataType dtype, int64_t threads) {
  InvertedResidualPlan plan;
  const int64_t row_hidden = channel_blocks(s.hidden_channels) * channel_block() * s.out_width * size_of(dtype);
  plan.shared = threads > 1 && s.out_height * s.out_width <= kSharedPixels && s.batch < 2 * threads;
  if (!plan.shared) {
    plan.bands = std::max<int64_t>(1, (row_hidden * s.out_height + kHiddenBytes - 1) / kHiddenBytes);
    // All threads have the same number of rows, or so many bands that the rest does not matter.
    while (s.batch * plan.bands < 8 * threads && s.batch * plan.bands % threads != 0) ++plan.bands;
    plan.bands = std::min(plan.bands, s.out_height);
  }
  const int64_t band_rows = (s.out_height + plan.bands - 1) / plan.bands;
  const int64_t right = std::max<int64_t>(0, (s.out_width - 1) * s.stride + 3 - s.left - s.in_width);
  const int64_t pitch = (s.left + s.in_width + right) * channel_block() * int64_t{sizeof(float)};
  const int64_t fitting = std::max<int64_t>(3 + s.stride, kRingBytes / (kPanelBlocks * pitch));
  plan.ring_rows = std::min((band_rows - 1) * s.stride + 3, fitting);
  plan.thread_bytes = multiple_of(pitch + kPanelBlocks * pitch * plan.ring_rows, kScratchAlignment);
  if (plan.shared) {
    plan.shared_bytes = multiple_of(s.batch * row_hidden * s.out_height, kScratchAlignment);
  } else {
    plan.thread_bytes = multiple_of(plan.thread_bytes + row_hidden * band_rows, kScratchAlignment);
  }
  return plan;
}

int64_t pointwise_elements(int64_t in_channels, int64_t out_channels) {
  return channel_blocks(in_channels) * channel_blocks(out_channels) * channel_block() * channel_block();
}

int64_t depthwise_elements(int64_t channels) {
  return channel_blocks(channels) * channel_block() * 9;
}

void pack_pointwise(const float* plain, int64_t in_channels, int64_t out_channels, DataType dtype, void* packed) {
  const int64_t lanes = channel_block(), step = dtype == DataType::kFloat ? 1 : 2;
  const int64_t in = channel_blocks(in_channels) * lanes, out_blocks = channel_blocks(out_channels);
  int64_t at = 0;
  const auto put = [&](float value) {
    if (dtype == DataType::kFloat) {
      static_cast<float*>(packed)[at++] = value;
    } else {
      static_cast<c10::BFloat16*>(packed)[at++] = c10::BFloat16(value);
    }
  };
  for (int64_t panel = 0; panel < out_blocks; panel += kPanelBlocks) {
    const int64_t outs = std::min(kPanelBlocks, out_blocks - panel) * lanes;
    for (int64_t k = 0; k < in; k += step) {
      for (int64_t lane = 0; lane < outs; ++lane) {
        for (int64_t i = k; i < k + step; ++i) {
          const int64_t out = panel * lanes + lane;
          put(i < in_channels && out < out_channels ? plain[out * in_channels + i] : 0);
        }
      }
    }
  }
}

void pack_depthwise(const float* plain, int64_t channels, float* packed) {
  const int64_t lanes = channel_block();
  for (int64_t block = 0; block < channel_blocks(channels); ++block) {
    for (int64_t tap = 0; tap < 9; ++tap) {
      for (int64_t c = block * lanes; c < (block + 1) * lanes; ++c) {
        *packed++ = c < channels ? plain[c * 9 + tap] : 0;
      }
    }
  }
}

void inverted_residual(const InvertedResidualForward& a, DataType dtype) {
  if (dtype == DataType::kBfloat16) {
    avx512::bf16_inverted_residual_forward(a);
  } else {
    avx512::inverted_residual_forward(a);
  }
}

}  // namespace trainyard::nn::cpu
