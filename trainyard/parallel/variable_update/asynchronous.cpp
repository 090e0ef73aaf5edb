#include "trainyard/parallel/variable_update/asynchronous.h"

#include <chrono>
#include <mutex>
#include <string>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/scoped_state.h"
#include "trainyard/parallel/variable_update/served_update.h"

namespace trainyard::parallel {

using core::Error;
using core::ErrorCode;

namespace {

constexpr const char* kUpdates = "asynchronous/updates";

// n replicas update n times a step: alpha would be the last one after the n-th part of the training, and the last step
// is not told from the others by its number.
void refuse_changing_alpha(const optim::Optimizer& optimizer, int replicas) {
  const auto& lookahead = optimizer.options().lookahead;
  if (replicas == 1 || !lookahead || !lookahead->final_alpha) return;
  throw Error(ErrorCode::kUnsupported, {.problem = "Lookahead's alpha cannot change over an asynchronous training",
                                        .where = "Lookahead::final_alpha",
                                        .expected = "one replica, or replicas that exchange gradients",
                                        .actual = std::to_string(replicas) + " replicas at their own pace",
                                        .remedy = "leave final_alpha out, or use another variable update"});
}

}  // namespace

struct AsynchronousUpdate::Server {
  std::mutex mutex;  // guards all that follows
  nn::ParameterSet parameters;
  Optimizers optimizers;  // bound to `parameters`
  int64_t updates = 0;
  uint64_t seen_trainable = 0;  // ParameterSet::trainable_version() of replica 0, whose flags `parameters` has
};

AsynchronousUpdate::AsynchronousUpdate(const VariableUpdateOptions& options)
    : LocalVariableUpdate(options, GradientReduction::kSum, Exchange::kNone),
      gradient_factor_(reduction() == GradientReduction::kMean ? 1.0 / options.replicas : 1.0),
      server_(std::make_unique<Server>()) {
  if (!one_memory() || !options.parameters.device.is_cpu()) {
    throw Error(ErrorCode::kUnsupported, {.problem = "asynchronous updates do not work on devices yet",
                                          .expected = "replicas in the host's memory",
                                          .remedy = "use replicated or parameter_server"});
  }
}

AsynchronousUpdate::~AsynchronousUpdate() = default;

void AsynchronousUpdate::allocate() {
  LocalVariableUpdate::allocate();
  const std::lock_guard lock(server_->mutex);
  server_->parameters = parameters(0).clone();
  server_->seen_trainable = parameters(0).trainable_version();
  server_->optimizers = make_optimizers(server_->parameters);
  for (const auto& optimizer : server_->optimizers) {
    refuse_changing_alpha(*optimizer, replicas());
    optimizer->set_weight_decay_factor(gradient_factor_);
  }
}

void AsynchronousUpdate::follow_replica_0() const {
  const nn::ParameterSet& first = replica_parameters(0);
  nn::ParameterSet& own = server_->parameters;
  for (int b = 0; b < static_cast<int>(own.buffer_count()); ++b) own.buffer(b).copy_(first.buffer(b));
  if (server_->seen_trainable == first.trainable_version()) return;
  server_->seen_trainable = first.trainable_version();
  for (const nn::Segment& segment : own.segments()) own.set_trainable(segment.id, first.trainable(segment.id));
}

void AsynchronousUpdate::update(int replica, const optim::StepState& state, int optimizer) {
  nn::ParameterSet& own = parameters(replica);
  if (gradient_factor_ != 1.0) own.gradients().mul_(gradient_factor_);
  const auto came = std::chrono::steady_clock::now();
  const std::lock_guard lock(server_->mutex);
  add_waiting(replica, came);
  // Statistics and flags of replica 0 are not read while it runs, but by itself.
  if (replica == 0) follow_replica_0();
  server_->optimizers.at(static_cast<size_t>(optimizer))->apply(state, own.gradients());
  ++server_->updates;
  const auto applied = std::chrono::steady_clock::now();
  own.values().copy_(server_->parameters.values());
  own.values_changed();
  add_communication(replica, applied);
}

void AsynchronousUpdate::change_values(const std::function<void(nn::ParameterSet&)>& change) {
  const std::lock_guard lock(server_->mutex);
  follow_replica_0();
  change(server_->parameters);
  server_->parameters.values_changed();
  for (int r = 0; r < replicas(); ++r) parameters(r).copy_from(server_->parameters);
}

void AsynchronousUpdate::broadcast() {
  throw core::Error(core::ErrorCode::kUnsupported, {.problem = "variables are not broadcast where a server holds them",
                                                    .expected = "replicas that exchange gradients",
                                                    .actual = "asynchronous"});
}

nn::ParameterSet& AsynchronousUpdate::saved_parameters() {
  const std::lock_guard lock(server_->mutex);
  follow_replica_0();
  return server_->parameters;
}

optim::Optimizer* AsynchronousUpdate::optimizer(int replica, int index) const {
  if (replica != 0) return nullptr;
  const std::lock_guard lock(server_->mutex);
  follow_replica_0();
  return server_->optimizers.at(static_cast<size_t>(index)).get();
}

int64_t AsynchronousUpdate::optimizer_bytes() const {
  const std::lock_guard lock(server_->mutex);
  int64_t bytes = 0;
  for (const auto& optimizer : server_->optimizers) bytes += slot_bytes(*optimizer);
  return bytes;
}

void AsynchronousUpdate::save(core::StateWriter& writer) const {
  const std::lock_guard lock(server_->mutex);
  follow_replica_0();
  core::ScopedWriter model(writer, "model/"), optimizer(writer, "optimizer/");
  server_->parameters.save(model);
  for (const auto& each : server_->optimizers) each->save(optimizer);
  writer.integer(kUpdates, server_->updates);
}

void AsynchronousUpdate::load(const core::StateReader& reader) {
  const std::lock_guard lock(server_->mutex);
  server_->parameters.load(core::ScopedReader(reader, "model/"));
  for (const auto& each : server_->optimizers) each->load(core::ScopedReader(reader, "optimizer/"));
  server_->updates = reader.has(kUpdates) ? reader.integer(kUpdates) : 0;
  for (int r = 0; r < replicas(); ++r) parameters(r).copy_from(server_->parameters);
}

namespace {

const core::Registration kAsynchronous(variable_updates(), "asynchronous",
                                       [](const VariableUpdateOptions& options) -> std::unique_ptr<VariableUpdate> {
                                         if (options.servers)
                                           return make_served_update(options, ServedCopies::kOneForAll);
                                         return std::make_unique<AsynchronousUpdate>(options);
                                       });

}  // namespace
}  // namespace trainyard::parallel
