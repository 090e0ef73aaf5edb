// Products and orthonormal columns, against their definitions in double precision.
#include "trainyard/parallel/variable_update/low_rank.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/random/random.h"

namespace trainyard::parallel::low_rank_test {
namespace {

constexpr int64_t kRows = 37, kColumns = 611, kRank = 3;

template <typename T>
std::vector<T> numbers(const char* name, int64_t count) {
  std::vector<T> values(static_cast<size_t>(count));
  core::RandomStream random(1, name);
  for (T& value : values) value = random.normal();
  return values;
}

template <typename T>
class LowRank : public ::testing::Test {
 protected:
  // Rows and columns as threads would share them.
  template <typename Work>
  static void in_parts(int64_t size, const Work& work) {
    for (int64_t begin = 0; begin < size; begin += 10) work(begin, std::min(size, begin + 10));
  }
  static constexpr double kBound = std::is_same_v<T, float> ? 1e-4 : 1e-12;
};

using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(LowRank, Types);

TYPED_TEST(LowRank, ProductsAreTheirDefinition) {
  using T = TypeParam;
  const auto matrix = numbers<T>("matrix", kRows * kColumns), error = numbers<T>("error", kRows * kColumns);
  const auto right = numbers<T>("right", kRank * kColumns), left = numbers<T>("left", kRank * kRows);
  std::vector<T> sum = matrix, product(kRank * kRows), transposed(kRank * kColumns), lost(kRows * kColumns);
  this->in_parts(kRows, [&](int64_t begin, int64_t end) {
    add_and_multiply<T>(sum.data(), error.data(), T(0.5), kRows, kColumns, right.data(), kRank, product.data(), begin,
                        end);
  });
  this->in_parts(kColumns, [&](int64_t begin, int64_t end) {
    multiply_transposed<T>(sum.data(), kRows, kColumns, left.data(), kRank, transposed.data(), begin, end);
  });
  std::vector<T> replaced = sum;
  this->in_parts(kRows, [&](int64_t begin, int64_t end) {
    replace_by_product<T>(replaced.data(), lost.data(), T(0.25), kRows, kColumns, left.data(), right.data(), kRank,
                          begin, end);
  });
  const auto added = [&](int64_t i) {
    return static_cast<double>(matrix[static_cast<size_t>(i)]) +
           0.5 * static_cast<double>(error[static_cast<size_t>(i)]);
  };
  for (int64_t k = 0; k < kRank; ++k) {
    for (int64_t i = 0; i < kRows; ++i) {
      double wanted = 0;
      for (int64_t j = 0; j < kColumns; ++j)
        wanted += added(i * kColumns + j) * right[static_cast<size_t>(k * kColumns + j)];
      EXPECT_NEAR(product[static_cast<size_t>(k * kRows + i)], wanted, this->kBound);
    }
    for (int64_t j = 0; j < kColumns; ++j) {
      double wanted = 0;
      for (int64_t i = 0; i < kRows; ++i) wanted += added(i * kColumns + j) * left[static_cast<size_t>(k * kRows + i)];
      EXPECT_NEAR(transposed[static_cast<size_t>(k * kColumns + j)], wanted, this->kBound);
    }
  }
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t j = 0; j < kColumns; ++j) {
      double wanted = 0;
      for (int64_t k = 0; k < kRank; ++k) {
        wanted += static_cast<double>(left[static_cast<size_t>(k * kRows + i)]) *
                  right[static_cast<size_t>(k * kColumns + j)];
      }
      const auto at = static_cast<size_t>(i * kColumns + j);
      EXPECT_NEAR(replaced[at], wanted, this->kBound);
      EXPECT_NEAR(lost[at], added(i * kColumns + j) - 0.25 * wanted, this->kBound);
    }
  }
}

TYPED_TEST(LowRank, ColumnsBecomeOrthonormalAndKeepTheirSpan) {
  using T = TypeParam;
  const auto before = numbers<T>("columns", kRank * kColumns);
  std::vector<T> columns = before;
  // Nearly parallel, and of very different lengths.
  for (int64_t j = 0; j < kColumns; ++j) {
    columns[static_cast<size_t>(kColumns + j)] =
        T(1e-3) * columns[static_cast<size_t>(kColumns + j)] + columns[static_cast<size_t>(j)];
    columns[static_cast<size_t>(2 * kColumns + j)] *= T(1e6);
  }
  const std::vector<T> start = columns;
  orthonormalize<T>(columns.data(), kColumns, kRank);
  const auto dot = [&](const std::vector<T>& a, int64_t k, const std::vector<T>& b, int64_t l) {
    double sum = 0;
    for (int64_t j = 0; j < kColumns; ++j) {
      sum += static_cast<double>(a[static_cast<size_t>(k * kColumns + j)]) * b[static_cast<size_t>(l * kColumns + j)];
    }
    return sum;
  };
  for (int64_t k = 0; k < kRank; ++k) {
    for (int64_t l = 0; l < kRank; ++l) EXPECT_NEAR(dot(columns, k, columns, l), k == l ? 1 : 0, 1e-6);
    double inside = 0;
    for (int64_t l = 0; l <= k; ++l) inside += std::pow(dot(start, k, columns, l), 2);
    EXPECT_NEAR(inside / dot(start, k, start, k), 1, 1e-6);
  }
}

TYPED_TEST(LowRank, AColumnThatNothingIsLeftOfIsDrawnAnewOrZero) {
  using T = TypeParam;
  std::vector<T> columns = numbers<T>("columns", 3 * 20);
  for (size_t j = 0; j < 20; ++j) {
    columns[20 + j] = T(-7) * columns[j];  // parallel to the first
    columns[40 + j] = 0;
  }
  std::vector<T> without = columns;
  orthonormalize<T>(without.data(), 20, 3);
  for (size_t j = 20; j < 60; ++j) EXPECT_EQ(without[j], T(0));
  std::vector<int64_t> drawn;
  orthonormalize<T>(columns.data(), 20, 3, [&](int64_t column, T* values) {
    drawn.push_back(column);
    for (size_t j = 0; j < 20; ++j) values[j] = static_cast<T>(std::cos(static_cast<double>(column * 20) + j));
  });
  EXPECT_EQ(drawn, (std::vector<int64_t>{1, 2}));
  for (size_t k = 0; k < 3; ++k) {
    for (size_t l = 0; l < 3; ++l) {
      double sum = 0;
      for (size_t j = 0; j < 20; ++j) sum += static_cast<double>(columns[k * 20 + j]) * columns[l * 20 + j];
      EXPECT_NEAR(sum, k == l ? 1 : 0, 1e-6);
    }
  }
}

}  // namespace
}  // namespace trainyard::parallel::low_rank_test
