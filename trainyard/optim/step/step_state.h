// The numbers that change from step to step, on the device: written by one copy before a step and read by kernels
// without a branch on the host, so that the whole step can be captured and replayed.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/export.h"

namespace trainyard::optim {
class DeviceKernels;
}

TRAINYARD_EXPORT_BEGIN
namespace trainyard::optim {

struct StepValues {
  double learning_rate = 0.0;
  double inverse_loss_scale = 1.0;
  int64_t step = 0;        // global step, from 0
  bool found_inf = false;  // true: the update is skipped, as a select in the kernel
};

class StepState {
 public:
  enum Field { kLearningRate, kInverseLossScale, kStep, kFoundInf, kFieldCount };

  // Throws kUnsupported as device_kernels() does.
  explicit StepState(at::Device device = at::kCPU);

  void write(const StepValues& values);
  // [kFieldCount] float64 on the device. A finite check on the device sets kFoundInf here.
  at::Tensor tensor() const { return tensor_; }
  // Reads the values back, which waits for the device.
  StepValues read() const;

 private:
  at::Tensor tensor_;
  const DeviceKernels* device_;  // null on the CPU
};

}  // namespace trainyard::optim
TRAINYARD_EXPORT_END
