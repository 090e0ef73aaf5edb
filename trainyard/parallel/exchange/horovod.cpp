// One replica a process, all starting as rank 0's. Gradients are averaged over the processes and each applies them with
// its own optimizer, so that the copies stay equal bit for bit. Batch norm statistics are each process's own; what rank
// 0 saves is its own.
#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/parallel/exchange/local_variable_update.h"

namespace trainyard::parallel {
namespace {

class Horovod : public LocalVariableUpdate {
 public:
  explicit Horovod(const VariableUpdateOptions& options)
      : LocalVariableUpdate(checked(options), GradientReduction::kMean, Exchange::kProcesses) {}

  void allocate() override {
    LocalVariableUpdate::allocate();
    start_as_rank_0();
  }
  void reduce(int replica) override { all_reduce_gradients(replica); }

 protected:
  void allocate_from(nn::ParameterSet&, nn::ParameterSet&) override {}  // there is no second replica

 private:
  static const VariableUpdateOptions& checked(const VariableUpdateOptions& options) {
    if (options.replicas == 1 && options.make_communicators) return options;
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "horovod is between processes of one replica each",
                       .expected = "one replica, and a communicator between processes",
                       .actual = fmt::format("{} replicas, {}", options.replicas,
                                             options.make_communicators ? "a communicator" : "none")});
  }
};

const core::Registration kHorovod(variable_updates(), "horovod", [](const VariableUpdateOptions& options) {
  return std::make_unique<Horovod>(options);
});

}  // namespace
}  // namespace trainyard::parallel
