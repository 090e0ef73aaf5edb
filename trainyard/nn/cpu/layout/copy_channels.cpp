// Copies between maps whose channels need not begin at the same lane. A target block takes its lanes from two
// neighbouring source blocks.
#include "trainyard/nn/cpu/simd/vector.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {

// What one target block of one sample becomes.
template <typename T>
struct Block {
  const T *low, *high;  // images of the source blocks
  T* target;
  int64_t move;  // lane 0 comes from this lane of `low`
  Bits copied, kept;
  bool accumulate;

  [[gnu::always_inline]] Floats source(int64_t pixel) const {
    return pick(load(low + pixel * kLanes), load(high + pixel * kLanes), lanes_from(move));
  }
  [[gnu::always_inline]] void put(int64_t pixel, Floats value) const {
    T* const to = target + pixel * kLanes;
    Floats old = {};
    if (accumulate || kept != 0) old = load(to);
    store(to, merged(keep(accumulate ? old + value : value, copied), keep(old, kept)));
  }
  // Returns whether the block is a whole source block, so that its bytes can be copied.
  bool is_plain() const { return copied == static_cast<Bits>(-1) && move == 0 && !accumulate; }
};

inline int64_t floor_of(int64_t channel) {
  return channel >= 0 ? channel / kLanes : (channel + 1) / kLanes - 1;
}

template <typename T>
Block<T> block_of(const CopyChannels& a, int64_t n, int64_t b) {
  const MapShape &from = a.source_shape, &to = a.target_shape;
  const auto lanes_below = [&](int64_t channel) {
    return (1U << smaller(larger(channel - b * kLanes, 0), kLanes)) - 1;
  };
  Block<T> block = {};
  block.copied = static_cast<Bits>(lanes_below(a.to + a.count) & ~lanes_below(a.to));
  block.kept = a.clear_rest ? 0 : static_cast<Bits>(channel_lanes(to, b) & ~block.copied);
  block.accumulate = a.accumulate;
  const int64_t channel = a.from + b * kLanes - a.to, low = floor_of(channel);
  block.move = channel - low * kLanes;
  // No lane is copied from a block outside of the source, so any block may be read instead.
  const auto image = [&](int64_t source) {
    const int64_t inside = smaller(larger(source, 0), from.blocks() - 1);
    return static_cast<const T*>(a.source) + (n * from.blocks() + inside) * from.pixels() * kLanes;
  };
  block.low = image(low);
  block.high = block.move == 0 ? block.low : image(low + 1);
  block.target = static_cast<T*>(a.target) + (n * to.blocks() + b) * to.pixels() * kLanes;
  return block;
}

template <typename T>
void copy_row(const Block<T>& block, int64_t first, int64_t pixels) {
  if (block.is_plain()) {
    __builtin_memcpy(block.target + first * kLanes, block.low + first * kLanes, pixels * kLanes * sizeof(T));
    return;
  }
  for (int64_t pixel = first; pixel < first + pixels; ++pixel) block.put(pixel, block.source(pixel));
}

template <typename T>
void copy(const CopyChannels& a) {
  const MapShape shape = a.target_shape;
#pragma omp parallel for collapse(3)
  for (int64_t n = 0; n < shape.batch; ++n) {
    for (int64_t b = 0; b < shape.blocks(); ++b) {
      for (int64_t y = 0; y < shape.height; ++y) {
        const Block<T> block = block_of<T>(a, n, b);
        if (block.copied == 0 && !a.clear_rest) continue;
        copy_row(block, y * shape.width, shape.width);
      }
    }
  }
}

}  // namespace

TRAINYARD_KERNEL_OF_TYPES(copy_channels, CopyChannels, copy)

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
