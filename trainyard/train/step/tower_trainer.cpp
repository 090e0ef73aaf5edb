#include "trainyard/train/step/tower_trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <set>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/scoped_state.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/nn/execution/kernel_choices.h"
#include "trainyard/parallel/process_group/process_group.h"
#include "trainyard/train/devices/run_memory.h"
#include "trainyard/train/step/foreign_random.h"
#include "trainyard/train/step/training_replicas.h"

namespace trainyard::train {

using core::Error;
using core::ErrorCode;

namespace {

constexpr const char* kAtenGeneratorState = "random/aten_cpu";
constexpr const char* kKernels = "kernels/";
constexpr const char* kLossScaler = "loss_scaler/";
constexpr const char* kAverage = "average/";
constexpr const char* kFrozen = "trainer/frozen";  // names, with line breaks between them

std::vector<std::string> frozen_in(const nn::ParameterSet& set) {
  std::vector<std::string> names;
  for (const nn::Segment& segment : set.segments()) {
    if (!set.trainable(segment.id)) names.push_back(segment.spec.name);
  }
  return names;
}

void freeze_just(const std::string& names, nn::ParameterSet& set) {
  for (const nn::Segment& segment : set.segments()) set.set_trainable(segment.id, true);
  std::istringstream lines(names);
  for (std::string name; std::getline(lines, name);) {
    const auto id = set.find(name);
    if (!id)
      throw Error(ErrorCode::kCorruptData, fmt::format("{} names a parameter that there is not: {}", kFrozen, name));
    set.set_trainable(*id, false);
  }
}

// Returns the schedule of the hyperparameter of this name, if there is one that no other number has yet, and takes it
// out of `schedules`.
const optim::Schedule* take_schedule(std::vector<const ScheduledNumber*>& schedules, const std::string& name) {
  for (const ScheduledNumber*& scheduled : schedules) {
    if (scheduled == nullptr) continue;
    if (std::find(scheduled->names.begin(), scheduled->names.end(), name) == scheduled->names.end()) continue;
    return &std::exchange(scheduled, nullptr)->schedule;
  }
  return nullptr;
}

}  // namespace

void TowerTrainerOptions::validate() const {
  const auto require = [](bool good, std::string_view what, std::string_view expected, const std::string& actual) {
    if (good) return;
    throw Error(
        ErrorCode::kInvalidArgument,
        {.problem = fmt::format("{} cannot be used", what), .expected = std::string(expected), .actual = actual});
  };
  require(tower || !graph.nodes.empty(), "the model of a trainer", "a graph with nodes, or a tower", "neither");
  require(!tower || (graph.nodes.empty() && !loss && other_sizes.empty()), "a graph or a loss beside a tower",
          "one of them", graph.nodes.empty() ? "a tower and a loss" : "a tower and a graph");
  require(devices.replicas >= 1, "the number of replicas", "at least 1", std::to_string(devices.replicas));
  require(devices.accelerators.empty() || static_cast<int>(devices.accelerators.size()) == devices.replicas,
          "the number of accelerators", "none, or one a replica", std::to_string(devices.accelerators.size()));
  require(!devices.accelerators.empty() || !devices.capture_steps, "capturing steps", "an accelerator", "none");
  const bool asynchronous = exchange.variable_update == "asynchronous";
  require(!devices.loss_scale || !devices.loss_scale->automatic || devices.replicas == 1 || !asynchronous,
          "an automatic loss scale", "replicas that apply their own gradients", exchange.variable_update);
  if (devices.loss_scale) devices.loss_scale->validate();
  require(!devices.variables_as || *devices.variables_as == at::kHalf || *devices.variables_as == at::kBFloat16,
          "the type of variables", "Half or BFloat16", devices.variables_as ? at::toString(*devices.variables_as) : "");
  require(!devices.variables_as || !asynchronous, "variables of 16 bits", "replicas that apply their own gradients",
          exchange.variable_update);
  require(!exchange.sync_batch_norm || (!asynchronous && exchange.variable_update != "independent"), "sync_batch_norm",
          "replicas that exchange gradients in each step", exchange.variable_update);
  if (exchange.sync_batch_norm && !devices.accelerators.empty()) {
    throw Error(ErrorCode::kUnsupported, {.problem = "--sync_batch_norm does not work on a GPU yet",
                                          .expected = "the CPU",
                                          .actual = fmt::format("{} accelerators", devices.accelerators.size())});
  }
  if (sharpness_aware) {
    sharpness_aware->validate();
    const auto supported = [](bool good, std::string_view expected, const std::string& actual) {
      if (good) return;
      throw Error(ErrorCode::kUnsupported,
                  {.problem = "sharpness-aware minimization is not built for this training yet",
                   .where = "--sam_rho",
                   .expected = std::string(expected),
                   .actual = actual});
    };
    supported(devices.accelerators.empty(), "the CPU", fmt::format("{} accelerators", devices.accelerators.size()));
    supported(!asynchronous, "replicas that apply their own gradients", exchange.variable_update);
    supported(costs.empty(), "one cost", fmt::format("{} costs", costs.size()));
  }
  if (on_nan == OnNan::kSkip && !devices.accelerators.empty()) {
    throw Error(ErrorCode::kUnsupported, {.problem = "steps that are not finite are not skipped on accelerators yet",
                                          .where = "--on_nan",
                                          .expected = "stop or ignore",
                                          .actual = "skip"});
  }
  if (average) {
    average->validate();
    if (!devices.accelerators.empty() && devices.loss_scale && devices.loss_scale->automatic) {
      throw Error(ErrorCode::kUnsupported,
                  {.problem = "weights are not averaged where an automatic loss scale skips steps on accelerators",
                   .expected = "a fixed loss scale, or none"});
    }
  }
  require(micro_steps >= 1, "the number of micro-steps", "at least 1", std::to_string(micro_steps));
  require(threads.placement.empty() || static_cast<int>(threads.placement.size()) == devices.replicas,
          "the number of thread placements", "none, or one a replica", std::to_string(threads.placement.size()));
  require(threads.intra_op_threads >= 0, "the number of intra-op threads", "at least 0",
          std::to_string(threads.intra_op_threads));
  require(costs.empty() || (!learning_rate && !make_optimizer), "an optimizer or a learning rate beside several costs",
          "those of the costs alone", "both");
  require(costs.empty() || std::any_of(costs.begin(), costs.end(), [](const CostOptions& c) { return c.every == 1; }),
          "the periods of the costs", "one of 1 among them", "longer ones");
  std::set<std::string> losses;
  for (const CostOptions& cost : all_costs()) {
    require(static_cast<bool>(cost.learning_rate), "the learning rate", "a function of the step", "none");
    require(static_cast<bool>(cost.make_optimizer), "the optimizer", "a way to make one", "none");
    require(cost.every >= 1, "the period of a cost", "at least 1 step", std::to_string(cost.every));
    require(losses.insert(cost.loss).second && (costs.empty() || !cost.loss.empty()), "the loss of a cost",
            "a name that no other cost has", fmt::format("'{}'", cost.loss));
  }
  if (exchange.variable_update == "staged_parameter_server") {
    const char* const what = !devices.accelerators.empty() ? "accelerators"
                             : sharpness_aware             ? "sharpness-aware minimization"
                             : devices.variables_as        ? "variables of 16 bits"
                             : average                     ? "averaged weights"
                             : costs.size() > 1            ? "several costs"
                                                           : nullptr;
    if (what != nullptr) {
      throw Error(ErrorCode::kUnsupported, {.problem = "staged variables are not built for this training yet",
                                            .expected = "a training without " + std::string(what),
                                            .actual = what,
                                            .remedy = "use parameter_server: leave out --staged_vars"});
    }
  }
  if (hooks.update_pre && exchange.variable_update == "asynchronous") {
    throw Error(ErrorCode::kUnsupported, {.problem = "update_pre is not called where a server applies gradients",
                                          .expected = "replicas that exchange gradients",
                                          .actual = exchange.variable_update});
  }
}

std::vector<CostOptions> TowerTrainerOptions::all_costs() const {
  if (!costs.empty()) return costs;
  return {{.loss = "", .make_optimizer = make_optimizer, .learning_rate = learning_rate}};
}

std::string TowerTrainerOptions::hyperparameter_name(const CostOptions& cost, const std::string& name) const {
  return costs.empty() ? name : cost.loss + "/" + name;
}

TowerTrainer::TowerTrainer(TowerTrainerOptions options, std::shared_ptr<data::BatchSource> source)
    : options_(std::move(options)), source_(std::move(source)) {
  options_.validate();
  if (source_ == nullptr || source_->replicas() != options_.devices.replicas) {
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = "the input must give one batch a replica",
                 .expected = fmt::format("{} batches", options_.devices.replicas),
                 .actual = source_ == nullptr ? "no input" : std::to_string(source_->replicas())});
  }
  if (options_.devices.kernels.choices == nullptr)
    options_.devices.kernels.choices = std::make_shared<nn::KernelChoices>();
  // Before the executors are made: custom layers may draw their first values.
  if (draws_from_aten(options_)) seed_aten_random(options_.seed);
  replicas_ = std::make_unique<Replicas>(options_, hyperparameters());
  constexpr double kMost = std::numeric_limits<double>::max();
  int index = 0;
  std::vector<const ScheduledNumber*> schedules;  // null once a number has it
  for (const ScheduledNumber& scheduled : options_.schedules) schedules.push_back(&scheduled);
  for (const CostOptions& cost : options_.all_costs()) {
    hyperparameters().add(options_.hyperparameter_name(cost, "learning_rate"), cost.learning_rate, {0, kMost});
    const optim::Optimizer& optimizer = *replicas_->update().optimizer(0, index++);
    for (const std::string& name : optimizer.hyperparameter_names()) {
      const optim::Hyperparameters::Range range{0, name == "momentum" || name.starts_with("beta") ? 1 : kMost};
      const std::string own_name = options_.hyperparameter_name(cost, name);
      if (const optim::Schedule* const schedule = take_schedule(schedules, own_name)) {
        hyperparameters().add(own_name, *schedule, range);
      } else {
        hyperparameters().add(own_name, optimizer.hyperparameter(name), range);
      }
    }
  }
  for (const ScheduledNumber* left : schedules) {
    if (left == nullptr) continue;
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = "a schedule is for a number that the optimizer does not have",
                 .expected = fmt::format("one of {}", fmt::join(hyperparameters().names(), ", ")),
                 .actual = fmt::format("{}", fmt::join(left->names, ", or ")),
                 .remedy = "leave the schedule out, or take an optimizer that has the number"});
  }
}

TowerTrainer::~TowerTrainer() = default;

bool TowerTrainer::is_chief() const {
  return options_.devices.is_chief();
}

void TowerTrainer::progress(const std::string& operation) const {
  if (options_.devices.processes != nullptr) options_.devices.processes->progress(operation);
}

nn::ParameterSet& TowerTrainer::parameters() {
  return replicas_->update().saved_parameters();
}

void TowerTrainer::change_parameters(const std::function<void(nn::ParameterSet&)>& change) {
  const nn::AcceleratorScope on_devices = replicas_->use_devices();
  replicas_->update().wait();
  replicas_->update().change_values(change);
}

void TowerTrainer::broadcast() {
  const nn::AcceleratorScope on_devices = replicas_->use_devices();
  replicas_->update().wait();
  replicas_->update().broadcast();
}

const optim::WeightAverage* TowerTrainer::average() const {
  return replicas_->average();
}

const TowerStep& TowerTrainer::inference_tower() {
  return replicas_->inference_tower();
}

std::optional<double> TowerTrainer::loss_scale() const {
  return replicas_->loss_scale();
}

std::optional<double> TowerTrainer::loss_scale_normal_steps() const {
  if (!options_.devices.loss_scale || !options_.devices.loss_scale->automatic) return std::nullopt;
  return replicas_->loss_scale_normal_steps();
}

int64_t TowerTrainer::skipped_steps() const {
  return replicas_->skipped_steps();
}

double TowerTrainer::current_learning_rate() const {
  return hyperparameters().get(options_.hyperparameter_name(options_.all_costs().front(), "learning_rate"));
}

double TowerTrainer::last_base_loss() const {
  return replicas_->base_loss();
}

double TowerTrainer::last_total_loss() const {
  return replicas_->base_loss() + replicas_->l2_loss();
}

void TowerTrainer::set_trainable(const std::string& pattern, bool trainable) {
  if (!options_.devices.accelerators.empty()) {
    throw Error(ErrorCode::kUnsupported, "parameters cannot be frozen on accelerators yet");
  }
  for (int r = 0; r < options_.devices.replicas; ++r) {
    nn::ParameterSet& set = replicas_->update().parameters(r);
    for (const nn::ParameterId id : set.matching(pattern)) set.set_trainable(id, trainable);
  }
}

std::vector<std::string> TowerTrainer::frozen_parameters() {
  return frozen_in(replicas_->update().parameters(0));
}

void TowerTrainer::record(StepRecorder* recorder) {
  replicas_->record(recorder);
}

void TowerTrainer::wait() {
  replicas_->update().wait();
}

const std::optional<RunMemory>& TowerTrainer::memory() const {
  return replicas_->memory();
}

RunMemory TowerTrainer::plan_memory(int64_t batch) {
  begin_training();
  RunMemory memory = replicas_->plan_memory(batch);
  end_training();
  return memory;
}

void TowerTrainer::begin_training() {
  const int threads =
      options_.threads.intra_op_threads > 0 ? options_.threads.intra_op_threads : core::available_cores();
  replicas_->start(std::max(1, threads / options_.devices.replicas));
}

void TowerTrainer::end_training() {
  replicas_->end();
}

std::optional<std::string> TowerTrainer::end_before_step() {
  if (options_.end_of_input == EndOfInput::kError) return std::nullopt;
  if (replicas_->take_batches(*source_, global_step())) return std::nullopt;
  return fmt::format("the input has ended, after {} steps", global_step());
}

void TowerTrainer::run_step(StepView& view) {
  replicas_->run_step(*source_, hyperparameters(), view);
}

void TowerTrainer::save(core::StateWriter& writer) const {
  const nn::AcceleratorScope on_devices = replicas_->use_devices();
  replicas_->update().wait();  // what an exchange that failed has left must not be saved
  Trainer::save(writer);
  replicas_->update().save(writer);
  core::ScopedWriter input(writer, "input/");
  source_->save(input);
  core::ScopedWriter kernels(writer, kKernels);
  options_.devices.kernels.choices->save(kernels);
  core::ScopedWriter scaler(writer, kLossScaler);
  replicas_->save_loss_scale(scaler);
  if (const optim::WeightAverage* const average = replicas_->average()) {
    core::ScopedWriter own(writer, kAverage);
    average->save(own);
  }
  if (draws_from_aten(options_)) writer.tensor(kAtenGeneratorState, aten_random_state());
  const std::vector<std::string> frozen = frozen_in(replicas_->update().parameters(0));
  if (!frozen.empty()) writer.text(kFrozen, fmt::format("{}", fmt::join(frozen, "\n")));
}

void TowerTrainer::load(const core::StateReader& reader) {
  const nn::AcceleratorScope on_devices = replicas_->use_devices();
  Trainer::load(reader);
  replicas_->update().load(reader);
  source_->load(core::ScopedReader(reader, "input/"));
  options_.devices.kernels.choices->load(core::ScopedReader(reader, kKernels));
  replicas_->load_loss_scale(core::ScopedReader(reader, kLossScaler));
  replicas_->load_average(core::ScopedReader(reader, kAverage));
  replicas_->round_all_variables();
  if (draws_from_aten(options_)) set_aten_random_state(reader.tensor(kAtenGeneratorState));
  const std::string frozen = reader.has(kFrozen) ? reader.text(kFrozen) : "";
  for (int r = 0; r < options_.devices.replicas; ++r) freeze_just(frozen, replicas_->update().parameters(r));
}

}  // namespace trainyard::train
