// Decides when a trainer records its step and replays it: the first steps run normally, so that kernels are chosen and
// memory is allocated, then one is recorded, and all later steps of the same shape are replays.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainyard::train {

class StepCapture {
 public:
  enum class Action { kRun, kRecord, kReplay };
  static constexpr int kWarmupSteps = 3;

  // `obstacle` says why this run's steps cannot be recorded, and is empty when they can; it is logged at once. `first`
  // is false for replicas other than the first of a run, which log only their own failures.
  explicit StepCapture(const std::string& obstacle = "", bool first = true);

  // Returns what to do with the next step. `images` is the shape of its images; `observed` is true when an observer
  // watches single kernels.
  Action next(const std::vector<int64_t>& images, bool observed);
  // Says that a kRecord succeeded. The recorded step must still be replayed.
  void recorded();
  // Says that a kRecord failed. That step and all later ones must run normally. Logs why.
  void give_up(const std::string& why);

 private:
  bool first_ = true, enabled_ = true, recorded_ = false;
  int warm_steps_ = 0;          // consecutive normal steps of shape_
  std::vector<int64_t> shape_;  // shape that is, or will be, recorded
};

}  // namespace trainyard::train
