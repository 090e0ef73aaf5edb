#include "trainyard/train/step/replicated_step.h"

#include <utility>

#include "trainyard/core/base/elapsed.h"
#include "trainyard/core/base/log.h"
#include "trainyard/parallel/process_group/process_group.h"

namespace trainyard::train {

namespace {

ReplicaPass make_pass(ReplicaSet& replicas, NanGuard& nan_guard, StepTimer& timer) {
  const nn::AcceleratorScope on_devices = replicas.use_all();
  return {replicas, nan_guard, timer};
}

NanGuard::Options nan_guard_options(const TowerTrainerOptions& options) {
  return {.on_nan = options.on_nan,
          .replicas = options.devices.replicas,
          .exchange = exchange_gradients(options),
          .scaler_owns_gradients = options.devices.loss_scale && options.devices.loss_scale->automatic};
}

}  // namespace

ReplicatedStep::ReplicatedStep(const TowerTrainerOptions& options, const optim::Hyperparameters& hyperparameters,
                               data::BatchSource& source)
    : options_(options),
      replicas_(options, hyperparameters),
      nan_guard_(nan_guard_options(options)),
      input_(options, source),
      hyperparameters_(replicas_, hyperparameters),
      pass_(make_pass(replicas_, nan_guard_, timer_)),
      loss_scales_(replicas_),
      non_finite_(replicas_, pass_, nan_guard_, loss_scales_) {
  if (options.sharpness_aware) second_pass_.emplace(replicas_, pass_);
  memory_.emplace(replicas_, pass_, second_pass_ ? &*second_pass_ : nullptr);
  device_steps_.emplace(replicas_, pass_, *memory_, timer_);
}

void ReplicatedStep::end() {
  replicas_.stop();
  if (!in_step_) replicas_.update().wait();
}

bool ReplicatedStep::take_batches(int64_t step) {
  const StepTimer::Clock::time_point begin = StepTimer::Clock::now();
  if (!input_.take_ahead(step)) return false;
  timer_.add_input_ahead(core::seconds_since(begin));
  return true;
}

std::vector<data::Batch> ReplicatedStep::next_batches() {
  const StepTimer::Clock::time_point asked = StepTimer::Clock::now();
  std::vector<data::Batch> batches;
  {
    StepRecorder* const recorder = replicas_.recorder();
    const RecordedPart recorded(recorder == nullptr ? nullptr : &recorder->trainer(), StepPart::kInput);
    batches = input_.next();
  }
  // A wait that the device was busy through held nothing back.
  if (input_holds_back()) timer_.add_input(core::seconds_since(asked));
  return batches;
}

void ReplicatedStep::run(StepView& view) {
  in_step_ = true;
  const int64_t step = view.global_step;
  // The first step compiles, and belongs to the start.
  if (options_.devices.processes != nullptr && memory_->memory()) options_.devices.processes->progress("step", step);
  StepRecorder* const recorder = replicas_.recorder();
  if (recorder != nullptr) recorder->begin_step(step);
  const RecordedPart recorded_step(recorder == nullptr ? nullptr : &recorder->trainer(), StepPart::kStep);
  timer_.begin(replicas_.communication_seconds(), input_holds_back());
  if (hyperparameters_.apply_hyperparameters()) {
    const nn::AcceleratorScope on_devices = replicas_.use_all();
    pass_.update_regularization();
    device_steps_->discard_recordings();
  }
  pass_.begin_step(step);

  bool finite = true;
  std::vector<std::vector<data::Batch>> taken;  // by micro-step, where several costs share them
  for (size_t cost = 0; cost < pass_.costs().size(); ++cost) {
    pass_.set_cost(cost);
    if (!pass_.takes_turn(cost)) continue;
    for (int micro_step = 0; micro_step < options_.micro_steps; ++micro_step) {
      const bool is_taken = static_cast<size_t>(micro_step) < taken.size();
      const std::vector<data::Batch> batches = is_taken ? taken[static_cast<size_t>(micro_step)] : next_batches();
      if (!is_taken && pass_.costs().size() > 1) taken.push_back(batches);
      if (!memory_->memory()) memory_->prepare(batches);
      replicas_.run([&](int r) { run_micro_step(r, micro_step, batches[static_cast<size_t>(r)]); });
    }
    if (second_pass_) second_pass_->run_second_pass();
    if (replicas_.on_cpu() && !non_finite_.check(step)) finite = false;
  }
  pass_.set_cost(0);
  if (finite) non_finite_.end_row();

  for (int r = 0; r < replicas_.size(); ++r) view.replicas.push_back(replicas_[r].view);
  for (const auto& accelerator : options_.devices.accelerators) {
    accelerator->end_step();
    if (recorder != nullptr) accelerator->wait();
  }
  replicas_.update().check();
  if (!replicas_.on_cpu()) non_finite_.check_devices(step);
  in_step_ = false;
  view.times = timer_.end(replicas_.communication_seconds(), replicas_.size(), !replicas_.on_cpu());
}

void ReplicatedStep::run_micro_step(int r, int micro_step, const data::Batch& batch) {
  const bool last = micro_step == options_.micro_steps - 1;
  const auto work = [&](data::Batch placed) {
    if (options_.hooks.input_pre) options_.hooks.input_pre(r, placed);
    const bool again = options_.on_nan != OnNan::kIgnore || second_pass_;
    if (replicas_.on_cpu() && again) replicas_[r].batches.push_back(placed);
    pass_.forward_backward(r, micro_step, std::move(placed));
    if (last) pass_.reduce(r);
    if (last && !second_pass_) pass_.apply_update(r);
  };
  const nn::AcceleratorScope on_device = replicas_.use(r);
  if (micro_step == 0) pass_.begin(r, hyperparameters_.learning_rate(pass_.cost()));
  replicas_.on_cpu() ? work(batch) : device_steps_->run(r, batch, work);
  if (r == 0 && last && !second_pass_) pass_.update_weight_average();
}

double ReplicatedStep::l2_loss() const {
  const nn::AcceleratorScope on_device = replicas_.use(0);
  return pass_.l2_loss().defined() ? pass_.l2_loss().item<double>() : 0.0;
}

void ReplicatedStep::load_average(const core::StateReader& reader) {
  const bool saved = !reader.names().empty();
  optim::WeightAverage* const average = pass_.average();
  if (average == nullptr) {
    if (saved) core::log::warning("the checkpoint's averaged weights end here: this run does not ask for an average");
    return;
  }
  if (saved) return average->load(reader);
  core::log::warning("the checkpoint has no averaged weights: the average begins with its last ones");
  average->restart();
}

}  // namespace trainyard::train
