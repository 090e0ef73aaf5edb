// The common part of the variable updates: a parameter set and optimizers for each replica, a communicator between
// them, saving and loading.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/base/communicator.h"
#include "trainyard/nn/execution/accelerator.h"
#include "trainyard/parallel/collectives/gradient_buckets.h"
#include "trainyard/parallel/collectives/nccl/device_communicator.h"
#include "trainyard/parallel/variable_update/gradient_compressor.h"
#include "trainyard/parallel/variable_update/sharded_update.h"
#include "trainyard/parallel/variable_update/variable_update.h"

namespace trainyard::parallel {

class LocalVariableUpdate : public VariableUpdate {
 public:
  nn::ParameterSet& parameters(int replica) override { return at(replica).parameters; }
  void allocate() override;
  void ready(int replica, nn::ParameterId parameter) override;
  void set_gradient_scale(int replica, double scale) override;
  void update(int replica, const optim::StepState& state, int optimizer) override;
  void replayed(int replica) override;
  void check() override;
  void wait() override;
  void change_values(const std::function<void(nn::ParameterSet&)>& change) override;
  void broadcast() override;
  optim::Optimizer* optimizer(int replica, int index) const override;
  int64_t optimizer_bytes() const override;
  GradientReduction reduction() const override { return reduction_; }
  bool sharded() const override { return at(0).sharded != nullptr; }
  std::optional<bool> gradients_finite(int replica) const override;
  bool gathers_state() const override;
  void gather_state() override;
  std::optional<GradientBytes> gradient_bytes() const override;
  void abort(const core::Error& error) override;
  double communication_seconds(int replica) const override { return at(replica).communication_seconds; }
  double waiting_seconds(int replica) const override;
  void save(core::StateWriter& writer) const override;
  void load(const core::StateReader& reader) override;

 protected:
  enum class Exchange { kNone, kGradients, kProcesses };
  // With one replica and no other processes, or without exchange, there is no communicator and nothing is exchanged.
  LocalVariableUpdate(VariableUpdateOptions options, GradientReduction reduction, Exchange exchange);

  // Makes the set of a replica other than 0 from that of replica 0, which is ready. The replica's executor has declared
  // in it. By default it is a copy of its own.
  virtual void allocate_from(nn::ParameterSet& first, nn::ParameterSet& set);
  virtual bool has_own_optimizers(int) const { return true; }
  virtual bool saves_every_replica() const { return false; }
  // Returns true when each replica applies the gradients of all to a copy of its own, so that updates can be sharded.
  virtual bool can_shard() const { return false; }

  const nn::ParameterSet& replica_parameters(int replica) const { return at(replica).parameters; }
  int replicas() const { return static_cast<int>(replicas_.size()); }
  // Returns true when replicas can read each other's parameters.
  bool one_memory() const { return options_.accelerators.empty(); }
  // Turns the gradients of all replicas into their sum or mean.
  void all_reduce_gradients(int replica);
  void wait_for_all(int replica);
  // Broadcasts replica 0's values to all others.
  void broadcast_values(int replica);
  // Counts the seconds since `start` as the replica's communication.
  void add_communication(int replica, std::chrono::steady_clock::time_point start);
  // Does the same for seconds that it waited for another replica, outside of its communicator.
  void add_waiting(int replica, std::chrono::steady_clock::time_point start);
  using Optimizers = std::vector<std::unique_ptr<optim::Optimizer>>;
  // Makes all optimizers for a set. Throws kInvalidArgument where two own one parameter.
  Optimizers make_optimizers(nn::ParameterSet& set) const;
  static int64_t slot_bytes(const optim::Optimizer& optimizer);
  // Copies the values, masks and buffers of rank 0's replica 0 to all replicas here. Throws kInvalidArgument when ranks
  // have declared different variables.
  void start_as_rank_0();

 private:
  // Each on a cache line of its own, because replicas count their time at the same moment.
  struct alignas(64) Replica {
    nn::ParameterSet parameters;
    Optimizers optimizers;  // empty when another replica's optimizers update the values
    std::unique_ptr<core::Communicator> communicator;
    DeviceCommunicator* on_device = nullptr;  // the same object, when it is a DeviceCommunicator
    // One of them is made by allocate() when there is a communicator.
    std::unique_ptr<GradientBuckets> buckets;
    std::unique_ptr<GradientCompressor> compressor;
    std::unique_ptr<ShardedUpdate> sharded;  // replaces the buckets where each replica updates a part
    double communication_seconds = 0, waited_outside = 0;
  };
  Replica& at(int replica) const { return *replicas_.at(static_cast<size_t>(replica)); }
  // Directs the calling thread's work to the replica's device as long as the result lives.
  nn::AcceleratorScope use(int replica) const;
  void make_communicators();
  std::unique_ptr<GradientBuckets> make_buckets(const nn::ParameterSet& set, core::Communicator& communicator,
                                                core::ReduceOp op) const;
  // Returns true when it is wanted and ranks exchange gradients of copies in host memory.
  bool tries_sharding() const;
  // Makes each replica update its part, or logs why not. Throws kUnsupported where that must not be.
  void shard_updates(core::ReduceOp op);
  // Copies the slots and update counts of rank 0's replica 0 to all replicas here.
  void broadcast_slots();
  // Runs `operation`, which is collective, for each replica, on a thread of its own.
  void on_every_replica(const std::function<void(int replica, core::Communicator& communicator)>& operation);
  void start_as_rank_0(int replica, core::Communicator& communicator);
  // Throws kInvalidArgument on all ranks when one of them has other optimizers than rank 0, or other numbers of them.
  void require_same_optimizers(int replica, core::Communicator& communicator);
  static void broadcast_masks(core::Communicator& communicator, nn::ParameterSet& set);
  template <typename Operation>
  void communicate(int replica, Operation operation);
  void save_replica(int replica, core::StateWriter& writer) const;
  void load_replica(int replica, const core::StateReader& reader);
  void save_compression(core::StateWriter& writer) const;
  void load_compression(const core::StateReader& reader);

  VariableUpdateOptions options_;
  GradientReduction reduction_;
  Exchange exchange_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::vector<at::Tensor> gathered_;  // rank 0: the error memories of all ranks; empty once a step has changed them
};

}  // namespace trainyard::parallel
