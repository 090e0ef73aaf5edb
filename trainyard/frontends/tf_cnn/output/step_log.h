// Prints a run's steps in the format that scripts around tf_cnn_benchmarks read (step_lines.h).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainyard/frontends/tf_cnn/output/displayed_steps.h"
#include "trainyard/frontends/tf_cnn/output/step_lines.h"
#include "trainyard/train/loop/callback.h"
#include "trainyard/train/loop/local_steps.h"

namespace trainyard::frontends {

// Prints one line, or several separated by line breaks, and adds the last line break.
using Print = std::function<void(std::string_view lines)>;
// Prints to stdout without buffering.
void print_to_stdout(std::string_view lines);

// The numbers of a step line, for other outputs.
struct StepReport {
  int64_t local_step = 0;   // from 1, as in the line
  int64_t global_step = 0;  // steps done
  SpeedStatistics speed;
  double loss = 0;
  std::optional<train::Accuracies> accuracies;
};

struct StepLogOptions {
  int64_t batch_size = 0;   // images per step of this worker, all its devices
  int64_t num_workers = 1;  // for the total
  int64_t display_every = 10;
  std::optional<double> display_perf_ewma;
  int64_t warmup_steps = 0;  // neither shown nor timed
  // Set: lines show the global step, at the selected steps and the run's first. Unset: lines show the steps of this
  // run, from 1 after the warm-up: the first and each multiple of display_every.
  std::optional<DisplayedSteps> displayed;
  bool print_warmup = true;   // "Running warm up", "Done warm up"
  bool every_worker = false;  // each process prints its own steps; false: the chief does
  // Called behind the warm-up, before the clock of the timed steps starts: to wait for other workers. Empty: nothing.
  std::function<void()> before_timed;
  std::string loss_name = "total_loss";
  bool print_total = true;  // tf_cnn_benchmarks prints none when it evaluates during training

  // Called for each line. Default: the mean of the replicas' losses.
  std::function<double(const train::StepView&)> loss;
  // Accuracies of the step's batch, for two columns. Default: no columns.
  std::function<train::Accuracies(const train::StepView&)> accuracies;
  // Columns after all others, as text with leading tabs: "\tepoch", "\t0.40".
  std::string more_columns;
  std::function<std::string()> more_cells;
  bool top_5 = true;  // false: there is no column of it

  Print print = print_to_stdout;
  std::function<void(const StepReport&)> on_line;  // after each step line
  // Images/s of all workers where they do not take the same steps. Empty: those of this one, times num_workers.
  std::function<double()> all_images_per_second;
  std::function<void(double images_per_second)> on_total;  // at the end of a run that did not fail
  std::function<double()> clock;                           // seconds; default: a steady clock

  void validate() const;  // throws kInvalidArgument
  // Returns whether a step has a line. `local_step` counts from 0 after the warm-up, `global_step` has it done.
  [[nodiscard]] bool shows(int64_t local_step, int64_t global_step) const;
};

// "Running warm up", "Done warm up", the header, a line for step 1 and every display_every steps, the total.
class StepLog : public train::Callback {
 public:
  explicit StepLog(StepLogOptions options);

  std::string name() const override { return "step_log"; }
  bool chief_only() const override { return !options_.every_worker; }

  void before_train(train::Trainer& trainer) override;
  void before_step(train::Trainer& trainer) override;
  void after_step(train::Trainer& trainer, const train::StepView& view) override;
  void after_train(train::Trainer& trainer) override;

  // Return the steps after the warm-up, the seconds since it ended, and images/s of all workers; so far, or of the
  // whole run.
  int64_t steps() const { return steps_; }
  double elapsed_seconds() const;
  double images_per_second() const;

 private:
  StepLogOptions options_;
  train::LocalSteps local_steps_;
  std::vector<double> step_seconds_;  // of each step after the warm-up
  std::optional<double> started_at_, ended_at_;
  int64_t steps_ = 0;
  bool in_step_ = false;
};

}  // namespace trainyard::frontends
