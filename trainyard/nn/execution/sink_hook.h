// The way of autograd's gradients into a GradientSink.
#pragma once

#include <ATen/core/Tensor.h>

#include "trainyard/nn/execution/gradient_sink.h"

namespace trainyard::nn {

// Makes `leaf` (requires grad) hand each gradient that autograd accumulates for it to `sink` as that of `id`; its own
// .grad() stays undefined. One hook a leaf. The sink must outlive the leaf's last backward.
void send_gradients(const at::Tensor& leaf, GradientSink& sink, ParameterId id);

}  // namespace trainyard::nn
