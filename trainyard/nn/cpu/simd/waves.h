// The order in which batch normalization reads a map: twice over every channel block, the second time from cache.
// Follows the rules of compiled_for.h.
//
// A wave is as many channel blocks (of all samples) as stay in cache between the two passes; it is cut into spans of at
// most kSpanPixels pixels, worked on in the order of memory. Spans depend on the shape only, and their sums are
// combined in order, in double: so the bits are the same for any number of threads.
#pragma once

#include <omp.h>

#include "trainyard/nn/cpu/simd/cache.h"
#include "trainyard/nn/cpu/simd/group.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {

// Pixels of one channel block: `pixels` neighbours in each of `samples` samples. `begin` and `sample_stride` count
// elements.
struct Span {
  int64_t begin, sample_stride, samples, pixels;
};

namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

constexpr int64_t kSpanPixels = 1024;  // fp32 sums of more lose digits
constexpr int64_t kGroupPixels = 256;  // small images share a span, so that sums are few compared with pixels,
constexpr int64_t kGroupSamples = 16;  // but not so many that a span is all over the memory

// Calls use<2, slot>(element) for two pixels at a time, with slot 0 and 1 in turn, and use<1, 0>(element) for the last.
template <typename Use>
[[gnu::always_inline]] inline void each_pixel(const Span& span, Use&& use) {
  for (int64_t s = 0; s < span.samples; ++s) {
    int64_t at = span.begin + s * span.sample_stride;
    const int64_t end = at + span.pixels * kLanes;
    for (; at + 4 * kLanes <= end; at += 4 * kLanes) {
      use.template operator()<2, 0>(at);
      use.template operator()<2, 1>(at + 2 * kLanes);
    }
    if (at + 2 * kLanes <= end) {
      use.template operator()<2, 0>(at);
      at += 2 * kLanes;
    }
    if (at < end) use.template operator()<1, 0>(at);
  }
}

// The spans of some neighbouring channel blocks.
class Spans {
 public:
  Spans(const MapShape& shape, int64_t first_block, int64_t blocks)
      : shape_(shape),
        first_(first_block),
        blocks_(blocks),
        parts_(larger(1, (shape.pixels() + kSpanPixels - 1) / kSpanPixels)),
        samples_(larger(1, smaller(kGroupSamples, kGroupPixels / larger(1, shape.pixels())))),
        groups_((shape.batch + samples_ - 1) / samples_) {}

  int64_t count() const { return groups_ * blocks_ * parts_; }
  // Returns the number of spans of one block.
  int64_t a_block() const { return groups_ * parts_; }
  // Returns the block of a span, counted from the first of these blocks.
  int64_t block(int64_t span) const { return span / parts_ % blocks_; }
  // Returns the index of a block's k-th span.
  int64_t of_block(int64_t block, int64_t k) const { return (k / parts_ * blocks_ + block) * parts_ + k % parts_; }
  Span operator[](int64_t span) const {
    const int64_t sample = span / parts_ / blocks_ * samples_, part = span % parts_, pixels = shape_.pixels();
    const int64_t first = pixels * part / parts_, stride = shape_.blocks() * pixels * kLanes;
    return {.begin = sample * stride + ((first_ + block(span)) * pixels + first) * kLanes,
            .sample_stride = stride,
            .samples = smaller(samples_, shape_.batch - sample),
            .pixels = pixels * (part + 1) / parts_ - first};
  }

 private:
  MapShape shape_;
  int64_t first_, blocks_;
  int64_t parts_, samples_, groups_;  // parts of a sample, samples in a span, groups of so many samples
};

// Two sums a lane.
struct Sums {
  double first[kLanes], second[kLanes];
};

// Returns the sums over a block, counted from the first of `spans`, of those of its spans.
inline Sums add_up(const Spans& spans, const Sums* sums, int64_t block) {
  Sums total = {};
  for (int64_t k = 0; k < spans.a_block(); ++k) {
    const Sums& part = sums[spans.of_block(block, k)];
    for (int64_t c = 0; c < kLanes; ++c) {
      total.first[c] += part.first[c];
      total.second[c] += part.second[c];
    }
  }
  return total;
}

// Returns how many channel blocks a wave has, of which `pixel_bytes` for each pixel shall stay in the cache.
inline int64_t blocks_a_wave(const MapShape& shape, int64_t pixel_bytes) {
  // An eighth of the last cache: the second pass writes there, too, and other programs share it. (With half of it the
  // backward pass was up to twice as slow on a busy machine.)
  const int64_t fitting = last_cache_bytes() / 8 / larger(1, shape.batch * shape.pixels() * pixel_bytes);
  return smaller(shape.blocks(), larger(1, fitting));
}

// For each block: calls collect(block, span, sums) over all its spans, then state = combine(block, total sums), then
// apply(state, span) over all spans. `pixel_bytes` is what the first pass reads for one pixel of a block.
template <typename State, typename Collect, typename Combine, typename Apply>
void in_waves(const MapShape& shape, int64_t pixel_bytes, const Collect& collect, const Combine& combine,
              const Apply& apply) {
  const int64_t blocks = shape.blocks(), wave = blocks_a_wave(shape, pixel_bytes);
  Sums* const sums = new Sums[Spans(shape, 0, wave).count()];
  State* const states = new State[wave];
#pragma omp parallel
  {
    const int64_t threads = omp_get_num_threads(), thread = omp_get_thread_num();
    for (int64_t first = 0; first < blocks; first += wave) {
      const int64_t here = smaller(wave, blocks - first);
      const Spans spans(shape, first, here);
      const int64_t begin = spans.count() * thread / threads, end = spans.count() * (thread + 1) / threads;
      for (int64_t i = begin; i < end; ++i) collect(first + spans.block(i), spans[i], sums[i]);
#pragma omp barrier
      for (int64_t b = here * thread / threads; b < here * (thread + 1) / threads; ++b) {
        states[b] = combine(first + b, add_up(spans, sums, b));
      }
#pragma omp barrier
      // Backwards, because what was read last is most likely still in cache.
      for (int64_t i = end; i-- > begin;) apply(states[spans.block(i)], spans[i]);
    }
    _mm_sfence();  // of stores past the caches
  }
  delete[] sums;
  delete[] states;
}

// The two passes of in_waves by themselves, for work that comes between them: the first one with the same sums, bit for
// bit. Calls collect(block, span, sums) over all spans, then take(block, total sums) for each block.
template <typename Collect, typename Take>
void sum_blocks(const MapShape& shape, const Collect& collect, const Take& take) {
  const Spans spans(shape, 0, shape.blocks());
  Sums* const sums = new Sums[spans.count()];
#pragma omp parallel
  {
#pragma omp for schedule(static)
    for (int64_t i = 0; i < spans.count(); ++i) collect(spans.block(i), spans[i], sums[i]);
#pragma omp for schedule(static)
    for (int64_t b = 0; b < shape.blocks(); ++b) take(b, add_up(spans, sums, b));
  }
  delete[] sums;
}

// Calls state = prepare(block) for each block, then apply(state, span) over all spans.
template <typename State, typename Prepare, typename Apply>
void apply_to_blocks(const MapShape& shape, const Prepare& prepare, const Apply& apply) {
  const Spans spans(shape, 0, shape.blocks());
  State* const states = new State[shape.blocks()];
#pragma omp parallel
  {
#pragma omp for schedule(static)
    for (int64_t b = 0; b < shape.blocks(); ++b) states[b] = prepare(b);
#pragma omp for schedule(static)
    for (int64_t i = spans.count() - 1; i >= 0; --i) apply(states[spans.block(i)], spans[i]);
    _mm_sfence();  // of stores past the caches
  }
  delete[] states;
}

}  // namespace
}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
