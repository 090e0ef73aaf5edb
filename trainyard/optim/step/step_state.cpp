#include "trainyard/optim/step/step_state.h"

#include <algorithm>
#include <array>

#include <ATen/ops/zeros.h>

#include "trainyard/optim/step/device_kernels.h"

namespace trainyard::optim {

StepState::StepState(at::Device device)
    : tensor_(at::zeros({kFieldCount}, at::TensorOptions().dtype(at::kDouble).device(device))),
      device_(device_kernels(device)) {}

void StepState::write(const StepValues& values) {
  std::array<double, kFieldCount> fields{};
  fields[kLearningRate] = values.learning_rate;
  fields[kInverseLossScale] = values.inverse_loss_scale;
  fields[kStep] = static_cast<double>(values.step);
  fields[kFoundInf] = values.found_inf ? 1.0 : 0.0;
  if (device_ != nullptr) {
    device_->write_fields(tensor_, fields);
  } else {
    std::copy(fields.begin(), fields.end(), tensor_.data_ptr<double>());
  }
}

StepValues StepState::read() const {
  const at::Tensor host = tensor_.cpu();
  const auto* fields = host.const_data_ptr<double>();
  return {.learning_rate = fields[kLearningRate],
          .inverse_loss_scale = fields[kInverseLossScale],
          .step = static_cast<int64_t>(fields[kStep]),
          .found_inf = fields[kFoundInf] != 0.0};
}

}  // namespace trainyard::optim
