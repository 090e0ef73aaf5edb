#include "trainyard/optim/optimizers/orthogonalize.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <c10/core/InferenceMode.h>

namespace trainyard::optim {
namespace {

constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;
constexpr double kLeastNorm = 1e-7;
constexpr int64_t kTile = 64;       // rows and columns of a tile of A: few enough that two threads share a small A
constexpr int64_t kStrip = 256;     // rows or columns of X that a thread computes at a time
constexpr int64_t kSummed = 16384;  // elements whose squares a thread adds up at a time

// Calls work(i) for 0 <= i < count on the calling thread's intra-op threads. Products within it use one thread.
void in_parallel(int64_t count, const std::function<void(int64_t)>& work) {
  // Two at least: a single one would run outside of the parallel region, where a product takes all threads.
  at::parallel_for(0, std::max<int64_t>(count, 2), 1, [&](int64_t first, int64_t last) {
    const c10::InferenceMode no_gradients;  // the mode of the calling thread does not reach the others
    for (int64_t i = first; i < std::min(last, count); ++i) work(i);
  });
}

struct Tile {
  int64_t row = 0, rows = 0, column = 0, columns = 0;
};

// The tiles of a square matrix on and below its diagonal.
std::vector<Tile> lower_tiles(int64_t size) {
  std::vector<Tile> tiles;
  for (int64_t row = 0; row < size; row += kTile) {
    for (int64_t column = 0; column <= row; column += kTile) {
      tiles.push_back({.row = row,
                       .rows = std::min(kTile, size - row),
                       .column = column,
                       .columns = std::min(kTile, size - column)});
    }
  }
  return tiles;
}

at::Tensor block(const at::Tensor& of, int64_t row, int64_t rows, int64_t column, int64_t columns) {
  return of.narrow(0, row, rows).narrow(1, column, columns);
}

// Writes a tile of a symmetric matrix, and its transpose on the other side of the diagonal.
void mirror(const at::Tensor& symmetric, const Tile& tile, const at::Tensor& written) {
  if (tile.row == tile.column) return;
  block(symmetric, tile.column, tile.columns, tile.row, tile.rows).copy_(written.t());
}

// gram = x x^T, or x^T x for a matrix with more rows than columns.
void multiply_by_transpose(const at::Tensor& x, const at::Tensor& gram) {
  const bool wide = x.size(0) <= x.size(1);
  const std::vector<Tile> tiles = lower_tiles(gram.size(0));
  in_parallel(std::ssize(tiles), [&](int64_t i) {
    const Tile& tile = tiles[static_cast<size_t>(i)];
    at::Tensor target = block(gram, tile.row, tile.rows, tile.column, tile.columns);
    if (wide) {
      at::mm_out(target, x.narrow(0, tile.row, tile.rows), x.narrow(0, tile.column, tile.columns).t());
    } else {
      at::mm_out(target, x.narrow(1, tile.row, tile.rows).t(), x.narrow(1, tile.column, tile.columns));
    }
    mirror(gram, tile, target);
  });
}

// polynomial = b gram + c gram^2
void evaluate(const at::Tensor& gram, const at::Tensor& polynomial) {
  const std::vector<Tile> tiles = lower_tiles(gram.size(0));
  in_parallel(std::ssize(tiles), [&](int64_t i) {
    const Tile& tile = tiles[static_cast<size_t>(i)];
    at::Tensor target = block(polynomial, tile.row, tile.rows, tile.column, tile.columns);
    at::addmm_out(target, block(gram, tile.row, tile.rows, tile.column, tile.columns),
                  gram.narrow(0, tile.row, tile.rows), gram.narrow(1, tile.column, tile.columns), kB, kC);
    mirror(polynomial, tile, target);
  });
}

// next = a x + polynomial x, or a x + x polynomial
void step(const at::Tensor& x, const at::Tensor& polynomial, const at::Tensor& next) {
  const bool wide = x.size(0) <= x.size(1);
  const int64_t dimension = wide ? 1 : 0, size = x.size(dimension);
  in_parallel((size + kStrip - 1) / kStrip, [&](int64_t i) {
    const int64_t begin = i * kStrip, count = std::min(kStrip, size - begin);
    const at::Tensor strip = x.narrow(dimension, begin, count);
    at::Tensor target = next.narrow(dimension, begin, count);
    at::addmm_out(target, strip, wide ? polynomial : strip, wide ? strip : polynomial, kA, 1);
  });
}

template <typename T>
double squares_of(const T* values, int64_t count) {
  std::vector<double> sums(static_cast<size_t>((count + kSummed - 1) / kSummed));
  at::parallel_for(0, std::ssize(sums), 1, [&](int64_t first, int64_t last) {
    for (int64_t s = first; s < last; ++s) {
      double sum = 0;
      for (int64_t i = s * kSummed; i < std::min(count, (s + 1) * kSummed); ++i) {
        sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
      }
      sums[static_cast<size_t>(s)] = sum;
    }
  });
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

}  // namespace

double sum_of_squares(const at::Tensor& flat) {
  return flat.scalar_type() == at::kDouble ? squares_of(flat.const_data_ptr<double>(), flat.numel())
                                           : squares_of(flat.const_data_ptr<float>(), flat.numel());
}

at::Tensor Orthogonalizer::sized(at::Tensor& buffer, int64_t rows, int64_t columns, const at::Tensor& like) {
  if (!buffer.defined() || buffer.numel() < rows * columns || buffer.scalar_type() != like.scalar_type()) {
    buffer = at::empty({rows * columns}, like.options());
  }
  return buffer.narrow(0, 0, rows * columns).view({rows, columns});
}

void Orthogonalizer::operator()(const at::Tensor& matrix, int64_t steps) {
  const int64_t rows = matrix.size(0), columns = matrix.size(1), small = std::min(rows, columns);
  const at::Tensor gram = sized(gram_, small, small, matrix), polynomial = sized(polynomial_, small, small, matrix);
  at::Tensor x = matrix, next = sized(next_, rows, columns, matrix);
  const double norm = std::sqrt(sum_of_squares(matrix.view(-1)));
  x.mul_(1 / (norm < kLeastNorm ? kLeastNorm : norm));  // not a number stays one
  for (int64_t s = 0; s < steps; ++s) {
    multiply_by_transpose(x, gram);
    evaluate(gram, polynomial);
    step(x, polynomial, next);
    std::swap(x, next);
  }
  if (!x.is_same(matrix)) matrix.copy_(x);
}

}  // namespace trainyard::optim
