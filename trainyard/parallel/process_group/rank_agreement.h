// Keeps the processes of a training at the same steps: rank 0 says after each step whether there is a next one, so that
// a signal, which reaches them at different moments, ends all of them at the same step.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "trainyard/core/threads/stop_token.h"
#include "trainyard/parallel/process_group/process_group.h"

namespace trainyard::parallel {

// Why a training ends before its last step.
struct TrainingEnd {
  core::StopReason why = core::StopReason::kNone;  // kNone: it does not end
  std::string message;
  explicit operator bool() const { return why != core::StopReason::kNone; }
  bool operator==(const TrainingEnd&) const = default;
};

// Used by one thread, like the process group's collective calls.
class RankAgreement {
 public:
  explicit RankAgreement(std::shared_ptr<ProcessGroup> processes) : processes_(std::move(processes)) {}

  // Collective, after each step. `wish` is why this process wants to end, if it does. Returns why all of them end now,
  // the same on all ranks. Rank 0 does not wait; the others wait for one message that it sends when its own step is
  // done. So the wish of another rank may take effect a step later.
  TrainingEnd agree_on_end(const TrainingEnd& wish);
  // Collective: returns the wish of the lowest rank that has one, the same on all ranks; kNone without any. Waits for
  // all ranks, so that none takes another step first.
  TrainingEnd agree_at_once(const TrainingEnd& wish);

 private:
  std::shared_ptr<ProcessGroup> processes_;
  bool told_ = false;
};

}  // namespace trainyard::parallel
