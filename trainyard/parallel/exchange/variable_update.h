// How replicas share variables: which ParameterSet each of them reads, and how their gradients meet. One trainer serves
// one device, many devices and many processes; changing between them is a change of the VariableUpdate alone.
//
// In a step, each replica's thread calls, in this order: forward and backward on parameters(replica), reduce(replica),
// update(replica, state). reduce and update are collective over all replicas.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/base/communicator.h"
#include "trainyard/core/base/registry.h"
#include "trainyard/core/base/stateful.h"
#include "trainyard/nn/execution/accelerator.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/optim/optimizer.h"

namespace trainyard::parallel {

enum class GradientReduction { kMean, kSum };

struct VariableUpdateOptions {
  int replicas = 1;                      // local ones, each on a thread of its own
  nn::ParameterSetOptions parameters{};  // without accelerators: their device, too
  // Where each replica's parameters lie; empty: all in one memory, that of parameters.device.
  std::vector<std::shared_ptr<nn::Accelerator>> accelerators;
  // Between the replicas here, and with those of other processes where the mode has such: one for each replica here.
  // Called where gradients are exchanged. None: make_thread_communicators(replicas).
  std::function<std::vector<std::unique_ptr<core::Communicator>>()> make_communicators;
  std::function<std::unique_ptr<optim::Optimizer>(nn::ParameterSet&)> make_optimizer;
  std::optional<GradientReduction> reduction;  // overrides the mode's own
  uint64_t seed = 0;
  std::function<void(nn::ParameterSet&)> start;  // changes what the initializers gave, before others get it; none: no
  std::chrono::milliseconds deadline = std::chrono::minutes(10);  // how long a replica waits for the others
  void validate() const;                                          // throws kInvalidArgument
};

class VariableUpdate : public core::Stateful {
 public:
  // What replica `replica` binds to. Executors declare in it before allocate().
  virtual nn::ParameterSet& parameters(int replica) = 0;

  // After all executors have declared: allocates and initialises, replica 0's values to all others; makes the
  // optimizers. The weight decay of an optimizer counts once in the loss whatever the reduction: where gradients are
  // summed over n replicas, it is applied n times, as tf_cnn_benchmarks does.
  virtual void allocate() = 0;

  virtual void reduce(int replica) = 0;
  virtual void update(int replica, const optim::StepState& state) = 0;
  // In place of both, each time after a recording of them was handed to the device, by the replica's thread.
  virtual void replayed(int) {}

  // Devices run behind the threads that hand them work, and so do errors of their exchange. check() throws what has
  // gone wrong by now; wait() after all that was called is done. Any thread; both do nothing in the host's memory.
  virtual void check() {}
  virtual void wait() {}

  // What is saved, evaluated and exported: replica 0's.
  nn::ParameterSet& saved_parameters() { return parameters(0); }
  // Of the slots of all optimizers here.
  virtual int64_t optimizer_bytes() const = 0;
  // How gradients meet; kMean where they do not.
  virtual GradientReduction reduction() const = 0;

  // Wakes replicas that wait for one that failed.
  virtual void abort(const core::Error& error) = 0;

  // Seconds that `replica` has spent waiting for others and moving gradients.
  virtual double communication_seconds(int replica) const = 0;

  // "model/<parameter or buffer>" and "optimizer/<slot>" of replica 0. Loading gives them to every replica.
  void save(core::StateWriter& writer) const override = 0;
  void load(const core::StateReader& reader) override = 0;
};

// "parameter_server" (one copy of the values, mean), "replicated" (a copy each, sum as upstream),
// "independent" (a copy each, no exchange; the others' copies are saved behind "replica/<r>/"), "horovod" (one replica
// a process, a copy each, mean).
using VariableUpdateFactory = std::function<std::unique_ptr<VariableUpdate>(const VariableUpdateOptions&)>;
using VariableUpdateRegistry = core::Registry<VariableUpdateFactory>;
VariableUpdateRegistry& variable_updates();

}  // namespace trainyard::parallel
