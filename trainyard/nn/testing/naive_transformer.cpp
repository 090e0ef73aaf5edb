#include <cmath>

#include "trainyard/nn/testing/naive_call.h"

namespace trainyard::nn::naive {

Values run(const LayerNorm& op, const Call& call) {
  const Shape& in = call.x().shape;
  const auto channels = static_cast<size_t>(in[0]), pixels = static_cast<size_t>(count(in)) / channels;
  return each_value(call, [&](size_t i) {
    const size_t n = i / (channels * pixels), p = i % pixels;
    const auto x = [&](size_t c) { return call.x().data[(n * channels + c) * pixels + p]; };
    double mean = 0, variance = 0;
    for (size_t c = 0; c < channels; ++c) mean += x(c) / static_cast<double>(channels);
    for (size_t c = 0; c < channels; ++c) variance += (x(c) - mean) * (x(c) - mean) / static_cast<double>(channels);
    const size_t c = i / pixels % channels;
    return (x(c) - mean) / std::sqrt(variance + op.epsilon) * call.parameters[0][c] + call.parameters[1][c];
  });
}

Values run(const LayerScale&, const Call& call) {
  return each_pixel(call, [&](int64_t n, int64_t c, int64_t h, int64_t w) {
    return call.pixel(n, c, h, w) * call.parameters[0][static_cast<size_t>(c)];
  });
}

Values run(const ClassToken&, const Call& call) {
  const int64_t width = call.x().shape[2];
  return each_pixel(call, [&](int64_t n, int64_t c, int64_t token, int64_t) {
    return token == 0 ? call.parameters[0][static_cast<size_t>(c)]
                      : call.pixel(n, c, (token - 1) / width, (token - 1) % width);
  });
}

Values run(const PositionEmbedding&, const Call& call) {
  const int64_t channels = call.x().shape[0];
  return each_pixel(call, [&](int64_t n, int64_t c, int64_t token, int64_t) {
    return call.pixel(n, c, token, 0) + call.parameters[0][static_cast<size_t>(token * channels + c)];
  });
}

namespace {

// Two pixels of an image of `extent` rows (or columns) that was moved by `shift`: the distance of query and key where
// they share a window; otherwise none. `wrapped`: only because the image wraps around its edge.
struct Pair {
  bool share = false, wrapped = false;
  int64_t distance = 0;
};

Pair pair_of(int64_t query, int64_t key, int64_t extent, int64_t window, int64_t shift) {
  if (window >= extent) shift = 0;
  const int64_t q = (query - shift + extent) % extent, k = (key - shift + extent) % extent;
  // Moved rows below `shift` in the image ended behind the others.
  return {q / window == k / window, (query < shift) != (key < shift), q - k};
}

}  // namespace

Values run(const Attention& op, const Call& call) {
  const Shape& in = call.x().shape;
  const int64_t channels = in[0] / 3, depth = channels / op.heads, pixels = in[1] * in[2];
  return each_pixel(call, [&](int64_t n, int64_t c, int64_t y, int64_t x) {
    // The window of the whole image, when only its first pixels have queries.
    const int64_t query = y * call.node.shape[2] + x, h = query / in[2], w = query % in[2];
    const int64_t head = c / depth;
    double total = 0, sum = 0;
    for (int64_t key = 0; key < pixels; ++key) {
      const int64_t row = key / in[2], column = key % in[2];
      double score = 0;
      for (int64_t d = head * depth; d < (head + 1) * depth; ++d) {
        score +=
            call.pixel(n, d, h, w) * call.pixel(n, channels + d, row, column) / std::sqrt(static_cast<double>(depth));
      }
      if (op.window > 0) {
        const Pair rows = pair_of(h, row, in[1], op.window, op.shift);
        const Pair columns = pair_of(w, column, in[2], op.window, op.shift);
        if (!rows.share || !columns.share) continue;
        const int64_t side = 2 * op.window - 1;
        const int64_t place = (rows.distance + op.window - 1) * side + columns.distance + op.window - 1;
        score += call.parameters[0][static_cast<size_t>(place * op.heads + head)];
        if (rows.wrapped || columns.wrapped) score -= 100;
      }
      total += std::exp(score);
      sum += std::exp(score) * call.pixel(n, 2 * channels + c, row, column);
    }
    return sum / total;
  });
}

Values run(const PatchMerge&, const Call& call) {
  const int64_t channels = call.x().shape[0];
  return each_pixel(call, [&](int64_t n, int64_t c, int64_t h, int64_t w) {
    const int64_t quarter = c / channels, row = 2 * h + quarter % 2, column = 2 * w + quarter / 2;
    return call.inside(row, column) ? call.pixel(n, c % channels, row, column) : 0.0;
  });
}

}  // namespace trainyard::nn::naive
