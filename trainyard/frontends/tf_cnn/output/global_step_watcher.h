// Bounds a run whose workers take steps at their own pace, by the steps that all of them have done together, and times
// them, as tf_cnn_benchmarks' watcher does with --cross_replica_sync=false.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "trainyard/frontends/tf_cnn/output/step_log.h"
#include "trainyard/train/loop/callback.h"

namespace trainyard::parallel {
class ProcessGroup;
}

namespace trainyard::frontends {

struct GlobalStepWatcherOptions {
  // The timed part begins at the first global step from `begin` that this worker sees, and ends at the first from
  // `end`, where the training of this worker ends, too.
  int64_t begin = 0, end = 0;
  std::function<int64_t()> global_step;  // steps of all workers together
  Print print = print_to_stdout;
  std::function<double()> clock;                    // seconds; default: a steady clock
  std::function<std::string()> time_of_day;         // default: as C's ctime(), without a line break
  std::shared_ptr<parallel::ProcessGroup> workers;  // meet behind their last steps; null: there are no others
};

// Lines: "Starting real work at step 10 at time Thu Nov 26 05:53:27 2026", "Finishing real work at step ...". Behind
// the last steps of all workers the trainer's global step is what they have done. Add it in front of what saves.
class GlobalStepWatcher : public train::Callback {
 public:
  explicit GlobalStepWatcher(GlobalStepWatcherOptions options);

  std::string name() const override { return "global_step_watcher"; }
  void before_train(train::Trainer& trainer) override;
  void after_step(train::Trainer& trainer, const train::StepView& view) override;
  void after_train(train::Trainer& trainer) override;

  // Returns true from `end` on.
  bool done() const { return finished_.has_value(); }
  // Return the steps of all workers in the timed part, and its seconds; 0 while it has not ended.
  int64_t steps() const;
  double seconds() const;

 private:
  struct Moment {
    int64_t step = 0;
    double seconds = 0;
  };
  void look(int64_t global_step);

  const GlobalStepWatcherOptions options_;
  std::optional<Moment> started_, finished_;
};

}  // namespace trainyard::frontends
