#include "trainyard/train/callbacks/recording_callback.h"

#include <algorithm>

namespace trainyard::train {
namespace {

bool holds(const Recording& recording, int64_t local_step) {
  return local_step >= recording.first_step && local_step < recording.first_step + recording.steps;
}

}  // namespace

bool RecordingCallback::wanted(int64_t local_step) const {
  return std::any_of(options_.recordings.begin(), options_.recordings.end(),
                     [&](const Recording& recording) { return holds(recording, local_step); });
}

void RecordingCallback::before_step(Trainer& trainer) {
  const int64_t local_step = local_steps_.next(trainer);
  if (recorder_ != nullptr || !wanted(local_step)) return;
  recorder_ = options_.accelerator == nullptr
                  ? std::make_unique<StepRecorder>(options_.replicas)
                  : std::make_unique<StepRecorder>(options_.replicas, options_.accelerator->trace(),
                                                   options_.accelerator->name());
  begin_ = end_ = local_step;
  options_.record(recorder_.get());
}

void RecordingCallback::after_step(Trainer&, const StepView&) {
  if (recorder_ == nullptr) return;
  recorder_->collect();
  ++end_;
  for (const Recording& recording : options_.recordings) {
    if (recording.first_step + recording.steps == end_) deliver(recording);
  }
  if (!wanted(end_)) stop();
}

void RecordingCallback::after_train(Trainer&) {
  if (recorder_ == nullptr) return;
  const bool failed = end_ - begin_ < static_cast<int64_t>(recorder_->steps().size());
  for (const Recording& recording : options_.recordings) {
    if (!failed && holds(recording, end_ - 1) && holds(recording, end_)) deliver(recording);
  }
  stop();
}

void RecordingCallback::deliver(const Recording& recording) const {
  const int64_t first = std::max(recording.first_step, begin_);
  recording.done(
      std::span(recorder_->steps()).subspan(static_cast<size_t>(first - begin_), static_cast<size_t>(end_ - first)));
}

void RecordingCallback::stop() {
  options_.record(nullptr);
  recorder_.reset();
}

}  // namespace trainyard::train
