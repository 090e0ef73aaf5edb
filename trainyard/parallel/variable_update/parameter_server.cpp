// One copy of the values, which all replicas read. Gradients are averaged over replicas, and replica 0 applies them
// with the only optimizers while the others wait. Each replica has its own gradients and batch norm statistics. Where
// replicas cannot read each other's memory, the others read copies, which replica 0's values become after each update.
// With servers in the options, these hold and update the values of all processes (served_update.h).
#include <memory>

#include "trainyard/parallel/variable_update/local_variable_update.h"
#include "trainyard/parallel/variable_update/served_update.h"

namespace trainyard::parallel {
namespace {

class LocalParameterServer : public LocalVariableUpdate {
 public:
  explicit LocalParameterServer(const VariableUpdateOptions& options)
      : LocalVariableUpdate(options, GradientReduction::kMean, Exchange::kGradients) {}

  void reduce(int replica) override { all_reduce_gradients(replica); }
  void update(int replica, const optim::StepState& state, int optimizer) override {
    if (replica == 0) LocalVariableUpdate::update(replica, state, optimizer);
    one_memory() ? wait_for_all(replica) : broadcast_values(replica);
  }

 protected:
  void allocate_from(nn::ParameterSet& first, nn::ParameterSet& set) override {
    if (!one_memory()) return LocalVariableUpdate::allocate_from(first, set);
    set = nn::ParameterSet::sharing_values(first);
  }
  bool has_own_optimizers(int replica) const override { return replica == 0; }
};

const core::Registration kParameterServer(variable_updates(), "parameter_server",
                                          [](const VariableUpdateOptions& options) -> std::unique_ptr<VariableUpdate> {
                                            if (options.servers)
                                              return make_served_update(options, ServedCopies::kOneForAll);
                                            return std::make_unique<LocalParameterServer>(options);
                                          });

}  // namespace
}  // namespace trainyard::parallel
