// Sharpness-aware minimization (Foret, Kleiner, Mobahi and Neyshabur, "Sharpness-Aware Minimization for Efficiently
// Improving Generalization", 2021, algorithm 1 with p = 2) around any optimizer: the gradient that it applies at w is
// that at w + rho g / |g|, where g is the gradient at w.
//
//   SharpnessAware sam(*optimizer, {.rho = 0.05});
//   backward();                 // at w
//   sam.perturb(state);
//   backward();                 // the same batch, with the same random numbers, at w + e
//   sam.descend(state);
//   optimizer->apply(state);    // at w
//
// g is the gradient of the whole loss, regularization included, as in the authors' code, and |g| its norm over all
// parameters that the optimizer updates. Masked elements neither move nor count.
#pragma once

#include <ATen/core/Tensor.h>

#include "trainyard/optim/optimizers/optimizer.h"
#include "trainyard/optim/step/step_state.h"

namespace trainyard::optim {

// One thread at a time.
class SharpnessAware {
 public:
  // `optimizer` must outlive it. Throws kInvalidArgument for bad options, kUnsupported where parameters lie on a
  // device.
  SharpnessAware(Optimizer& optimizer, const SharpnessAwareOptions& options);

  // Completes the gradients, keeps a copy of the values, and perturbs them. Returns |g|. When that is 0 or not finite
  // the values do not change, so that a second pass computes the same.
  double perturb(const StepState& state);
  // Completes the gradients at the perturbed values, and restores the original values bit for bit. The apply() that
  // follows adds no regularization.
  void descend(const StepState& state);
  // Only restores the values. Does nothing when they are not perturbed.
  void put_back();

 private:
  Optimizer* optimizer_;
  SharpnessAwareOptions options_;
  at::Tensor values_;  // [total] of before perturb()
  bool away_ = false;
};

}  // namespace trainyard::optim
