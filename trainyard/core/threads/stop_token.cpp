#include "trainyard/core/threads/stop_token.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"

namespace trainyard::core {

struct StopToken::State {
  mutable std::mutex mutex;
  std::condition_variable stopped;
  StopReason reason = StopReason::kNone;
  std::string message;
};

bool StopToken::stop_requested() const {
  return reason() != StopReason::kNone;
}

StopReason StopToken::reason() const {
  std::lock_guard lock(state_->mutex);
  return state_->reason;
}

std::string StopToken::message() const {
  std::lock_guard lock(state_->mutex);
  return state_->message;
}

bool StopToken::wait_for(std::chrono::nanoseconds duration) const {
  // "For ever" as nanoseconds::max() would overflow when it is added to now.
  duration = std::min<std::chrono::nanoseconds>(duration, std::chrono::hours(24 * 365));
  std::unique_lock lock(state_->mutex);
  return state_->stopped.wait_for(lock, duration, [&] { return state_->reason != StopReason::kNone; });
}

StopSource::StopSource() : state_(std::make_shared<StopToken::State>()) {}

bool StopSource::request_stop(StopReason reason, std::string message) {
  if (reason == StopReason::kNone) throw Error(ErrorCode::kInvalidArgument, "a request to stop needs a reason");
  {
    std::lock_guard lock(state_->mutex);
    if (state_->reason != StopReason::kNone) return false;
    state_->reason = reason;
    state_->message = std::move(message);
  }
  state_->stopped.notify_all();
  return true;
}

Shutdown::~Shutdown() {
  try {
    run();
  } catch (const std::exception& error) {
    log::error("shutdown: {}", error.what());
  } catch (...) {
    log::error("shutdown: an action threw something that is no std::exception");
  }
}

void Shutdown::add(Stage stage, std::string name, std::function<void()> action) {
  actions_.push_back({stage, std::move(name), std::move(action)});
}

void Shutdown::run() {
  std::exception_ptr first_error;
  const auto failed = [&](const std::string& name, const char* what) {
    if (first_error) {
      log::error("shutdown of {}: {}", name, what);
    } else {
      first_error = std::current_exception();
    }
  };
  // One at a time, so that an action which adds another, or runs the rest, finds a consistent list.
  while (!actions_.empty()) {
    // The last one of the earliest stage.
    const auto next = std::min_element(actions_.rbegin(), actions_.rend(),
                                       [](const Action& a, const Action& b) { return a.stage < b.stage; });
    const Action action = std::move(*next);
    actions_.erase(std::next(next).base());
    try {
      action.run();
    } catch (const std::exception& error) {
      failed(action.name, error.what());
    } catch (...) {
      failed(action.name, "something that is no std::exception");
    }
  }
  if (first_error) std::rethrow_exception(first_error);
}

}  // namespace trainyard::core
