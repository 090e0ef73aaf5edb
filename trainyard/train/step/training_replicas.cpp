#include "trainyard/train/step/training_replicas.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "trainyard/core/base/log.h"
#include "trainyard/core/memory/cpu_allocator.h"
#include "trainyard/core/memory/numa_memory.h"
#include "trainyard/nn/execution/kernel_choices.h"
#include "trainyard/parallel/collectives/threads/thread_communicator.h"
#include "trainyard/parallel/process_group/process_group.h"
#include "trainyard/train/step/foreign_random.h"

namespace trainyard::train {

using core::Error;
using core::ErrorCode;

namespace {

double seconds_between(std::chrono::steady_clock::time_point begin, std::chrono::steady_clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

// Why a step of this training cannot be recorded; empty: it can.
std::string capture_obstacle(const TowerTrainerOptions& options) {
  if (options.micro_steps > 1) return "micro-steps are handed over one by one";
  if (options.hooks.input_pre || options.hooks.reduce_pre || options.hooks.update_pre)
    return "hooks run in the middle of the step";
  if (options.costs.size() > 1) return "several costs take turns";
  if (options.tower) return "nobody knows what a tower of one's own does on the host";
  for (const nn::Node& node : options.graph.nodes) {
    if (std::holds_alternative<nn::Foreign>(node.op)) {
      return fmt::format("nobody knows what the custom layer {} does", node.name);
    }
  }
  return "";
}

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

// `wanted` is the cost's name; empty: the first loss.
at::Tensor cost_of(const TowerOutput& result, const std::string& wanted) {
  if (result.losses.empty()) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "a tower gave no loss",
                                              .expected = "at least one: the first is the cost",
                                              .remedy = "return it in TowerOutput::losses"});
  }
  const std::string& name = wanted.empty() ? result.losses.begin()->name : wanted;
  const at::Tensor& cost = result.losses[name];
  if (cost.defined() && cost.numel() == 1 && cost.requires_grad()) return cost;
  throw Error(ErrorCode::kInvalidArgument,
              {.problem = fmt::format("the loss '{}' cannot be differentiated", name),
               .expected = "a scalar that depends on the model's parameters",
               .actual = cost.defined() ? fmt::format("{} elements{}", cost.numel(),
                                                      cost.requires_grad() ? "" : " without gradient")
                                        : "an undefined tensor"});
}

}  // namespace

bool draws_from_aten(const TowerTrainerOptions& options) {
  return options.tower || has_foreign_modules(options.graph);
}

bool exchange_gradients(const TowerTrainerOptions& options) {
  return options.exchange.variable_update != "independent" && options.exchange.variable_update != "asynchronous" &&
         (options.devices.replicas > 1 || options.devices.make_communicators);
}

TowerTrainer::Replicas::Replicas(const TowerTrainerOptions& options, const optim::Hyperparameters& hyperparameters)
    : options_(options),
      hyperparameters_(hyperparameters),
      nan_guard_({.on_nan = options.on_nan,
                  .replicas = options.devices.replicas,
                  .exchange = exchange_gradients(options),
                  .scaler_owns_gradients = options.devices.loss_scale && options.devices.loss_scale->automatic}),
      costs_(options.all_costs()),
      learning_rates_(costs_.size()) {
  const nn::AcceleratorScope on_devices = use_devices();
  const at::ScalarType parameters = options.devices.dtype == at::kDouble ? at::kDouble : at::kFloat;
  update_ = parallel::variable_updates().get(options.exchange.variable_update)(
      {.replicas = options.devices.replicas,
       .parameters = {.dtype = parameters},
       .accelerators = options.devices.accelerators,
       .make_communicators = options.devices.make_communicators,
       .make_optimizers = optimizers_of(options),
       .reduction = options.exchange.reduction,
       .seed = options.seed,
       .start = options.start,
       .deadline = options.exchange.deadline});
  replicas_.resize(static_cast<size_t>(options.devices.replicas));
  exchange_statistics();
  const TowerFunction make_tower = tower_function(options);
  for (int r = 0; r < options.devices.replicas; ++r) {
    const nn::AcceleratorScope on_device = use(r);
    const at::Device device = on_cpu() ? at::Device(at::kCPU) : accelerator(r)->device();
    Replica& replica = replicas_[static_cast<size_t>(r)];
    replica.state = optim::StepState(device);
    if (options.devices.loss_scale) replica.loss_scaler.emplace(*options.devices.loss_scale, device);
    replica.view.parameters = &update_->parameters(r);
    replica.sink = std::make_unique<nn::GradientSink>(update_->parameters(r));
    TowerContext::Place own = place(r, nn::Mode::kTraining);
    own.build.gradients = replica.sink.get();
    own.build.sync_batch_norm = replica.sync_batch_norm.get();
    replica.tower = std::make_unique<TowerContext>(std::move(own));
    replica.step = make_tower(*replica.tower);
    options.tower ? allow_any_uses(*replica.sink) : listen_to_gradients(r);
  }
  update_->allocate();
  round_all_variables();
  if (options.average) {
    average_ = std::make_unique<optim::WeightAverage>(*options.average, update_->parameters(0));
  }
  report_l2_loss();
  if (!options.sharpness_aware) return;
  for (int r = 0; r < options.devices.replicas; ++r) {
    if (optim::Optimizer* const optimizer = update_->optimizer(r)) {
      replicas_[static_cast<size_t>(r)].sharpness.emplace(*optimizer, *options.sharpness_aware);
    }
  }
}

void TowerTrainer::Replicas::exchange_statistics() {
  if (!options_.exchange.sync_batch_norm || !exchange_gradients(options_)) return;
  auto communicators = options_.devices.make_communicators
                           ? options_.devices.make_communicators()
                           : parallel::make_thread_communicators(options_.devices.replicas);
  for (size_t r = 0; r < replicas_.size(); ++r) {
    communicators.at(r)->set_deadline(options_.exchange.deadline);
    replicas_[r].sync_batch_norm = std::make_unique<nn::SyncBatchNorm>(std::move(communicators[r]));
  }
}

double TowerTrainer::Replicas::communication_seconds() const {
  const auto& statistics = replicas_.front().sync_batch_norm;
  return update_->communication_seconds(0) + (statistics == nullptr ? 0 : statistics->seconds());
}

void TowerTrainer::Replicas::abort(const Error& error) const {
  update_->abort(error);
  for (const Replica& replica : replicas_) {
    if (replica.sync_batch_norm != nullptr) replica.sync_batch_norm->abort(error);
  }
}

TowerContext::Place TowerTrainer::Replicas::place(int replica, nn::Mode mode) const {
  return {.index = replica,
          .count = options_.devices.replicas,
          .executor = options_.devices.executor,
          .build = {.device = on_cpu() ? at::Device(at::kCPU) : accelerator(replica)->device(),
                    .dtype = options_.devices.dtype,
                    .mode = mode,
                    .kernels = options_.devices.kernels,
                    .replica = replica,
                    .parameters = &update_->parameters(replica)},
          .hyperparameters = &hyperparameters_};
}

const TowerStep& TowerTrainer::Replicas::inference_tower() {
  if (inference_ != nullptr) return inference_step_;
  const nn::AcceleratorScope on_device = use(0);
  inference_ = std::make_unique<TowerContext>(place(0, nn::Mode::kInference));
  inference_step_ = [device = on_cpu() ? nullptr : options_.devices.accelerators[0],
                     step = tower_function(options_)(*inference_)](const TowerInput& in) {
    const at::NoGradGuard without_gradients;
    const nn::AcceleratorScope there = device == nullptr ? nn::AcceleratorScope() : device->use();
    return step(in);
  };
  return inference_step_;
}

void TowerTrainer::Replicas::report_l2_loss() {
  const optim::Optimizer& optimizer = *update_->optimizer(0);
  l2_of_values_.reset();
  l2_loss_ = at::Tensor();
  if (!optimizer.regularizers().empty()) l2_of_values_.emplace(optimizer, update_->parameters(0));
}

void TowerTrainer::Replicas::obey(const optim::Hyperparameters& hyperparameters) {
  bool changed = false;
  for (size_t c = 0; c < costs_.size(); ++c) {
    const auto value_of = [&](const std::string& name) {
      return hyperparameters.get(options_.hyperparameter_name(costs_[c], name));
    };
    learning_rates_[c] = value_of("learning_rate");
    for (int r = 0; r < options_.devices.replicas; ++r) {
      optim::Optimizer* const optimizer = update_->optimizer(r, static_cast<int>(c));
      if (optimizer == nullptr) continue;
      for (const std::string& name : optimizer->hyperparameter_names()) {
        if (optimizer->hyperparameter(name) == value_of(name)) continue;
        optimizer->set_hyperparameter(name, value_of(name));
        changed = true;
      }
    }
  }
  require_trainable();
  if (!changed) return;
  const nn::AcceleratorScope on_devices = use_devices();
  report_l2_loss();
  // Recorded steps hold the old values.
  for (Replica& replica : replicas_) replica.device_step.reset();
}

void TowerTrainer::Replicas::require_trainable() const {
  const nn::ParameterSet& set = update_->parameters(0);
  if (set.all_trainable()) return;
  for (size_t c = 0; c < costs_.size(); ++c) {
    const optim::Optimizer& optimizer = *update_->optimizer(0, static_cast<int>(c));
    bool any = false;
    for (size_t i = 0; i < set.segments().size(); ++i) any |= optimizer.trainable(i);
    if (any) continue;
    const std::string which = costs_[c].loss.empty() ? "" : fmt::format(" for the cost '{}'", costs_[c].loss);
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = fmt::format("there is nothing to train{}: all parameters are frozen", which),
                 .remedy = "thaw some, or evaluate the model instead"});
  }
}

void TowerTrainer::Replicas::start(int intra_op_threads_each) {
  move_to_nodes();
  std::vector<core::ThreadOptions> threads;
  for (int r = 0; r < options_.devices.replicas; ++r) {
    threads.push_back({.name = fmt::format("replica {}", r), .intra_op_threads = intra_op_threads_each});
    if (!options_.threads.placement.empty())
      threads.back().placement = options_.threads.placement[static_cast<size_t>(r)];
  }
  threads_ = std::make_unique<ReplicaThreads>(std::move(threads), [this](const Error& error) { abort(error); });
}

void TowerTrainer::Replicas::end() {
  threads_.reset();
  if (!in_step_) update_->wait();
}

void TowerTrainer::Replicas::move_to_nodes() const {
  if (!on_cpu()) return;  // they are not in the host's memory
  for (size_t r = 0; r < options_.threads.placement.size(); ++r) {
    const std::optional<int> node = options_.threads.placement[r].memory_node;
    if (!node) continue;
    const nn::ParameterSet& own = update_->parameters(static_cast<int>(r));
    // Where replicas share values, those stay with the first one.
    const bool shared = r > 0 && own.values().data_ptr() == update_->parameters(0).values().data_ptr();
    if (!shared) core::move_memory_to_node(own.values().data_ptr(), own.values().nbytes(), *node);
    core::move_memory_to_node(own.gradients().data_ptr(), own.gradients().nbytes(), *node);
  }
}

double TowerTrainer::Replicas::l2_loss() const {
  const nn::AcceleratorScope on_device = use(0);
  return l2_loss_.defined() ? l2_loss_.item<double>() : 0.0;
}

void TowerTrainer::Replicas::load_average(const core::StateReader& reader) {
  const bool saved = !reader.names().empty();
  if (average_ == nullptr) {
    if (saved) core::log::warning("the checkpoint's averaged weights end here: this run does not ask for an average");
    return;
  }
  if (saved) return average_->load(reader);
  core::log::warning("the checkpoint has no averaged weights: the average begins with its last ones");
  average_->restart();
}

double TowerTrainer::Replicas::base_loss() const {
  const nn::AcceleratorScope on_devices = use_devices();
  double sum = 0;
  for (const Replica& replica : replicas_) {
    if (replica.view.losses.empty()) return std::numeric_limits<double>::quiet_NaN();
    sum += replica.view.loss().item<double>();
  }
  return sum / static_cast<double>(replicas_.size());
}

void TowerTrainer::Replicas::record(StepRecorder* recorder) {
  recorder_ = recorder;
  for (size_t r = 0; r < replicas_.size(); ++r) {
    observe(replicas_[r], recorder == nullptr ? nullptr : &recorder->node_observer(static_cast<int>(r)));
  }
}

// Nodes have their numbers in one graph: only the first one is heard of.
void TowerTrainer::Replicas::observe(const Replica& replica, nn::NodeObserver* observer) {
  const std::vector<TowerContext::Graph>& graphs = replica.tower->graphs();
  if (!graphs.empty()) graphs.front().executor->set_observer(observer);
}

std::vector<std::optional<nn::ExecutorMemory>> TowerTrainer::Replicas::compile(int r, int64_t samples) {
  const nn::AcceleratorScope on_device = use(r);
  const at::AutoGradMode with_gradients(true);  // as for the forward that follows
  std::vector<std::optional<nn::ExecutorMemory>> executors;
  const auto prepared = [samples](const TowerContext::Graph& graph) {
    return graph.runs_whole_batch ? graph.executor->prepare(samples) : std::nullopt;
  };
  const TowerContext& tower = *replicas_[static_cast<size_t>(r)].tower;
  for (const TowerContext::Graph& graph : tower.graphs()) executors.push_back(prepared(graph));
  for (const TowerContext::FrozenGraph& frozen : tower.frozen_graphs()) {
    const at::NoGradGuard without_gradients;
    executors.push_back(prepared(frozen.graph));
  }
  if (tower.graphs().empty()) executors.emplace_back();  // the memory of such a tower is not known
  return executors;
}

RunMemory TowerTrainer::Replicas::plan_memory(int64_t batch) {
  std::vector<std::optional<nn::ExecutorMemory>> first;
  threads_->run([&](int own) {
    if (own == 0) first = compile(0, batch);
  });
  std::vector<std::optional<nn::ExecutorMemory>> all;  // replicas are alike
  for (int r = 0; r < options_.devices.replicas; ++r) all.insert(all.end(), first.begin(), first.end());
  RunMemory memory = measure_memory(all);
  memory.program = 0;
  return memory;
}

void TowerTrainer::Replicas::prepare(const std::vector<data::Batch>& batches) {
  nn::KernelChoices& choices = *options_.devices.kernels.choices;
  std::vector<std::optional<nn::ExecutorMemory>> executors;  // of all replicas, which compile one after the other
  const bool first_rank = options_.devices.processes == nullptr || options_.devices.processes->rank() == 0;
  const auto agree = [&] {
    choices.agree([&](const std::string& own) {
      return options_.devices.processes->from_first("the kernels of the model", own);
    });
  };
  // One replica after the other: the first one measures, on cores that no other replica uses.
  if (!first_rank) agree();
  for (int r = 0; r < options_.devices.replicas; ++r) {
    threads_->run([&](int own) {
      if (own != r) return;
      const auto own_executors = compile(r, batches[static_cast<size_t>(r)].samples());
      executors.insert(executors.end(), own_executors.begin(), own_executors.end());
    });
  }
  if (first_rank && options_.devices.processes != nullptr) agree();
  core::trim_cpu_allocator();  // of what measuring took
  memory_ = measure_memory(executors);
  core::log::info("{}", memory_line(*memory_));
}

RunMemory TowerTrainer::Replicas::measure_memory(
    const std::vector<std::optional<nn::ExecutorMemory>>& executors) const {
  RunMemory memory;
  memory.optimizer = update_->optimizer_bytes();
  if (average_ != nullptr) memory.optimizer += static_cast<int64_t>(update_->parameters(0).values().nbytes());
  for (size_t r = 0; r < replicas_.size(); ++r) {
    // The copy of the weights that sharpness-aware minimization restores.
    if (replicas_[r].sharpness) {
      memory.optimizer += static_cast<int64_t>(update_->parameters(static_cast<int>(r)).values().nbytes());
    }
  }
  const void* const first_values = update_->parameters(0).values().const_data_ptr();
  for (int r = 0; r < options_.devices.replicas; ++r) {
    const nn::ParameterSet& set = update_->parameters(r);
    memory.add(set, r > 0 && set.values().const_data_ptr() == first_values);
    for (const TowerContext::FrozenGraph& frozen : replicas_[static_cast<size_t>(r)].tower->frozen_graphs()) {
      memory.add_constant(*frozen.weights, frozen.shares_values);
    }
  }
  for (const std::optional<nn::ExecutorMemory>& executor : executors) memory.add(executor);
  const int64_t on_host = on_cpu() ? memory.parameters + memory.gradients + memory.optimizer : 0;
  memory.program = std::max<int64_t>(0, resident_bytes() - on_host);
  return memory;
}

void TowerTrainer::Replicas::run_step(data::BatchSource& source, const optim::Hyperparameters& hyperparameters,
                                      StepView& view) {
  in_step_ = true;
  // The first step compiles, and belongs to the start.
  if (options_.devices.processes != nullptr && memory_) options_.devices.processes->progress("step", view.global_step);
  if (recorder_ != nullptr) recorder_->begin_step(view.global_step);
  ThreadRecord* const record = recorder_ == nullptr ? nullptr : &recorder_->trainer();
  const RecordedPart recorded_step(record, StepPart::kStep);
  const Clock::time_point begin = Clock::now();
  const double communication_before = communication_seconds();
  obey(hyperparameters);
  if (draws_from_aten(options_)) aten_random_ = aten_random_state();

  const double seconds_ahead = std::exchange(seconds_ahead_, 0);
  double input_seconds = on_cpu() || accelerator(0)->idle() ? seconds_ahead : 0;
  update_seconds_ = 0;
  update_skipped_ = false;
  bool finite = true;
  std::vector<std::vector<data::Batch>> taken;  // by micro-step, where several costs share them
  for (cost_ = 0; cost_ < costs_.size(); ++cost_) {
    if (view.global_step % cost().every != 0) continue;
    for (int micro_step = 0; micro_step < options_.micro_steps; ++micro_step) {
      const auto place = static_cast<size_t>(micro_step);
      std::vector<data::Batch> batches;
      if (place < taken.size()) {
        batches = taken[place];
      } else {
        const Clock::time_point asked = Clock::now();
        {
          const RecordedPart recorded(record, StepPart::kInput);
          batches = next_batches(source);
        }
        // A wait that the device was busy through held nothing back.
        const bool held_back = on_cpu() || accelerator(0)->idle();
        if (held_back) input_seconds += seconds_between(asked, Clock::now());
        if (costs_.size() > 1) taken.push_back(batches);
      }
      if (!memory_) prepare(batches);
      threads_->run([&](int r) { run_micro_step(r, view.global_step, micro_step, batches[static_cast<size_t>(r)]); });
    }
    if (options_.sharpness_aware) pass_again(view.global_step);
    if (on_cpu() && nan_guard_.found()) {
      finite = false;
      treat_non_finite(view.global_step);
    }
    if (on_cpu()) look_at_loss_scales(view.global_step);
  }
  cost_ = 0;
  if (finite) skipped_in_a_row_ = 0;

  for (const Replica& replica : replicas_) view.replicas.push_back(replica.view);
  for (const auto& accelerator : options_.devices.accelerators) {
    accelerator->end_step();
    if (recorder_ != nullptr) accelerator->wait();
  }
  update_->check();
  if (!on_cpu() && view.global_step % kStepsBetweenDeviceLooks == 0) look_at_devices(view.global_step);
  in_step_ = false;
  const Clock::time_point end = Clock::now();
  StepTimes& times = view.times;
  times.total = seconds_ahead + seconds_between(begin, end);
  times.input = input_seconds;
  times.on_accelerator = !on_cpu();
  if (times.on_accelerator) {
    times.compute = times.total - times.input;
    return;
  }
  times.update = update_seconds_;
  times.communication = communication_seconds() - communication_before;
  if (replicas_.size() > 1) times.communication += seconds_between(replica_0_done_, end);
  times.compute = times.total - times.input - times.update - times.communication;
}

DeviceStep::Options TowerTrainer::Replicas::device_step_options(int r, const data::Batch& batch) const {
  const RunMemory& memory = *memory_;
  const auto element_bytes = static_cast<int64_t>(c10::elementSize(options_.devices.dtype));
  int64_t batch_bytes = 0;
  for (const auto& [name, tensor] : batch.tensors) batch_bytes += static_cast<int64_t>(tensor.nbytes());
  const int64_t activations =
      options_.tower ? 0 : nn::activation_bytes_per_image(options_.graph, element_bytes, /*training=*/true);
  return {.capture = options_.devices.capture_steps,
          .first = r == 0,
          .obstacle = capture_obstacle(options_),
          .keeps_images = !options_.hooks.input_pre && !options_.tower,
          .classes = options_.tower ? 0 : options_.graph.output_shape()[0],
          .bytes_per_image = batch_bytes / std::max<int64_t>(batch.samples(), 1) + activations,
          .fixed_bytes = (memory.parameters + memory.gradients + memory.optimizer) / options_.devices.replicas};
}

void TowerTrainer::Replicas::run_micro_step(int r, int64_t step, int micro_step, const data::Batch& batch) {
  const bool last = micro_step == options_.micro_steps - 1;
  Replica& own = replicas_[static_cast<size_t>(r)];
  const auto work = [&](data::Batch placed) {
    if (options_.hooks.input_pre) options_.hooks.input_pre(r, placed);
    const bool again = options_.on_nan != OnNan::kIgnore || options_.sharpness_aware;
    if (on_cpu() && again) own.batches.push_back(placed);
    forward_backward(r, step, micro_step, std::move(placed));
    if (last) reduce(r);
    if (last && !options_.sharpness_aware) apply_update(r);
  };
  const nn::AcceleratorScope on_device = use(r);
  if (micro_step == 0) {
    own.state.write({.learning_rate = learning_rates_[cost_], .step = step});
    own.batches.clear();
    if (on_cpu()) nan_guard_.begin_step(r, update_->parameters(r));
  }
  on_cpu() ? work(batch) : run_on_device(r, batch, work);
  if (r == 0 && last && !options_.sharpness_aware) follow_weights(step);
}

void TowerTrainer::Replicas::follow_weights(int64_t step) {
  if (average_ == nullptr) return;
  // On accelerators no step is skipped that could be averaged (TowerTrainerOptions::validate).
  if (on_cpu()) update_skipped_ |= replicas_[0].state.read().found_inf;
  for (size_t later = cost_ + 1; later < costs_.size(); ++later) {
    if (step % costs_[later].every == 0) return;
  }
  const Clock::time_point begin = Clock::now();
  {
    const at::NoGradGuard without_gradients;
    const RecordedPart recorded(record_of(0), StepPart::kUpdate);
    average_->after_step(step, update_skipped_);
  }
  replica_0_done_ = Clock::now();
  update_seconds_ += seconds_between(begin, replica_0_done_);
}

void TowerTrainer::Replicas::run_on_device(int r, const data::Batch& batch,
                                           const std::function<void(const data::Batch&)>& work) {
  Replica& replica = replicas_[static_cast<size_t>(r)];
  if (!replica.device_step) {
    replica.device_step.emplace(options_.devices.accelerators[static_cast<size_t>(r)], device_step_options(r, batch));
  }
  if (options_.micro_steps > 1 || costs_.size() > 1) return replica.device_step->run_part(batch, work);
  const DeviceStep::Done done = replica.device_step->run(batch, recorder_ != nullptr, work);
  if (done == DeviceStep::Done::kRecorded) replica.recorded = {replica.view, r == 0 ? l2_loss_ : at::Tensor()};
  if (done == DeviceStep::Done::kReplayed) {
    replica.view = replica.recorded.view;
    if (r == 0) l2_loss_ = replica.recorded.l2_loss;
  }
  if (done != DeviceStep::Done::kCalled) update_->replayed(r);
  // The host's time: a recording is no update, and a replay has it within.
  if (r == 0 && done != DeviceStep::Done::kCalled) update_seconds_ = 0;
  // What only a call of the work says, and a replay does not.
  update_->parameters(r).values_changed();
  replica.view.batch.first_sample = batch.first_sample;
  replica.view.batch.after = batch.after;
  if (r == 0) replica_0_done_ = Clock::now();
}

void TowerTrainer::Replicas::forward_backward(int r, int64_t step, int micro_step, data::Batch batch) {
  // Grad mode is each thread's own.
  const at::AutoGradMode with_gradients(true);
  Replica& replica = replicas_[static_cast<size_t>(r)];
  replica.sink->begin(micro_step, options_.micro_steps);
  const TowerOutput result = replica.step(
      {.batch = batch.tensors,
       .random = {.seed = options_.seed, .step = step, .micro_step = micro_step, .first_sample = batch.first_sample},
       .cost = cost().loss,
       .record = record_of(r)});
  at::Tensor loss = cost_of(result, cost().loss);
  if (options_.micro_steps > 1) loss = loss.div(options_.micro_steps);
  if (replica.loss_scaler) loss = loss.mul(replica.loss_scaler->scale());
  for (const auto& [name, value] : result.losses) {
    const at::Tensor share = value.detach().div(options_.micro_steps);
    replica.view.losses.set(name, micro_step == 0 ? share : replica.view.losses[name].add(share));
  }
  {
    const RecordedPart recorded(record_of(r), StepPart::kBackward);
    replica.gradients_leave = gradients_may_leave(r);
    loss.backward();
    replica.sink->finish();
  }

  replica.view.outputs = {};
  for (const auto& [name, output] : result.outputs) replica.view.outputs.set(name, output.detach());
  replica.view.batch = std::move(batch);
}

void TowerTrainer::Replicas::listen_to_gradients(int r) {
  Replica& replica = replicas_[static_cast<size_t>(r)];
  replica.sink->set_listener([this, r, &replica](nn::ParameterId parameter) {
    if (replica.gradients_leave) update_->ready(r, parameter);
  });
}

bool TowerTrainer::Replicas::gradients_may_leave(int r) const {
  const Replica& replica = replicas_[static_cast<size_t>(r)];
  return on_cpu() && exchange_gradients(options_) && !options_.hooks.reduce_pre && !replica.searching &&
         !nan_guard_.marks_gradients(loss_of_cost(replica));
}

void TowerTrainer::Replicas::reduce(int r) {
  const at::NoGradGuard without_gradients;
  nn::ParameterSet& parameters = update_->parameters(r);
  if (options_.hooks.reduce_pre) options_.hooks.reduce_pre(r, parameters);
  const RecordedPart recorded(record_of(r), StepPart::kReduce);
  if (on_cpu()) nan_guard_.look_at_loss(r, loss_of_cost(replicas_[static_cast<size_t>(r)]), parameters);
  update_->reduce(r);
}

void TowerTrainer::Replicas::apply_update(int r) {
  const at::NoGradGuard without_gradients;
  Replica& replica = replicas_[static_cast<size_t>(r)];
  nn::ParameterSet& parameters = update_->parameters(r);
  if (replica.loss_scaler) {
    replica.loss_scaler->end_step(parameters.gradients(), replica.state);
    replica.view.inverse_loss_scale = replica.state.tensor()[optim::StepState::kInverseLossScale];
  }
  const int own_optimizer = static_cast<int>(cost_);
  optim::Optimizer* const optimizer = update_->optimizer(r, own_optimizer);
  const bool completes = optimizer != nullptr && (options_.hooks.update_pre || replica.sharpness);
  if (options_.sharpness_aware) {
    come_back(r);
  } else if (completes) {
    optimizer->complete_gradients(replica.state);
  }
  if (completes) replica.view.inverse_loss_scale = at::Tensor();
  if (r == 0 && cost_ == 0 && l2_of_values_) l2_loss_ = (*l2_of_values_)();
  if (optimizer != nullptr && options_.hooks.update_pre) options_.hooks.update_pre(r, parameters);
  // Where replicas exchange gradients, one that has no optimizer has the gradients of one that has, before its hook.
  const bool looks = optimizer != nullptr || !exchange_gradients(options_);
  if (on_cpu() && looks) nan_guard_.look_at_gradients(r, parameters, replica.state);

  const Clock::time_point begin = Clock::now();
  const double communication_before = update_->communication_seconds(r);
  {
    const RecordedPart recorded(record_of(r), StepPart::kUpdate);
    update_->update(r, replica.state, own_optimizer);
    round_variables(r);
  }
  if (r != 0) return;
  replica_0_done_ = Clock::now();
  update_seconds_ +=
      seconds_between(begin, replica_0_done_) - (update_->communication_seconds(r) - communication_before);
}

}  // namespace trainyard::train
