#include "trainyard/parallel/local_variable_update.h"

#include <utility>

#include <fmt/format.h>

#include "trainyard/core/scoped_state.h"
#include "trainyard/parallel/thread_communicator.h"

namespace trainyard::parallel {

using core::Error;
using core::ErrorCode;

LocalVariableUpdate::LocalVariableUpdate(VariableUpdateOptions options, GradientReduction reduction, Exchange exchange)
    : options_(std::move(options)), reduction_(options_.reduction.value_or(reduction)) {
  options_.validate();
  for (int r = 0; r < options_.replicas; ++r) {
    replicas_.push_back(std::make_unique<Replica>(Replica{.parameters = nn::ParameterSet(options_.parameters)}));
  }
  if (exchange == Exchange::kNone || options_.replicas == 1) return;
  auto communicators = make_thread_communicators(options_.replicas);
  for (int r = 0; r < options_.replicas; ++r) {
    at(r).communicator = std::move(communicators[static_cast<size_t>(r)]);
    at(r).communicator->set_deadline(options_.deadline);
  }
}

int64_t LocalVariableUpdate::optimizer_bytes() const {
  int64_t bytes = 0;
  for (const auto& replica : replicas_) {
    if (replica->optimizer == nullptr) continue;
    for (const optim::Optimizer::Slot& slot : replica->optimizer->slots()) {
      bytes += static_cast<int64_t>(slot.values.nbytes());
    }
  }
  return bytes;
}

void LocalVariableUpdate::allocate() {
  nn::ParameterSet& first = parameters(0);
  first.allocate();
  first.initialize(options_.seed);
  if (options_.start) options_.start(first);
  for (int r = 1; r < replicas(); ++r) {
    if (parameters(r).size() != first.size() || parameters(r).buffer_count() != first.buffer_count()) {
      throw Error(ErrorCode::kInvalidArgument,
                  {.problem = "replicas have declared different variables",
                   .where = fmt::format("replica {}", r),
                   .expected = fmt::format("{} parameters and {} buffers", first.size(), first.buffer_count()),
                   .actual = fmt::format("{} and {}", parameters(r).size(), parameters(r).buffer_count())});
    }
    allocate_from(first, parameters(r));
  }
  const bool summed = reduction_ == GradientReduction::kSum && at(0).communicator;
  for (int r = 0; r < replicas(); ++r) {
    if (!has_own_optimizer(r)) continue;
    at(r).optimizer = options_.make_optimizer(parameters(r));
    if (summed) at(r).optimizer->set_weight_decay_factor(replicas());
  }
}

template <typename Operation>
void LocalVariableUpdate::communicate(int replica, Operation operation) {
  core::Communicator* communicator = at(replica).communicator.get();
  if (communicator == nullptr) return;
  const auto start = std::chrono::steady_clock::now();
  operation(*communicator);
  at(replica).communication_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void LocalVariableUpdate::all_reduce_gradients(int replica) {
  communicate(replica, [&](core::Communicator& communicator) {
    communicator.all_reduce(parameters(replica).gradients(),
                            reduction_ == GradientReduction::kMean ? core::ReduceOp::kMean : core::ReduceOp::kSum);
  });
}

void LocalVariableUpdate::wait_for_all(int replica) {
  communicate(replica, [](core::Communicator& communicator) { communicator.barrier(); });
}

void LocalVariableUpdate::abort(const Error& error) {
  if (at(0).communicator) at(0).communicator->abort(error);
}

void LocalVariableUpdate::save_replica(int replica, core::StateWriter& writer) const {
  core::ScopedWriter model(writer, "model/"), optimizer(writer, "optimizer/");
  at(replica).parameters.save(model);
  at(replica).optimizer->save(optimizer);
}

void LocalVariableUpdate::load_replica(int replica, const core::StateReader& reader) {
  at(replica).parameters.load(core::ScopedReader(reader, "model/"));
  if (at(replica).optimizer) at(replica).optimizer->load(core::ScopedReader(reader, "optimizer/"));
}

void LocalVariableUpdate::save(core::StateWriter& writer) const {
  save_replica(0, writer);
  for (int r = 1; saves_every_replica() && r < replicas(); ++r) {
    core::ScopedWriter own(writer, fmt::format("replica/{}/", r));
    save_replica(r, own);
  }
}

void LocalVariableUpdate::load(const core::StateReader& reader) {
  for (int r = 0; r < replicas(); ++r) {
    const std::string own = fmt::format("replica/{}/", r);
    // A state of fewer replicas, or of another mode, has none for this one: it starts as replica 0 does.
    const bool has_own = r > 0 && saves_every_replica() && !reader.names(own).empty();
    load_replica(r, core::ScopedReader(reader, has_own ? own : ""));
  }
}

}  // namespace trainyard::parallel
