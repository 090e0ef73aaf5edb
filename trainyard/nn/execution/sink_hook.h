// Sends autograd's gradients to a GradientSink.
#pragma once

#include <ATen/core/Tensor.h>

#include "trainyard/nn/execution/gradient_sink.h"

namespace trainyard::nn {

// Makes autograd write each gradient of `leaf` (requires grad) to `sink` as that of `id`; its own .grad() stays
// undefined. One hook per leaf. The sink must outlive the leaf's last backward.
void send_gradients(const at::Tensor& leaf, GradientSink& sink, ParameterId id);

}  // namespace trainyard::nn
