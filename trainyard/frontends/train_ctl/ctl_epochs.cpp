#include "trainyard/frontends/train_ctl/ctl_epochs.h"

#include <ostream>
#include <utility>

#include <fmt/format.h>
#include <fmt/ostream.h>

#include "trainyard/core/base/elapsed.h"
#include "trainyard/core/base/error.h"
#include "trainyard/core/base/stateful.h"
#include "trainyard/train/callbacks/summary_time.h"

namespace trainyard::frontends {
namespace {

constexpr const char* kStepsPerEpoch = "steps_per_epoch";

using Values = std::vector<std::pair<std::string, double>>;

double rate_of(int64_t images, double seconds) {
  return seconds > 0 ? static_cast<double>(images) / seconds : 0;
}

Values validation_values(const std::optional<train::Evaluation>& validation) {
  if (!validation) return {};
  return {{"val_loss", validation->loss}, {"val_top1", validation->top_1}, {"val_top5", validation->top_5}};
}

}  // namespace

void CtlEpochs::before_epoch(train::Trainer& trainer) {
  const data::Position begin{trainer.epoch() - 1, 0};
  if (trainer.step_in_epoch() == 0) {
    means_ = {};
    if (trainer_.source().position() != begin) trainer_.source().seek(begin);
  }
  validation_.reset();
  epoch_steps_ = 0;
  const Clock::time_point now = Clock::now();
  // What lies between two epochs is no time of steps.
  if (line_began_) *line_began_ += now - epoch_ended_;
  epoch_began_ = now;
}

void CtlEpochs::before_step(train::Trainer&) {
  if (!line_began_) line_began_ = Clock::now();
}

void CtlEpochs::after_step(train::Trainer& trainer, const train::StepView& view) {
  if (!broadcast_ && (trainer_.options().devices.replicas > 1 || trainer_.options().devices.processes != nullptr))
    trainer_.broadcast();
  broadcast_ = true;
  const train::Accuracies& accuracies = accuracies_.of(view);
  ++means_.steps;
  const auto add = [&](double& mean, double value) { mean += (value - mean) / static_cast<double>(means_.steps); };
  add(means_.loss, trainer_.last_total_loss());
  add(means_.top_1, accuracies.top_1);
  add(means_.top_5, accuracies.top_5);
  ++epoch_steps_;
  ++line_steps_;
  if (trainer.global_step() % options_.display_every == 0) print_rate(trainer.global_step());
}

void CtlEpochs::print_rate(int64_t global_step) {
  const Clock::time_point now = Clock::now();
  fmt::print(*options_.out, "global_step: {} images_per_sec: {:.1f}\n", global_step,
             rate_of(line_steps_ * options_.plan.global_batch_size, core::seconds_between(*line_began_, now)));
  options_.out->flush();
  line_began_ = now;
  line_steps_ = 0;
}

void CtlEpochs::after_epoch(train::Trainer& trainer) {
  epoch_ended_ = Clock::now();
  epoch_seconds_ = core::seconds_between(epoch_began_, epoch_ended_);
  fmt::print(*options_.out, "epoch: {} time_taken: {:.1f}\n", trainer.epoch() - 1, epoch_seconds_);
}

bool CtlEpochs::validates_now() const {
  if (!options_.validate) return false;
  return options_.plan.validates_each_epoch ? trainer_.step_in_epoch() == options_.plan.steps_per_epoch
                                            : trainer_.global_step() == options_.plan.end_step;
}

void CtlEpochs::trigger_epoch(train::Trainer& trainer) {
  if (validates_now()) validation_ = options_.validate();
  if (options_.save) save_now(fmt::format("epoch {}", trainer.epoch()));
  print_epoch(trainer_.current_learning_rate());
  Values values = {{"train_loss", means_.loss}, {"train_top1", means_.top_1}, {"train_top5", means_.top_5}};
  const Values of_validation = validation_values(validation_);
  values.insert(values.end(), of_validation.begin(), of_validation.end());
  values.emplace_back("learning_rate", trainer_.current_learning_rate());
  values.emplace_back("images_per_sec", rate_of(epoch_steps_ * options_.plan.global_batch_size, epoch_seconds_));
  write_scalars(std::move(values));
}

void CtlEpochs::repeat_validation() {
  validation_ = options_.validate();
  if (!validation_) return;  // cut off again
  if (options_.save) save_now(fmt::format("epoch {}", trainer_.epoch()));
  // The trainer already has the rate of the next step.
  print_epoch(trainer_.options().learning_rate(trainer_.global_step() - 1));
  write_scalars(validation_values(validation_));  // the others were written by the run that was stopped
}

void CtlEpochs::print_epoch(double learning_rate) const {
  std::string line = fmt::format("loss: {:.6g} - top1: {:.4f} - top5: {:.4f}", means_.loss, means_.top_1, means_.top_5);
  if (validation_) {
    line += fmt::format(" - val_loss: {:.6g} - val_top1: {:.4f} - val_top5: {:.4f}", validation_->loss,
                        validation_->top_1, validation_->top_5);
  }
  fmt::print(*options_.out, "{} - learning_rate: {:.6g}\n", line, learning_rate);
  options_.out->flush();
}

void CtlEpochs::write_scalars(Values values) const {
  const double samples = static_cast<double>(options_.plan.steps_per_epoch * options_.plan.global_batch_size);
  trainer_.monitors().write(
      {.global_step = trainer_.global_step(),
       .epoch = static_cast<double>(trainer_.global_step() * options_.plan.global_batch_size) / samples,
       .wall_time = train::system_wall_clock(),
       .phase = "train",
       .values = std::move(values)});
}

void CtlEpochs::save_now(const std::string& what) {
  const train::CheckpointInfo saved = options_.save();
  saved_step_ = saved.global_step;
  fmt::print(*options_.out, "Saved checkpoint for {}: {}\n", what, saved.path);
  options_.out->flush();
}

void CtlEpochs::save_rest() {
  if (!options_.save || epoch_steps_ == 0 || saved_step_ == trainer_.global_step()) return;
  save_now(fmt::format("epoch {}, step {} of {}", trainer_.epoch(), trainer_.step_in_epoch(),
                       options_.plan.steps_per_epoch));
}

void CtlEpochs::save(core::StateWriter& writer) const {
  writer.integer(kStepsPerEpoch, options_.plan.steps_per_epoch);
  writer.integer("steps", means_.steps);
  writer.real("loss", means_.loss);
  writer.real("top_1", means_.top_1);
  writer.real("top_5", means_.top_5);
}

void CtlEpochs::load(const core::StateReader& reader) {
  const int64_t saved = reader.integer(kStepsPerEpoch);
  if (saved != options_.plan.steps_per_epoch) {
    throw core::Error(
        core::ErrorCode::kInvalidArgument,
        {.problem = "the run in log_dir had epochs of another length",
         .expected = fmt::format("{} steps", saved),
         .actual = fmt::format("{} steps of {} images", options_.plan.steps_per_epoch, options_.plan.global_batch_size),
         .remedy = "give the batch_size, the devices and the data that it had, or another log_dir"});
  }
  means_ = {.steps = reader.integer("steps"),
            .loss = reader.real("loss"),
            .top_1 = reader.real("top_1"),
            .top_5 = reader.real("top_5")};
}

}  // namespace trainyard::frontends
