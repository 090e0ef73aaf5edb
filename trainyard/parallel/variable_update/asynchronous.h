// Asynchronous training with a parameter server. Each replica has a copy of the values and runs at its own pace: its
// gradients are applied to the server's values as they arrive, unreduced, and it then copies the server's values (Dean
// et al., "Large scale distributed deep networks", 2012, section 4.1, with one shard). Replicas wait only while another
// one updates the server; so gradients are applied to values that others have changed since.
//
// reduce() does nothing, and update() is not collective: any replica may call it any number of times. Weight decay and
// other regularization are added by the server, once for each gradient. So n replicas take n steps at a time: use the
// learning rate of one. With the reduction kMean each gradient, and the regularization that the loss holds, is divided
// by n first: n updates then move the values about as far as one by the mean of the gradients would (Tensorpack's
// AsyncMultiGPUTrainer with scale_gradient).
//
// Each gradient is an update of the optimizer: Lookahead's steps and counts of updates are those of all replicas.
//
// The server's set is saved, evaluated and exported, with the batch norm statistics of replica 0. Replicas have its
// values after their next update, and all have them after load(). The server trains the parameters that replica 0
// trains (ParameterSet::set_trainable). Masks are set on saved_parameters().
#pragma once

#include <cstdint>
#include <memory>

#include "trainyard/parallel/variable_update/local_variable_update.h"

namespace trainyard::parallel {

// update() may be called by all replicas' threads at once; for all else see VariableUpdate.
class AsynchronousUpdate : public LocalVariableUpdate {
 public:
  // Without a reduction gradients are applied unchanged, as with kSum. Throws kUnsupported with accelerators; so does
  // allocate() where several replicas have an optimizer with Lookahead::final_alpha.
  explicit AsynchronousUpdate(const VariableUpdateOptions& options);
  ~AsynchronousUpdate() override;

  void allocate() override;
  void reduce(int /*replica*/) override {}
  void update(int replica, const optim::StepState& state, int optimizer) override;
  void change_values(const std::function<void(nn::ParameterSet&)>& change) override;
  void broadcast() override;
  nn::ParameterSet& saved_parameters() override;
  // Returns the server's optimizer for replica 0, null for the others. Call it between steps.
  optim::Optimizer* optimizer(int replica, int index) const override;
  int64_t optimizer_bytes() const override;

  // Save what all modes save, and "asynchronous/updates": how many gradients the server has applied since the training
  // began, including those that found_inf has skipped. A state of another mode starts the count at 0.
  void save(core::StateWriter& writer) const override;
  void load(const core::StateReader& reader) override;

 protected:
  bool has_own_optimizers(int /*replica*/) const override { return false; }

 private:
  struct Server;
  // Copies from replica 0 to the server which parameters train, and the statistics. Needs the lock.
  void follow_replica_0() const;

  double gradient_factor_;
  std::unique_ptr<Server> server_;
};

}  // namespace trainyard::parallel
