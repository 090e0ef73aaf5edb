// When a trainer records its step and replays it: some steps run as they are first, so that kernels are chosen and
// memory is there, then one is recorded, and all later ones that are like it are replays.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainyard::train {

class StepCapture {
 public:
  enum class Action { kRun, kRecord, kReplay };
  static constexpr int kWarmupSteps = 3;

  // `obstacle` says why this run's steps cannot be recorded, and is empty where they can; one line says so at once.
  // `first` is false for other replicas than the first of a run, which say only what goes wrong with them alone.
  explicit StepCapture(const std::string& obstacle = "", bool first = true);

  // Returns what to do with the next step. `images` is the shape of its images; `observed` says that somebody listens
  // to the single kernels.
  Action next(const std::vector<int64_t>& images, bool observed);
  // Says that a kRecord was done. That step is still to be replayed.
  void recorded();
  // Says that a kRecord failed. That step is to be run as it is, and so are all later ones. One line says why.
  void give_up(const std::string& why);

  bool has_recording() const { return recorded_; }

 private:
  bool first_ = true, enabled_ = true, recorded_ = false;
  int warm_steps_ = 0;          // of shape_, one after the other
  std::vector<int64_t> shape_;  // that is, or will be, recorded
};

}  // namespace trainyard::train
