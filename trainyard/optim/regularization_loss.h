// The weight decay term of the loss, as it is reported.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/export.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/optim/optimizer.h"
#include "trainyard/optim/step/device_kernels.h"
#include "trainyard/optim/step/segment_parts.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::optim {

class L2Loss {
 public:
  // `parameters` is allocated and outlives it. Throws kUnsupported as device_kernels() does.
  L2Loss(const nn::ParameterSet& parameters, double weight_decay);
  // Takes the weight decay that each segment of the optimizer has now. On devices, which have no groups, it is the same
  // for all decayed parameters.
  explicit L2Loss(const Optimizer& optimizer);

  // weight_decay * sum over decayed parameters of w^2 / 2, in double: [] float64 on their device. The same bits on any
  // number of threads.
  at::Tensor operator()() const;

 private:
  const nn::ParameterSet* parameters_;
  // On the CPU: by part, 0 where there is no decay. On a device, which knows from its parts where there is some: one.
  std::vector<double> decays_;
  SegmentPartTable parts_;
  const DeviceKernels* device_;  // null on the CPU
};

}  // namespace trainyard::optim
TRAINYARD_EXPORT_END
