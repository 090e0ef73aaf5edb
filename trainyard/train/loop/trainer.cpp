#include "trainyard/train/loop/trainer.h"

#include <exception>
#include <functional>
#include <optional>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/base/scoped_state.h"
#include "trainyard/core/base/work_count.h"
#include "trainyard/train/loop/error_context.h"

namespace trainyard::train {

using core::Error, core::ErrorCode;

namespace {

constexpr const char* kHyperparameters = "trainer/hyperparameters/";
constexpr const char* kMonitors = "trainer/monitors/";

std::string prefix_of(const Callback& callback) {
  return "callback/" + callback.name() + "/";
}

void call(Callback& callback, Trainer& trainer, Event event, const StepView* view) {
  switch (event) {
    case Event::kSetup:
      return callback.setup(trainer);
    case Event::kBeforeTrain:
      return callback.before_train(trainer);
    case Event::kBeforeEpoch:
      return callback.before_epoch(trainer);
    case Event::kBeforeStep:
      return callback.before_step(trainer);
    case Event::kAfterStep:
      return callback.after_step(trainer, *view);
    case Event::kAfterEpoch:
      return callback.after_epoch(trainer);
    case Event::kTriggerEpoch:
      return callback.trigger_epoch(trainer);
    case Event::kAfterTrain:
      return callback.after_train(trainer);
  }
}

// Calls `work`; what it throws gets the place in front.
template <typename Work>
void in_step(int64_t epoch, int64_t step, const Work& work) {
  const std::string place = fmt::format("epoch {}, step {}", epoch, step);
  try {
    work();
  } catch (...) {
    throw as_error(std::current_exception()).in(place);
  }
}

}  // namespace

void LoopOptions::validate() const {
  const auto require = [](bool good, std::string_view what, const std::string& expected, int64_t actual) {
    if (good) return;
    throw Error(
        ErrorCode::kInvalidArgument,
        {.problem = fmt::format("{} is not usable", what), .expected = expected, .actual = std::to_string(actual)});
  };
  require(steps_per_epoch >= 1, "steps_per_epoch", "at least 1", steps_per_epoch);
  require(starting_epoch >= 1, "starting_epoch", "at least 1", starting_epoch);
  require(max_epoch >= 0, "max_epoch", "at least 0", max_epoch);
  require(starting_step >= 0 && starting_step <= steps_per_epoch, "starting_step",
          fmt::format("one in [0, {}]", steps_per_epoch), starting_step);
}

void Trainer::add(std::shared_ptr<Callback> callback) {
  if (callback == nullptr) throw Error(ErrorCode::kInvalidArgument, "a callback of a trainer is null");
  if (training_) {
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = fmt::format("callback '{}' comes too late: the training has begun", callback->name()),
                 .remedy = "add it before train(), or in the setup of another callback"});
  }
  for (const auto& other : callbacks_) {
    if (other->name() != callback->name()) continue;
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = fmt::format("the trainer already has a callback named '{}'", callback->name())});
  }
  callbacks_.push_back(std::move(callback));
}

void Trainer::set_trainable(const std::string& pattern, bool /*trainable*/) {
  throw Error(ErrorCode::kUnsupported, {.problem = "this trainer has no parameters that could be frozen",
                                        .where = pattern,
                                        .remedy = "override set_trainable() in the trainer, or use a TowerTrainer"});
}

void Trainer::notify(Callback& callback, Event event, const StepView* view) {
  if (callback.chief_only() && !is_chief()) return;
  try {
    core::count_work();
    call(callback, *this, event, view);
  } catch (...) {
    throw as_error(std::current_exception()).in(fmt::format("callback '{}', {}", callback.name(), event_name(event)));
  }
}

void Trainer::notify_all(Event event, const StepView* view) {
  for (const auto& callback : callbacks_) notify(*callback, event, view);
}

void Trainer::train(const LoopOptions& options) {
  options.validate();
  loop_ = options;
  epoch_ = options.starting_epoch;
  step_in_epoch_ = options.starting_step;
  begin_stoppable();
  step_failed_ = false;
  // By index: a callback's setup may add others, whose turn then comes.
  for (; callbacks_set_up_ < callbacks_.size(); ++callbacks_set_up_) {
    const std::shared_ptr<Callback> callback = callbacks_[callbacks_set_up_];
    notify(*callback, Event::kSetup);
  }
  begin_training();
  training_ = true;

  std::optional<Error> first_error;
  const auto attempt = [&](const std::function<void()>& part) {
    try {
      part();
    } catch (...) {
      const Error error = as_error(std::current_exception());
      if (first_error) core::log::error("while the training ended: {}", error.what());
      if (!first_error) first_error = error;
    }
  };
  attempt([&] { run_loop(); });
  if (const std::optional<Error> failed = failure()) {
    if (first_error) core::log::error("{}: behind this came: {}", failed->what(), first_error->what());
    first_error = failed;
  }
  for (const auto& callback : callbacks_) attempt([&] { notify(*callback, Event::kAfterTrain); });
  training_ = false;
  attempt([&] { end_training(); });
  if (first_error) throw *first_error;
}

void Trainer::run_loop() {
  in_step(epoch_, step_in_epoch_ + 1, [&] { notify_all(Event::kBeforeTrain); });
  while (begin_epoch()) {
    in_step(epoch_, step_in_epoch_ + 1, [&] { notify_all(Event::kBeforeEpoch); });
    while (step_in_epoch_ < loop_.steps_per_epoch && !stopping()) one_step();
    if (step_in_epoch_ < loop_.steps_per_epoch) break;
    in_step(epoch_, step_in_epoch_, [&] {
      notify_all(Event::kAfterEpoch);
      notify_all(Event::kTriggerEpoch);
      monitors_.end_epoch(epoch_, global_step());
    });
  }
  note_stop_reason();
}

// Moves to the next epoch if this one is complete. Returns false when no epoch is left, or a stop was requested.
bool Trainer::begin_epoch() {
  if (stopping()) return false;
  if (step_in_epoch_ == loop_.steps_per_epoch && epoch_ < loop_.max_epoch) {
    ++epoch_;
    step_in_epoch_ = 0;
  }
  return epoch_ <= loop_.max_epoch && step_in_epoch_ < loop_.steps_per_epoch;
}

void Trainer::one_step() {
  in_step(epoch_, step_in_epoch_ + 1, [&] {
    if (const std::optional<std::string> end = end_before_step()) {
      // Other processes end at the same step, and vote on nothing: there is no step after which they could.
      if (stops_by_agreement()) agree_to_stop(core::StopReason::kRequested, *end);
      return stop(*end);
    }
    notify_all(Event::kBeforeStep);
    hyperparameters_.begin_step(global_step());
    StepView view;
    view.global_step = global_step();
    view.own_step = own_steps();
    step_failed_ = true;  // until it has ended
    run_step(view);
    count_step();
    ++step_in_epoch_;
    step_failed_ = false;
    notify_all(Event::kAfterStep, &view);
  });
}

void Trainer::save(core::StateWriter& writer) const {
  writer.integer("trainer/global_step", global_step());
  writer.integer("trainer/epoch", epoch_);
  writer.integer("trainer/step_in_epoch", step_in_epoch_);
  core::ScopedWriter hyperparameters(writer, kHyperparameters), monitors(writer, kMonitors);
  hyperparameters_.save(hyperparameters);
  monitors_.save(monitors);
  for (const auto& callback : callbacks_) {
    core::ScopedWriter own(writer, prefix_of(*callback));
    callback->save(own);
  }
}

void Trainer::load(const core::StateReader& reader) {
  set_global_step(reader.integer("trainer/global_step"));
  epoch_ = reader.integer("trainer/epoch");
  step_in_epoch_ = reader.integer("trainer/step_in_epoch");
  hyperparameters_.load(core::ScopedReader(reader, kHyperparameters));
  hyperparameters_.begin_step(global_step());
  monitors_.load(core::ScopedReader(reader, kMonitors));
  for (const auto& callback : callbacks_) {
    const core::ScopedReader own(reader, prefix_of(*callback));
    // One that the saved run did not have, or that saves nothing, starts afresh.
    if (!own.names().empty()) callback->load(own);
  }
}

}  // namespace trainyard::train
