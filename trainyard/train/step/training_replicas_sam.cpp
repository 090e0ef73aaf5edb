// The second pass of a TowerTrainer's step with sharpness-aware minimization.
#include <utility>

#include <ATen/core/grad_mode.h>

#include "trainyard/train/step/foreign_random.h"
#include "trainyard/train/step/training_replicas.h"

namespace trainyard::train {

void TowerTrainer::Replicas::pass_again(int64_t step) {
  try {
    // All have reduced before the first one climbs: replicas may share values.
    threads_->run([this](int r) { climb(r); });
    if (aten_random_.defined()) set_aten_random_state(aten_random_);
    for (int micro_step = 0; micro_step < options_.micro_steps; ++micro_step) {
      threads_->run([&](int r) {
        forward_backward(r, step, micro_step,
                         replicas_[static_cast<size_t>(r)].batches[static_cast<size_t>(micro_step)]);
        if (micro_step == options_.micro_steps - 1) reduce(r);
      });
    }
    threads_->run([this, step](int r) {
      apply_update(r);
      if (r == 0) follow_weights(step);
    });
  } catch (...) {
    for (Replica& replica : replicas_) {
      if (replica.sharpness) replica.sharpness->put_back();
    }
    throw;
  }
}

void TowerTrainer::Replicas::climb(int r) {
  const at::NoGradGuard without_gradients;
  Replica& replica = replicas_[static_cast<size_t>(r)];
  const nn::ParameterSet& parameters = update_->parameters(r);
  replica.first_view = replica.view;
  replica.statistics.clear();
  for (size_t b = 0; b < parameters.buffer_count(); ++b) {
    replica.statistics.push_back(parameters.buffer(static_cast<int>(b)).clone());
  }
  if (!replica.sharpness) return;
  if (replica.loss_scaler) {
    replica.state.tensor()[optim::StepState::kInverseLossScale] = replica.loss_scaler->scale().reciprocal();
  }
  replica.sharpness->climb(replica.state);
}

// Leaves the gradients of the second pass, and otherwise what the first one has left.
void TowerTrainer::Replicas::come_back(int r) {
  Replica& replica = replicas_[static_cast<size_t>(r)];
  if (replica.sharpness) replica.sharpness->descend(replica.state);
  const at::Tensor inverse_loss_scale = replica.view.inverse_loss_scale;
  replica.view = std::exchange(replica.first_view, {});
  replica.view.inverse_loss_scale = inverse_loss_scale;
  const nn::ParameterSet& parameters = update_->parameters(r);
  for (size_t b = 0; b < replica.statistics.size(); ++b) {
    parameters.buffer(static_cast<int>(b)).copy_(replica.statistics[b]);
  }
}

}  // namespace trainyard::train
