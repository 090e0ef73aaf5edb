#include "trainyard/train/step/loss_scales.h"

#include <string>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/base/scoped_state.h"
#include "trainyard/train/step/nan_guard.h"

namespace trainyard::train {

namespace {

// In front of what a replica saves of its own.
std::string replica_prefix(int replica) {
  return fmt::format("replica/{}/", replica);
}

}  // namespace

std::optional<LossScale> LossScales::read() const {
  const std::optional<optim::LossScaler>& scaler = replicas_[0].loss_scaler;
  if (!scaler) return std::nullopt;
  const nn::AcceleratorScope on_device = replicas_.use(0);
  LossScale scale{.scale = scaler->scale().item<double>()};
  if (replicas_.options().devices.loss_scale->automatic) scale.normal_steps = scaler->clean_steps().item<double>();
  return scale;
}

void LossScales::check(int64_t step) const {
  const TowerTrainerOptions& options = replicas_.options();
  const std::optional<optim::LossScalerOptions>& asked = options.devices.loss_scale;
  if (!asked || !asked->automatic) return;
  const int64_t most = asked->most_skips_at_floor;
  for (int r = 0; most > 0 && r < replicas_.size(); ++r) {
    const nn::AcceleratorScope on_device = replicas_.use(r);
    const auto skips = static_cast<int64_t>(replicas_[r].loss_scaler->skips_at_floor().item<double>());
    if (skips >= most) {
      const std::optional<std::string> gradient = first_non_finite_gradient(replicas_.update().parameters(r));
      throw core::Error(
          core::ErrorCode::kCorruptData,
          {.problem = fmt::format(
               "{} steps in a row were skipped under a loss scale of 1 or less: the gradient of {} is not finite{}",
               skips, gradient.value_or("no parameter any more"),
               exchange_gradients(options) || replicas_.size() == 1 ? "" : fmt::format(" on replica {}", r)),
           .where = fmt::format("global step {}", step + 1),
           .remedy = "look at the data, lower the learning rate, or lengthen its warm-up; --loss_scale_most_skips=0 "
                     "goes on for ever"});
    }
    if (exchange_gradients(options)) return;  // all have seen the same
  }
}

void LossScales::save(core::StateWriter& writer) const {
  if (!replicas_[0].loss_scaler) return;
  replicas_[0].loss_scaler->save(writer);
  if (exchange_gradients(replicas_.options())) return;
  for (int r = 1; r < replicas_.size(); ++r) {
    core::ScopedWriter own(writer, replica_prefix(r));
    replicas_[r].loss_scaler->save(own);
  }
}

void LossScales::load(const core::StateReader& reader) {
  if (reader.names().empty()) return;
  for (int r = 0; r < replicas_.size(); ++r) {
    const nn::AcceleratorScope on_device = replicas_.use(r);
    if (!replicas_[r].loss_scaler) continue;
    const bool own = r > 0 && !exchange_gradients(replicas_.options()) && !reader.names(replica_prefix(r)).empty();
    replicas_[r].loss_scaler->load(core::ScopedReader(reader, own ? replica_prefix(r) : ""));
  }
  const std::optional<LossScale> now = read();
  if (!now || !replicas_.options().devices.is_chief()) return;
  const auto saved = reader.tensor("scale").item<double>();
  if (now->scale != saved)
    core::log::info("the loss scale is {} instead of {}, that of the checkpoint", now->scale, saved);
}

}  // namespace trainyard::train
