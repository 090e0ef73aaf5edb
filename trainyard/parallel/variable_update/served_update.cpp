#include "trainyard/parallel/variable_update/served_update.h"

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/scoped_state.h"
#include "trainyard/parallel/servers/server_group.h"
#include "trainyard/parallel/variable_update/local_variable_update.h"

namespace trainyard::parallel {

using core::Error;
using core::ErrorCode;

namespace {

constexpr const char* kServedUpdates = "asynchronous/updates";  // as AsynchronousUpdate saves it
constexpr const char* kServedStaged = "staged/";                // as staged_parameter_server saves it

Error not_served(const char* what, const std::string& remedy) {
  return {ErrorCode::kUnsupported,
          {.problem = fmt::format("{} do not work with parameter servers yet", what), .remedy = remedy}};
}

class ServedUpdate : public LocalVariableUpdate {
 public:
  ServedUpdate(const VariableUpdateOptions& options, ServedCopies copies, ServedValues values)
      : LocalVariableUpdate(options, GradientReduction::kMean, Exchange::kGradients),
        servers_(options.servers),
        copies_(copies),
        mode_(servers_->options().cluster.mode),
        reads_ahead_(values == ServedValues::kOfOneUpdateBefore && mode_ == ServerMode::kAsynchronous),
        optimizers_(options.make_optimizers.size()),
        finite_(static_cast<size_t>(options.replicas)) {
    if (!one_memory() || !options.parameters.device.is_cpu()) {
      throw not_served("devices", "train on the CPU: --device=cpu");
    }
    if (!options.compression.is_default()) throw not_served("compressed gradients", "leave --gradient_compression out");
    const ClusterOptions& cluster = servers_->options().cluster;
    const bool sums = reduction() == GradientReduction::kSum;
    const bool servers_sum = cluster.reduction == ServerReduction::kSum;
    if (cluster.replicas_per_worker != options.replicas || sums != servers_sum) {
      const auto described = [](int replicas, bool summed) {
        return fmt::format("{} replicas, gradients that are {}", replicas, summed ? "summed" : "averaged");
      };
      throw Error(ErrorCode::kInvalidArgument, {.problem = "a worker and its servers are told different things",
                                                .expected = described(options.replicas, sums),
                                                .actual = described(cluster.replicas_per_worker, servers_sum)});
    }
  }

  void allocate() override {
    LocalVariableUpdate::allocate();
    require_no_masks();
    servers_->join(parameters(0), all_optimizers());
    servers_->start(parameters(0), all_optimizers(), 0);
    follow_servers();
  }

  void reduce(int replica) override {
    finite_[static_cast<size_t>(replica)].reset();
    all_reduce_gradients(replica);
  }

  void update(int replica, const optim::StepState& state, int index) override {
    if (replica == 0) {
      const auto began = std::chrono::steady_clock::now();
      found_inf_ = servers_->push(parameters(0).gradients(), state.read(), *optimizer(0, index), index);
      if (reads_ahead_) parameters(0).values().copy_(ahead_);
      servers_->read_values(reads_ahead_ ? ahead_ : parameters(0).values());
      parameters(0).values_changed();
      add_communication(0, began);
    }
    wait_for_all(replica);
    // Replica 0 changes its values, and found_inf_, behind the next reduce(), to which this replica comes, too.
    if (mode_ != ServerMode::kStaged) finite_[static_cast<size_t>(replica)] = !found_inf_;
    if (replica != 0 && copies_ == ServedCopies::kOneEach) copy_values(replica);
  }

  std::optional<bool> gradients_finite(int replica) const override { return finite_[static_cast<size_t>(replica)]; }

  double waiting_seconds(int replica) const override {
    return LocalVariableUpdate::waiting_seconds(replica) + (replica == 0 ? servers_->waiting_seconds() : 0);
  }

  void change_values(const std::function<void(nn::ParameterSet&)>& change) override {
    nn::ParameterSet& own = saved_parameters();
    meet();  // no worker reads any more
    if (is_chief()) {
      change(own);
      require_no_masks();
      servers_->write_values(own.values());
      if (mode_ == ServerMode::kStaged) servers_->write_staged(own.values());
      if (mode_ == ServerMode::kStaged) parameters(0).values().copy_(own.values());
    }
    meet();
    if (!is_chief()) servers_->read_values(parameters(0).values());
    follow_servers();
  }

  void broadcast() override {
    throw Error(ErrorCode::kUnsupported, {.problem = "variables are not broadcast where a server holds them",
                                          .expected = "replicas that exchange gradients",
                                          .actual = "parameter servers"});
  }

  // The values that replicas read are the servers', apart from those of kStaged and those that other workers have
  // changed in kAsynchronous.
  nn::ParameterSet& saved_parameters() override {
    if (mode_ == ServerMode::kSynchronous) return parameters(0);
    nn::ParameterSet& own = served();
    servers_->read_state(own.values(), {});
    own.values_changed();
    return own;
  }

  void save(core::StateWriter& writer) const override {
    nn::ParameterSet& own = served();
    const int64_t updates = servers_->read_state(own.values(), all_optimizers());
    own.values_changed();
    core::ScopedWriter model(writer, "model/"), slots(writer, "optimizer/"), staged(writer, kServedStaged);
    own.save(model);
    for (const optim::Optimizer* const each : all_optimizers()) each->save(slots);
    if (mode_ == ServerMode::kAsynchronous) writer.integer(kServedUpdates, updates);
    if (mode_ != ServerMode::kStaged) return;
    const nn::ParameterSet& read = replica_parameters(0);
    for (const nn::Segment& segment : read.segments()) staged.tensor(segment.spec.name, read.value(segment.id));
  }

  // All workers load the same state; the chief gives it to the servers. It may do so before the others begin to load
  // (train::load_shared), so that none waits for another here. Pushes begin when all have loaded.
  void load(const core::StateReader& reader) override {
    LocalVariableUpdate::load(reader);
    require_no_masks();
    at::Tensor staged;  // what the next step reads
    if (mode_ == ServerMode::kStaged) {
      staged = parameters(0).values().clone();
      for (const nn::Segment& segment : parameters(0).segments()) {
        if (!reader.has(kServedStaged + segment.spec.name)) continue;
        at::Tensor value = staged.narrow(0, segment.offset, segment.count).view(segment.spec.shape);
        core::ScopedReader(reader, kServedStaged).tensor(segment.spec.name, value);
      }
    }
    if (is_chief()) {
      if (staged.defined()) servers_->write_staged(staged);
      servers_->start(parameters(0), all_optimizers(), reader.has(kServedUpdates) ? reader.integer(kServedUpdates) : 0);
    }
    if (staged.defined()) parameters(0).values().copy_(staged);
    follow_servers();
  }

  void abort(const Error& error) override {
    LocalVariableUpdate::abort(error);
    servers_->abort(error);
  }

 protected:
  void allocate_from(nn::ParameterSet& first, nn::ParameterSet& set) override {
    if (copies_ != ServedCopies::kOneForAll) return LocalVariableUpdate::allocate_from(first, set);
    set = nn::ParameterSet::sharing_values(first);
  }
  // Replica 0's optimizers carry hyperparameters and regularization, and the slots of a checkpoint.
  bool has_own_optimizers(int replica) const override { return replica == 0; }

 private:
  bool is_chief() const { return servers_->options().worker == 0; }
  // In kAsynchronous workers are at different steps, and do not meet.
  void meet() {
    if (mode_ != ServerMode::kAsynchronous) servers_->meet();
  }

  std::vector<optim::Optimizer*> all_optimizers() const {
    std::vector<optim::Optimizer*> all;
    for (size_t i = 0; i < optimizers_; ++i) all.push_back(optimizer(0, static_cast<int>(i)));
    return all;
  }

  void copy_values(int replica) {
    parameters(replica).values().copy_(parameters(0).values());
    parameters(replica).values_changed();
  }

  // Replica 0's values are new: the other replicas get them.
  void follow_servers() {
    parameters(0).values_changed();
    if (reads_ahead_) ahead_ = parameters(0).values().clone();
    for (int r = 1; r < replicas() && copies_ == ServedCopies::kOneEach; ++r) copy_values(r);
  }

  void require_no_masks() {
    for (const nn::Segment& segment : parameters(0).segments()) {
      if (parameters(0).mask(segment.id).defined()) {
        throw not_served("the masks of a pruned model", "prune it without parameter servers");
      }
    }
  }

  // Returns a set for the servers' own values, with replica 0's statistics.
  nn::ParameterSet& served() const {
    const nn::ParameterSet& first = replica_parameters(0);
    if (!served_.allocated()) served_ = first.clone();
    for (int b = 0; b < static_cast<int>(served_.buffer_count()); ++b) served_.buffer(b).copy_(first.buffer(b));
    return served_;
  }

  const std::shared_ptr<ServerGroup> servers_;
  const ServedCopies copies_;
  const ServerMode mode_;
  // In kAsynchronous nothing but this worker knows which values it reads.
  const bool reads_ahead_;
  at::Tensor ahead_;  // the values behind the last update; the replicas have those behind the one before
  const size_t optimizers_;
  bool found_inf_ = false;  // the servers have left the last update out
  // By replica, from update() to the next reduce(): whether no worker had gradients that are not finite.
  std::vector<std::optional<bool>> finite_;
  mutable nn::ParameterSet served_;
};

}  // namespace

std::unique_ptr<VariableUpdate> make_served_update(const VariableUpdateOptions& options, ServedCopies copies,
                                                   ServedValues values) {
  return std::make_unique<ServedUpdate>(options, copies, values);
}

namespace {

const core::Registration kDistributedReplicated(
    variable_updates(), "distributed_replicated", [](const VariableUpdateOptions& options) {
      if (options.servers == nullptr) {
        throw Error(ErrorCode::kInvalidArgument, {.problem = "distributed_replicated needs parameter servers",
                                                  .expected = "servers",
                                                  .actual = "none",
                                                  .remedy = "use replicated in one process"});
      }
      return make_served_update(options, ServedCopies::kOneEach);
    });

}  // namespace
}  // namespace trainyard::parallel
