#include "trainyard/nn/cpu/quantized/clipped_products.h"
#include "trainyard/nn/cpu/quantized/winograd_transforms.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {

template <typename Dot>
void pack_block(const QuantizedConvolution& a, const QuantizedConvolutionPack& pack, int64_t block) {
  const MapShape &in = a.input_shape, &out = a.output_shape;
  const int64_t window = a.window_pixels(), words = in.block / Dot::kInWord, blocks = out.blocks();
  auto* const packed = reinterpret_cast<typename Dot::Weight*>(pack.packed);
  const int64_t panel = block / kQuantizedPanelBlocks * kQuantizedPanelBlocks;
  const int64_t of_panel = smaller(kQuantizedPanelBlocks, blocks - panel), steps = in.blocks() * window * words;
  for (int64_t step = 0; step < steps; ++step) {
    const int64_t word = step % words, place = step / words % window, in_block = step / words / window;
    auto* const to = packed + (panel * steps + step * of_panel + block - panel) * kLanes * Dot::kInWord;
    for (int64_t i = 0; i < kLanes * Dot::kInWord; ++i) {
      const int64_t o = block * kLanes + i / Dot::kInWord,
                    c = in_block * in.block + word * Dot::kInWord + i % Dot::kInWord;
      const bool inside = o < out.channels && c < in.channels;
      to[i] = inside ? pack.plain[(o * in.channels + c) * window + place] : typename Dot::Weight{0};
    }
  }
}

// Returns what is added to the products of four weights: nothing where these stay in 16 bits anyway.
int64_t center_of(const int64_t (&weights)[4]) {
  int64_t least = 0, most = 0;
  for (const int64_t weight : weights) {
    least += smaller(weight, 0) * kMostNear;
    most += larger(weight, 0) * kMostNear;
  }
  return least >= -32768 && most <= 32767 ? 0 : -(least + most) / 2;
}

// Packs the bytes, their centers, and what these add to an output's sum.
void pack_clipped_block(const QuantizedConvolution& a, const QuantizedConvolutionPack& pack, int64_t block) {
  const MapShape &in = a.input_shape, &out = a.output_shape;
  const ClippedWeights packed(a, pack.packed);
  QuantizedConvolutionPack bytes = pack;
  bytes.packed = packed.weights;
  pack_block<DotOfClipped>(a, bytes, block);

  const int64_t panel = block / kQuantizedPanelBlocks * kQuantizedPanelBlocks;
  const int64_t of_panel = smaller(kQuantizedPanelBlocks, out.blocks() - panel), steps = in.padded_channels() / 8;
  for (int64_t o = block * kLanes; o < (block + 1) * kLanes; ++o) {
    int64_t sum = 0, all_centers = 0;
    const auto weight = [&](int64_t c) {
      return o < out.channels && c < in.channels ? int64_t{pack.plain[o * in.channels + c]} : 0;
    };
    for (int64_t c = 0; c < in.padded_channels(); ++c) sum += weight(c);
    for (int64_t step = 0; step < steps; ++step) {
      for (int64_t half = 0; half < 2; ++half) {
        const int64_t c = step * 8 + half * 2;
        const int64_t center = center_of({weight(c), weight(c + 1), weight(c + 4), weight(c + 5)});
        all_centers += center;
        packed.centers[(panel * steps + step * of_panel + block - panel) * 2 * kLanes + o % kLanes * 2 + half] =
            static_cast<int16_t>(center);
      }
    }
    packed.corrections[o] = static_cast<int32_t>(first_of_near(a.input_zero) * sum - all_centers);
  }
}

// Transforms the filter of a channel pair; point i is written to to[i * step].
void transform_filter(const int8_t* filter, int16_t* to, int64_t step) {
  int32_t columns[3][kWinogradSide];
  for (int j = 0; j < 3; ++j) {
    const int32_t column[3] = {filter[j], filter[3 + j], filter[6 + j]};
    transform_filter(column, columns[j]);
  }
  for (int i = 0; i < kWinogradSide; ++i) {
    const int32_t row[3] = {columns[0][i], columns[1][i], columns[2][i]};
    int32_t made[kWinogradSide];
    transform_filter(row, made);
    for (int j = 0; j < kWinogradSide; ++j) to[(i * kWinogradSide + j) * step] = static_cast<int16_t>(made[j]);
  }
}

// Packs for each point what pack_block() does for a 1x1 window, of pairs of blocks.
void pack_winograd_block(const QuantizedConvolution& a, const QuantizedConvolutionPack& pack, int64_t block) {
  const MapShape &in = a.input_shape, &out = a.output_shape;
  const int64_t blocks = out.blocks(), words = a.block_pairs() * kLanes;  // of two channels
  const int64_t panel = block / kQuantizedPanelBlocks * kQuantizedPanelBlocks;
  const int64_t of_panel = smaller(kQuantizedPanelBlocks, blocks - panel), point = blocks * words * 2 * kLanes;
  const int8_t none[9] = {};
  for (int64_t word = 0; word < words; ++word) {
    auto* const to =
        reinterpret_cast<int16_t*>(pack.packed) + (panel * words + word * of_panel + block - panel) * 2 * kLanes;
    for (int64_t i = 0; i < 2 * kLanes; ++i) {
      const int64_t o = block * kLanes + i / 2, c = word * 2 + i % 2;
      const bool inside = o < out.channels && c < in.channels;
      transform_filter(inside ? pack.plain + (o * in.channels + c) * 9 : none, to + i, point);
    }
  }
}

void set_offsets(const QuantizedConvolution& a, const QuantizedConvolutionPack& pack, int64_t block) {
  const int64_t terms = a.input_shape.channels * a.window_pixels();
  for (int64_t o = block * kLanes; o < (block + 1) * kLanes; ++o) {
    int64_t sum = 0;
    for (int64_t i = 0; o < a.output_shape.channels && i < terms; ++i) sum += pack.plain[o * terms + i];
    pack.offsets[o] = static_cast<int32_t>(-sum * a.input_zero);
  }
}

}  // namespace

void quantized_convolution_pack(const QuantizedConvolution& a, const QuantizedConvolutionPack& pack) {
  const auto pack_one = a.winograd  ? pack_winograd_block
                        : a.clipped ? pack_clipped_block
                        : a.vnni    ? pack_block<DotOfBytes>
                                    : pack_block<DotOfPairs>;
#pragma omp parallel for schedule(static)
  for (int64_t block = 0; block < a.output_shape.blocks(); ++block) {
    pack_one(a, pack, block);
    if (pack.offsets != nullptr) set_offsets(a, pack, block);
  }
}

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
