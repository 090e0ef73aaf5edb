#include <omp.h>

#include "trainyard/nn/cpu/convolution/bias_gradient.h"
#include "trainyard/nn/cpu/convolution/winograd_bf16/multiply.h"
#include "trainyard/nn/cpu/convolution/winograd_bf16/transforms.h"
#include "trainyard/nn/cpu/simd/thread_scratch.h"

namespace trainyard::nn::cpu::winograd_bf16 {
namespace {

constexpr int64_t kPixelBytes = 512 << 10;  // of transformed pixels: they stay in a core's second-level cache
constexpr int64_t kMostDepth = 192;         // tiles that one sweep sums over: a panel of their gradients stays in L1
constexpr int64_t kMostDepth3 = 160;        // the same of F(3x3, 3x3): all points of 64 channels are kPixelBytes
constexpr int64_t kMostParts = 8, kLeastSweeps = 4, kPartBytes = 16 << 20;  // of tiles, of a part, of all parts' sums

// Tiles are summed in parts, whose sums are added up in the end: as many parts, of eight at most, as have a few sweeps
// each and whose sums do not take too much memory. Otherwise threads would have to share out rows of points, and
// transform for each what serves several.
// A task sums the products of some rows of points, of a part of the input's and one of the output's channels, over a
// part of the tiles. Tasks share nothing: what one has transformed, it multiplies while that is in its core's cache,
// since the third-level cache belongs to other programs, too. The price is that pixels are read again for other rows,
// and transformed again for other outputs. A task goes through the tiles in sweeps of `depth` tiles, in pairs.
// Transformed ones lie as [point][channel block][pair][lane][2]: few streams of memory, whatever the number of
// channels.
struct Plan {
  int64_t side;                                   // of the square of points
  int64_t depth, tile_parts;                      // from the shape alone, because they decide the bits
  int64_t rows;                                   // of points: all, 2 or 1; the last task may have fewer
  int64_t inputs, outputs;                        // channels of a part; the last part may have fewer
  int64_t pixels_apart = 0, gradients_apart = 0;  // elements between points
  [[gnu::always_inline]] int64_t pixel_bytes() const { return rows * side * pixels_apart * 2; }
  [[gnu::always_inline]] int64_t bytes() const { return pixel_bytes() + rows * side * gradients_apart * 2; }
};

// Returns how many parts of at most `most` there are.
[[gnu::always_inline]] inline int64_t parts(int64_t count, int64_t most) {
  return (count + most - 1) / most;
}

Plan plan_of(const Shape& s, int threads) {
  const int64_t side = s.side(), most = s.tile == 2 ? kMostDepth : kMostDepth3;
  const int64_t depth = (parts(s.tiles(), parts(s.tiles(), most)) + 1) / 2 * 2, sweeps = parts(s.tiles(), depth);
  int64_t tile_parts = kMostParts;
  while (tile_parts > 1 && (sweeps < kLeastSweeps * tile_parts || tile_parts * gradient_bytes(s) > kPartBytes)) {
    tile_parts /= 2;
  }
  Plan plan{.side = side,
            .depth = depth,
            .tile_parts = tile_parts,
            .rows = side,
            .inputs = s.in_channels,
            .outputs = s.out_channels};
  const auto halve = [](int64_t channels, int64_t whole) { return parts(parts(channels, 2), whole) * whole; };
  const auto tasks = [&] {
    return tile_parts * parts(side, plan.rows) * parts(s.in_channels, plan.inputs) *
           parts(s.out_channels, plan.outputs);
  };
  const auto too_large = [&] { return plan.rows * side * plan.inputs * depth * 2 > kPixelBytes; };
  // Where threads cannot have as many rows each, several tasks a thread make up for it.
  const int64_t wanted = side % threads == 0 ? threads : 3 * threads;
  while (plan.rows > 1 && (tasks() < wanted || too_large())) plan.rows /= 2;
  while (plan.outputs > kPanel && tasks() < wanted) plan.outputs = halve(plan.outputs, kPanel);
  while (plan.inputs > kLanes && (tasks() < wanted || too_large())) plan.inputs = halve(plan.inputs, kLanes);
  plan.pixels_apart = apart(depth * plan.inputs);
  plan.gradients_apart = apart(depth * smaller(kPanel, plan.outputs));
  return plan;
}

// Writes the points of each pair of `count` tiles of a channel block, the first of which is `at`, and zeros for a tile
// that is missing. transformed(tile, points) computes one tile.
template <int rows, int side, typename Transformed>
[[gnu::always_inline]] inline void transform_pairs(const Shape& s, Tile at, int64_t count, int64_t points_apart,
                                                   uint16_t* to, const Transformed& transformed) {
  for (int64_t tile = 0; tile < count; tile += 2) {
    Floats first[rows][side], second[rows][side] = {};
    transformed(at, first);
    advance(s, at);
    if (tile + 1 < count) transformed(at, second);
    advance(s, at);
    for (int point = 0; point < rows * side; ++point) {
      store_pairs(to + point * points_apart + tile * kLanes, first[point / side][point % side],
                  second[point / side][point % side]);
    }
  }
}

// Returns where a part of the tiles has its sums: the first one's become the gradient, the others' lie behind one
// another in the scratch memory, behind the threads' own.
[[gnu::always_inline]] inline float* sums_of_part(const BackwardWeights& a, const Plan& plan, int64_t tile_part) {
  if (tile_part == 0) return a.gradient;
  const int64_t threads = thread_scratch_bytes(plan.bytes(), a.threads);
  return static_cast<float*>(a.scratch) + (threads + (tile_part - 1) * gradient_bytes(a.shape)) / 4;
}

// Adds the other parts' sums of some elements to the first one's, in the order of the parts.
inline void add_parts(const BackwardWeights& a, const Plan& plan, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; i += kLanes) {
    Floats sum = _mm512_loadu_ps(a.gradient + i);
    for (int64_t part = 1; part < plan.tile_parts; ++part) sum += _mm512_loadu_ps(sums_of_part(a, plan, part) + i);
    _mm512_storeu_ps(a.gradient + i, sum);
  }
}

// Rows [first, first + rows) of points.
template <int tile_size, int first, int rows>
class Task {
 public:
  Task(const BackwardWeights& a, const Plan& plan, int64_t tile_part, int64_t in, int64_t out, uint8_t* scratch)
      : a_(a),
        s_(a.shape),
        plan_(plan),
        tile_part_(tile_part),
        in_(in),
        in_end_(smaller(in + plan.inputs, a.shape.in_channels)),
        out_(out),
        out_end_(smaller(out + plan.outputs, a.shape.out_channels)),
        pixels_(reinterpret_cast<uint16_t*>(scratch)),
        gradients_(reinterpret_cast<uint16_t*>(scratch + plan.pixel_bytes())) {}

  void run() const {
    const int64_t sweeps = parts(s_.tiles(), plan_.depth), first_sweep = sweeps * tile_part_ / plan_.tile_parts,
                  end_sweep = sweeps * (tile_part_ + 1) / plan_.tile_parts;
    for (int64_t sweep = first_sweep; sweep < end_sweep; ++sweep) {
      const int64_t tile = sweep * plan_.depth, count = smaller(plan_.depth, s_.tiles() - tile);
      transform_pixel_blocks(tile, count);
      for (int64_t column = out_; column < out_end_; column += kPanel) {
        const int64_t columns = smaller(kPanel, out_end_ - column);
        transform_gradient_blocks(tile, count, column, columns);
        multiply_points(sweep > first_sweep, count, column, columns);
      }
    }
  }

 private:
  static constexpr int kSide = tile_size + 2;

  // Of F(2x2, 3x3), the first two rows of points need all rows of pixels but the last, and the last two all but the
  // first. Of F(3x3, 3x3) only the last row of points needs the last row of pixels.
  void transform_pixel_blocks(int64_t begin, int64_t count) const {
    constexpr int kFirstRow = tile_size == 3 || first == 0 ? 0 : 1,
                  kLastRow = first + rows == kSide ? kSide : kSide - 1;
    const Tile first_tile = tile_at(s_, begin);
    const int64_t blocks = s_.in_channels / kLanes, elements = s_.in_height * s_.in_width * kLanes;
    for (int64_t channel = in_; channel < in_end_; channel += kLanes) {
      const uint16_t* const source = static_cast<const uint16_t*>(a_.source) + channel / kLanes * elements;
      transform_pairs<rows, kSide>(
          s_, first_tile, count, plan_.pixels_apart, pixels_ + (channel - in_) * plan_.depth,
          [&](const Tile& at, Floats(&u)[rows][kSide]) __attribute__((always_inline)) {
            Floats d[kSide][kSide];
            load_rows<kFirstRow, kLastRow>(source + at.sample * blocks * elements, s_.in_height, s_.in_width,
                                           at.row - s_.top, at.column - s_.left, d);
            transform_pixels<tile_size, first, rows>(d, u);
          });
    }
  }

  void transform_gradient_blocks(int64_t begin, int64_t count, int64_t column, int64_t columns) const {
    const Tile first_tile = tile_at(s_, begin);
    const int64_t blocks = s_.out_channels / kLanes, elements = s_.out_height * s_.out_width * kLanes;
    for (int64_t channel = column; channel < column + columns; channel += kLanes) {
      const uint16_t* const source = static_cast<const uint16_t*>(a_.output_gradient) + channel / kLanes * elements;
      transform_pairs<rows, kSide>(
          s_, first_tile, count, plan_.gradients_apart, gradients_ + (channel - column) * plan_.depth,
          [&](const Tile& at, Floats(&z)[rows][kSide]) __attribute__((always_inline)) {
            Floats y[tile_size][tile_size];
            load_rows<0, tile_size>(source + at.sample * blocks * elements, s_.out_height, s_.out_width, at.row,
                                    at.column, y);
            transform_gradient<tile_size, first, rows>(y, z);
          });
    }
  }

  void multiply_points(bool accumulate, int64_t count, int64_t column, int64_t columns) const {
    float* const sums = sums_of_part(a_, plan_, tile_part_);
    for (int64_t point = 0; point < rows * kSide; ++point) {
      float* const gradient = sums + (first * kSide + point) * s_.in_channels * s_.out_channels + column;
      for (int64_t channel = in_; channel < in_end_; channel += kLanes) {
        const uint16_t* const block = pixels_ + point * plan_.pixels_apart + (channel - in_) * plan_.depth;
        multiply({.a = reinterpret_cast<const uint32_t*>(block),
                  .row_stride = 1,
                  .pair_stride = kLanes,
                  .b = reinterpret_cast<const uint32_t*>(gradients_ + point * plan_.gradients_apart),
                  .b_stride = kLanes,
                  .vector_stride = plan_.depth / 2 * kLanes,
                  .pairs = (count + 1) / 2,
                  .out = gradient + channel * s_.out_channels,
                  .out_stride = s_.out_channels,
                  .accumulate = accumulate},
                 kLanes, columns);
      }
    }
  }

  const BackwardWeights& a_;
  const Shape& s_;
  const Plan& plan_;
  int64_t tile_part_, in_, in_end_, out_, out_end_;
  uint16_t *pixels_, *gradients_;
};

template <int tile, int first = 0>
[[gnu::noinline]] void run_task(const BackwardWeights& a, const Plan& plan, int64_t tile_part, int64_t row, int64_t in,
                                int64_t out, uint8_t* scratch) {
  constexpr int kSide = tile + 2;
  if (plan.rows == kSide) return Task<tile, 0, kSide>(a, plan, tile_part, in, out, scratch).run();
  if constexpr (first < kSide) {
    if (row != first) return run_task<tile, first + 1>(a, plan, tile_part, row, in, out, scratch);
    if constexpr (first % 2 == 0 && first + 2 <= kSide) {
      if (plan.rows == 2) return Task<tile, first, 2>(a, plan, tile_part, in, out, scratch).run();
    }
    Task<tile, first, 1>(a, plan, tile_part, in, out, scratch).run();
  }
}

}  // namespace

int64_t backward_weights_scratch_bytes(const Shape& shape, int threads) {
  const Plan plan = plan_of(shape, threads);
  return thread_scratch_bytes(plan.bytes(), threads) + (plan.tile_parts - 1) * gradient_bytes(shape);
}

void backward_weights(const BackwardWeights& a) {
  const Plan plan = plan_of(a.shape, a.threads);
  const int64_t in_parts = parts(a.shape.in_channels, plan.inputs);
  const int64_t a_row = in_parts * parts(a.shape.out_channels, plan.outputs);
  const int64_t a_tile_part = parts(plan.side, plan.rows) * a_row;
  const int64_t groups = a.shape.points() * a.shape.in_channels * a.shape.out_channels / kLanes;
#pragma omp parallel num_threads(a.threads)
  {
    const int64_t threads = omp_get_num_threads(), thread = omp_get_thread_num();
    auto* const scratch = static_cast<uint8_t*>(a.scratch) + thread * thread_stride(plan.bytes());
#pragma omp for schedule(dynamic)
    for (int64_t task = 0; task < plan.tile_parts * a_tile_part; ++task) {
      const int64_t row = task % a_tile_part / a_row, part = task % a_row;
      with_tile(a.shape.tile, [&]<int tile>() {
        run_task<tile>(a, plan, task / a_tile_part, row * plan.rows, part % in_parts * plan.inputs,
                       part / in_parts * plan.outputs, scratch);
      });
    }
    if (plan.tile_parts > 1) {
      add_parts(a, plan, groups * thread / threads * kLanes, groups * (thread + 1) / threads * kLanes);
    }
    if (a.bias_gradient != nullptr) {
      TRAINYARD_ISA::sum_bias_gradients<1, TRAINYARD_ISA::Bfloat16>(
          {.batch = a.shape.batch,
           .blocks = a.shape.out_channels / kLanes,
           .pixels = a.shape.out_height * a.shape.out_width,
           .together = a.shape.out_width,
           .gradient = static_cast<const TRAINYARD_ISA::Bfloat16*>(a.output_gradient),
           .sums = a.bias_gradient,
           .count = a.bias_count});
    }
  }
}

}  // namespace trainyard::nn::cpu::winograd_bf16
