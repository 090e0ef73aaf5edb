#include "trainyard/optim/l2_loss.h"

#include <algorithm>
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
      parts_(segment_part_table(parameters)),
      device_(device_kernels(parameters.values().device())) {
  decays_ = {weight_decay};
  if (device_ != nullptr) return;
  decays_.clear();
  for (int p = 0; p < parts_.count; ++p) decays_.push_back(parts_.data()[p].decays == 0 ? 0 : weight_decay);
}

L2Loss::L2Loss(const Optimizer& optimizer) : L2Loss(optimizer.parameters(), optimizer.options().weight_decay) {
  if (device_ != nullptr) return;
  const std::vector<nn::Segment>& segments = parameters_->segments();
  for (int p = 0; p < parts_.count; ++p) {
    const int64_t begin = parts_.data()[p].begin;
    const auto behind = std::partition_point(segments.begin(), segments.end(),
                                             [begin](const nn::Segment& segment) { return segment.offset <= begin; });
    decays_[static_cast<size_t>(p)] = optimizer.weight_decay(static_cast<size_t>(behind - segments.begin()) - 1);
  }
}

at::Tensor L2Loss::operator()() const {
  const at::Tensor values = parameters_->values();
  if (device_ != nullptr) return device_->sum_of_decayed_squares(values, parts_).mul_(decays_[0] / 2);
  const SegmentPart* const parts = parts_.data();
  std::vector<double> sums(static_cast<size_t>(parts_.count));
  at::parallel_for(0, parts_.count, 16, [&](int64_t first, int64_t last) {
    for (int64_t p = first; p < last; ++p) {
      const SegmentPart& part = parts[p];
      if (decays_[static_cast<size_t>(p)] == 0) continue;
      sums[static_cast<size_t>(p)] = values.scalar_type() == at::kDouble
                                         ? sum_of_squares(values.const_data_ptr<double>() + part.begin, part.count)
                                         : sum_of_squares(values.const_data_ptr<float>() + part.begin, part.count);
    }
  });
  double loss = 0;
  for (size_t p = 0; p < sums.size(); ++p) loss += decays_[p] * sums[p] / 2;
  return at::scalar_tensor(loss, at::kDouble);
}

}  // namespace trainyard::optim
