#include "trainyard/optim/l2_loss.h"

#include <array>
#include <cstdint>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/scalar_tensor.h>

namespace trainyard::optim {
namespace {

// In eight lanes, which the compiler may keep in vector registers: the order of the additions is part of the result.
template <typename T>
double sum_of_squares(const T* values, int64_t count) {
  constexpr int64_t kLanes = 8;
  std::array<double, kLanes> lanes{};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const auto value = static_cast<double>(values[i + lane]);
      lanes[static_cast<size_t>(lane)] += value * value;
    }
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  for (; i < count; ++i) sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  return sum;
}

}  // namespace

L2Loss::L2Loss(const nn::ParameterSet& parameters, double weight_decay)
    : parameters_(&parameters),
      weight_decay_(weight_decay),
      parts_(segment_part_table(parameters)),
      device_(device_kernels(parameters.values().device())) {}

at::Tensor L2Loss::operator()() const {
  const at::Tensor values = parameters_->values();
  if (device_ != nullptr) return device_->sum_of_decayed_squares(values, parts_).mul_(weight_decay_ / 2);
  const SegmentPart* const parts = parts_.data();
  std::vector<double> sums(static_cast<size_t>(parts_.count));
  at::parallel_for(0, parts_.count, 16, [&](int64_t first, int64_t last) {
    for (int64_t p = first; p < last; ++p) {
      const SegmentPart& part = parts[p];
      if (part.decays == 0) continue;
      sums[static_cast<size_t>(p)] = values.scalar_type() == at::kDouble
                                         ? sum_of_squares(values.const_data_ptr<double>() + part.begin, part.count)
                                         : sum_of_squares(values.const_data_ptr<float>() + part.begin, part.count);
    }
  });
  double sum = 0;
  for (const double part : sums) sum += part;
  return at::scalar_tensor(weight_decay_ * sum / 2, at::kDouble);
}

}  // namespace trainyard::optim
