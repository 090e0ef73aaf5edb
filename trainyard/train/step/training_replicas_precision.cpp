// Loss scales and 16-bit variables of a TowerTrainer's replicas.
#include <string>

#include <fmt/format.h>

#include "trainyard/core/base/scoped_state.h"
#include "trainyard/train/step/training_replicas.h"

namespace trainyard::train {

namespace {

// In front of what a replica saves of its own.
std::string replica_prefix(size_t replica) {
  return fmt::format("replica/{}/", replica);
}

}  // namespace

std::optional<double> TowerTrainer::Replicas::loss_scale() const {
  if (!replicas_[0].loss_scaler) return std::nullopt;
  const nn::AcceleratorScope on_device = use(0);
  return replicas_[0].loss_scaler->scale().item<double>();
}

std::optional<double> TowerTrainer::Replicas::loss_scale_normal_steps() const {
  if (!replicas_[0].loss_scaler) return std::nullopt;
  const nn::AcceleratorScope on_device = use(0);
  return replicas_[0].loss_scaler->clean_steps().item<double>();
}

void TowerTrainer::Replicas::save_loss_scale(core::StateWriter& writer) const {
  if (!replicas_[0].loss_scaler) return;
  replicas_[0].loss_scaler->save(writer);
  if (exchange_gradients(options_)) return;
  for (size_t r = 1; r < replicas_.size(); ++r) {
    core::ScopedWriter own(writer, replica_prefix(r));
    replicas_[r].loss_scaler->save(own);
  }
}

void TowerTrainer::Replicas::load_loss_scale(const core::StateReader& reader) {
  if (reader.names().empty()) return;
  for (size_t r = 0; r < replicas_.size(); ++r) {
    const nn::AcceleratorScope on_device = use(static_cast<int>(r));
    if (!replicas_[r].loss_scaler) continue;
    const bool own = r > 0 && !exchange_gradients(options_) && !reader.names(replica_prefix(r)).empty();
    replicas_[r].loss_scaler->load(core::ScopedReader(reader, own ? replica_prefix(r) : ""));
  }
}

void TowerTrainer::Replicas::look_at_loss_scales(int64_t step) const {
  if (!options_.devices.loss_scale || !options_.devices.loss_scale->automatic) return;
  const int64_t most = options_.devices.loss_scale->most_skips_at_floor;
  for (int r = 0; most > 0 && r < options_.devices.replicas; ++r) {
    const nn::AcceleratorScope on_device = use(r);
    const optim::LossScaler& scaler = *replicas_[static_cast<size_t>(r)].loss_scaler;
    const auto skips = static_cast<int64_t>(scaler.skips_at_floor().item<double>());
    if (skips >= most) {
      const std::optional<std::string> gradient = first_non_finite_gradient(update_->parameters(r));
      throw core::Error(
          core::ErrorCode::kCorruptData,
          {.problem = fmt::format(
               "{} steps in a row were skipped under a loss scale of 1 or less: the gradient of {} is not finite{}",
               skips, gradient.value_or("no parameter any more"),
               exchange_gradients(options_) || options_.devices.replicas == 1 ? "" : fmt::format(" on replica {}", r)),
           .where = fmt::format("global step {}", step + 1),
           .remedy = "look at the data, lower the learning rate, or lengthen its warm-up; --loss_scale_most_skips=0 "
                     "goes on for ever"});
    }
    if (exchange_gradients(options_)) return;  // all have seen the same
  }
}

void TowerTrainer::Replicas::round_variables(int r) {
  if (!options_.devices.variables_as) return;
  const auto round = [this](const at::Tensor& numbers) { numbers.copy_(numbers.to(*options_.devices.variables_as)); };
  const optim::Optimizer* const optimizer = update_->optimizer(r, static_cast<int>(cost_));
  if (optimizer == nullptr) return;
  nn::ParameterSet& parameters = optimizer->parameters();
  round(parameters.values());
  for (const optim::Optimizer::Slot& slot : optimizer->slots()) round(slot.values);
  parameters.values_changed();
}

void TowerTrainer::Replicas::round_all_variables() {
  for (int r = 0; r < options_.devices.replicas; ++r) {
    const nn::AcceleratorScope on_device = use(r);
    round_variables(r);
  }
}

}  // namespace trainyard::train
