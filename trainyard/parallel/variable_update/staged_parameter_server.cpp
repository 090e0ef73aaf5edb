// parameter_server whose replicas read the values of one update before: while a step runs, the values for the next one
// are fetched already (tf_cnn_benchmarks' staged_vars). Step k's gradients, regularization included, are those at the
// values that the server had before its last update, and are applied to those that it has:
//
//   w[k + 1] = update(w[k], gradient(w[k - 1]))          with w[-1] = w[0]
//
// A step whose update is skipped is a step, too: w[k + 1] = w[k]. tf_cnn_benchmarks fetches values in each step, so
// after a skipped update replicas read what the server has. Parameter servers of other processes do the same.
//
// What is saved, evaluated and exported are the server's values. The replicas' values are saved under "staged/", for a
// run that continues; from a state without them, replicas continue with the server's.
#include <algorithm>
#include <cstddef>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/scoped_state.h"
#include "trainyard/parallel/variable_update/local_variable_update.h"
#include "trainyard/parallel/variable_update/served_update.h"

namespace trainyard::parallel {
namespace {

constexpr const char* kStaged = "staged/";

class StagedParameterServer : public LocalVariableUpdate {
 public:
  explicit StagedParameterServer(const VariableUpdateOptions& options)
      : LocalVariableUpdate(options, GradientReduction::kMean, Exchange::kGradients) {
    const bool compresses = !options.compression.is_default();
    if (!one_memory() || options.make_optimizers.size() > 1 || compresses) {
      throw core::Error(core::ErrorCode::kUnsupported,
                        {.problem = "staged variables are not built for this training yet",
                         .expected = "replicas in the host's memory, one optimizer, and gradients as they are",
                         .actual = !one_memory() ? "accelerators"
                                   : compresses  ? "compressed gradients"
                                                 : "several optimizers",
                         .remedy = "use parameter_server: leave out --staged_vars"});
    }
  }

  void allocate() override {
    LocalVariableUpdate::allocate();
    server_ = parameters(0).clone();
  }

  void reduce(int replica) override { all_reduce_gradients(replica); }

  void update(int replica, const optim::StepState& state, int index) override {
    if (replica == 0) update_server(state, *optimizer(0, index));
    wait_for_all(replica);
  }

  void change_values(const std::function<void(nn::ParameterSet&)>& change) override {
    follow_replica_0();
    change(server_);
    server_.values_changed();
    for (int r = 0; r < replicas(); ++r) parameters(r).copy_from(server_);
  }

  nn::ParameterSet& saved_parameters() override {
    follow_replica_0();
    return server_;
  }

  int64_t optimizer_bytes() const override {
    return LocalVariableUpdate::optimizer_bytes() + static_cast<int64_t>(server_.values().nbytes());
  }

  void save(core::StateWriter& writer) const override {
    follow_replica_0();
    core::ScopedWriter model(writer, "model/"), optimizer_state(writer, "optimizer/"), staged(writer, kStaged);
    server_.save(model);
    optimizer(0, 0)->save(optimizer_state);
    const nn::ParameterSet& read = replica_parameters(0);
    for (const nn::Segment& segment : read.segments()) staged.tensor(segment.spec.name, read.value(segment.id));
  }

  void load(const core::StateReader& reader) override {
    LocalVariableUpdate::load(reader);
    nn::ParameterSet& read = parameters(0);
    server_.copy_from(read);
    if (reader.names(kStaged).empty()) return;
    for (const nn::Segment& segment : read.segments()) {
      at::Tensor value = read.value(segment.id);
      core::ScopedReader(reader, kStaged).tensor(segment.spec.name, value);
    }
    read.values_changed();
  }

 protected:
  void allocate_from(nn::ParameterSet& first, nn::ParameterSet& set) override {
    set = nn::ParameterSet::sharing_values(first);
  }
  bool has_own_optimizers(int replica) const override { return replica == 0; }

 private:
  // The optimizer is bound to what replicas read: there it finds the values that the gradients are of, and then those
  // that it shall change. Behind it the two change places: replicas read what the server had.
  void update_server(const optim::StepState& state, optim::Optimizer& optimizer) {
    nn::ParameterSet& read = parameters(0);
    if (state.read().found_inf) {
      optimizer.apply(state);  // which changes nothing
      read.values().copy_(server_.values());
      return read.values_changed();
    }
    if (!optimizer.gradients_complete()) optimizer.complete_gradients(state);
    read.values().copy_(server_.values());
    optimizer.apply(state);
    auto* const applied = static_cast<std::byte*>(read.values().mutable_data_ptr());
    std::swap_ranges(applied, applied + read.values().nbytes(),
                     static_cast<std::byte*>(server_.values().mutable_data_ptr()));
    server_.values_changed();
    read.values_changed();
  }

  // The server computes no batches: statistics are replica 0's.
  void follow_replica_0() const {
    const nn::ParameterSet& first = replica_parameters(0);
    for (int b = 0; b < static_cast<int>(server_.buffer_count()); ++b) server_.buffer(b).copy_(first.buffer(b));
  }

  mutable nn::ParameterSet server_;
};

const core::Registration kStagedParameterServer(
    variable_updates(), "staged_parameter_server",
    [](const VariableUpdateOptions& options) -> std::unique_ptr<VariableUpdate> {
      if (options.servers)
        return make_served_update(options, ServedCopies::kOneForAll, ServedValues::kOfOneUpdateBefore);
      return std::make_unique<StagedParameterServer>(options);
    });

}  // namespace
}  // namespace trainyard::parallel
