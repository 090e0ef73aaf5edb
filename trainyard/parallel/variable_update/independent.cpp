// A copy of the values for each replica and no exchange: as many trainings side by side, from one start on different
// batches. What all modes save is replica 0's; the other copies are saved too, so that the run continues as it was.
#include "trainyard/core/base/error.h"
#include "trainyard/parallel/variable_update/local_variable_update.h"

namespace trainyard::parallel {
namespace {

class Independent : public LocalVariableUpdate {
 public:
  explicit Independent(const VariableUpdateOptions& options)
      : LocalVariableUpdate(options, GradientReduction::kMean, Exchange::kNone) {
    if (options.reduction) {
      throw core::Error(core::ErrorCode::kInvalidArgument,
                        {.problem = "independent replicas exchange no gradients, so there is no reduction to choose",
                         .remedy = "leave the reduction out, or use replicated or parameter_server"});
    }
  }

  void reduce(int) override {}

 protected:
  bool saves_every_replica() const override { return true; }
};

const core::Registration kIndependent(variable_updates(), "independent", [](const VariableUpdateOptions& options) {
  return std::make_unique<Independent>(options);
});

}  // namespace
}  // namespace trainyard::parallel
