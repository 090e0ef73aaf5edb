#include "trainyard/parallel/variable_update/low_rank.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace trainyard::parallel {
namespace {

constexpr int64_t kSumLanes = 32;
constexpr int64_t kRowBlock = 256;  // elements of a row that stay in the first cache

// Lanes make the sum independent of how the compiler vectorizes it.
template <typename T>
T dot(const T* a, const T* b, int64_t count) {
  std::array<T, kSumLanes> sums{};
  int64_t i = 0;
  for (; i + kSumLanes <= count; i += kSumLanes) {
    for (int64_t lane = 0; lane < kSumLanes; ++lane) sums[static_cast<size_t>(lane)] += a[i + lane] * b[i + lane];
  }
  for (int64_t lane = 0; i < count; ++i, ++lane) sums[static_cast<size_t>(lane)] += a[i] * b[i];
  for (size_t half = kSumLanes / 2; half > 0; half /= 2) {
    for (size_t lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  }
  return sums[0];
}

template <typename T>
double wide_dot(const T* a, const T* b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

// Removes the parts that lie in the columns before, and makes the rest a unit vector. Returns false when there is none.
template <typename T>
bool project(T* columns, int64_t length, int64_t column) {
  T* const own = columns + column * length;
  const double before = std::sqrt(wide_dot(own, own, length));
  if (!(before > 0)) return false;
  for (int64_t i = 0; i < length; ++i) own[i] = static_cast<T>(own[i] / before);
  for (int pass = 0; pass < 2; ++pass) {
    for (int64_t other = 0; other < column; ++other) {
      const T* const unit = columns + other * length;
      const double part = wide_dot(own, unit, length);
      for (int64_t i = 0; i < length; ++i) own[i] = static_cast<T>(own[i] - part * unit[i]);
    }
    const double left = std::sqrt(wide_dot(own, own, length));
    // Less is rounding.
    if (!(left > 8 * static_cast<double>(std::numeric_limits<T>::epsilon()))) return false;
    for (int64_t i = 0; i < length; ++i) own[i] = static_cast<T>(own[i] / left);
  }
  return true;
}

}  // namespace

template <typename T>
void add_and_multiply(T* matrix, const T* error, T factor, int64_t rows, int64_t columns, const T* right, int64_t rank,
                      T* product, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    T* const own = matrix + row * columns;
    const T* const kept = error + row * columns;
    for (int64_t j = 0; j < columns; ++j) own[j] += factor * kept[j];
    for (int64_t k = 0; k < rank; ++k) product[k * rows + row] = dot(own, right + k * columns, columns);
  }
}

template <typename T>
void multiply_transposed(const T* matrix, int64_t rows, int64_t columns, const T* left, int64_t rank, T* product,
                         int64_t begin, int64_t end) {
  for (int64_t from = begin; from < end; from += kRowBlock) {
    const int64_t count = std::min(kRowBlock, end - from);
    for (int64_t k = 0; k < rank; ++k) std::fill_n(product + k * columns + from, count, T(0));
    for (int64_t row = 0; row < rows; ++row) {
      const T* const own = matrix + row * columns + from;
      for (int64_t k = 0; k < rank; ++k) {
        T* const sums = product + k * columns + from;
        const T factor = left[k * rows + row];
        for (int64_t j = 0; j < count; ++j) sums[j] += factor * own[j];
      }
    }
  }
}

template <typename T>
void replace_by_product(T* matrix, T* error, T share, int64_t rows, int64_t columns, const T* left, const T* right,
                        int64_t rank, int64_t begin, int64_t end) {
  std::array<T, kRowBlock> sums;
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t from = 0; from < columns; from += kRowBlock) {
      const int64_t count = std::min(kRowBlock, columns - from);
      std::fill_n(sums.begin(), count, T(0));
      for (int64_t k = 0; k < rank; ++k) {
        const T factor = left[k * rows + row];
        const T* const values = right + k * columns + from;
        for (int64_t j = 0; j < count; ++j) sums[static_cast<size_t>(j)] += factor * values[j];
      }
      T* const own = matrix + row * columns + from;
      T* const kept = error + row * columns + from;
      for (int64_t j = 0; j < count; ++j) {
        const T sum = sums[static_cast<size_t>(j)];
        kept[j] = own[j] - share * sum;
        own[j] = sum;
      }
    }
  }
}

template <typename T>
void orthonormalize(T* columns, int64_t length, int64_t rank, const std::function<void(int64_t, T*)>& refill) {
  for (int64_t column = 0; column < rank; ++column) {
    if (project(columns, length, column)) continue;
    T* const own = columns + column * length;
    if (refill) {
      refill(column, own);
      if (project(columns, length, column)) continue;
    }
    std::fill_n(own, length, T(0));
  }
}

#define TRAINYARD_LOW_RANK(T)                                                                                      \
  template void add_and_multiply<T>(T*, const T*, T, int64_t, int64_t, const T*, int64_t, T*, int64_t, int64_t);   \
  template void multiply_transposed<T>(const T*, int64_t, int64_t, const T*, int64_t, T*, int64_t, int64_t);       \
  template void replace_by_product<T>(T*, T*, T, int64_t, int64_t, const T*, const T*, int64_t, int64_t, int64_t); \
  template void orthonormalize<T>(T*, int64_t, int64_t, const std::function<void(int64_t, T*)>&);
TRAINYARD_LOW_RANK(float)
TRAINYARD_LOW_RANK(double)
#undef TRAINYARD_LOW_RANK

}  // namespace trainyard::parallel
