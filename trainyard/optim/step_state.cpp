#include "trainyard/optim/step_state.h"

#include <algorithm>
#include <array>

#include <ATen/ops/zeros.h>

#ifdef TRAINYARD_WITH_CUDA
#include "trainyard/nn/cuda/device_tensor.h"
#include "trainyard/optim/cuda/kernels.h"
#endif

namespace trainyard::optim {

StepState::StepState(at::Device device)
    : tensor_(at::zeros({kFieldCount}, at::TensorOptions().dtype(at::kDouble).device(device))) {}

void StepState::write(const StepValues& values) {
  std::array<double, kFieldCount> fields{};
  fields[kLearningRate] = values.learning_rate;
  fields[kInverseLossScale] = values.inverse_loss_scale;
  fields[kStep] = static_cast<double>(values.step);
  fields[kFoundInf] = values.found_inf ? 1.0 : 0.0;
  fields[kRandomOffset] = static_cast<double>(values.random_offset);
#ifdef TRAINYARD_WITH_CUDA
  if (tensor_.is_cuda()) {
    cuda::StepFields launched;
    std::copy(fields.begin(), fields.end(), launched.value);
    cuda::write_fields(tensor_.data_ptr<double>(), launched, kFieldCount, nn::cuda::current_stream());
    return;
  }
#endif
  std::copy(fields.begin(), fields.end(), tensor_.data_ptr<double>());
}

StepValues StepState::read() const {
  const at::Tensor host = tensor_.cpu();
  const auto* fields = host.const_data_ptr<double>();
  return {.learning_rate = fields[kLearningRate],
          .inverse_loss_scale = fields[kInverseLossScale],
          .step = static_cast<int64_t>(fields[kStep]),
          .found_inf = fields[kFoundInf] != 0.0,
          .random_offset = static_cast<int64_t>(fields[kRandomOffset])};
}

}  // namespace trainyard::optim
