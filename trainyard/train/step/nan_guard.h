// Watches the losses and gradients of replicas for NaN and infinity, and keeps a bad step from changing anything: the
// update is skipped by StepState's found_inf, and batch norm statistics, which the forward pass has already updated,
// are restored.
//
// All replicas that exchange gradients make the same decision, without an extra exchange: a replica whose loss is not
// finite writes NaN into its gradients before they are reduced, and each one checks the reduced gradients. Replicas
// that exchange nothing (--variable_update=independent) decide for themselves. All checked values are in host memory.
#pragma once

#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/optim/step/step_state.h"
#include "trainyard/train/step/tower_trainer.h"

namespace trainyard::train {

class NanGuard {
 public:
  struct Options {
    OnNan on_nan = OnNan::kStop;
    int replicas = 1;      // here
    bool exchange = true;  // gradients are exchanged, between replicas here or with other processes
    // True when an automatic loss scale handles the gradients: it provokes infinite gradients on purpose, and skips
    // their steps by its own rule. Then only losses are checked.
    bool scaler_owns_gradients = false;
  };
  explicit NanGuard(const Options& options);

  // Called in this order on the replica's thread: before its forward, before its gradients are reduced, before its
  // update.
  void begin_step(int replica, const nn::ParameterSet& parameters);
  void look_at_loss(int replica, const at::Tensor& loss, nn::ParameterSet& parameters);
  // Returns true when look_at_loss() writes into the gradients of a replica with this loss, so that none may be reduced
  // before.
  [[nodiscard]] bool marks_gradients(const at::Tensor& loss) const;
  // `finite`: what an update that is divided among replicas knows of all gradients; nothing: those of `parameters` are
  // checked.
  void look_at_gradients(int replica, const nn::ParameterSet& parameters, optim::StepState& state,
                         std::optional<bool> finite = std::nullopt);

  // Returns true when something was not finite. Between steps, on the trainer's thread.
  bool found() const;
  bool found(int replica) const;  // on this replica
  bool loss_found(int replica) const { return !std::isfinite(at(replica).loss); }
  // Returns the replica's loss that look_at_loss() got last; 0 from begin_step() on.
  double loss(int replica) const { return at(replica).loss; }
  // Returns the first gradient that is not finite, ignoring the mark of a loss that is not finite.
  std::optional<std::string> first_gradient(const nn::ParameterSet& parameters) const;
  // Restores the statistics from begin_step(). May be called again.
  void restore_statistics(int replica, nn::ParameterSet& parameters) const;
  // Stops checking, for kIgnore after its only warning.
  void stop_watching() { watching_ = false; }
  bool watching() const { return watching_; }

 private:
  // Each on a cache line of its own, because replicas write at the same moment.
  struct alignas(64) Replica {
    double loss = 0;
    bool gradients = false;             // not finite
    std::vector<std::byte> statistics;  // all buffers, concatenated
  };
  const Replica& at(int replica) const { return replicas_.at(static_cast<size_t>(replica)); }
  Replica& at(int replica) { return replicas_.at(static_cast<size_t>(replica)); }

  Options options_;
  bool watching_ = true;
  std::vector<Replica> replicas_;
};

// Returns a description of the first gradient that is not finite, "conv1.weight (NaN)", or nullopt when all are finite.
// The order is that in which backward computes them. With `marked` the very first element is ignored.
std::optional<std::string> first_non_finite_gradient(const nn::ParameterSet& parameters, bool marked = false);
// Returns the same for parameters and statistics.
std::optional<std::string> first_non_finite_value(const nn::ParameterSet& parameters);

}  // namespace trainyard::train
