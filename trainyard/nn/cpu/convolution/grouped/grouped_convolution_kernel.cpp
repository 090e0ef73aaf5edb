// Convolution on lanes, forward and backward to the input. Both are the same: a pixel is a sum over source pixels,
// whose places in a row repeat with a period. Forward, the period is 1, and the places of neighbours are a stride
// apart. Backward, the period is the stride, and neighbours of one phase have neighbouring places.
#include "trainyard/nn/cpu/convolution/grouped/grouped_rows.h"
#include "trainyard/nn/cpu/convolution/sliding_row.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {

constexpr int64_t kRowsAPart = 16;  // rows of a block that make one piece of work
static_assert(GroupedConvolution::kTile % kNeighbours == 0);

// Either direction: `source` to `target`.
template <typename T>
struct Task {
  const GroupedConvolution& a;
  MapShape source_shape, target_shape;
  int64_t source_blocks;  // of a target block, at most
  const T* source;
  T* target;
  const float *weights, *bias;
  bool sum, relu;
  bool transposed;

  int64_t phases() const { return transposed ? a.window.stride_width : 1; }
  int64_t step() const { return transposed ? 1 : a.window.stride_width; }
  int64_t margin() const { return transposed ? a.reach() : a.window.left; }
  // Returns the source row for a target row and a row of the window; -1: none.
  int64_t source_row(int64_t y, int64_t ky) const {
    const int64_t tap = ky * a.dilation_height - a.window.top, stride = a.window.stride_height;
    const int64_t at = transposed ? y - tap : y * stride + tap;
    const int64_t row = transposed ? at / stride : at;
    const bool is_one = at >= 0 && (!transposed || at % stride == 0) && row < source_shape.height;
    return is_one ? row : -1;
  }
  // Returns the place in a source row, counted from its margin, that the first pixel of a phase reads for a column of
  // the window; -1: none.
  int64_t source_column(int64_t phase, int64_t kx) const {
    const int64_t tap = kx * a.dilation_width - a.window.left, stride = a.window.stride_width;
    if (!transposed) return tap + margin();
    // Not negative before it is divided: margin() is as wide as all taps.
    const int64_t at = phase - tap + margin() * stride;
    return at % stride == 0 ? at / stride : -1;
  }
};

// Computes sums[u] += pixel u times the weights, over the channels of a group. Pixels lie `step` floats apart.
template <int lanes>
[[gnu::always_inline]] inline void add_pixels(Floats (&sums)[kNeighbours], const float* pixels, int64_t step,
                                              const float* weights, const Spread<lanes>& spread) {
  if constexpr (lanes == kLanes) {
    for (int i = 0; i < lanes; ++i) {
      const Floats weight = load(weights + i * kLanes);
#pragma GCC unroll 8
      for (int u = 0; u < kNeighbours; ++u) sums[u] = multiply_add(fill(pixels[u * step + i]), weight, sums[u]);
    }
  } else {
    Floats values[kNeighbours];
#pragma GCC unroll 8
    for (int u = 0; u < kNeighbours; ++u) values[u] = load(pixels + u * step);
#pragma GCC unroll 8
    for (int i = 0; i < lanes; ++i) {
      const Floats weight = load(weights + i * kLanes);
#pragma GCC unroll 8
      for (int u = 0; u < kNeighbours; ++u) sums[u] = multiply_add(spread(values[u], i), weight, sums[u]);
    }
  }
}

template <typename T, int lanes>
class Worker {
 public:
  Worker(const Task<T>& task, const Output<T>& output)
      : t_(task), output_(output), rows_(task.a, task.margin(), task.source_shape.width) {
    lines_ = reinterpret_cast<const float**>(rows_.words());
    columns_ = rows_.words() + height();
    for (int64_t phase = 0; phase < t_.phases(); ++phase) {
      for (int64_t kx = 0; kx < width(); ++kx) columns_[phase * width() + kx] = t_.source_column(phase, kx);
    }
  }

  // Computes rows [first, last) of a block of a sample.
  void run(int64_t sample, int64_t block, int64_t first, int64_t last) {
    const GroupedConvolution::Blocks sources = t_.transposed ? t_.a.outputs_of(block) : t_.a.inputs_of(block);
    rows_.invalidate();
    for (int64_t y = first; y < last; ++y) {
      for (int64_t i = 0; i < sources.count; ++i) {
        const int64_t plane = sample * t_.source_shape.blocks() + sources.first + i;
        const T* const image = t_.source + plane * t_.source_shape.pixels() * kLanes;
        if (sources.count > 1) rows_.invalidate();
        for (int64_t ky = 0; ky < height(); ++ky) {
          const int64_t row = t_.source_row(y, ky);
          lines_[ky] = row < 0 ? nullptr : rows_.get(image, row);
        }
        add_row(sample, block, y, i, i == sources.count - 1);
      }
    }
  }

 private:
  int64_t height() const { return t_.a.window.kernel_height; }
  int64_t width() const { return t_.a.window.kernel_width; }

  // Adds what the i-th block of the source gives to row y.
  void add_row(int64_t sample, int64_t block, int64_t y, int64_t i, bool is_last) {
    const int64_t phases = t_.phases();
    const int64_t begin =
        ((sample * t_.target_shape.blocks() + block) * t_.target_shape.height + y) * t_.target_shape.width * kLanes;
    const float* const weights = t_.weights + (block * t_.source_blocks + i) * height() * width() * lanes * kLanes;
    const bool is_first = i == 0;
    const Floats start = t_.bias != nullptr ? load(t_.bias + block * kLanes) : fill(0);
    float* kept = rows_.sums();
    for (int64_t phase = 0; phase < phases; ++phase) {
      const int64_t count = (t_.target_shape.width - phase + phases - 1) / phases;
      for (int64_t x = 0; x < count; x += kNeighbours, kept += kNeighbours * kLanes) {
        Floats sums[kNeighbours];
        for (int u = 0; u < kNeighbours; ++u) sums[u] = is_first ? start : load(kept + u * kLanes);
        add_window(sums, x, columns_ + phase * width(), weights);
        if (!is_last) {
          for (int u = 0; u < kNeighbours; ++u) store(kept + u * kLanes, sums[u]);
          continue;
        }
        const int64_t inside = smaller(kNeighbours, count - x);
        for (int64_t u = 0; u < inside; ++u) put(begin + (phase + (x + u) * phases) * kLanes, sums[u]);
      }
    }
  }

  [[gnu::always_inline]] void add_window(Floats (&sums)[kNeighbours], int64_t x, const int64_t* columns,
                                         const float* weights) const {
    if constexpr (lanes == 1) {
      // Neighbours are a pixel apart, and so are the columns of a window.
      if (t_.phases() == 1 && t_.step() == 1 && t_.a.dilation_width == 1) {
        if (width() == 3) return add_sliding_window<3>(sums, x, columns, weights);
        if (width() == 5) return add_sliding_window<5>(sums, x, columns, weights);
        if (width() == 7) return add_sliding_window<7>(sums, x, columns, weights);
      }
    }
    const int64_t step = t_.step() * kLanes;
    for (int64_t ky = 0; ky < height(); ++ky) {
      if (lines_[ky] == nullptr) continue;
      const float* const line = lines_[ky] + x * step;
      for (int64_t kx = 0; kx < width(); ++kx) {
        if (columns[kx] < 0) continue;
        add_pixels<lanes>(sums, line + columns[kx] * kLanes, step, weights + (ky * width() + kx) * lanes * kLanes,
                          spread_);
      }
    }
  }

  template <int columns_of_window>
  [[gnu::always_inline]] void add_sliding_window(Floats (&sums)[kNeighbours], int64_t x, const int64_t* columns,
                                                 const float* weights) const {
    // Backward the columns run from right to left.
    constexpr int kLast = columns_of_window - 1;
    const int64_t first = t_.transposed ? columns[kLast] : columns[0];
    const float* row = t_.transposed ? weights + kLast * kLanes : weights;
    for (int64_t ky = 0; ky < height(); ++ky, row += columns_of_window * kLanes) {
      if (lines_[ky] == nullptr) continue;
      add_sliding_row<columns_of_window>(sums, lines_[ky] + (x + first) * kLanes, row,
                                         t_.transposed ? -kLanes : kLanes);
    }
  }

  [[gnu::always_inline]] void put(int64_t at, Floats value) const {
    if (t_.sum) value = value + load(t_.target + at);
    if (t_.relu) value = at_least(0, value);
    output_.put(at, value);
  }

  const Task<T>& t_;
  const Output<T>& output_;
  Rows<T> rows_;
  Spread<lanes> spread_;
  const float** lines_;
  int64_t* columns_;
};

template <typename T>
void run(const Task<T>& task) {
  const Output<T> output(task.target, task.target_shape, task.sum);
  const int64_t rows = task.target_shape.height, parts = (rows + kRowsAPart - 1) / kRowsAPart;
  with_lanes(task.a.lanes, [&](auto known) {
#pragma omp parallel num_threads(task.a.threads)
    {
      Worker<T, known.kValue> worker(task, output);
#pragma omp for collapse(3) schedule(static) nowait
      for (int64_t n = 0; n < task.target_shape.batch; ++n) {
        for (int64_t b = 0; b < task.target_shape.blocks(); ++b) {
          for (int64_t part = 0; part < parts; ++part) {
            worker.run(n, b, part * kRowsAPart, smaller(rows, (part + 1) * kRowsAPart));
          }
        }
      }
      _mm_sfence();
    }
  });
}

template <typename T>
void forward(const GroupedConvolutionForward& a) {
  run<T>({a, a.input_shape, a.output_shape, a.input_blocks, static_cast<const T*>(a.input), static_cast<T*>(a.output),
          a.forward_weights, a.bias, a.sum, a.activation == UnitActivation::kRelu, false});
}
template <typename T>
void backward_data(const GroupedConvolutionBackwardData& a) {
  run<T>({a, a.output_shape, a.input_shape, a.output_blocks, static_cast<const T*>(a.gradient),
          static_cast<T*>(a.input_gradient), a.backward_weights, nullptr, false, false, true});
}

}  // namespace

TRAINYARD_KERNEL_OF_TYPES(grouped_convolution_forward, GroupedConvolutionForward, forward)
TRAINYARD_KERNEL_OF_TYPES(grouped_convolution_backward_data, GroupedConvolutionBackwardData, backward_data)

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
