#include "trainyard/train/step/step_capture.h"

#include "trainyard/core/base/log.h"

namespace trainyard::train {
namespace {

void say(const std::string& why) {
  core::log::warning("steps are not captured: {}", why);
}

}  // namespace

StepCapture::StepCapture(const std::string& obstacle, bool first) : first_(first), enabled_(obstacle.empty()) {
  if (first && !enabled_) say(obstacle);
}

StepCapture::Action StepCapture::next(const std::vector<int64_t>& images, bool observed) {
  if (!enabled_ || observed) return Action::kRun;
  if (recorded_) return images == shape_ ? Action::kReplay : Action::kRun;
  if (images != shape_) {
    shape_ = images;
    warm_steps_ = 0;
  }
  if (warm_steps_ == kWarmupSteps) return Action::kRecord;
  ++warm_steps_;
  return Action::kRun;
}

void StepCapture::recorded() {
  recorded_ = true;
  if (first_) core::log::info("the step is captured: forward, loss, backward and update are replayed from here on");
}

void StepCapture::give_up(const std::string& why) {
  enabled_ = false;
  recorded_ = false;
  say(why);
}

}  // namespace trainyard::train
