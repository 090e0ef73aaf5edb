// Layer norm over the channels of each pixel, forward and backward.
#include "trainyard/nn/cpu/norm/layer_norm.h"

#include "trainyard/nn/cpu/simd/output.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {

template <typename T>
void forward(const LayerNormForward& a) {
  const Output<T> output(a.output, a.shape, false);
  const auto put = [&](int64_t at, Floats value, Bits lanes) __attribute__((always_inline)) {
    output.put(at, keep(value, lanes));
  };
  for_each(a.shape.batch * pixel_tiles(a.shape), [&](int64_t i) { normalize<T>(a, pixel_tile(a.shape, i), put); });
}

// The backward keeps two sums for each pixel in registers, so its tiles have half as many pixels.
constexpr int64_t kHalf = kLanes / 2;
// The gradients of weight and bias are summed in fp32 over so many pixels, and then in double.
constexpr int64_t kChunkPixels = 128;

// Adds to `sums`, which belong to a chunk and hold for each block the weight's lanes and then the bias's.
template <bool whole, typename T>
void pass_back(const LayerNormBackward& a, const Tile& tile, const Output<T>& output, float* sums) {
  const int64_t blocks = a.shape.blocks(), pixels = a.shape.pixels(), plane = pixels * kLanes;
  const int64_t begin = (tile.sample * blocks * pixels + tile.first) * kLanes;
  const T* const input = static_cast<const T*>(a.input) + begin;
  const T* const gradient = static_cast<const T*>(a.gradient) + begin;
  const auto at = [&](int64_t b, int64_t p) __attribute__((always_inline)) {
    return b * plane + (whole ? p : tile.pixel(p)) * kLanes;
  };
  const int64_t row = tile.sample * pixels + tile.first;
  float mean[kHalf], inverse[kHalf];
  for (int64_t p = 0; p < kHalf; ++p) {
    mean[p] = a.mean[row + tile.pixel(p)];
    inverse[p] = a.inverse_deviation[row + tile.pixel(p)];
  }

  Floats both[kLanes] = {};  // the sums of d, then those of d * xhat
  for (int64_t b = 0; b < blocks; ++b) {
    const Floats weight = load_lanes(a.weight + b * kLanes, channel_lanes(a.shape, b));
    Floats weights = load(sums + 2 * b * kLanes), biases = load(sums + (2 * b + 1) * kLanes);
#pragma GCC unroll 8
    for (int64_t p = 0; p < kHalf; ++p) {
      const Floats g = load(gradient + at(b, p));
      const Floats xhat = (load(input + at(b, p)) - fill(mean[p])) * fill(inverse[p]), d = g * weight;
      both[p] += d;
      both[kHalf + p] = multiply_add(d, xhat, both[kHalf + p]);
      if (!whole && p >= tile.count) continue;
      weights = multiply_add(g, xhat, weights);
      biases += g;
    }
    store(sums + 2 * b * kLanes, weights);
    store(sums + (2 * b + 1) * kLanes, biases);
  }
  float means[kLanes];
  store(means, lane_sums(both) / fill(static_cast<float>(a.shape.channels)));

  for (int64_t b = 0; b < blocks; ++b) {
    const Bits lanes = channel_lanes(a.shape, b);
    const Floats weight = load_lanes(a.weight + b * kLanes, lanes);
#pragma GCC unroll 8
    for (int64_t p = 0; p < kHalf; ++p) {
      if (!whole && p >= tile.count) break;
      const Floats d = load(gradient + at(b, p)) * weight;
      const Floats xhat = (load(input + at(b, p)) - fill(mean[p])) * fill(inverse[p]);
      const Floats rest = multiply_add(-xhat, fill(means[kHalf + p]), d - fill(means[p]));
      output.put_or_add(begin + at(b, p), keep(rest * fill(inverse[p]), lanes), a.accumulate);
    }
  }
}

template <typename T>
void backward(const LayerNormBackward& a) {
  const int64_t pixels = a.shape.pixels(), width = 2 * a.shape.padded_channels();
  const int64_t chunks = (pixels + kChunkPixels - 1) / kChunkPixels, count = a.shape.batch * chunks;
  float* const sums = new float[count * width]();
  const Output<T> output(a.input_gradient, a.shape, a.accumulate);
  for_each(count, [&](int64_t i) {
    const int64_t end = smaller(pixels, (i % chunks + 1) * kChunkPixels);
    for (int64_t first = i % chunks * kChunkPixels; first < end; first += kHalf) {
      const Tile tile{i / chunks, first, smaller(kHalf, end - first)};
      tile.count == kHalf ? pass_back<true, T>(a, tile, output, sums + i * width)
                          : pass_back<false, T>(a, tile, output, sums + i * width);
    }
  });
#pragma omp parallel for
  for (int64_t b = 0; b < a.shape.blocks(); ++b) {
    double weights[kLanes] = {}, biases[kLanes] = {};
    for (int64_t i = 0; i < count; ++i) {
      const float* const chunk = sums + i * width + 2 * b * kLanes;
      for (int64_t c = 0; c < kLanes; ++c) {
        weights[c] += chunk[c];
        biases[c] += chunk[kLanes + c];
      }
    }
    for (int64_t c = 0; c < kLanes; ++c) {
      a.weight_gradient[b * kLanes + c] = static_cast<float>(weights[c]);
      a.bias_gradient[b * kLanes + c] = static_cast<float>(biases[c]);
    }
  }
  delete[] sums;
}

}  // namespace

TRAINYARD_KERNEL_OF_TYPES(layer_norm_forward, LayerNormForward, forward)
TRAINYARD_KERNEL_OF_TYPES(layer_norm_backward, LayerNormBackward, backward)

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
