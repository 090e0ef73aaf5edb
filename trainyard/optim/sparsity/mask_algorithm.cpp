#include "trainyard/optim/sparsity/mask_algorithm.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <numeric>

#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/registry.h"
#include "trainyard/optim/sparsity/block_patterns.h"
#include "trainyard/optim/sparsity/prune.h"

namespace trainyard::optim {

using core::Error;
using core::ErrorCode;

namespace {

constexpr int kFour = 4;

// The weights of up to four rows in four columns, row by row; 0 where there are none.
using Block = std::array<double, kFour * kFour>;
// Which of them stay: bit 4 * row + column.
using Kept = uint16_t;

// A weight as the matrix of its fours. Distances are in elements.
struct Matrix {
  int64_t rows = 0, columns = 0;
  int64_t column_step = 1;
  int64_t outputs = 0, height = 1, width = 1;

  explicit Matrix(at::IntArrayRef shape) : columns(shape[1]), outputs(shape[0]) {
    if (shape.size() == 4) {
      height = shape[2];
      width = shape[3];
    }
    column_step = height * width;
    rows = outputs * height * width;
  }
  // Returns where row (s, r, k) begins in [K, C, R, S].
  int64_t row_begin(int64_t row) const {
    const int64_t k = row % outputs, pixel = row / outputs;
    return k * columns * column_step + pixel % height * width + pixel / height;
  }
};

// Rows and columns of one block, cut off at the matrix's edge.
struct Place {
  std::array<int64_t, kFour> row_begins{};
  int rows = 0, columns = 0;
  int64_t first_column = 0;
};

template <typename Visit>
void for_each_element(const Matrix& matrix, const Place& place, const Visit& visit) {
  for (int row = 0; row < place.rows; ++row) {
    for (int column = 0; column < place.columns; ++column) {
      visit(row * kFour + column,
            place.row_begins[static_cast<size_t>(row)] + (place.first_column + column) * matrix.column_step);
    }
  }
}

// Calls work(place) for all blocks of `height` rows, on the calling thread's intra-op threads.
template <typename Work>
void for_each_block(const Matrix& matrix, int height, const Work& work) {
  const int64_t bands = (matrix.rows + height - 1) / height;
  const int64_t grain = std::max<int64_t>(1, 4096 / (matrix.columns * height));
  at::parallel_for(0, bands, grain, [&](int64_t first, int64_t last) {
    for (int64_t band = first; band < last; ++band) {
      Place place;
      place.rows = static_cast<int>(std::min<int64_t>(height, matrix.rows - band * height));
      for (int row = 0; row < place.rows; ++row) {
        place.row_begins[static_cast<size_t>(row)] = matrix.row_begin(band * height + row);
      }
      for (int64_t column = 0; column < matrix.columns; column += kFour) {
        place.first_column = column;
        place.columns = static_cast<int>(std::min<int64_t>(kFour, matrix.columns - column));
        work(place);
      }
    }
  });
}

// Returns the places of the first `count` values, the smallest first; of equal ones the earlier first.
template <size_t kCount>
std::array<int, kCount> sorted_places(const Block& values) {
  std::array<int, kCount> places;
  for (size_t i = 0; i < kCount; ++i) {
    size_t at = i;
    for (; at > 0 && values[static_cast<size_t>(places[at - 1])] > values[i]; --at) places[at] = places[at - 1];
    places[at] = static_cast<int>(i);
  }
  return places;
}

Block magnitudes(const Block& values) {
  Block result;
  std::transform(values.begin(), values.end(), result.begin(), [](double value) { return std::abs(value); });
  return result;
}

Kept keep_greatest_two(const Block& values) {
  const auto places = sorted_places<kFour>(magnitudes(values));
  return static_cast<Kept>(1 << places[2] | 1 << places[3]);
}

Kept keep_greedily(const Block& values) {
  const auto places = sorted_places<kFour * kFour>(magnitudes(values));
  std::array<int, kFour> in_row{}, in_column{};
  int kept = 0;
  for (auto place = places.rbegin(); place != places.rend(); ++place) {
    int &row = in_row[static_cast<size_t>(*place / kFour)], &column = in_column[static_cast<size_t>(*place % kFour)];
    if (row == 2 || column == 2) continue;
    ++row;
    ++column;
    kept |= 1 << *place;
  }
  return static_cast<Kept>(kept);
}

// Sums are in double, in which those of eight floats are exact unless they differ by a factor of 2^25 and more.
Kept keep_best_sum(const Block& values) {
  // By row, and by the bits of the two columns that it keeps.
  std::array<std::array<double, 16>, kFour> sums{};
  for (size_t row = 0; row < kFour; ++row) {
    for (size_t one = 0; one < kFour; ++one) {
      for (size_t other = one + 1; other < kFour; ++other) {
        sums[row][1U << one | 1U << other] = values[kFour * row + one] + values[kFour * row + other];
      }
    }
  }
  const auto sum_of = [&](uint32_t pattern) {
    return (sums[0][pattern & 15] + sums[1][pattern >> 4 & 15]) + (sums[2][pattern >> 8 & 15] + sums[3][pattern >> 12]);
  };
  Kept best = kBlockPatterns.front();
  double best_sum = sum_of(best);
  for (const Kept pattern : kBlockPatterns) {
    const double sum = sum_of(pattern);
    if (sum > best_sum) {
      best_sum = sum;
      best = pattern;
    }
  }
  return best;
}

Kept keep_best_magnitudes(const Block& values) {
  return keep_best_sum(magnitudes(values));
}

struct Algorithm {
  MaskAlgorithm algorithm;
  const char* name;
  int block_height;
  Kept (*choose)(const Block&);
};

constexpr std::array<Algorithm, 4> kAlgorithms = {{
    {MaskAlgorithm::kMask1d, "mask_1d", 1, keep_greatest_two},
    {MaskAlgorithm::kMask2dGreedy, "mask_2d_greedy", kFour, keep_greedily},
    {MaskAlgorithm::kMask2dBest, "mask_2d_best", kFour, keep_best_magnitudes},
    {MaskAlgorithm::kMask2dBestSigned, "mask_2d_best_signed", kFour, keep_best_sum},
}};

const Algorithm& entry(MaskAlgorithm algorithm) {
  return *std::find_if(kAlgorithms.begin(), kAlgorithms.end(),
                       [&](const Algorithm& each) { return each.algorithm == algorithm; });
}

template <typename T>
void fill_mask(const T* weight, bool* mask, const Matrix& matrix, const Algorithm& algorithm) {
  for_each_block(matrix, algorithm.block_height, [&](const Place& place) {
    Block block{};
    for_each_element(matrix, place,
                     [&](int at, int64_t from) { block[static_cast<size_t>(at)] = static_cast<double>(weight[from]); });
    const int kept = algorithm.choose(block);
    for_each_element(matrix, place, [&](int at, int64_t to) { mask[to] = (kept >> at & 1) != 0; });
  });
}

template <typename T>
bool has_fours_of_two(const T* weight, const Matrix& matrix) {
  std::atomic<bool> good = true;
  for_each_block(matrix, 1, [&](const Place& place) {
    int others = 0;
    for_each_element(matrix, place, [&](int, int64_t from) { others += weight[from] != T(0) ? 1 : 0; });
    if (others > 2) good.store(false, std::memory_order_relaxed);
  });
  return good;
}

void require_weight(const at::Tensor& weight) {
  const bool number = weight.scalar_type() == at::kFloat || weight.scalar_type() == at::kDouble;
  if (number && weight.is_cpu() && (weight.dim() == 2 || weight.dim() == 4)) return;
  throw Error(ErrorCode::kInvalidArgument,
              {.problem = "only weights of linear layers and convolutions are made 2:4",
               .expected = "[out, in] or [out, in, height, width] of floats in the host's memory",
               .actual = fmt::format("[{}] {} on {}", fmt::join(weight.sizes(), ", "),
                                     at::toString(weight.scalar_type()), weight.device().str())});
}

}  // namespace

const std::vector<std::string>& mask_algorithm_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Algorithm& each : kAlgorithms) all.emplace_back(each.name);
    return all;
  }();
  return names;
}

std::string_view mask_algorithm_name(MaskAlgorithm algorithm) {
  return entry(algorithm).name;
}

MaskAlgorithm mask_algorithm_from_name(std::string_view name) {
  for (const Algorithm& each : kAlgorithms) {
    if (name == each.name) return each.algorithm;
  }
  throw Error(ErrorCode::kInvalidArgument,
              core::unknown_name("mask algorithm", std::string(name), mask_algorithm_names()).detail());
}

bool can_be_sparse(at::IntArrayRef shape) {
  return (shape.size() == 2 || shape.size() == 4) && shape[1] >= kFour;
}

at::Tensor sparsity_mask(const at::Tensor& weight, MaskAlgorithm algorithm) {
  require_weight(weight);
  at::Tensor mask = at::full(weight.sizes(), true, at::kBool);
  if (!can_be_sparse(weight.sizes()) || weight.numel() == 0) return mask;
  if (!at::isfinite(weight).all().item<bool>()) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "a weight with NaN or infinity cannot be pruned",
                                              .remedy = "start from weights that are finite"});
  }
  const at::Tensor plain = weight.detach().contiguous();
  const Matrix matrix(weight.sizes());
  bool* const to = mask.mutable_data_ptr<bool>();
  if (weight.scalar_type() == at::kDouble) {
    fill_mask(plain.const_data_ptr<double>(), to, matrix, entry(algorithm));
  } else {
    fill_mask(plain.const_data_ptr<float>(), to, matrix, entry(algorithm));
  }
  return mask;
}

bool is_two_of_four(const at::Tensor& weight) {
  require_weight(weight);
  const at::Tensor plain = weight.detach().contiguous();
  const Matrix matrix(weight.sizes());
  return weight.scalar_type() == at::kDouble ? has_fours_of_two(plain.const_data_ptr<double>(), matrix)
                                             : has_fours_of_two(plain.const_data_ptr<float>(), matrix);
}

}  // namespace trainyard::optim
