#include "trainyard/parallel/threads/rank_reduction.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <type_traits>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "trainyard/core/base/error.h"

namespace trainyard::parallel {
namespace {

using core::ReduceOp;

// What is read at once: small enough to stay in the first cache while the ranks are added up.
constexpr int64_t kBlock = 1024;

template <typename T>
bool is_nan(T value) {
  if constexpr (std::is_floating_point_v<T>) {
    return value != value;
  } else {
    return false;
  }
}

template <ReduceOp kOp, typename Sum>
Sum combined(Sum a, Sum b) {
  if constexpr (kOp == ReduceOp::kMax) {
    return a > b || is_nan(a) ? a : b;
  } else if constexpr (kOp == ReduceOp::kMin) {
    return a < b || is_nan(a) ? a : b;
  } else {
    return a + b;
  }
}

template <ReduceOp kOp, typename T>
void reduce(std::span<void* const> buffers, int64_t begin, int64_t end) {
  constexpr bool kNarrow = std::is_same_v<T, c10::BFloat16> || std::is_same_v<T, c10::Half>;
  using Sum = std::conditional_t<kNarrow, float, T>;
  std::array<Sum, kBlock> sums;
  for (int64_t at = begin; at < end; at += kBlock) {
    const int64_t count = std::min(kBlock, end - at);
    const T* first = static_cast<const T*>(buffers[0]) + at;
    for (int64_t i = 0; i < count; ++i) sums[i] = static_cast<Sum>(first[i]);
    for (void* buffer : buffers.subspan(1)) {
      const T* values = static_cast<const T*>(buffer) + at;
      for (int64_t i = 0; i < count; ++i) sums[i] = combined<kOp>(sums[i], static_cast<Sum>(values[i]));
    }
    if constexpr (kOp == ReduceOp::kMean) {
      for (int64_t i = 0; i < count; ++i) sums[i] /= static_cast<Sum>(buffers.size());
    }
    for (void* buffer : buffers) {
      T* values = static_cast<T*>(buffer) + at;
      for (int64_t i = 0; i < count; ++i) values[i] = static_cast<T>(sums[i]);
    }
  }
}

using Reduce = void (*)(std::span<void* const>, int64_t, int64_t);

template <typename T>
Reduce reduce_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return reduce<ReduceOp::kSum, T>;
    case ReduceOp::kMean:
      if constexpr (std::is_integral_v<T>) return nullptr;
      return reduce<ReduceOp::kMean, T>;
    case ReduceOp::kMax:
      return reduce<ReduceOp::kMax, T>;
    case ReduceOp::kMin:
      return reduce<ReduceOp::kMin, T>;
  }
  return nullptr;
}

Reduce find_reduce(at::ScalarType type, ReduceOp op) {
  switch (type) {
    case at::ScalarType::Float:
      return reduce_of<float>(op);
    case at::ScalarType::Double:
      return reduce_of<double>(op);
    case at::ScalarType::BFloat16:
      return reduce_of<c10::BFloat16>(op);
    case at::ScalarType::Half:
      return reduce_of<c10::Half>(op);
    case at::ScalarType::Long:
      return reduce_of<int64_t>(op);
    case at::ScalarType::Int:
      return reduce_of<int32_t>(op);
    default:
      return nullptr;
  }
}

}  // namespace

bool can_reduce(at::ScalarType type, ReduceOp op) {
  return find_reduce(type, op) != nullptr;
}

void reduce_range(at::ScalarType type, ReduceOp op, std::span<void* const> buffers, int64_t begin, int64_t end) {
  const Reduce function = find_reduce(type, op);
  if (function == nullptr) {
    throw core::Error(core::ErrorCode::kInternal, std::string("no reduction for ") + c10::toString(type));
  }
  if (!buffers.empty()) function(buffers, begin, end);
}

}  // namespace trainyard::parallel
