#include "trainyard/train/step/sharpness_aware_pass.h"

#include <utility>

#include <ATen/core/grad_mode.h>

#include "trainyard/train/step/foreign_random.h"

namespace trainyard::train {

SharpnessAwarePass::SharpnessAwarePass(ReplicaSet& replicas, ReplicaPass& pass)
    : replicas_(replicas), pass_(pass), copies_(static_cast<size_t>(replicas.size())) {
  for (int r = 0; r < replicas.size(); ++r) {
    if (optim::Optimizer* const optimizer = replicas.update().optimizer(r)) {
      replica(r).optimizer.emplace(*optimizer, *replicas.options().sharpness_aware);
    }
  }
}

void SharpnessAwarePass::run_second_pass() {
  const int micro_steps = replicas_.options().micro_steps;
  try {
    // All have reduced before the first one perturbs its weights: replicas may share values.
    replicas_.run([this](int r) { perturb_weights(r); });
    if (pass_.random_before_step().defined()) set_aten_random_state(pass_.random_before_step());
    for (int micro_step = 0; micro_step < micro_steps; ++micro_step) {
      replicas_.run([&](int r) {
        pass_.forward_backward(r, micro_step, replicas_[r].batches[static_cast<size_t>(micro_step)]);
        if (micro_step == micro_steps - 1) pass_.reduce(r);
      });
    }
    replicas_.run([this](int r) {
      pass_.apply_update(r, this);
      if (r == 0) pass_.update_weight_average();
    });
  } catch (...) {
    for (Replica& copy : copies_) {
      if (copy.optimizer) copy.optimizer->put_back();
    }
    throw;
  }
}

void SharpnessAwarePass::perturb_weights(int r) {
  const at::NoGradGuard without_gradients;
  train::Replica& own = replicas_[r];
  Replica& copy = replica(r);
  const nn::ParameterSet& parameters = replicas_.update().parameters(r);
  copy.first_view = own.view;
  copy.statistics.clear();
  for (size_t b = 0; b < parameters.buffer_count(); ++b) {
    copy.statistics.push_back(parameters.buffer(static_cast<int>(b)).clone());
  }
  if (!copy.optimizer) return;
  if (own.loss_scaler) {
    own.state.tensor()[optim::StepState::kInverseLossScale] = own.loss_scaler->scale().reciprocal();
  }
  copy.optimizer->perturb(own.state);
}

void SharpnessAwarePass::restore_weights(int r) {
  train::Replica& own = replicas_[r];
  Replica& copy = replica(r);
  if (copy.optimizer) copy.optimizer->descend(own.state);
  const at::Tensor inverse_loss_scale = own.view.inverse_loss_scale;
  own.view = std::exchange(copy.first_view, {});
  own.view.inverse_loss_scale = inverse_loss_scale;
  const nn::ParameterSet& parameters = replicas_.update().parameters(r);
  for (size_t b = 0; b < copy.statistics.size(); ++b) {
    parameters.buffer(static_cast<int>(b)).copy_(copy.statistics[b]);
  }
}

}  // namespace trainyard::train
