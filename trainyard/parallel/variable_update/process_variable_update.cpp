// Replicas in several processes, all starting as rank 0's first one. Gradients are reduced over all of them, and each
// applies the result with its own optimizer, so that the copies stay equal bit for bit. Batch norm statistics are each
// replica's own; what is saved are those of rank 0's first one.
//
//   horovod                 one replica a process; the mean, as Horovod's own
//   collective_all_reduce   any number of replicas a process; the sum, as tf_cnn_benchmarks has it
//   distributed_all_reduce  the same, and replicated where there is one process
#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/parallel/variable_update/local_variable_update.h"

namespace trainyard::parallel {
namespace {

class BetweenProcesses : public LocalVariableUpdate {
 public:
  BetweenProcesses(const VariableUpdateOptions& options, GradientReduction reduction)
      : LocalVariableUpdate(options, reduction, Exchange::kProcesses) {}

  void allocate() override {
    LocalVariableUpdate::allocate();
    start_as_rank_0();
  }
  void reduce(int replica) override { all_reduce_gradients(replica); }

 protected:
  bool can_shard() const override { return true; }
};

void require_communicators(const VariableUpdateOptions& options, const std::string& mode) {
  if (options.make_communicators) return;
  throw core::Error(
      core::ErrorCode::kInvalidArgument,
      {.problem = mode + " is between processes", .expected = "communicators between processes", .actual = "none"});
}

const core::Registration kHorovod(variable_updates(), "horovod", [](const VariableUpdateOptions& options) {
  require_communicators(options, "horovod");
  if (options.replicas != 1) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "horovod is between processes of one replica each",
                                                          .expected = "one replica",
                                                          .actual = std::to_string(options.replicas),
                                                          .remedy = "use collective_all_reduce"});
  }
  return std::make_unique<BetweenProcesses>(options, GradientReduction::kMean);
});

const core::Registration kCollectiveAllReduce(variable_updates(), "collective_all_reduce",
                                              [](const VariableUpdateOptions& options) {
                                                require_communicators(options, "collective_all_reduce");
                                                return std::make_unique<BetweenProcesses>(options,
                                                                                          GradientReduction::kSum);
                                              });

// The replicas of one process without communicators of their own are those of replicated.
const core::Registration kDistributedAllReduce(
    variable_updates(), "distributed_all_reduce",
    [](const VariableUpdateOptions& options) -> std::unique_ptr<VariableUpdate> {
      if (!options.make_communicators) return variable_updates().get("replicated")(options);
      return std::make_unique<BetweenProcesses>(options, GradientReduction::kSum);
    });

}  // namespace
}  // namespace trainyard::parallel
