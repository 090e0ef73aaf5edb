#include "trainyard/optim/step/finite.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <type_traits>

#include <ATen/Parallel.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/isinf.h>
#include <ATen/ops/isnan.h>

namespace trainyard::optim {
namespace {

constexpr int64_t kChunk = 4096;  // elements between two looks at what was found: they fit into the first cache
constexpr int64_t kFiniteGrain = 64 * kChunk;  // elements a thread at least: less is not worth waking one

// A number is not finite when all bits of its exponent are set. On integers, so that no option for fast arithmetic can
// take the test away, and without a branch, so that it becomes vector instructions.
template <typename T>
bool chunk_is_finite(const T* values, int64_t count) {
  using Bits = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
  constexpr Bits kExponent = sizeof(T) == 8 ? Bits(0x7ff0000000000000) : Bits(0x7f800000);
  Bits found = 0;
  for (int64_t i = 0; i < count; ++i) {
    found |= static_cast<Bits>((std::bit_cast<Bits>(values[i]) & kExponent) == kExponent);
  }
  return found == 0;
}

template <typename T>
bool range_is_finite(const T* values, int64_t count) {
  std::atomic<bool> finite = true;
  at::parallel_for(0, count, kFiniteGrain, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end && finite.load(std::memory_order_relaxed); at += kChunk) {
      if (!chunk_is_finite(values + at, std::min(kChunk, end - at))) finite.store(false, std::memory_order_relaxed);
    }
  });
  return finite.load();
}

}  // namespace

bool all_finite(const float* values, int64_t count) {
  return chunk_is_finite(values, count);
}

bool all_finite(const double* values, int64_t count) {
  return chunk_is_finite(values, count);
}

bool all_finite(const at::Tensor& values) {
  if (!values.is_floating_point()) return true;
  if (values.is_cpu() && values.is_non_overlapping_and_dense()) {
    if (values.scalar_type() == at::kFloat) return range_is_finite(values.const_data_ptr<float>(), values.numel());
    if (values.scalar_type() == at::kDouble) return range_is_finite(values.const_data_ptr<double>(), values.numel());
  }
  return values.isfinite().all().item<bool>();
}

const char* non_finite_kind(const at::Tensor& values) {
  if (!values.is_floating_point()) return "";
  const bool nan = values.isnan().any().item<bool>(), infinite = values.isinf().any().item<bool>();
  if (nan) return infinite ? "NaN and inf" : "NaN";
  return infinite ? "inf" : "";
}

}  // namespace trainyard::optim
