// Channels in another order. A target block takes each of its lanes from one lane of one of a few source blocks.
#include "trainyard/nn/cpu/simd/pieces.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {

// Lanes of a target block that come from one source block: lane i in `lanes` is lane from[i] of block `source`.
struct Part {
  int64_t source = 0;
  Ints from = {};
  Bits lanes = 0;
};
struct Parts {
  Part parts[kLanes];
  int count = 0;

  Parts(const int32_t* channels, Bits lanes) {
    for (int64_t c = 0; c < kLanes; ++c) {
      if ((lanes >> c & 1) != 0) add(channels[c] / kLanes, static_cast<int32_t>(channels[c] % kLanes), c);
    }
  }

 private:
  void add(int64_t source, int32_t from, int64_t lane) {
    int k = 0;
    while (k < count && parts[k].source != source) ++k;
    if (k == count) parts[count++].source = source;
    parts[k].from[lane] = from;
    parts[k].lanes = static_cast<Bits>(parts[k].lanes | 1U << lane);
  }
};

template <typename T>
void permute(const PermuteChannels& a) {
  const MapShape shape = a.shape;
  const int64_t blocks = shape.blocks(), plane = shape.pixels() * kLanes;
  const T* const input = static_cast<const T*>(a.input);
  const Output<T> output(a.output, shape, a.accumulate);
  in_pieces(shape, [&](const Piece& piece) {
    const int64_t block = piece.plane % blocks, sample = piece.plane - block;
    const Parts parts(a.channels + block * kLanes, channel_lanes(shape, block));
    const int64_t begin = piece.begin - piece.plane * plane;  // in a plane
    const T* sources[kLanes];
    for (int k = 0; k < parts.count; ++k) sources[k] = input + (sample + parts.parts[k].source) * plane + begin;
    each_pixel(piece, [&](int64_t at) {
      Floats value = {};
      for (int k = 0; k < parts.count; ++k) {
        const Part& part = parts.parts[k];
        value = merged(value, keep(pick(load(sources[k] + at - piece.begin), part.from), part.lanes));
      }
      output.put_or_add(at, value, a.accumulate);
    });
  });
}

}  // namespace

TRAINYARD_KERNEL_OF_TYPES(permute_channels, PermuteChannels, permute)

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
