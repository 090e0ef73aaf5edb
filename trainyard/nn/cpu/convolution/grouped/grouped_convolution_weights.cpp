// Convolution on lanes, backward to the weights. A thread sums a pair of an output and an input block over a piece of
// the batch; the pieces, whose number does not depend on the threads', are added up at the end.
#include "trainyard/nn/cpu/convolution/grouped/grouped_rows.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {

using Task = GroupedConvolutionBackwardWeights;

#if defined(TRAINYARD_KERNELS_AVX512)
constexpr int kSums = 24;  // that registers have room for
#else
constexpr int kSums = 12;
#endif

// A row of the output: its pixels' gradients, and the input's pixels for the first column of a window.
struct Row {
  const float *gradients, *input;
  int64_t count, step, dilation;  // the last two in floats
};

// Computes sums[column][o] += input * gradient of the o-th channel, over the row, for `columns` columns of a window.
template <int lanes, int columns>
[[gnu::always_inline]] inline void add_row(const Row& row, const Spread<lanes>& spread, float* sums) {
  Floats kept[columns][lanes];
  for (int k = 0; k < columns; ++k) {
    for (int o = 0; o < lanes; ++o) kept[k][o] = load(sums + (k * lanes + o) * kLanes);
  }
  for (int64_t x = 0; x < row.count; ++x) {
    const float* const from = row.gradients + x * kLanes;
    Floats inputs[columns], gradients = {};
    for (int k = 0; k < columns; ++k) inputs[k] = load(row.input + x * row.step + k * row.dilation);
    if constexpr (lanes < kLanes) gradients = load(from);
    for (int o = 0; o < lanes; ++o) {
      Floats gradient;
      if constexpr (lanes < kLanes) {
        gradient = spread(gradients, o);
      } else {
        gradient = fill(from[o]);
      }
      for (int k = 0; k < columns; ++k) kept[k][o] = multiply_add(inputs[k], gradient, kept[k][o]);
    }
  }
  for (int k = 0; k < columns; ++k) {
    for (int o = 0; o < lanes; ++o) store(sums + (k * lanes + o) * kLanes, kept[k][o]);
  }
}

// Does the same for depthwise windows whose columns, and whose neighbours, are a pixel apart: what one pixel of the
// output loads of the input serves its neighbours, too.
template <int columns>
void add_sliding_row(const Row& row, float* sums) {
  constexpr int kNeighbours = 4;
  Floats kept[columns];
#pragma GCC unroll 8
  for (int k = 0; k < columns; ++k) kept[k] = load(sums + k * kLanes);
  int64_t x = 0;
  for (; x + kNeighbours <= row.count; x += kNeighbours) {
    const float *const input = row.input + x * kLanes, *const from = row.gradients + x * kLanes;
    Floats inputs[columns + kNeighbours - 1];
#pragma GCC unroll 16
    for (int i = 0; i < columns + kNeighbours - 1; ++i) inputs[i] = load(input + i * kLanes);
#pragma GCC unroll 4
    for (int u = 0; u < kNeighbours; ++u) {
      const Floats gradient = load(from + u * kLanes);
#pragma GCC unroll 8
      for (int k = 0; k < columns; ++k) kept[k] = multiply_add(inputs[k + u], gradient, kept[k]);
    }
  }
  for (; x < row.count; ++x) {
    const Floats gradient = load(row.gradients + x * kLanes);
#pragma GCC unroll 8
    for (int k = 0; k < columns; ++k) {
      kept[k] = multiply_add(load(row.input + (x + k) * kLanes), gradient, kept[k]);
    }
  }
#pragma GCC unroll 8
  for (int k = 0; k < columns; ++k) store(sums + k * kLanes, kept[k]);
}

template <typename T, int lanes>
class Worker {
 public:
  explicit Worker(const Task& task)
      : a_(task),
        rows_(task, task.window.left, task.input_shape.width),
        row_{.count = task.output_shape.width,
             .step = task.window.stride_width * kLanes,
             .dilation = task.dilation_width * kLanes} {}

  // Sums a pair of blocks over a piece of the batch.
  void run(int64_t pair, int64_t piece, float* sums) {
    const int64_t block = pair / a_.input_blocks, i = pair % a_.input_blocks;
    const GroupedConvolution::Blocks sources = a_.inputs_of(block);
    if (i >= sources.count) return;
    float* const weights = sums + pair * a_.window_pixels() * lanes * kLanes;
    float* const bias = i == 0 ? sums + a_.weights() + block * kLanes : nullptr;
    __builtin_memset(weights, 0, static_cast<Size>(a_.window_pixels() * lanes * kLanes) * sizeof(float));
    if (bias != nullptr) store(bias, fill(0));
    const MapShape &in = a_.input_shape, &out = a_.output_shape;
    const int64_t last = (piece + 1) * in.batch / a_.pieces();
    for (int64_t n = piece * in.batch / a_.pieces(); n < last; ++n) {
      rows_.invalidate();
      const T* const image =
          static_cast<const T*>(a_.input) + (n * in.blocks() + sources.first + i) * in.pixels() * kLanes;
      const T* const gradients =
          static_cast<const T*>(a_.gradient) + (n * out.blocks() + block) * out.pixels() * kLanes;
      for (int64_t y = 0; y < out.height; ++y) {
        row_.gradients = widened(gradients + y * out.width * kLanes);
        if (bias != nullptr) add_bias(bias);
        add_window(image, y, weights);
      }
    }
  }

 private:
  const float* widened(const float* row) const { return row; }
  const float* widened(const Bfloat16* row) const {
    float* const to = rows_.sums();
    for (int64_t x = 0; x < row_.count; ++x) store(to + x * kLanes, load(row + x * kLanes));
    return to;
  }

  void add_bias(float* bias) const {
    Floats sum = load(bias);
    for (int64_t x = 0; x < row_.count; ++x) sum = sum + load(row_.gradients + x * kLanes);
    store(bias, sum);
  }

  void add_window(const T* image, int64_t y, float* weights) {
    const Window& window = a_.window;
    for (int64_t ky = 0; ky < window.kernel_height; ++ky) {
      const int64_t at = y * window.stride_height + ky * a_.dilation_height - window.top;
      if (at < 0 || at >= a_.input_shape.height) continue;
      const float* const line = rows_.get(image, at);
      for (int64_t kx = 0; kx < window.kernel_width;) {
        row_.input = line + kx * row_.dilation;
        kx += add_columns(window.kernel_width - kx, weights + (ky * window.kernel_width + kx) * lanes * kLanes);
      }
    }
  }

  // Adds some of the `rest` columns of a window, as many as registers have room for, and returns how many.
  int64_t add_columns(int64_t rest, float* sums) const {
    if constexpr (lanes == 1) {
      const bool slides = row_.step == kLanes && row_.dilation == kLanes;
      if (slides && rest >= 7) return add_sliding_row<7>(row_, sums), 7;
      if (slides && rest >= 5) return add_sliding_row<5>(row_, sums), 5;
    }
    if constexpr (lanes * 5 <= kSums) {
      if (rest >= 5) return add_row<lanes, 5>(row_, spread_, sums), 5;
    }
    if constexpr (lanes * 3 <= kSums) {
      if (rest >= 3) return add_row<lanes, 3>(row_, spread_, sums), 3;
    }
    return add_row<lanes, 1>(row_, spread_, sums), 1;
  }

  const Task& a_;
  Rows<T> rows_;
  Row row_;
  Spread<lanes> spread_;
};

// Adds up the pieces' sums, `count` floats of each from `from` on, into `to`. Pieces lie `apart` floats apart.
void add_pieces(const float* from, int64_t pieces, int64_t apart, int64_t count, float* to) {
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < count; i += kLanes) {
    Floats sum = load(from + i);
    for (int64_t piece = 1; piece < pieces; ++piece) sum = sum + load(from + piece * apart + i);
    store(to + i, sum);
  }
}

template <typename T>
void run(const Task& a) {
  float* const sums = static_cast<float*>(a.scratch) + a.GroupedConvolution::scratch_bytes() / 4;
  with_lanes(a.lanes, [&](auto known) {
#pragma omp parallel num_threads(a.threads)
    {
      Worker<T, known.kValue> worker(a);
#pragma omp for collapse(2) schedule(static) nowait
      for (int64_t piece = 0; piece < a.pieces(); ++piece) {
        for (int64_t pair = 0; pair < a.pairs(); ++pair) worker.run(pair, piece, sums + piece * a.piece_sums());
      }
    }
  });
  add_pieces(sums, a.pieces(), a.piece_sums(), a.weights(), a.weights_gradient);
  if (a.bias_gradient == nullptr) return;
  add_pieces(sums + a.weights(), a.pieces(), a.piece_sums(), a.output_shape.padded_channels(), a.bias_gradient);
}

}  // namespace

TRAINYARD_KERNEL_OF_TYPES(grouped_convolution_backward_weights, GroupedConvolutionBackwardWeights, run)

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
