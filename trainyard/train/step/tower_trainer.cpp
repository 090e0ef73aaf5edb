#include "trainyard/train/step/tower_trainer.h"

#include <algorithm>
#include <limits>
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
#include "trainyard/train/step/replicated_step.h"

namespace trainyard::train {

using core::Error, core::ErrorCode;

namespace {

constexpr const char* kAtenGeneratorState = "random/aten_cpu";
constexpr const char* kKernels = "kernels/";
constexpr const char* kLossScaler = "loss_scaler/";
constexpr const char* kAverageState = "average/";
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
  step_ = std::make_unique<ReplicatedStep>(options_, hyperparameters(), *source_);
  constexpr double kMost = std::numeric_limits<double>::max();
  int index = 0;
  std::vector<const ScheduledNumber*> schedules;  // null once a number has it
  for (const ScheduledNumber& scheduled : options_.schedules) schedules.push_back(&scheduled);
  for (const CostOptions& cost : options_.all_costs()) {
    hyperparameters().add(options_.hyperparameter_name(cost, "learning_rate"), cost.learning_rate, {0, kMost});
    const optim::Optimizer& optimizer = *step_->replicas().update().optimizer(0, index++);
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

bool gathers_state(const TowerTrainer& trainer) {
  return trainer.step_->replicas().update().gathers_state();
}

void gather_state(TowerTrainer& trainer) {
  trainer.step_->replicas().update().gather_state();
}

std::optional<parallel::GradientBytes> gradient_bytes(const TowerTrainer& trainer) {
  return trainer.step_->replicas().update().gradient_bytes();
}

nn::ParameterSet& TowerTrainer::parameters() {
  return step_->replicas().update().saved_parameters();
}

void TowerTrainer::change_parameters(const std::function<void(nn::ParameterSet&)>& change) {
  const nn::AcceleratorScope on_devices = step_->replicas().use_all();
  step_->replicas().update().wait();
  step_->replicas().update().change_values(change);
  if (optim::WeightAverage* const average = step_->average()) average->source_replaced();
}

void TowerTrainer::broadcast() {
  const nn::AcceleratorScope on_devices = step_->replicas().use_all();
  step_->replicas().update().wait();
  step_->replicas().update().broadcast();
  if (optim::WeightAverage* const average = step_->average()) average->source_replaced();
}

const optim::WeightAverage* TowerTrainer::average() const {
  return step_->average();
}

const TowerStep& TowerTrainer::inference_tower() {
  return step_->replicas().inference_tower();
}

std::optional<LossScale> TowerTrainer::loss_scale() const {
  return step_->loss_scales().read();
}

int64_t TowerTrainer::skipped_steps() const {
  return step_->skipped_steps();
}

double TowerTrainer::current_learning_rate() const {
  return hyperparameters().get(options_.hyperparameter_name(options_.all_costs().front(), "learning_rate"));
}

double TowerTrainer::last_base_loss() const {
  return step_->replicas().base_loss();
}

double TowerTrainer::last_total_loss() const {
  return step_->replicas().base_loss() + step_->l2_loss();
}

void TowerTrainer::set_trainable(const std::string& pattern, bool trainable) {
  if (!options_.devices.accelerators.empty()) {
    throw Error(ErrorCode::kUnsupported, "parameters cannot be frozen on accelerators yet");
  }
  for (int r = 0; r < options_.devices.replicas; ++r) {
    nn::ParameterSet& set = step_->replicas().update().parameters(r);
    for (const nn::ParameterId id : set.matching(pattern)) set.set_trainable(id, trainable);
  }
}

std::vector<std::string> TowerTrainer::frozen_parameters() {
  return frozen_in(step_->replicas().update().parameters(0));
}

void TowerTrainer::record(StepRecorder* recorder) {
  step_->replicas().record(recorder);
}

void TowerTrainer::wait() {
  step_->replicas().update().wait();
}

const std::optional<RunMemory>& TowerTrainer::memory() const {
  return step_->memory().memory();
}

RunMemory plan_memory(TowerTrainer& trainer, int64_t batch) {
  trainer.begin_training();
  RunMemory memory = trainer.step_->memory().plan(batch);
  trainer.end_training();
  return memory;
}

void TowerTrainer::begin_training() {
  const int threads =
      options_.threads.intra_op_threads > 0 ? options_.threads.intra_op_threads : core::available_cores();
  step_->start(std::max(1, threads / options_.devices.replicas));
}

void TowerTrainer::end_training() {
  step_->end();
}

std::optional<std::string> TowerTrainer::end_before_step() {
  if (options_.end_of_input == EndOfInput::kError) return std::nullopt;
  if (step_->take_batches(global_step())) return std::nullopt;
  return fmt::format("the input has ended, after {} steps", global_step());
}

void TowerTrainer::run_step(StepView& view) {
  step_->run(view);
}

void TowerTrainer::save(core::StateWriter& writer) const {
  const nn::AcceleratorScope on_devices = step_->replicas().use_all();
  step_->replicas().update().wait();  // what an exchange that failed has left must not be saved
  Trainer::save(writer);
  step_->replicas().update().save(writer);
  core::ScopedWriter input(writer, "input/");
  source_->save(input);
  core::ScopedWriter kernels(writer, kKernels);
  options_.devices.kernels.choices->save(kernels);
  core::ScopedWriter scaler(writer, kLossScaler);
  step_->loss_scales().save(scaler);
  if (const optim::WeightAverage* const average = step_->average()) {
    core::ScopedWriter own(writer, kAverageState);
    average->save(own);
  }
  if (draws_from_aten(options_)) writer.tensor(kAtenGeneratorState, aten_random_state());
  const std::vector<std::string> frozen = frozen_in(step_->replicas().update().parameters(0));
  if (!frozen.empty()) writer.text(kFrozen, fmt::format("{}", fmt::join(frozen, "\n")));
}

void TowerTrainer::load(const core::StateReader& reader) {
  const nn::AcceleratorScope on_devices = step_->replicas().use_all();
  Trainer::load(reader);
  step_->replicas().update().load(reader);
  source_->load(core::ScopedReader(reader, "input/"));
  options_.devices.kernels.choices->load(core::ScopedReader(reader, kKernels));
  step_->loss_scales().load(core::ScopedReader(reader, kLossScaler));
  step_->load_average(core::ScopedReader(reader, kAverageState));
  step_->replicas().round_all_variables();
  if (draws_from_aten(options_)) set_aten_random_state(reader.tensor(kAtenGeneratorState));
  const std::string frozen = reader.has(kFrozen) ? reader.text(kFrozen) : "";
  for (int r = 0; r < options_.devices.replicas; ++r) freeze_just(frozen, step_->replicas().update().parameters(r));
}

}  // namespace trainyard::train
