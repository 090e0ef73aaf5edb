#include "trainyard/train/step/replica_set.h"

#include <limits>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "trainyard/core/memory/numa_memory.h"
#include "trainyard/nn/execution/gradient_sink.h"
#include "trainyard/parallel/collectives/threads/thread_communicator.h"
#include "trainyard/train/step/foreign_random.h"

namespace trainyard::train {

namespace {

std::vector<std::function<std::unique_ptr<optim::Optimizer>(nn::ParameterSet&)>> optimizers_of(
    const TowerTrainerOptions& options) {
  std::vector<std::function<std::unique_ptr<optim::Optimizer>(nn::ParameterSet&)>> all;
  for (const CostOptions& cost : options.all_costs()) all.push_back(cost.make_optimizer);
  return all;
}

TowerFunction tower_function(const TowerTrainerOptions& options) {
  return options.tower
             ? options.tower
             : graph_tower({.graph = options.graph, .loss = options.loss, .other_sizes = options.other_sizes});
}

// A tower of one's own may run a graph, or read a parameter, any number of times in a step.
void allow_any_uses(nn::GradientSink& sink) {
  for (int index = 0; index < static_cast<int>(sink.parameters().size()); ++index) {
    sink.set_uses({index}, std::numeric_limits<int>::max());
  }
}

// Moves values and gradients, which the main thread has allocated, to the nodes of the placement.
void move_to_nodes(const ReplicaSet& replicas) {
  if (!replicas.on_cpu()) return;  // they are not in the host's memory
  const std::vector<core::ThreadPlacement>& placement = replicas.options().threads.placement;
  parallel::VariableUpdate& update = replicas.update();
  for (size_t r = 0; r < placement.size(); ++r) {
    const std::optional<int> node = placement[r].memory_node;
    if (!node) continue;
    const nn::ParameterSet& own = update.parameters(static_cast<int>(r));
    // Where replicas share values, those stay with the first one.
    const bool shared = r > 0 && own.values().data_ptr() == update.parameters(0).values().data_ptr();
    if (!shared) core::move_memory_to_node(own.values().data_ptr(), own.values().nbytes(), *node);
    core::move_memory_to_node(own.gradients().data_ptr(), own.gradients().nbytes(), *node);
  }
}

}  // namespace

parallel::Sharding sharding_of(const TowerTrainerOptions& options) {
  const bool scale_decides = options.devices.loss_scale && options.devices.loss_scale->automatic;
  return {.use = options.exchange.sharded_update,
          .obstacle = options.hooks.update_pre  ? "a hook reads gradients before they are applied"
                      : options.sharpness_aware ? "sharpness-aware minimization reads gradients"
                                                : "",
          .decides_before_update = options.on_nan != OnNan::kIgnore || scale_decides};
}

bool draws_from_aten(const TowerTrainerOptions& options) {
  return options.tower || has_foreign_modules(options.graph);
}

bool exchange_gradients(const TowerTrainerOptions& options) {
  const std::string& update = options.exchange.variable_update;
  return update != "independent" && update != "asynchronous" &&
         (options.devices.replicas > 1 || options.devices.make_communicators);
}

ReplicaSet::ReplicaSet(const TowerTrainerOptions& options, const optim::Hyperparameters& hyperparameters)
    : options_(options), hyperparameters_(hyperparameters) {
  const nn::AcceleratorScope on_devices = use_all();
  const OpenDevices& devices = options.devices;
  const at::ScalarType parameters = devices.dtype == at::kDouble ? at::kDouble : at::kFloat;
  update_ = parallel::variable_updates().get(options.exchange.variable_update)(
      {.replicas = devices.replicas,
       .parameters = {.dtype = parameters},
       .accelerators = devices.accelerators,
       .make_communicators =
           devices.make_gradient_communicators ? devices.make_gradient_communicators : devices.make_communicators,
       .make_optimizers = optimizers_of(options),
       .reduction = options.exchange.reduction,
       .seed = options.seed,
       .start = options.start,
       .deadline = options.exchange.deadline,
       .packing = options.exchange.packing,
       .sharding = sharding_of(options),
       .compression = options.exchange.compression,
       .servers = devices.servers});
  replicas_.resize(static_cast<size_t>(devices.replicas));
  connect_batch_norms();
  const TowerFunction make_tower = tower_function(options);
  for (int r = 0; r < devices.replicas; ++r) {
    const nn::AcceleratorScope on_device = use(r);
    const at::Device device = on_cpu() ? at::Device(at::kCPU) : accelerator(r)->device();
    Replica& replica = replicas_[static_cast<size_t>(r)];
    replica.state = optim::StepState(device);
    if (devices.loss_scale) replica.loss_scaler.emplace(*devices.loss_scale, device);
    replica.view.parameters = &update_->parameters(r);
    replica.sink = std::make_unique<nn::GradientSink>(update_->parameters(r));
    TowerContext::Place own = place(r, nn::Mode::kTraining);
    own.build.gradients = replica.sink.get();
    own.build.sync_batch_norm = replica.sync_batch_norm.get();
    replica.tower = std::make_unique<TowerContext>(std::move(own));
    replica.step = make_tower(*replica.tower);
    if (options.tower) {
      allow_any_uses(*replica.sink);
    } else {
      replica.sink->set_listener([this, r, &replica](nn::ParameterId parameter) {
        if (replica.gradients_leave) update_->ready(r, parameter);
      });
    }
  }
  update_->allocate();
  round_all_variables();
}

void ReplicaSet::connect_batch_norms() {
  if (!options_.exchange.sync_batch_norm || !exchange_gradients(options_)) return;
  auto communicators = options_.devices.make_communicators ? options_.devices.make_communicators()
                                                           : parallel::make_thread_communicators(size());
  for (size_t r = 0; r < replicas_.size(); ++r) {
    communicators.at(r)->set_deadline(options_.exchange.deadline);
    replicas_[r].sync_batch_norm = std::make_unique<nn::SyncBatchNorm>(std::move(communicators[r]));
  }
}

TowerContext::Place ReplicaSet::place(int replica, nn::Mode mode) const {
  return {.index = replica,
          .count = size(),
          .executor = options_.devices.executor,
          .build = {.device = on_cpu() ? at::Device(at::kCPU) : accelerator(replica)->device(),
                    .dtype = options_.devices.dtype,
                    .mode = mode,
                    .kernels = options_.devices.kernels,
                    .replica = replica,
                    .parameters = &update_->parameters(replica)},
          .hyperparameters = &hyperparameters_};
}

const TowerStep& ReplicaSet::inference_tower() {
  if (inference_ != nullptr) return inference_step_;
  const nn::AcceleratorScope on_device = use(0);
  inference_ = std::make_unique<TowerContext>(place(0, nn::Mode::kInference));
  inference_step_ = [device = options_.devices.accelerator(),
                     step = tower_function(options_)(*inference_)](const TowerInput& in) {
    const at::NoGradGuard without_gradients;
    const nn::AcceleratorScope there = device == nullptr ? nn::AcceleratorScope() : device->use();
    return step(in);
  };
  return inference_step_;
}

void ReplicaSet::start(int intra_op_threads_each) {
  move_to_nodes(*this);
  const std::vector<core::ThreadPlacement>& placement = options_.threads.placement;
  std::vector<core::ThreadOptions> threads;
  for (int r = 0; r < size(); ++r) {
    threads.push_back({.name = fmt::format("replica {}", r), .intra_op_threads = intra_op_threads_each});
    if (!placement.empty()) threads.back().placement = placement[static_cast<size_t>(r)];
  }
  threads_ = std::make_unique<ReplicaThreads>(std::move(threads), [this](const core::Error& error) { abort(error); });
}

void ReplicaSet::abort(const core::Error& error) const {
  update_->abort(error);
  for (const Replica& replica : replicas_) {
    if (replica.sync_batch_norm != nullptr) replica.sync_batch_norm->abort(error);
  }
}

void ReplicaSet::record(StepRecorder* recorder) {
  recorder_ = recorder;
  for (int r = 0; r < size(); ++r) {
    // Nodes have their numbers in one graph: only the first one is observed.
    const std::vector<TowerContext::Graph>& graphs = (*this)[r].tower->graphs();
    if (graphs.empty()) continue;
    graphs.front().executor->set_observer(recorder == nullptr ? nullptr : &recorder->node_observer(r));
  }
}

CommunicationSeconds ReplicaSet::communication_seconds() const {
  CommunicationSeconds seconds{.total = update_->communication_seconds(0), .waiting = update_->waiting_seconds(0)};
  if (const auto& statistics = replicas_.front().sync_batch_norm) {
    seconds.total += statistics->seconds();
    seconds.waiting += statistics->waiting_seconds();
  }
  return seconds;
}

double ReplicaSet::base_loss() const {
  const nn::AcceleratorScope on_devices = use_all();
  double sum = 0;
  for (const Replica& replica : replicas_) {
    if (replica.view.losses.empty()) return std::numeric_limits<double>::quiet_NaN();
    sum += replica.view.loss().item<double>();
  }
  return sum / static_cast<double>(replicas_.size());
}

void ReplicaSet::round_variables(int r, int own_optimizer) {
  const std::optional<at::ScalarType>& type = options_.devices.variables_as;
  if (!type) return;
  const auto round = [&type](const at::Tensor& numbers) { numbers.copy_(numbers.to(*type)); };
  const optim::Optimizer* const optimizer = update_->optimizer(r, own_optimizer);
  if (optimizer == nullptr) return;
  nn::ParameterSet& parameters = optimizer->parameters();
  round(parameters.values());
  for (const optim::Optimizer::Slot& slot : optimizer->slots()) round(slot.values);
  parameters.values_changed();
}

void ReplicaSet::round_all_variables() {
  for (int r = 0; r < size(); ++r) {
    const nn::AcceleratorScope on_device = use(r);
    round_variables(r);
  }
}

}  // namespace trainyard::train
