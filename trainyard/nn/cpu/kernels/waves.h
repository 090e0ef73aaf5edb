// How batch normalization walks over a map: twice over every channel block, the second time from cache. With
// compiled_for.h's rules.
//
// A wave is as many channel blocks (of all samples) as stay in cache between the two passes; it is cut into pieces of
// at most kPiecePixels pixels. Pieces depend on the shape only, their sums are combined in order, in double: the same
// bits for any number of threads.
#pragma once

#include <omp.h>
#include <unistd.h>

#include "trainyard/nn/cpu/kernels/vector.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {

// Pixels of one channel block: `pixels` neighbours in each of `samples` samples. In elements.
struct Span {
  int64_t begin, sample_stride, samples, pixels;
};

namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

constexpr int64_t kPiecePixels = 1024;  // fp32 sums of more lose digits

// Calls use<4>(element) for four pixels at a time, use<1>(element) for the rest.
template <typename Use>
[[gnu::always_inline]] inline void each_pixel(const Span& span, Use&& use) {
  for (int64_t s = 0; s < span.samples; ++s) {
    int64_t at = span.begin + s * span.sample_stride;
    const int64_t end = at + span.pixels * kLanes;
    for (; at + 4 * kLanes <= end; at += 4 * kLanes) use.template operator()<4>(at);
    for (; at < end; at += kLanes) use.template operator()<1>(at);
  }
}

// The pieces of a channel block: parts of a sample, or several small samples.
class Pieces {
 public:
  explicit Pieces(const MapShape& shape)
      : shape_(shape),
        parts_(larger(1, (shape.pixels() + kPiecePixels - 1) / kPiecePixels)),
        samples_(larger(1, kPiecePixels / larger(1, shape.pixels()))) {}

  int64_t count() const { return parts_ * ((shape_.batch + samples_ - 1) / samples_); }
  Span of(int64_t block, int64_t piece) const {
    const int64_t sample = piece / parts_ * samples_, part = piece % parts_, pixels = shape_.pixels();
    const int64_t first = pixels * part / parts_, stride = shape_.blocks() * pixels * kLanes;
    return {.begin = sample * stride + (block * pixels + first) * kLanes,
            .sample_stride = stride,
            .samples = smaller(samples_, shape_.batch - sample),
            .pixels = pixels * (part + 1) / parts_ - first};
  }

 private:
  MapShape shape_;
  int64_t parts_, samples_;  // parts a sample, or samples a piece
};

// Two sums a lane, of one piece.
struct Sums {
  double first[kLanes], second[kLanes];
};

inline Sums add_up(const Sums* pieces, int64_t count) {
  Sums total = {};
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t c = 0; c < kLanes; ++c) {
      total.first[c] += pieces[i].first[c];
      total.second[c] += pieces[i].second[c];
    }
  }
  return total;
}

// Half of the last cache shared by all threads; the other half is for what the second pass writes.
inline int64_t wave_bytes() {
  const int64_t cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return (cache > 0 ? cache : int64_t{16} << 20) / 2;
}

// For each block: collect(block, span, sums of that piece) over all its pieces, then
// state = combine(block, its pieces' sums, whether this thread shall write down the block's results), then
// apply(state, block, span) over all pieces. `pixel_bytes`: what the first pass reads for a pixel of a block.
template <typename Collect, typename Combine, typename Apply>
void in_waves(const MapShape& shape, int64_t pixel_bytes, const Collect& collect, const Combine& combine,
              const Apply& apply) {
  const Pieces pieces(shape);
  const int64_t blocks = shape.blocks(), per_block = pieces.count();
  const int64_t block_bytes = larger(1, shape.batch * shape.pixels() * pixel_bytes);
  const int64_t wave = smaller(blocks, larger(1, wave_bytes() / block_bytes));
  // Two waves': a thread may be one wave ahead of another that still reads.
  Sums* const scratch = new Sums[2 * wave * per_block];
#pragma omp parallel
  {
    const int64_t threads = omp_get_num_threads(), thread = omp_get_thread_num();
    Sums* sums = scratch;
    for (int64_t first = 0; first < blocks; first += wave) {
      const int64_t tasks = smaller(wave, blocks - first) * per_block;
      const int64_t begin = tasks * thread / threads, end = tasks * (thread + 1) / threads;
      for (int64_t i = begin; i < end; ++i) {
        const int64_t block = first + i / per_block;
        collect(block, pieces.of(block, i % per_block), sums[i]);
      }
#pragma omp barrier
      // Backwards: what was read last is in cache most surely.
      for (int64_t i = end; i > begin;) {
        const int64_t in_wave = (i - 1) / per_block, block = first + in_wave, start = in_wave * per_block;
        const auto state = combine(block, sums + start, start >= begin);
        for (; i > larger(begin, start); --i) apply(state, block, pieces.of(block, i - 1 - start));
      }
      sums = sums == scratch ? scratch + wave * per_block : scratch;
    }
  }
  delete[] scratch;
}

}  // namespace
}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
