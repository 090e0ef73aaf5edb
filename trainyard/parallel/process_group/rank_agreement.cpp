#include "trainyard/parallel/process_group/rank_agreement.h"

#include <string_view>

#include "trainyard/core/sockets/frame.h"

namespace trainyard::parallel {
namespace {

// Empty: there is a next step.
std::string text_of_end(const TrainingEnd& end) {
  if (!end) return {};
  return core::BodyWriter().number(static_cast<int64_t>(end.why)).text(end.message).take();
}

TrainingEnd end_of_text(std::string_view text) {
  if (text.empty()) return {};
  core::BodyReader body(text);
  TrainingEnd end;
  end.why = static_cast<core::StopReason>(body.number());
  end.message = body.text();
  return end;
}

}  // namespace

TrainingEnd RankAgreement::agree_on_end(const TrainingEnd& wish) {
  std::string end = text_of_end(wish);
  if (processes_->rank() == 0) {
    if (end.empty()) end = processes_->told().value_or("");
  } else if (!end.empty() && !told_) {
    processes_->send_note_to_rank_0(end);
    told_ = true;
  }
  return end_of_text(processes_->from_first("whether there is a next step", end));
}

TrainingEnd RankAgreement::agree_at_once(const TrainingEnd& wish) {
  for (const std::string& text : processes_->gather("whether the training ends here", text_of_end(wish))) {
    if (TrainingEnd end = end_of_text(text)) return end;
  }
  return {};
}

}  // namespace trainyard::parallel
