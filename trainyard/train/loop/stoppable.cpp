#include <utility>

#include "trainyard/train/loop/trainer.h"

namespace trainyard::train {

void Stoppable::set_stop_token(core::StopToken token) {
  stop_tokens_.push_back(std::move(token));
}

void Stoppable::stop(const std::string& reason) {
  own_stop_.request_stop(core::StopReason::kRequested, reason);
}

void Stoppable::fail(const core::Error& error) {
  {
    const std::lock_guard lock(failure_mutex_);
    if (!failure_) failure_ = error;
  }
  own_stop_.request_stop(core::StopReason::kError, error.what());
}

std::optional<core::StopToken> Stoppable::requested_stop() const {
  if (own_stop_.token().stop_requested()) return own_stop_.token();
  for (const core::StopToken& token : stop_tokens_) {
    if (token.stop_requested()) return token;
  }
  return std::nullopt;
}

void Stoppable::agree_to_stop(core::StopReason why, const std::string& message) {
  agreed_stop_.request_stop(why, message);
}

bool Stoppable::stopping() const {
  if (!by_agreement_) return requested_stop().has_value();
  const std::lock_guard lock(failure_mutex_);
  return failure_ || agreed_stop_.token().stop_requested();
}

void Stoppable::note_stop_reason() {
  const std::optional<core::StopToken> stop = by_agreement_ ? agreed_stop_.token() : requested_stop();
  if (!stop || !stop->stop_requested()) return;
  stop_reason_ = stop->message();
  stopped_by_signal_ = stop->reason() == core::StopReason::kSignal;
}

void Stoppable::begin_stoppable() {
  own_stop_ = core::StopSource();
  agreed_stop_ = core::StopSource();
  stop_reason_.clear();
  stopped_by_signal_ = false;
  const std::lock_guard lock(failure_mutex_);
  failure_.reset();
}

std::optional<core::Error> Stoppable::failure() const {
  const std::lock_guard lock(failure_mutex_);
  return failure_;
}

}  // namespace trainyard::train
