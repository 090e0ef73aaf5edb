#include "trainyard/frontends/tf_cnn/output/global_step_watcher.h"

#include <ctime>
#include <utility>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "trainyard/core/base/elapsed.h"
#include "trainyard/parallel/process_group/process_group.h"
#include "trainyard/train/loop/trainer.h"

namespace trainyard::frontends {
namespace {

std::string ctime_text() {
  return fmt::format("{:%a %b %e %H:%M:%S %Y}", fmt::localtime(std::time(nullptr)));
}

GlobalStepWatcherOptions with_clocks(GlobalStepWatcherOptions options) {
  if (!options.clock) options.clock = core::steady_seconds;
  if (!options.time_of_day) options.time_of_day = ctime_text;
  return options;
}

}  // namespace

GlobalStepWatcher::GlobalStepWatcher(GlobalStepWatcherOptions options) : options_(with_clocks(std::move(options))) {}

void GlobalStepWatcher::before_train(train::Trainer&) {
  look(options_.global_step());
}

void GlobalStepWatcher::after_step(train::Trainer& trainer, const train::StepView&) {
  look(trainer.global_step());
  if (done()) trainer.stop(fmt::format("all workers together have done {} steps", finished_->step));
}

void GlobalStepWatcher::look(int64_t global_step) {
  if (!started_ && global_step >= options_.begin) {
    options_.print(fmt::format("Starting real work at step {} at time {}", global_step, options_.time_of_day()));
    started_ = {global_step, options_.clock()};
  }
  if (!finished_ && global_step >= options_.end) {
    options_.print(fmt::format("Finishing real work at step {} at time {}", global_step, options_.time_of_day()));
    finished_ = {global_step, options_.clock()};
  }
}

void GlobalStepWatcher::after_train(train::Trainer& trainer) {
  // A worker that has failed must not wait for the others, who wait for it.
  const bool ends = done() || trainer.requested_stop().has_value();
  if (!ends) return;
  if (options_.workers != nullptr) static_cast<void>(options_.workers->gather("the last steps of all workers", ""));
  trainer.set_global_step(options_.global_step());
}

int64_t GlobalStepWatcher::steps() const {
  return started_ && finished_ ? finished_->step - started_->step : 0;
}

double GlobalStepWatcher::seconds() const {
  return started_ && finished_ ? finished_->seconds - started_->seconds : 0;
}

}  // namespace trainyard::frontends
