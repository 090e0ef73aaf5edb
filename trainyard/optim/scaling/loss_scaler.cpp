#include "trainyard/optim/scaling/loss_scaler.h"

#include <cmath>

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/optim/step/finite.h"

namespace trainyard::optim {

void LossScalerOptions::validate() const {
  const auto require = [](bool good, const char* what, const char* expected, const std::string& actual) {
    if (good) return;
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = fmt::format("{} is not usable", what), .expected = expected, .actual = actual});
  };
  require(std::isfinite(scale) && scale > 0, "the loss scale", "a finite number above 0", fmt::format("{}", scale));
  require(raise_after >= 1, "the number of steps between two rises of the loss scale", "at least 1",
          std::to_string(raise_after));
}

LossScaler::LossScaler(const LossScalerOptions& options, at::Device device) : options_(options) {
  options_.validate();
  at::Tensor host = at::empty({2}, at::kDouble);
  host[0] = options_.scale;
  host[1] = 0.0;
  state_ = host.to(device);
  device_ = device_kernels(device);
  if (device_ != nullptr && options_.automatic) {
    found_ = at::empty({1}, at::TensorOptions().dtype(at::kInt).device(device));
  }
}

at::Tensor LossScaler::scale() const {
  return state_[0];
}

at::Tensor LossScaler::clean_steps() const {
  return state_[1];
}

void LossScaler::end_step(const at::Tensor& gradients, StepState& state) {
  const at::Tensor tensor = state.tensor();
  if (device_ != nullptr) {
    if (options_.automatic) device_->find_non_finite(gradients, found_);
    device_->apply_loss_scale(state_, found_, options_.raise_after, tensor);
    return;
  }
  static_assert(sizeof(LossScale) == 2 * sizeof(double));
  auto* const scale = static_cast<LossScale*>(state_.data_ptr());
  auto* const fields = tensor.data_ptr<double>();
  const bool found = options_.automatic && !all_finite(gradients);
  fields[StepState::kInverseLossScale] = 1.0 / scale->scale;
  fields[StepState::kFoundInf] = found ? 1.0 : 0.0;
  if (options_.automatic) *scale = next_loss_scale(*scale, found, options_.raise_after);
}

void LossScaler::save(core::StateWriter& writer) const {
  writer.tensor("scale", state_[0]);
  writer.tensor("clean_steps", state_[1]);
}

void LossScaler::load(const core::StateReader& reader) {
  at::Tensor scale = state_[0], clean_steps = state_[1];
  reader.tensor("scale", scale);
  reader.tensor("clean_steps", clean_steps);
}

}  // namespace trainyard::optim
