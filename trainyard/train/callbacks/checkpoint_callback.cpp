#include <deque>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/elapsed.h"
#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/train/callbacks/savers.h"
#include "trainyard/train/checkpoint/checkpoint_names.h"
#include "trainyard/train/checkpoint/checkpoint_queue.h"
#include "trainyard/train/checkpoint/saving_time.h"
#include "trainyard/train/loop/local_steps.h"

namespace trainyard::train {

struct CheckpointCallback::Writes {
  struct Queued {
    std::shared_ptr<const QueuedWrite> write;
    int64_t global_step;
    double begin;  // by the clock
  };
  std::deque<Queued> queued;  // the oldest first
  int64_t bytes = -1;         // of the last copy; -1: none was made
};

void CheckpointCallbackOptions::validate() const {
  if (save_steps < 0 || !(save_seconds >= 0) || warmup_steps < 0) {
    throw core::Error(
        core::ErrorCode::kInvalidArgument,
        {.problem = "intervals of checkpoints must not be negative",
         .actual = fmt::format("{} steps, {} seconds, {} steps of warm-up", save_steps, save_seconds, warmup_steps)});
  }
  if (save_steps > 0 && save_seconds > 0) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      "At most one of --save_model_secs and --save_model_steps can be specified");
  }
}

CheckpointCallback::CheckpointCallback(CheckpointStore store, CheckpointCallbackOptions options)
    : store_(std::move(store)),
      options_(std::move(options)),
      local_steps_(std::make_shared<LocalSteps>(options_.warmup_steps, options_.over_all_runs)) {
  options_.validate();
  if (!options_.clock) options_.clock = core::steady_seconds;
  time_ = std::make_shared<SavingTime>(options_.clock);
  writes_ = std::make_shared<Writes>();
}

void CheckpointCallback::before_train(Trainer& trainer) {
  local_steps_->begin(trainer);
  last_time_ = options_.clock();
  last_saved_.reset();
  writes_->queued.clear();  // an earlier train() has waited for them
  in_step_ = false;
}

void CheckpointCallback::before_step(Trainer&) {
  in_step_ = true;
  saves_.reset();
}

bool CheckpointCallback::saves_after(const StepView& view) {
  if (saves_) return *saves_;
  const int64_t done = local_steps_->of(view) + 1;
  const bool by_steps = options_.save_steps > 0 && done > 0 && done % options_.save_steps == 0;
  const bool by_choice =
      options_.due && done > 0 && options_.due(done) && (!options_.due_is_each_epoch || time_allows());
  const bool by_time = options_.save_seconds > 0 && options_.clock() - last_time_ >= options_.save_seconds;
  saves_ = by_steps || by_choice || by_time;
  return *saves_;
}

void CheckpointCallback::after_step(Trainer& trainer, const StepView& view) {
  if (options_.queue) options_.queue->check();
  settle();
  if (saves_after(view)) save_now(trainer);
  in_step_ = false;  // here: what cannot be saved is not tried again at the end
}

void CheckpointCallback::trigger_epoch(Trainer& trainer) {
  if (options_.each_epoch && time_allows()) save_now(trainer);
}

bool CheckpointCallback::time_allows() {
  settle();
  if (writes_->bytes >= 0 && writes_->bytes <= SavingTime::kSmallBytes) return true;
  return writes_->queued.empty() && time_->allows();
}

bool CheckpointCallback::saves_at_end(const Trainer& trainer) const {
  // A wrapper may have kept the beginning of the step from this callback.
  if (in_step_ || trainer.step_failed() || !options_.save_at_end) return false;
  if (options_.changed && options_.changed()) return true;
  for (const Writes::Queued& queued : writes_->queued) {
    const bool failed = queued.write->state() == QueuedWrite::State::kFailed;
    if (queued.global_step == trainer.global_step() && !failed) return false;
  }
  return !last_saved_ || last_saved_->global_step != trainer.global_step();
}

void CheckpointCallback::after_train(Trainer& trainer) {
  std::exception_ptr earlier;
  try {
    if (options_.queue) options_.queue->check();
  } catch (...) {
    earlier = std::current_exception();  // thrown when the last state has been saved
  }
  settle();
  if (saves_at_end(trainer)) save_now(trainer);
  if (options_.queue) options_.queue->drain();
  settle();
  if (earlier) std::rethrow_exception(earlier);
}

void CheckpointCallback::save_now(const Trainer& trainer) {
  trainer.progress("save");
  settle();
  if (options_.before_save) options_.before_save();
  try {
    if (!options_.queue || !queue_copy(trainer)) {
      if (options_.queue) options_.queue->drain();
      settle();
      time_->measure([&] {
        last_saved_ = store_.save(trainer.global_step(), options_.identity, options_.state ? *options_.state : trainer);
      });
    }
  } catch (const NonFiniteState& error) {
    if (options_.non_finite_is_error) throw;
    core::log::warning("{}", error.what());
  }
  last_time_ = options_.clock();
}

// Returns false when there is no memory for a copy.
bool CheckpointCallback::queue_copy(const Trainer& trainer) {
  const double begin = options_.clock();
  const int64_t step = trainer.global_step();
  const core::Stateful& state = options_.state ? *options_.state : trainer;
  const std::shared_ptr<const CheckpointCopy> copy = options_.queue->copy(state, step);
  if (copy == nullptr) return false;
  writes_->bytes = copy->bytes();
  auto write = [store = store_, copy, identity = options_.identity]() mutable {
    store.save_copy(copy->global_step(), identity, *copy);
  };
  writes_->queued.push_back({options_.queue->submit(write), step, begin});
  return true;
}

// Takes note of the writes that have ended.
void CheckpointCallback::settle() {
  std::deque<Writes::Queued>& queued = writes_->queued;
  for (; !queued.empty() && queued.front().write->state() != QueuedWrite::State::kPending; queued.pop_front()) {
    const Writes::Queued& ended = queued.front();
    if (ended.write->state() == QueuedWrite::State::kFailed) continue;
    last_saved_ = {.path = core::join_path(store_.directory(), checkpoint_name(ended.global_step)),
                   .global_step = ended.global_step};
    time_->note(ended.begin, ended.write->seconds());
  }
}

}  // namespace trainyard::train
