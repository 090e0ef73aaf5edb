#include "trainyard/core/threads/stop_token.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "trainyard/core/base/error.h"

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

}  // namespace trainyard::core
