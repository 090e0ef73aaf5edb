// Packs the weights of grouped convolutions of bytes.
#include "trainyard/nn/cpu/quantized/grouped_quads.h"
#include "trainyard/nn/cpu/quantized/split_depthwise.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {

// Writes four weights of an output lane.
template <typename Dot>
void put_quad(int8_t* quads, int64_t lane, const int8_t (&quad)[4]) {
  for (int64_t i = 0; i < 4; ++i) {
    const int64_t part = i % kParts<Dot>, place = part * kLanes * Dot::kInWord + lane * Dot::kInWord + i / kParts<Dot>;
    reinterpret_cast<typename Dot::Weight*>(quads)[place] = static_cast<typename Dot::Weight>(+quad[i]);
  }
}

// Sets the weights of one channel for four neighbouring pixels: those of tap `first` and of the following ones, zero
// where the row of the window has no such tap.
void set_pixel_quad(int8_t (&quad)[4], const int8_t* row, int64_t width, int64_t first) {
  for (int64_t i = 0; i < 4; ++i) quad[i] = first + i >= 0 && first + i < width ? row[first + i] : int8_t{0};
}

template <typename Dot>
void pack_depthwise(const QuantizedGroupedPack& a, int64_t b) {
  const int64_t height = a.window.kernel_height, width = a.window.kernel_width, outputs = a.piece_outputs();
  int8_t* to = a.packed + b * a.weight_bytes();
  for (int64_t ky = 0; ky < height; ++ky) {
    for (int64_t j = 0; j < a.piece_quads(); ++j) {
      for (int64_t u = 0; u < outputs; ++u, to += a.quad_bytes()) {
        for (int64_t lane = 0; lane < kLanes; ++lane) {
          const int64_t channel = b * kLanes + lane;
          int8_t quad[4] = {};
          if (channel < a.output_shape.channels) {
            set_pixel_quad(quad, a.plain + (channel * height + ky) * width, width, 4 * j - u * a.window.stride_width);
          }
          put_quad<Dot>(to, lane, quad);
        }
      }
    }
  }
}

template <typename Dot>
void pack_groups(const QuantizedGroupedPack& a, int64_t b) {
  const int64_t taps = a.window_pixels(), group_in = a.group_in();
  int8_t* to = a.packed + b * a.weight_bytes();
  for (int64_t i = 0; i < a.input_blocks(); ++i) {
    for (int64_t tap = 0; tap < taps; ++tap) {
      for (int64_t v = 0; v < a.channel_quads(); ++v, to += a.quad_bytes()) {
        for (int64_t lane = 0; lane < kLanes; ++lane) {
          const int64_t out = b * kLanes + lane;
          int8_t quad[4] = {};
          if (out < a.output_shape.channels) {
            const int64_t first = (a.inputs_of(b).first + i) * kLanes + first_of_quad(a, lane, v);
            for (int64_t c = 0; c < 4; ++c) {
              const int64_t in = first + c - out / a.group_out() * group_in;  // in its group
              if (in >= 0 && in < group_in) quad[c] = a.plain[(out * group_in + in) * taps + tap];
            }
          }
          put_quad<Dot>(to, lane, quad);
        }
      }
    }
  }
}

int32_t offset_of(const QuantizedGroupedPack& a, int64_t out) {
  if (out >= a.output_shape.channels) return 0;
  int32_t sum = 0;
  const int64_t count = a.group_in() * a.window_pixels();
  for (int64_t i = 0; i < count; ++i) sum += a.plain[out * count + i];
  return -a.input_zero * sum;
}

template <typename Dot>
void pack(const QuantizedGroupedPack& a) {
#pragma omp parallel for
  for (int64_t b = 0; b < a.output_shape.blocks(); ++b) {
    if (a.splits()) {
      pack_split(a, b);
    } else {
      a.is_depthwise() ? pack_depthwise<Dot>(a, b) : pack_groups<Dot>(a, b);
    }
    for (int64_t lane = 0; lane < kLanes; ++lane) a.offsets[b * kLanes + lane] = offset_of(a, b * kLanes + lane);
  }
}

}  // namespace

void quantized_grouped_pack(const QuantizedGroupedPack& a) {
  a.vnni ? pack<DotOfBytes>(a) : pack<DotOfPairs>(a);
}

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
