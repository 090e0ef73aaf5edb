#include "trainyard/parallel/collectives/plan/rank_reduction.h"

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

template <typename T>
using SumOf = std::conditional_t<std::is_same_v<T, c10::BFloat16> || std::is_same_v<T, c10::Half>, float, T>;

// What a reduction reads and writes, as the functions of the header describe it.
struct Reduction {
  const void* before;  // null: nothing
  std::span<void* const> buffers;
  int64_t begin, end;
  void* partial;  // null: the result goes into the buffers
  int ranks;
  bool has_all = false;    // `before` holds the results of all ranks already
  void* result = nullptr;  // where the result goes instead of the buffers
};

template <ReduceOp kOp, typename T>
void reduce(const Reduction& task) {
  using Sum = SumOf<T>;
  std::array<Sum, kBlock> sums;
  for (int64_t at = task.begin; at < task.end; at += kBlock) {
    const int64_t count = std::min(kBlock, task.end - at), offset = at - task.begin;
    std::span<void* const> rest = task.has_all ? std::span<void* const>() : task.buffers;
    if (task.before != nullptr) {
      std::copy_n(static_cast<const Sum*>(task.before) + offset, count, sums.begin());
    } else {
      const T* first = static_cast<const T*>(rest[0]) + at;
      for (int64_t i = 0; i < count; ++i) sums[i] = static_cast<Sum>(first[i]);
      rest = rest.subspan(1);
    }
    for (void* buffer : rest) {
      const T* values = static_cast<const T*>(buffer) + at;
      for (int64_t i = 0; i < count; ++i) sums[i] = combined<kOp>(sums[i], static_cast<Sum>(values[i]));
    }
    if (task.partial != nullptr) {
      std::copy_n(sums.begin(), count, static_cast<Sum*>(task.partial) + offset);
      continue;
    }
    if constexpr (kOp == ReduceOp::kMean) {
      for (int64_t i = 0; i < count; ++i) sums[i] /= static_cast<Sum>(task.ranks);
    }
    if (task.result != nullptr) {
      T* values = static_cast<T*>(task.result) + offset;
      for (int64_t i = 0; i < count; ++i) values[i] = static_cast<T>(sums[i]);
      continue;
    }
    for (void* buffer : task.buffers) {
      T* values = static_cast<T*>(buffer) + at;
      for (int64_t i = 0; i < count; ++i) values[i] = static_cast<T>(sums[i]);
    }
  }
}

using Reduce = void (*)(const Reduction&);

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

Reduce require_reduce(at::ScalarType type, ReduceOp op) {
  const Reduce function = find_reduce(type, op);
  if (function != nullptr) return function;
  throw core::Error(core::ErrorCode::kInternal, std::string("no reduction for ") + c10::toString(type));
}

template <typename From, typename To>
void convert_all(const void* from, void* to, int64_t elements) {
  const auto* values = static_cast<const From*>(from);
  auto* results = static_cast<To*>(to);
  for (int64_t i = 0; i < elements; ++i) {
    // The 16-bit types convert from and to float only.
    results[i] = static_cast<To>(static_cast<float>(values[i]));
  }
}

using Convert = void (*)(const void*, void*, int64_t);

template <typename Wide>
Convert find_convert(bool widens, at::ScalarType narrow) {
  if (narrow == at::kBFloat16) return widens ? convert_all<c10::BFloat16, Wide> : convert_all<Wide, c10::BFloat16>;
  if (narrow == at::kHalf) return widens ? convert_all<c10::Half, Wide> : convert_all<Wide, c10::Half>;
  return nullptr;
}

}  // namespace

bool can_reduce(at::ScalarType type, ReduceOp op) {
  return find_reduce(type, op) != nullptr;
}

at::ScalarType partial_type(at::ScalarType type) {
  return type == at::kBFloat16 || type == at::kHalf ? at::kFloat : type;
}

void reduce_range(at::ScalarType type, ReduceOp op, std::span<void* const> buffers, int64_t begin, int64_t end) {
  const Reduce function = require_reduce(type, op);
  if (!buffers.empty()) function({nullptr, buffers, begin, end, nullptr, static_cast<int>(buffers.size())});
}

void reduce_to(at::ScalarType type, core::ReduceOp op, std::span<void* const> buffers, int64_t begin, int64_t end,
               void* result) {
  const Reduce function = require_reduce(type, op);
  function({nullptr, buffers, begin, end, nullptr, static_cast<int>(buffers.size()), false, result});
}

void reduce_partly(at::ScalarType type, ReduceOp op, const void* before, std::span<void* const> buffers, int64_t begin,
                   int64_t end, void* partial) {
  require_reduce(type, op)({before, buffers, begin, end, partial, 0});
}

void finish_reduction(at::ScalarType type, ReduceOp op, const void* before, std::span<void* const> buffers,
                      int64_t begin, int64_t end, int ranks) {
  require_reduce(type, op)({before, buffers, begin, end, nullptr, ranks});
}

void store_result(at::ScalarType type, core::ReduceOp op, const void* sums, std::span<void* const> buffers,
                  int64_t begin, int64_t end, int ranks) {
  require_reduce(type, op)({sums, buffers, begin, end, nullptr, ranks, true});
}

void convert(at::ScalarType from_type, const void* from, at::ScalarType to_type, void* to, int64_t elements) {
  const bool widens = to_type == at::kFloat || to_type == at::kDouble;
  const at::ScalarType wide = widens ? to_type : from_type, narrow = widens ? from_type : to_type;
  const Convert function = wide == at::kFloat    ? find_convert<float>(widens, narrow)
                           : wide == at::kDouble ? find_convert<double>(widens, narrow)
                                                 : nullptr;
  if (function == nullptr) {
    throw core::Error(core::ErrorCode::kInternal,
                      std::string("no conversion of ") + c10::toString(from_type) + " to " + c10::toString(to_type));
  }
  function(from, to, elements);
}

}  // namespace trainyard::parallel
