#include "trainyard/frontends/tf_cnn/find_learning_rate.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <ostream>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ostream.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/output_path.h"
#include "trainyard/frontends/tf_cnn/auto_batch.h"
#include "trainyard/frontends/tf_cnn/freezing.h"
#include "trainyard/frontends/tf_cnn/next_commands.h"
#include "trainyard/frontends/tf_cnn/run_state.h"
#include "trainyard/frontends/tf_cnn/schedule.h"
#include "trainyard/frontends/tf_cnn/schedules/schedule_plot.h"
#include "trainyard/frontends/tf_cnn/trainer_options.h"
#include "trainyard/optim/schedules/rate_range.h"
#include "trainyard/train/loop/callback.h"
#include "trainyard/train/monitors/curve_svg.h"
#include "trainyard/train/session/resume.h"
#include "trainyard/train/step/tower_trainer.h"

namespace trainyard::frontends {
namespace {

constexpr const char* kRate = "learning_rate";

// Sets the rate of each step, and hears its loss.
class RangeTestCallback : public train::Callback {
 public:
  RangeTestCallback(optim::RangeTest& test, int64_t display_every, std::ostream& out, std::function<double()> loss)
      : test_(test), display_every_(display_every), out_(out), loss_(std::move(loss)) {}

  std::string name() const override { return "range_test"; }
  void before_train(train::Trainer&) override { out_ << "Step\tlearning_rate\tloss\tsmoothed_loss\n"; }
  void before_step(train::Trainer& trainer) override { trainer.hyperparameters().set(kRate, test_.rate()); }
  void after_step(train::Trainer& trainer, const train::StepView&) override {
    test_.note(loss_());
    ++steps_;
    const bool shown = steps_ == 1 || steps_ % display_every_ == 0 || test_.done();
    if (shown && !test_.points().empty()) {
      const optim::RangeTestPoint& last = test_.points().back();
      fmt::print(out_, "{}\t{:.3g}\t{:.4f}\t{:.4f}\n", steps_, last.rate, last.loss, last.smoothed);
      out_.flush();
    }
    if (test_.done()) trainer.stop("the range test has ended");
  }

 private:
  optim::RangeTest& test_;
  const int64_t display_every_;
  std::ostream& out_;
  std::function<double()> loss_;  // of the step that has run
  int64_t steps_ = 0;
};

// Loads the run's newest checkpoint, if it continues from one. Changes no file.
void load_copy(const PreparedRun& run, train::TowerTrainer& trainer, std::ostream& out) {
  const train::ExistingRun existing = run.options.saving.existing_run.value_or(train::ExistingRun::kKeep);
  if (run.train_dir().empty() || existing != train::ExistingRun::kKeep || !train::holds_run(run.train_dir())) return;
  std::shared_ptr<SavedRun> state = make_saved_run(trainer, run);
  train::SessionOptions session = session_options(run, state);
  session.resume.directory = run.train_dir();
  session.resume.identity = session.identity;
  session.resume.damaged = damaged_checkpoints(run, /*writes=*/false);
  if (const auto found = train::resume_together(nullptr, *state, session.resume)) {
    fmt::print(out, "The test begins with a copy of {}\n", found->path);
  }
}

std::string picture_of(const PreparedRun& run, const optim::RangeTest& test) {
  train::CurveSeries loss{.name = "loss"}, smoothed{.name = "smoothed"}, proposed{.name = "proposal", .joined = false};
  const std::optional<optim::RateProposal> proposal = test.proposal();
  for (const optim::RangeTestPoint& point : test.points()) {
    loss.x.push_back(point.rate);
    loss.y.push_back(point.loss);
    smoothed.x.push_back(point.rate);
    smoothed.y.push_back(point.smoothed);
  }
  if (proposal) {
    // On the curve of the smoothed loss, at the next tested rate.
    const auto next = std::find_if(test.points().begin(), test.points().end(), [&](const optim::RangeTestPoint& point) {
      return point.rate >= proposal->tenth_of_minimum;
    });
    proposed.x.push_back(proposal->tenth_of_minimum);
    proposed.y.push_back(next->smoothed);
  }
  // Single losses behind the end of the test would leave no height for all others.
  double highest = 0;
  for (const double value : smoothed.y) highest = std::max(highest, value);
  for (double& value : loss.y) value = std::min(value, highest);
  return train::curve_svg(fmt::format("{} on {}: range test", run.model->name, run.dataset_label),
                          {{.title = "loss",
                            .series = {std::move(loss), std::move(smoothed), std::move(proposed)},
                            .x_axes = {{"learning rate"}},
                            .logarithmic = true}});
}

std::string numbers_of(const optim::RangeTest& test) {
  std::string text = "step,learning_rate,loss,smoothed_loss\n";
  int64_t step = 0;
  for (const optim::RangeTestPoint& point : test.points()) {
    text += fmt::format("{},{},{},{}\n", ++step, point.rate, point.loss, point.smoothed);
  }
  return text;
}

// Returns what --learning_rate_scaling multiplies the rate of a training by. The test sets rates as they are.
double scaling_of_rates(const PreparedRun& run) {
  const LearningRateOptions& asked = run.options.learning_rate;
  if (!asked.scaling) return 1;
  PreparedRun unit = run;
  unit.options.learning_rate = LearningRateOptions();
  unit.options.learning_rate.schedule = "constant";
  unit.options.learning_rate.init_learning_rate = 1;
  unit.options.learning_rate.scaling = asked.scaling;
  unit.options.learning_rate.scaling_batch_size = asked.scaling_batch_size;
  return make_schedule(unit).learning_rate(0);
}

// Returns the flags of a training whose rate is `rate`: those that were given, without those of the test and those that
// exclude a rate.
std::string flags_with_rate(const PreparedRun& run, double rate) {
  std::vector<std::string_view> without{"init_learning_rate", "resnet_base_lr", "min_lr", "max_lr",
                                        "num_steps",          "smoothing",      "output"};
  std::string unset;  // of flags that a file of flags gives, which cannot be left out
  const auto leave_out = [&](std::string_view name, std::string_view value) {
    without.push_back(name);
    const auto& command = run.options.flags.command;
    const bool of_command =
        std::any_of(command.begin(), command.end(), [name](const auto& flag) { return flag.first == name; });
    if (!of_command) unset += fmt::format(" --{}={}", name, value);
  };
  const LearningRateOptions& asked = run.options.learning_rate;
  if (asked.piecewise) leave_out("piecewise_learning_rate_schedule", "");
  if (asked.schedule == "piecewise") leave_out("learning_rate_schedule", "auto");
  return fmt::format("{}{} --init_learning_rate={:.3g}", given_flags(run, without), unset, rate);
}

// `stopped`: a signal has ended the test.
void print_proposal(const PreparedRun& run, const optim::RangeTest& test, bool stopped, std::ostream& out) {
  const std::vector<optim::RangeTestPoint>& points = test.points();
  if (points.empty()) {
    throw core::Error(
        core::ErrorCode::kInvalidArgument,
        {.problem = "the loss of the first step is not finite: no rate can be tested",
         .where = run.model->name,
         .remedy = "look at the data and the initial weights; --on_nan=stop of a training names the layer"});
  }
  if (test.diverged()) {
    fmt::print(out, "The loss diverged at a learning rate of {:.3g}, after {} steps\n", points.back().rate,
               points.size());
  } else if (stopped) {
    fmt::print(out, "Stopped at a learning rate of {:.3g}, after {} of {} steps\n", points.back().rate, points.size(),
               test.options().steps);
  } else {
    fmt::print(out, "The loss did not diverge up to {:.3g}: --max_lr may be higher\n", points.back().rate);
  }
  const std::optional<optim::RateProposal> proposal = test.proposal();
  if (!proposal) {
    out << "No proposal: the loss fell nowhere. A lower --min_lr or more --num_steps may show where it does\n";
    return;
  }
  const double scaling = scaling_of_rates(run);
  fmt::print(out,
             "Lowest smoothed loss at {:.3g}, steepest slope at {:.3g}\n"
             "Proposal: {:.3g}, a tenth of the rate with the lowest loss\n"
             "Train:   trainyard train{}\n",
             proposal->minimum, proposal->steepest, proposal->tenth_of_minimum,
             flags_with_rate(run, proposal->tenth_of_minimum / scaling));
  if (scaling != 1) fmt::print(out, "         --learning_rate_scaling multiplies this rate by {:.4g}\n", scaling);
  if (proposal->fall < 0.1) {
    fmt::print(out, "The loss fell by {:.0f} % only, so this may be chance: --num_steps={} shows more\n",
               100 * std::max(proposal->fall, 0.0), 3 * test.options().steps);
  }
}

}  // namespace

bool write_range_test(PreparedRun& run, std::ostream& out, const core::StopToken& stop) {
  if (run.device.processes != nullptr) {
    throw core::Error(core::ErrorCode::kUnsupported, {.problem = "a range test of learning rates runs in one process",
                                                      .remedy = "leave --variable_update out"});
  }
  require_memory(run);
  optim::RangeTest test(run.options.range_test->rates);
  train::TowerTrainerOptions options = make_trainer_options(run);
  options.on_nan = train::OnNan::kIgnore;  // such a loss is what the test looks for
  train::TowerTrainer trainer(std::move(options), make_source(run, data::Subset::kTrain));
  trainer.set_stop_token(stop);
  load_copy(run, trainer, out);
  freeze_parameters(run, trainer);
  trainer.add(std::make_shared<RangeTestCallback>(test, run.options.display.display_every, out,
                                                  [&trainer] { return trainer.last_base_loss(); }));
  const int64_t first = trainer.global_step();
  trainer.train({.steps_per_epoch = first + test.options().steps, .starting_step = first});
  const bool stopped = stop.reason() == core::StopReason::kSignal;
  if (stopped && test.points().empty() && !test.diverged()) {
    out << "Stopped before the first step: no rate was tested\n";
    return true;
  }
  print_proposal(run, test, stopped, out);
  const SchedulePlotPaths paths = schedule_plot_paths(run.options.range_test->picture);
  core::write_user_output(paths.picture, picture_of(run, test));
  core::write_user_output(paths.numbers, numbers_of(test));
  out << "Picture: " << paths.picture << "\nNumbers: " << paths.numbers << std::endl;
  return stopped;
}

}  // namespace trainyard::frontends
