#include "trainyard/nn/cpu/quantized/dot.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {

template <typename Dot>
void pack(const QuantizedConvolution& a, const QuantizedConvolutionPack& pack) {
  const MapShape &in = a.input_shape, &out = a.output_shape;
  const int64_t window = a.window_pixels(), words = in.block / Dot::kInWord, blocks = out.blocks();
  auto* const packed = reinterpret_cast<typename Dot::Weight*>(pack.packed);
#pragma omp parallel for schedule(static)
  for (int64_t block = 0; block < blocks; ++block) {
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
    if (pack.offsets == nullptr) continue;
    for (int64_t o = block * kLanes; o < (block + 1) * kLanes; ++o) {
      int64_t sum = 0;
      for (int64_t i = 0; o < out.channels && i < in.channels * window; ++i) {
        sum += pack.plain[o * in.channels * window + i];
      }
      pack.offsets[o] = static_cast<int32_t>(-sum * a.input_zero);
    }
  }
}

}  // namespace

void quantized_convolution_pack(const QuantizedConvolution& a, const QuantizedConvolutionPack& pack_arguments) {
  a.vnni ? pack<DotOfBytes>(a, pack_arguments) : pack<DotOfPairs>(a, pack_arguments);
}

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
