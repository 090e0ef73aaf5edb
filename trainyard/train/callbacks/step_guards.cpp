#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/elapsed.h"
#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/optim/step/finite.h"
#include "trainyard/train/callbacks/debugging.h"
#include "trainyard/train/loop/trainer.h"

namespace trainyard::train {

using core::Error;
using core::ErrorCode;

// The thread, and the step that it watches.
class SessionRunTimeout::Watcher {
 public:
  Watcher(Trainer& trainer, std::chrono::milliseconds limit, std::function<void()> wake)
      : trainer_(trainer),
        limit_(limit),
        wake_(std::move(wake)),
        thread_({.name = "step timeout"}, [this] { watch(); }) {}

  ~Watcher() {
    change([this] { ending_ = true; });
  }

  void begin_step(int64_t epoch, int64_t step) {
    change([&] { step_ = Step{epoch, step, Clock::now()}; });
  }
  void end_step() {
    change([this] { step_.reset(); });
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Step {
    int64_t epoch, step;
    Clock::time_point began;
  };

  template <typename Change>
  void change(const Change& apply) {
    {
      const std::lock_guard lock(mutex_);
      apply();
    }
    changed_.notify_one();
  }

  void watch() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return ending_ || step_; });
      if (ending_) return;
      const Step watched = *step_;
      const auto is_over = [&] { return ending_ || !step_ || step_->began != watched.began; };
      if (changed_.wait_until(lock, watched.began + limit_, is_over)) continue;
      lock.unlock();
      give_up(watched);
      return;
    }
  }

  void give_up(const Step& step) {
    const double seconds = core::seconds_since(step.began);
    const Error error(ErrorCode::kTimeout, {.problem = "a step takes too long",
                                            .where = fmt::format("epoch {}, step {}", step.epoch, step.step),
                                            .expected = fmt::format("at most {} ms", limit_.count()),
                                            .actual = fmt::format("{:.1f} s without an end", seconds)});
    core::log::error("{}", error.what());
    trainer_.fail(error);
    if (wake_) wake_();
  }

  Trainer& trainer_;
  const std::chrono::milliseconds limit_;
  const std::function<void()> wake_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Step> step_;
  bool ending_ = false;
  core::Thread thread_;  // last: it is joined first
};

SessionRunTimeout::SessionRunTimeout(std::chrono::milliseconds limit, std::function<void()> wake)
    : limit_(limit), wake_(std::move(wake)) {
  if (limit.count() > 0) return;
  throw Error(ErrorCode::kInvalidArgument,
              {.problem = "a step needs time", .actual = fmt::format("a limit of {} ms", limit.count())});
}

SessionRunTimeout::~SessionRunTimeout() = default;

void SessionRunTimeout::before_train(Trainer& trainer) {
  watcher_ = std::make_unique<Watcher>(trainer, limit_, wake_);
}

void SessionRunTimeout::before_step(Trainer& trainer) {
  watcher_->begin_step(trainer.epoch(), trainer.step_in_epoch() + 1);
}

void SessionRunTimeout::after_step(Trainer&, const StepView&) {
  watcher_->end_step();
}

void SessionRunTimeout::after_train(Trainer&) {
  watcher_.reset();
}

namespace {

void check_tensor(const std::string& what, const at::Tensor& values) {
  if (!values.is_floating_point() || optim::all_finite(values)) return;
  throw Error(ErrorCode::kCorruptData,
              {.problem = fmt::format("{} is not finite", what), .actual = optim::non_finite_kind(values)});
}

}  // namespace

void CheckNumerics::after_step(Trainer&, const StepView& view) {
  for (size_t i = 0; i < view.replicas.size(); ++i) {
    for (const auto& [name, loss] : view.replicas[i].losses) {
      check_tensor(fmt::format("loss '{}' of replica {}", name, i), loss);
    }
  }
}

void CheckNumerics::trigger(Trainer&) {
  if (parameters_ == nullptr) return;
  for (const nn::Segment& segment : parameters_->segments()) {
    check_tensor(fmt::format("parameter '{}'", segment.spec.name), parameters_->value(segment.id));
  }
  for (size_t i = 0; i < parameters_->buffer_count(); ++i) {
    const auto index = static_cast<int>(i);
    check_tensor(fmt::format("buffer '{}'", parameters_->buffer_spec(index).name), parameters_->buffer(index));
  }
}

}  // namespace trainyard::train
