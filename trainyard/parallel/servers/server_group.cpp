#include "trainyard/parallel/servers/server_group.h"

#include <utility>

#include "trainyard/parallel/servers/optimizer_settings.h"
#include "trainyard/parallel/servers/server_connections.h"

namespace trainyard::parallel {

using core::Error;
using core::ErrorCode;

namespace {

// Returns the first of all optimizers' slots, as wire targets count them.
std::vector<at::Tensor> slots_of(const std::vector<optim::Optimizer*>& optimizers) {
  std::vector<at::Tensor> slots;
  for (const optim::Optimizer* const optimizer : optimizers) {
    for (const optim::Optimizer::Slot& slot : optimizer->slots()) slots.push_back(slot.values);
  }
  return slots;
}

std::vector<double> counts_of(const std::vector<optim::Optimizer*>& optimizers) {
  std::vector<double> counts;
  for (const optim::Optimizer* const optimizer : optimizers) {
    for (const at::Tensor& count : counts_in(*optimizer)) {
      counts.insert(counts.end(), count.const_data_ptr<double>(), count.const_data_ptr<double>() + count.numel());
    }
  }
  return counts;
}

void set_counts(const std::vector<optim::Optimizer*>& optimizers, const std::vector<double>& counts) {
  auto next = counts.begin();
  for (optim::Optimizer* const optimizer : optimizers) {
    for (const at::Tensor& count : counts_in(*optimizer)) {
      if (counts.end() - next < count.numel())
        throw Error(ErrorCode::kCorruptData, "a server has other counts of updates");
      std::copy_n(next, count.numel(), count.mutable_data_ptr<double>());
      next += count.numel();
    }
  }
}

std::vector<uint64_t> frozen_in(const nn::ParameterSet& set) {
  std::vector<uint64_t> frozen;
  for (size_t i = 0; i < set.size() && !set.all_trainable(); ++i) {
    if (!set.trainable({static_cast<int>(i)})) frozen.push_back(i);
  }
  return frozen;
}

std::vector<double> hyperparameters_of(const optim::Optimizer& optimizer) {
  std::vector<double> numbers;
  for (const std::string& name : optimizer.hyperparameter_names()) numbers.push_back(optimizer.hyperparameter(name));
  return numbers;
}

}  // namespace

class ServerGroup::Connections : public ServerConnections {
 public:
  using ServerConnections::ServerConnections;

  uint64_t round = 0;  // of the next push
};

ServerGroup::ServerGroup(ServerGroupOptions options)
    : connections_(std::make_unique<Connections>(std::move(options))) {}

ServerGroup::~ServerGroup() = default;

const ServerGroupOptions& ServerGroup::options() const {
  return connections_->options();
}

void ServerGroup::join(const nn::ParameterSet& set, const std::vector<optim::Optimizer*>& optimizers) {
  wire::RegisterRequest request{.is_double = set.values().scalar_type() == at::kDouble,
                                .optimizers = optimizers.size(),
                                .tensors = tensors_of(set)};
  for (const optim::Optimizer* const each : optimizers) request.settings += optimizer_settings(*each);
  connections_->join(std::move(request), set.total());
}

void ServerGroup::start(nn::ParameterSet& set, const std::vector<optim::Optimizer*>& optimizers, int64_t updates) {
  Connections& all = *connections_;
  const bool chief = all.options().worker == 0;
  if (chief) {
    all.write(wire::kValues, set.values());
    uint64_t target = wire::kFirstSlot;
    for (const at::Tensor& slot : slots_of(optimizers)) all.write(target++, slot);
  }
  wire::StartRequest request;
  if (chief) {
    request.updates = static_cast<uint64_t>(updates);
    request.counts = counts_of(optimizers);
  }
  all.ask_all("start", ServerCall::kStart, [&](const wire::Sender& from) {
    request.from = from;
    return encode(request);
  });
  if (chief) return;
  read_values(set.values());
}

bool ServerGroup::push(const at::Tensor& gradients, const optim::StepValues& values, const optim::Optimizer& optimizer,
                       int index) {
  Connections& all = *connections_;
  all.set_step(static_cast<int64_t>(all.round));
  const auto meeting = all.begin("push", all.pushes_meet(Connections::Meets::kAll));
  all.push(all.round, gradients);
  wire::ApplyRequest request{.round = all.round,
                             .optimizer = static_cast<uint64_t>(index),
                             .learning_rate = values.learning_rate,
                             .inverse_loss_scale = values.inverse_loss_scale,
                             .step = values.step,
                             .found_inf = values.found_inf,
                             .hyperparameters = hyperparameters_of(optimizer),
                             .frozen = frozen_in(optimizer.parameters())};
  // Each server has heard all workers, so that all say the same.
  const wire::Progress progress =
      all.ask_all_and_count("wait for the update", ServerCall::kApply, [&](const wire::Sender& from) {
        request.from = from;
        return encode(request);
      });
  ++all.round;
  all.set_step(static_cast<int64_t>(all.round));
  return progress.found_inf;
}

void ServerGroup::read_values(const at::Tensor& values) {
  switch (connections_->options().cluster.mode) {
    case ServerMode::kSynchronous:
      return connections_->read(wire::kValues, connections_->round, values);
    case ServerMode::kStaged:
      return connections_->read(wire::kStagedValues, connections_->round, values);
    case ServerMode::kAsynchronous:
      return connections_->read(wire::kValues, 0, values);
  }
}

int64_t ServerGroup::read_state(const at::Tensor& values, const std::vector<optim::Optimizer*>& optimizers) {
  Connections& all = *connections_;
  const uint64_t round = all.options().cluster.mode == ServerMode::kAsynchronous ? 0 : all.round;
  const auto hold = [&](bool held) {
    return all.ask_all("read the state", ServerCall::kHold, [&](const wire::Sender& from) {
      return encode(wire::HoldRequest{.from = from, .held = held, .round = round});
    });
  };
  const wire::Progress progress = [&] {
    // kStaged has not waited for the update of the last push, which the state is behind.
    using Meets = Connections::Meets;
    const auto waits = all.begin("read the state", round > 0 ? all.pushes_meet(Meets::kInTheLast) : Meets::kNot);
    return hold(true);
  }();
  set_counts(optimizers, progress.counts);
  all.read(wire::kValues, round, values);
  uint64_t target = wire::kFirstSlot;
  for (const at::Tensor& slot : slots_of(optimizers)) all.read(target++, round, slot);
  hold(false);
  return static_cast<int64_t>(progress.updates);
}

void ServerGroup::write_staged(const at::Tensor& values) {
  connections_->write(wire::kStagedValues, values);
}

void ServerGroup::write_values(const at::Tensor& values) {
  connections_->write(wire::kValues, values);
}

void ServerGroup::meet() {
  const auto meeting = connections_->begin("meet", Connections::Meets::kAll);
  connections_->ask_all("meet", ServerCall::kMeet,
                        [](const wire::Sender& from) { return encode(wire::AttendRequest{.from = from}); });
}

int64_t ServerGroup::updates() {
  return connections_->updates();
}

void ServerGroup::leave() {
  connections_->leave();
}

void ServerGroup::abort(const Error& error) {
  connections_->fail(error);
}

void ServerGroup::fail_with(std::shared_ptr<ProcessGroup> processes) {
  connections_->fail_with(std::move(processes));
}

double ServerGroup::waiting_seconds() const {
  return connections_->waiting_seconds();
}

int64_t ServerGroup::copied_bytes() const {
  return connections_->copied_bytes();
}

std::vector<int64_t> ServerGroup::boundaries() const {
  return connections_->boundaries();
}

}  // namespace trainyard::parallel
