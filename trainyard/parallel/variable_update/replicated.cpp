// A copy of the values for each replica, all starting as replica 0's. Gradients are summed over replicas, with the same
// bits everywhere, and each replica applies them with its own optimizer: the copies stay equal bit for bit.
#include "trainyard/parallel/variable_update/local_variable_update.h"

namespace trainyard::parallel {
namespace {

class Replicated : public LocalVariableUpdate {
 public:
  explicit Replicated(const VariableUpdateOptions& options)
      : LocalVariableUpdate(options, GradientReduction::kSum, Exchange::kGradients) {}

  void reduce(int replica) override { all_reduce_gradients(replica); }

 protected:
  bool can_shard() const override { return true; }
};

const core::Registration kReplicated(variable_updates(), "replicated", [](const VariableUpdateOptions& options) {
  return std::make_unique<Replicated>(options);
});

}  // namespace
}  // namespace trainyard::parallel
