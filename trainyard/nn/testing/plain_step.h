// A step of gradient descent without an optimizer, for tests of executors.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/execution/gradient_sink.h"
#include "trainyard/nn/execution/loss.h"
#include "trainyard/nn/execution/parameter_set.h"

namespace trainyard::nn {

// Runs forward and backward, subtracts `rate` times the gradients, and returns the loss.
inline double plain_step(Executor& executor, ParameterSet& set, GradientSink& sink, const at::Tensor& images,
                         const at::Tensor& labels, const StepRandom& random, double rate) {
  sink.begin(0, 1);
  const at::Tensor loss = softmax_cross_entropy(executor.forward(images, random), labels);
  loss.backward();
  sink.finish();
  const at::NoGradGuard no_grad;
  set.values().add_(set.gradients(), -rate);
  set.values_changed();
  return loss.item<double>();
}

}  // namespace trainyard::nn
