// Each replica has a copy of the values and goes its own pace: its gradients are applied to a server's values as they
// come, unreduced, and it takes the values that this makes (Dean et al., "Large scale distributed deep networks", 2012,
// section 4.1, with one shard). Nobody waits for the others, but for the moment in which one of them is at the server;
// gradients are so applied to values that others have changed since.
//
// reduce() does nothing, and update() is not collective: any replica may call it any number of times. Weight decay and
// other regularization are added by the server, once for each gradient. n replicas so take n steps at a time: the
// learning rate is that of one. With the reduction kMean each gradient, and the regularization that the loss holds, is
// divided by n first: n updates then move the values about as far as one by the mean of the gradients would
// (Tensorpack's AsyncMultiGPUTrainer with scale_gradient).
//
// What is saved, evaluated and exported is the server's set, with the batch norm statistics of replica 0. Replicas have
// its values from their next update on; after load() all have them. The server trains the parameters that replica 0
// trains (ParameterSet::set_trainable). Masks are set on saved_parameters().
#pragma once

#include <cstdint>
#include <memory>

#include "trainyard/parallel/variable_update/local_variable_update.h"

namespace trainyard::parallel {

// update() may be called by all replicas' threads at once; all else as VariableUpdate says.
class AsynchronousUpdate : public LocalVariableUpdate {
 public:
  // Without a reduction gradients are applied as they are, as with kSum. Throws kUnsupported with accelerators.
  explicit AsynchronousUpdate(const VariableUpdateOptions& options);
  ~AsynchronousUpdate() override;

  void allocate() override;
  void reduce(int /*replica*/) override {}
  void update(int replica, const optim::StepState& state, int optimizer) override;
  void change_values(const std::function<void(nn::ParameterSet&)>& change) override;
  void broadcast() override;
  nn::ParameterSet& saved_parameters() override;
  // Returns the server's for replica 0, null for the others. Between steps.
  optim::Optimizer* optimizer(int replica, int index) const override;
  int64_t optimizer_bytes() const override;

  // Returns how many gradients the server has applied since the training began, those among them that found_inf left
  // without effect. It is saved and loaded. Any thread.
  int64_t updates_applied() const;

  // Save, beside what all modes do, "asynchronous/updates". A state of another mode begins to count at 0.
  void save(core::StateWriter& writer) const override;
  void load(const core::StateReader& reader) override;

 protected:
  void allocate_from(nn::ParameterSet& first, nn::ParameterSet& set) override;
  bool has_own_optimizers(int /*replica*/) const override { return false; }

 private:
  struct Server;
  // Gives the server what it has of replica 0: which parameters train, and the statistics. With the lock held.
  void follow_replica_0() const;

  double gradient_factor_;
  std::unique_ptr<Server> server_;
};

}  // namespace trainyard::parallel
