// Watches the losses and gradients of replicas for NaN and infinity, and keeps a bad step from changing anything: the
// update is skipped by StepState's found_inf, and batch norm statistics, which the forward pass has moved already, are
// put back.
//
// All replicas that exchange gradients decide alike, without an exchange of their own: one whose loss is not finite
// writes NaN into its gradients before they are reduced, and each looks at what the reduction gave it. Replicas that
// exchange nothing (--variable_update=independent) decide each for itself. What is read lies in the host's memory.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/optim/step/step_state.h"
#include "trainyard/train/step/on_nan.h"

namespace trainyard::train {

class NanGuard {
 public:
  struct Options {
    OnNan on_nan = OnNan::kStop;
    int replicas = 1;      // here
    bool exchange = true;  // of gradients, between replicas here or with other processes
    // True where an automatic loss scale owns the gradients: it skips steps with infinite ones by its own rule, and
    // makes them on purpose. Then only losses count.
    bool scaler_owns_gradients = false;
  };
  explicit NanGuard(const Options& options);

  // Called in this order on the replica's thread: before its forward, before its gradients are reduced, before its
  // update.
  void begin_step(int replica, const nn::ParameterSet& parameters);
  void look_at_loss(int replica, const at::Tensor& loss, nn::ParameterSet& parameters);
  // Returns true when look_at_loss() writes into the gradients of a replica with this loss, so that none may leave
  // before.
  [[nodiscard]] bool marks_gradients(const at::Tensor& loss) const;
  void look_at_gradients(int replica, const nn::ParameterSet& parameters, optim::StepState& state);

  // Returns true when something was not finite. Between steps, on the trainer's thread.
  bool found() const;
  bool found(int replica) const;  // in what this replica has seen
  bool loss_found(int replica) const { return at(replica).loss; }
  // Returns the first gradient that is not finite, without the mark of a loss that is not.
  std::optional<std::string> first_gradient(const nn::ParameterSet& parameters) const;
  // Puts back the statistics that begin_step() met. May be called again.
  void restore_statistics(int replica, nn::ParameterSet& parameters) const;
  // For kIgnore, when the only warning has been given: nothing more needs to be looked at.
  void stop_watching() { watching_ = false; }
  bool watching() const { return watching_; }

 private:
  // Each on a cache line of its own, because replicas write at the same moment.
  struct alignas(64) Replica {
    bool loss = false, gradients = false;  // not finite
    std::vector<std::byte> statistics;     // all buffers, one behind the other
  };
  const Replica& at(int replica) const { return replicas_.at(static_cast<size_t>(replica)); }
  Replica& at(int replica) { return replicas_.at(static_cast<size_t>(replica)); }

  Options options_;
  bool watching_ = true;
  std::vector<Replica> replicas_;
};

// Returns what a message says of the first gradient that is not finite: "conv1.weight (NaN)"; nullopt when all are
// finite. Gradients come in the order in which backward makes them. With `marked` the first element of all does not
// count.
std::optional<std::string> first_non_finite_gradient(const nn::ParameterSet& parameters, bool marked = false);
// Returns the same for parameters and statistics.
std::optional<std::string> first_non_finite_value(const nn::ParameterSet& parameters);

}  // namespace trainyard::train
