#include <algorithm>
#include <memory>
#include <optional>
#include <ostream>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/log.h"
#include "trainyard/core/sockets/frame.h"
#include "trainyard/frontends/model/evaluation_files.h"
#include "trainyard/frontends/model/sparsity_report.h"
#include "trainyard/frontends/tf_cnn/auto_batch.h"
#include "trainyard/frontends/tf_cnn/benchmark_log_file.h"
#include "trainyard/frontends/tf_cnn/cluster_run.h"
#include "trainyard/frontends/tf_cnn/freezing.h"
#include "trainyard/frontends/tf_cnn/modes.h"
#include "trainyard/frontends/tf_cnn/next_commands.h"
#include "trainyard/frontends/tf_cnn/output/benchmark_log.h"
#include "trainyard/frontends/tf_cnn/output/evaluation_lines.h"
#include "trainyard/frontends/tf_cnn/output/global_step_watcher.h"
#include "trainyard/frontends/tf_cnn/output/graph_files.h"
#include "trainyard/frontends/tf_cnn/output/step_log.h"
#include "trainyard/frontends/tf_cnn/run_files.h"
#include "trainyard/frontends/tf_cnn/run_record.h"
#include "trainyard/frontends/tf_cnn/run_state.h"
#include "trainyard/frontends/tf_cnn/run_statistics.h"
#include "trainyard/frontends/tf_cnn/run_steps.h"
#include "trainyard/frontends/tf_cnn/step_recording.h"
#include "trainyard/frontends/tf_cnn/trainer_options.h"
#include "trainyard/frontends/tf_cnn/validation_run.h"
#include "trainyard/optim/sparsity/prune.h"
#include "trainyard/parallel/process_group/process_group.h"
#include "trainyard/parallel/servers/server_group.h"
#include "trainyard/train/callbacks/progress_callbacks.h"
#include "trainyard/train/callbacks/summary_time.h"
#include "trainyard/train/evaluation/batch_norm_recalibration.h"
#include "trainyard/train/evaluation/image_views.h"
#include "trainyard/train/loop/rank_times.h"
#include "trainyard/train/loop/trainer.h"
#include "trainyard/train/profile/machine_limit_share.h"
#include "trainyard/train/session/evaluated_weights.h"
#include "trainyard/train/session/rank_evaluation.h"
#include "trainyard/train/session/training_session.h"
#include "trainyard/train/step/tower_trainer.h"

namespace trainyard::frontends {
namespace {

// Writes the learning rates for MLPerf.
class ComplianceRates : public train::Callback {
 public:
  ComplianceRates(std::shared_ptr<ComplianceRun> lines, std::function<double()> rate)
      : lines_(std::move(lines)), rate_(std::move(rate)) {}
  std::string name() const override { return "compliance_rates"; }
  void after_step(train::Trainer&, const train::StepView& view) override {
    lines_->note_rate(view.global_step, rate_());
  }

 private:
  std::shared_ptr<ComplianceRun> lines_;
  std::function<double()> rate_;  // of the step that has run
};

// Returns what may end a training behind an evaluation, in tf_cnn_benchmarks' words; none: nothing does.
std::function<std::optional<std::string>(const train::Evaluation&)> evaluation_goal(
    const std::optional<double>& top_1_accuracy, const std::shared_ptr<BenchmarkModel>& own_model) {
  std::function<std::optional<std::string>(const train::Evaluation&)> accuracy;
  if (top_1_accuracy.value_or(0) != 0) accuracy = stop_at_top_1_accuracy(*top_1_accuracy);
  if (own_model == nullptr) return accuracy;
  return [accuracy, own_model](const train::Evaluation& evaluation) -> std::optional<std::string> {
    if (own_model->reached_target()) return "Stopping, as the model indicates its custom goal was reached";
    return accuracy ? accuracy(evaluation) : std::nullopt;
  };
}

// The means over all processes of the numbers of a step, in the steps that are shown or recorded and in the last one:
// tf_cnn_benchmarks' controller of distributed_all_reduce prints the mean of the workers' losses and accuracies.
class RankMeans : public train::Callback {
 public:
  using Wanted = std::function<bool(int64_t local_step, int64_t global_step)>;
  using Numbers = std::function<std::vector<double>(const train::StepView&)>;
  // `wanted` and the length of what `own` returns must be the same in all processes.
  RankMeans(std::shared_ptr<parallel::ProcessGroup> ranks, int64_t warmup_steps, Wanted wanted, Numbers own)
      : ranks_(std::move(ranks)), local_steps_(warmup_steps), wanted_(std::move(wanted)), own_(std::move(own)) {}

  std::string name() const override { return "rank_means"; }
  void before_train(train::Trainer& trainer) override { local_steps_.begin(trainer); }
  void after_step(train::Trainer& trainer, const train::StepView& view) override {
    const train::LoopOptions& loop = trainer.loop();
    const bool last = trainer.epoch() == loop.max_epoch && trainer.step_in_epoch() == loop.steps_per_epoch;
    if (!last && !wanted_(local_steps_.of(view), trainer.global_step())) return;
    std::vector<double> means = own_(view);
    core::BodyWriter body;
    for (const double number : means) body.real(number);
    std::fill(means.begin(), means.end(), 0.0);
    for (const std::string& text : ranks_->gather("losses of a step", body.take())) {
      core::BodyReader numbers(text);
      for (double& mean : means) mean += numbers.real();
    }
    for (double& mean : means) mean /= ranks_->size();
    last_ = {trainer.global_step(), std::move(means)};
  }
  // Returns the means after this step; null when they were not wanted.
  const std::vector<double>* after(int64_t global_step) const {
    return last_ && last_->first == global_step ? &last_->second : nullptr;
  }

 private:
  std::shared_ptr<parallel::ProcessGroup> ranks_;
  train::LocalSteps local_steps_;
  Wanted wanted_;
  Numbers own_;
  std::optional<std::pair<int64_t, std::vector<double>>> last_;  // the global step, and its means
};

// Calls a function after each step.
class AfterEachStep : public train::Callback {
 public:
  AfterEachStep(std::string name, std::function<void()> work) : name_(std::move(name)), work_(std::move(work)) {}
  std::string name() const override { return name_; }
  void after_step(train::Trainer&, const train::StepView&) override { work_(); }

 private:
  std::string name_;
  std::function<void()> work_;
};

// A training from what was prepared to its summary: the parts that look at each other while it runs.
class TrainingRun {
 public:
  TrainingRun(PreparedRun& prepared, std::ostream& out, const core::StopToken& stop)
      : run_(prepared),
        out_(out),
        stop_(stop),
        print_([this](std::string_view lines) {
          progress_->clear();
          out_ << lines << std::endl;
        }),
        source_(make_source(prepared, data::Subset::kTrain)),
        recalibration_batches_(recalibration_batches(prepared)),
        trainer_(make_trainer_options(prepared), source_),
        state_(make_saved_run(trainer_, prepared)),
        early_stop_(read_early_stop(prepared)) {
    trainer_.set_stop_token(stop);
    progress_ = std::make_shared<train::ProgressCallback>(
        train::ProgressOptions{.model = run_.model->name,
                               .enabled = shows_progress(run_) && run_.device.is_chief(),
                               .batch_size = run_.examples_per_global_step(),
                               .examples_per_epoch = run_.train_examples,
                               .learning_rate = [this] { return trainer_.current_learning_rate(); }});
  }

  RunStatistics run();

 private:
  void add_printers();
  // Joins the numbers of all processes in the steps that `log` shows, and in those of summaries.
  void add_rank_means(const StepLogOptions& log);
  // Lets the global step count the steps of all workers, as parameter servers do.
  void count_all_workers();
  train::SessionSteps session_steps();
  std::optional<train::SummaryOptions> summary_options();
  void set_evaluation(train::SessionSteps& steps);
  void make_recalibration();
  // Returns the weights that are evaluated, up to date.
  nn::ParameterSet& evaluated_parameters();
  train::Evaluation run_validation();
  // Evaluates with test-time augmentation, too, and adds the results to `evaluation`.
  void evaluate_views(train::Evaluation& evaluation);
  // Prints and records the numbers of evaluations that have become known since. They may end the training.
  void take_late_numbers(bool wait);
  // Returns the last evaluation, or of those whose numbers come later the last one that has them.
  std::optional<train::Evaluation> last_evaluation() const {
    return last_late_ ? last_late_ : session_->last_evaluation();
  }
  bool reached_goal() const;
  void run_steps();
  // Writes what the last complete evaluation explains.
  void write_explanation();
  void finish();
  RunStatistics statistics() const;
  std::string epoch_and_rate() const;
  // Returns whether an evaluation is repeated that a signal has cut off in the run that this one continues. In
  // tf_cnn_benchmarks' dialect each run counts its own steps, and evaluates after these alone.
  bool repeats_evaluation() const {
    return run_.mode() == RunMode::kTrainingAndEvaluation && steps_.over_all_runs && !run_.counts_all_workers() &&
           session_->cut_evaluation().missing();
  }
  // Returns the loss of this process, and with distributed_all_reduce that of all in the steps that are shown or
  // recorded.
  double reported_loss() const {
    const std::vector<double>* const all = means_ ? means_->after(trainer_.global_step()) : nullptr;
    return all != nullptr ? all->at(0) : own_loss();
  }
  // Returns the same for the accuracies of the step's batch.
  train::Accuracies reported_accuracies(const train::StepView& view) {
    const std::vector<double>* const all = means_ ? means_->after(trainer_.global_step()) : nullptr;
    return all != nullptr ? train::Accuracies{.top_1 = all->at(1), .top_5 = all->at(2)} : accuracies_.of(view);
  }
  double own_loss() const {
    return run_.options.loss.loss_type_to_report == "base_loss" ? trainer_.last_base_loss()
                                                                : trainer_.last_total_loss();
  }
  int64_t warmup_steps() const { return steps_.warmup; }
  parallel::ProcessGroup* ranks() const { return run_.device.processes.get(); }  // null: this process is alone
  bool own_dialect() const { return run_.own_dialect(); }
  std::string in_train_dir(const char* name) const { return core::join_path(run_.train_dir(), name); }

  PreparedRun& run_;
  std::ostream& out_;
  const core::StopToken& stop_;
  Print print_;
  std::shared_ptr<data::BatchSource> source_;
  const int64_t recalibration_batches_;
  train::TowerTrainer trainer_;
  std::shared_ptr<SavedRun> state_;
  const std::optional<train::EarlyStop> early_stop_;
  std::optional<train::TrainingSession> session_;  // from run() on, when train_dir is settled
  train::RankEvaluations evaluations_;
  RunSteps steps_;
  std::optional<PreparedRun> plain_;  // the run, whose evaluations see each image once
  std::optional<ValidationRun> validation_;
  std::optional<int64_t> evaluated_step_;  // of the last evaluation; nothing: validation_ has predicted in another one
  struct Evaluated {
    train::Evaluation evaluation;
    int64_t global_step;
    double epoch;
  };
  std::vector<Evaluated> evaluated_;            // evaluations of this run, where numbers come later
  std::optional<train::Evaluation> last_late_;  // with the numbers that came last
  std::unique_ptr<BenchmarkLog> benchmark_log_;
  train::StepAccuracies accuracies_;
  std::shared_ptr<train::ProgressCallback> progress_;
  std::shared_ptr<StepLog> step_log_;
  std::shared_ptr<GlobalStepWatcher> watcher_;  // of workers at their own pace; else null
  std::shared_ptr<RankMeans> means_;            // null: each process has its own
  std::shared_ptr<train::RecalibrationCallback> recalibration_;
};

// The cells that `trainyard train` has behind those of tf_cnn_benchmarks.
std::string TrainingRun::epoch_and_rate() const {
  return fmt::format("\t{:.2f}\t{:.4g}",
                     train::epoch_of(trainer_, run_.examples_per_global_step(), run_.train_examples),
                     trainer_.current_learning_rate());
}

nn::ParameterSet& TrainingRun::evaluated_parameters() {
  return train::evaluated_weights(trainer_, run_.options.average.averaged_weights.value_or(true));
}

// Makes what recalibrates the averaged weights, if there are some, because they have seen no batch. Every process does
// the same, as each has all weights; rank 0's statistics are those that count.
void TrainingRun::make_recalibration() {
  if (recalibration_batches_ == 0) return;
  const train::TowerTrainerOptions& options = trainer_.options();
  recalibration_ = std::make_shared<train::RecalibrationCallback>(train::RecalibrationCallback::Options{
      .norms = {.graph = options.graph,
                .devices = options.devices,
                .seed = options.seed,
                .stops = [stop = stop_] { return stop.stop_requested(); }},
      .batches = recalibration_batches_,
      .make_source =
          [this] {
            PreparedRun whole = run_;
            whole.input.epoch_sizes.clear();  // the statistics are for images of the model's size
            return make_source(whole, data::Subset::kTrain, Share::kAll);
          },
      .parameters = [this]() -> nn::ParameterSet& {
        trainer_.wait();
        return train::evaluated_weights(trainer_);
      }});
}

void TrainingRun::add_printers() {
  StepLogOptions log;
  log.batch_size = run_.single_session() ? run_.examples_per_step() : run_.global_batch_size();
  log.display_every = run_.options.display.display_every;
  log.display_perf_ewma = run_.options.display.display_perf_ewma;
  log.warmup_steps = warmup_steps();
  log.loss_name = run_.options.loss.loss_type_to_report;
  log.num_workers = run_.single_session() ? 1 : run_.device.ranks();
  log.print_total = run_.mode() != RunMode::kTrainingAndEvaluation;
  log.loss = [this](const train::StepView&) { return reported_loss(); };
  if (run_.options.display.print_training_accuracy) {
    log.accuracies = [this](const train::StepView& view) { return reported_accuracies(view); };
  }
  log.top_5 = run_.shows_top_5();
  log.print = print_;
  log.every_worker = run_.prints() && !run_.device.is_chief();
  if (watcher_) {
    log.before_timed = [this] {
      print_("Waiting for other replicas to finish warm up");
      static_cast<void>(ranks()->gather("the warm-up of all workers", ""));
    };
    log.all_images_per_second = [this] {
      const double images = static_cast<double>(watcher_->steps() * run_.global_batch_size());
      return watcher_->seconds() > 0 ? images / watcher_->seconds() : 0;
    };
  }
  if (own_dialect()) {
    if (!watcher_) log.displayed = displayed_steps(run_);
    log.print_warmup = warmup_steps() > 0;
    log.more_columns = "\tepoch\tlearning_rate";
    log.more_cells = [this] { return epoch_and_rate(); };
  }
  log.on_line = [this](const StepReport& report) {
    progress_->set_loss(report.loss);
    if (benchmark_log_) benchmark_log_->write(report);
  };
  if (benchmark_log_) {
    log.on_total = [this](double speed) {
      const int64_t steps = watcher_ ? watcher_->steps() : step_log_->steps() * run_.device.ranks();
      benchmark_log_->write_total(speed, own_dialect() ? trainer_.global_step() : steps);
    };
  }
  step_log_ = std::make_shared<StepLog>(log);
  if (run_.single_session() && ranks() != nullptr) add_rank_means(log);
  if (watcher_) session_->print(watcher_);
  session_->print(step_log_);
  session_->print(progress_);
  if (run_.options.collect_eval_results_async) {
    session_->print(std::make_shared<AfterEachStep>("late_numbers", [this] { take_late_numbers(/*wait=*/false); }));
  }
  if (run_.controller) session_->print(std::make_shared<ControllerReport>(run_.controller));
  if (run_.compliance) {
    session_->print(
        std::make_shared<ComplianceRates>(run_.compliance, [this] { return trainer_.current_learning_rate(); }));
  }
  if (run_.device.is_chief()) {
    add_recordings(
        trainer_, [this](train::StepRecorder* recorder) { trainer_.record(recorder); },
        {.executor = trainer_.options().devices.executor,
         .replicas = run_.replicas,
         .images = run_.batch_size * run_.options.micro_steps,
         .warmup_steps = warmup_steps(),
         .parameters =
             [this] {
               // With servers all workers change values together, and these are read alone.
               if (run_.device.servers != nullptr) return std::vector<nn::ParameterSet*>{&trainer_.parameters()};
               std::vector<nn::ParameterSet*> sets;
               trainer_.wait();
               trainer_.change_parameters([&sets](nn::ParameterSet& set) { sets.push_back(&set); });
               return sets;
             }},
        run_, print_);
  }
}

void TrainingRun::add_rank_means(const StepLogOptions& log) {
  const DisplayOptions& display = run_.options.display;
  // By the flags alone: the other processes do not know whether the chief has a folder for summaries.
  const bool records = display.summary_verbosity > 0;
  const auto wanted = [this, log, records, every = display.save_summaries_steps](int64_t local, int64_t global) {
    if (log.shows(local, global)) return true;
    if (!records) return false;
    if (own_dialect() && !every) return displayed_steps(run_).shows(global);
    return every.value_or(0) > 0 && (own_dialect() ? global : local + 1) % *every == 0;
  };
  means_ =
      std::make_shared<RankMeans>(run_.device.processes, warmup_steps(), wanted, [this](const train::StepView& view) {
        if (!run_.options.display.print_training_accuracy) return std::vector<double>{own_loss()};
        const train::Accuracies& own = accuracies_.of(view);
        return std::vector<double>{own_loss(), own.top_1, own.top_5};
      });
  session_->print(means_);
}

void TrainingRun::count_all_workers() {
  if (!run_.counts_all_workers()) return;
  const int64_t workers = run_.device.ranks();
  if (!run_.own_pace()) {
    trainer_.count_global_steps([workers](int64_t before) { return before + workers; });
    return;
  }
  // What servers count begins with the run of another mode at 0.
  const auto servers = run_.device.servers;
  const int64_t first = steps_.first - servers->updates();
  static_cast<void>(ranks()->gather("the first step of all workers", ""));
  const auto count = [servers, first] { return first + servers->updates(); };
  trainer_.count_global_steps([count](int64_t) { return count(); });
  watcher_ =
      std::make_shared<GlobalStepWatcher>(GlobalStepWatcherOptions{.begin = workers * steps_.warmup + steps_.first,
                                                                   .end = steps_.end() - 1,
                                                                   .global_step = count,
                                                                   .print = print_,
                                                                   .workers = run_.device.processes});
}

std::optional<train::SummaryOptions> TrainingRun::summary_options() {
  train::SummaryOptions summary;
  if (!set_recorded_steps(run_, summary)) return std::nullopt;
  summary.batch_size = run_.examples_per_global_step();
  summary.examples_per_epoch = run_.train_examples;
  summary.warmup_steps = warmup_steps();
  summary.values = {
      {"learning_rate", [this](const train::StepView&) { return trainer_.current_learning_rate(); }},
      {run_.options.loss.loss_type_to_report, [this](const train::StepView&) { return reported_loss(); }}};
  const auto add = [&summary](const char* name, std::function<double(const train::StepView&)> value) {
    summary.values.emplace_back(name, std::move(value));
  };
  if (run_.device.loss_scale)
    add("loss_scale", [this](const train::StepView&) { return trainer_.loss_scale()->scale; });
  if (run_.device.loss_scale && run_.device.loss_scale->automatic) {
    add("loss_scale_normal_steps", [this](const train::StepView&) { return *trainer_.loss_scale()->normal_steps; });
  }
  if (run_.options.display.print_training_accuracy) {
    add("top_1_accuracy", [this](const train::StepView& view) { return reported_accuracies(view).top_1; });
    if (run_.shows_top_5()) {
      add("top_5_accuracy", [this](const train::StepView& view) { return reported_accuracies(view).top_5; });
    }
  }
  return summary;
}

void TrainingRun::set_evaluation(train::SessionSteps& steps) {
  plain_ = run_;
  plain_->options.tta = train::TestTimeAugmentation::kNone;
  validation_.emplace(
      *plain_, evaluated_parameters(), run_.options.display.display_every, print_,
      [this](int64_t done, int64_t all) { progress_->show_evaluation(done, all); }, stop_);
  auto& evaluation = steps.evaluation.emplace();
  evaluation.evaluate = [this] {
    trainer_.wait();
    if (recalibration_ && train::has_stale_statistics(trainer_)) recalibration_->run(trainer_.global_step());
    evaluations_.begin(session_->ranks(), nullptr, trainer_.global_step(), evaluated_parameters());
    return run_validation();
  };
  if (run_.options.tta != train::TestTimeAugmentation::kNone) {
    evaluation.evaluate_at_end = [this, evaluate = evaluation.evaluate] {
      train::Evaluation result = evaluate();
      evaluated_step_.reset();  // a stop in what follows leaves no evaluation that has these predictions
      evaluate_views(result);
      return result;
    };
  }
  evaluation.over_all_runs = steps_.over_all_runs;
  evaluation.due = [this](int64_t done) {
    return run_.plan.evaluate_after(done, steps_.over_all_runs ? steps_.end() : steps_.timed);
  };
  evaluation.goal = evaluation_goal(run_.options.stop_at_top_1_accuracy, run_.own.model);
  evaluation.warmup_steps = warmup_steps();
  evaluation.batch_size = run_.examples_per_global_step();
  evaluation.examples_per_epoch = run_.train_examples;
  evaluation.listener = std::make_shared<EvaluationLines>(print_);
  evaluation.on_evaluation = [this](const train::Evaluation& result, int64_t step) {
    evaluated_step_ = step;
    if (const auto accuracy = compared_accuracy(result)) progress_->set_accuracy(*accuracy);
    if (const auto value = train::value_of(result, kTtaTop1)) {
      print_(fmt::format("Test-time augmentation: {}, {} views of each image: Accuracy @ 1 = {:.4f}",
                         train::name_of(run_.options.tta), train::view_count(run_.options.tta), *value));
    }
    if (benchmark_log_) benchmark_log_->write(result, step);
    if (!run_.options.collect_eval_results_async) return;
    const double epoch = train::epoch_of(trainer_, run_.examples_per_global_step(), run_.train_examples);
    evaluated_.push_back({result, step, epoch});
  };
  steps.keep_best = read_best_by(run_.options.saving.keep_best);
  if (run_.options.collect_eval_results_async && steps.keep_best) {
    core::log::info(
        "no best checkpoint is kept: with --collect_eval_results_async the training is further on when an "
        "evaluation's numbers are known");
    steps.keep_best.reset();
  }
}

train::SessionSteps TrainingRun::session_steps() {
  train::SessionSteps steps{.warmup_steps = warmup_steps(), .summary = summary_options()};
  make_recalibration();
  steps.recalibration = recalibration_;
  if (run_.mode() == RunMode::kTrainingAndEvaluation) set_evaluation(steps);
  set_checkpoint_steps(run_, steps);
  steps.monitors = [this](int64_t first_step) { return make_monitors(run_, first_step, repeats_evaluation()); };
  if (own_dialect() && session_->saves()) steps.report = make_run_report(run_);
  return steps;
}

train::Evaluation TrainingRun::run_validation() {
  if (!run_.compliance) return validation_->run();
  progress_->clear();
  run_.compliance->begin_evaluation_in_loop(trainer_.global_step());
  train::Evaluation evaluation = validation_->run();
  run_.compliance->end_evaluation(evaluation.samples, compared_accuracy(evaluation), trainer_.global_step());
  return evaluation;
}

void TrainingRun::evaluate_views(train::Evaluation& evaluation) {
  // It opens its data and makes its kernels, as the first evaluation does.
  train::RankEvaluations().begin(session_->ranks(), nullptr, trainer_.global_step(), evaluated_parameters());
  ValidationRun views(
      run_, evaluated_parameters(), run_.options.display.display_every, print_,
      [this](int64_t done, int64_t all) { progress_->show_evaluation(done, all); }, stop_);
  const train::Evaluation seen = views.run();
  evaluation.more.emplace_back(kTtaTop1, seen.top_1);
  if (seen.shows_top_5) evaluation.more.emplace_back("tta_top_5_accuracy", seen.top_5);
  evaluation.more.emplace_back("tta_loss", seen.loss);
}

void TrainingRun::take_late_numbers(bool wait) {
  if (!validation_) return;
  for (const LateNumbers& late : validation_->take_late_numbers(wait)) {
    auto& [evaluation, global_step, epoch] = evaluated_.at(static_cast<size_t>(late.evaluation));
    evaluation.more.insert(evaluation.more.end(), late.values.begin(), late.values.end());
    last_late_ = evaluation;
    print_(fmt::format("Results of the evaluation at global_step {}\n{}\n{}", global_step, late.lines,
                       result_line(evaluation)));
    trainer_.monitors().write({.global_step = global_step,
                               .epoch = epoch,
                               .wall_time = train::system_wall_clock(),
                               .phase = "eval",
                               .values = late.values});
    trainer_.monitors().flush();
    if (benchmark_log_) benchmark_log_->write(evaluation, global_step);
    const double accuracy = compared_accuracy(evaluation).value_or(0);
    if (run_.compliance) run_.compliance->write_accuracy(accuracy, global_step);
    progress_->set_accuracy(accuracy);
    const double goal = run_.options.stop_at_top_1_accuracy.value_or(0);
    if (wait || goal == 0 || accuracy < goal || trainer_.stopping()) continue;
    const std::string reason = "Stopping, as the model indicates its custom goal was reached";
    print_(reason);
    trainer_.stop(reason);
  }
}

// MLPerf asks whether the training reached what it was for.
bool TrainingRun::reached_goal() const {
  if (run_.own.model != nullptr && run_.own.model->reached_target()) return true;
  const double goal = run_.options.stop_at_top_1_accuracy.value_or(0);
  const std::optional<train::Evaluation> last = last_evaluation();
  if (goal == 0 || !last) return false;
  const double accuracy = compared_accuracy(*last).value_or(0);
  return accuracy != 0 && accuracy >= goal;
}

void TrainingRun::write_explanation() {
  const std::optional<train::Evaluation> last = session_->last_evaluation();
  if (!validation_ || validation_->predictions() == nullptr || !last || !evaluated_step_) return;
  if (!session_->is_chief()) return;
  core::log::info("evaluation at step {}: {}", *evaluated_step_,
                  fmt::join(evaluation_detail_lines(*validation_->predictions()), "; "));
  if (!session_->saves()) return;
  ExplainedEvaluation explained{.evaluation = *last,
                                .counts = *validation_->predictions(),
                                .names = run_.classes.by_output(),
                                .global_step = *evaluated_step_,
                                .images = run_.validation_data.get(),
                                .exif_orientation = run_.input.transform.exif_orientation};
  try {
    const std::vector<std::string> written = write_evaluation_files(run_.train_dir(), explained);
    core::log::info("it is explained in {}: {}", run_.train_dir(), fmt::join(written, ", "));
  } catch (const core::Error& error) {
    core::log::warning("the evaluation is not explained: {}", error.what());  // the training is complete without it
  }
}

void TrainingRun::finish() {
  trainer_.monitors().close();
  if (trainer_.average() != nullptr && trainer_.average()->updates() == 0) {
    core::log::warning("no weights were averaged: the run ended before its first step that counts");
  }
  if (benchmark_log_) benchmark_log_->close();
  write_explanation();
  train::RunSummary summary = session_->summary();
  summary.bad_samples = ranks() == nullptr ? source_->bad_samples() : train::gather_bad_samples(*ranks(), *source_);
  train::ComputeRate compute;
  if (run_.other_sizes.empty()) {  // images of several sizes cost differently
    compute = train::compute_rate(run_.graph, /*trains=*/true, run_.device, step_log_->images_per_second());
  }
  if (session_->report_path().empty()) {
    train::log_compute_rate(compute);
    core::log::info("time: {}", train::time_shares_text(summary.shares));
    if (!summary.rank_seconds.empty()) core::log::info("{}", train::rank_times_text(summary.rank_seconds));
    if (const auto bytes = train::gradient_bytes(trainer_)) {
      core::log::info("exchanged {}", train::gradient_bytes_text(*bytes));
    }
    return;
  }
  summary.steps = step_log_->steps();
  summary.seconds = step_log_->elapsed_seconds();
  summary.images_per_second = step_log_->images_per_second();
  summary.compute = compute;
  summary.skipped_steps = trainer_.skipped_steps();
  summary.gradient_bytes = train::gradient_bytes(trainer_);
  if (trainer_.global_step() > steps_.first)
    summary.metrics.emplace_back(run_.options.loss.loss_type_to_report, reported_loss());
  if (const std::optional<train::Evaluation> last = last_evaluation()) {
    for (const auto& [name, value] : main_numbers(*last)) summary.metrics.emplace_back("eval_" + name, value);
  }
  if (records_metrics(run_)) {
    summary.tensorboard_directory = run_.train_dir();
    summary.metrics_json = in_train_dir(kMetricsJson);
    summary.metrics_csv = in_train_dir(kMetricsCsv);
    summary.curve = write_curve(run_);
  }
  session_->end(summary);
  const bool complete = summary.stopped_by.empty() && steps_.end() >= steps_.per_step * run_.plan.num_batches;
  out_ << train::run_summary_text(summary, session_->report_path()) << "\n"
       << next_commands(run_, complete, session_->early_end().has_value()) << std::endl;
}

void TrainingRun::run_steps() {
  // The whole training is one epoch of the loop, also over several runs: what is saved does not tell them apart.
  if (run_.compliance) run_.compliance->enter_loop(steps_.first);
  const int64_t own_steps = steps_.warmup + steps_.timed;
  if (watcher_) {
    session_->train({.steps_per_epoch = own_steps * run_.device.ranks() + 1});  // the watcher ends it
  } else if (run_.counts_all_workers()) {
    session_->train({.steps_per_epoch = own_steps});
  } else {
    session_->train({.steps_per_epoch = steps_.end(), .starting_step = steps_.first});
  }
  if (run_.compliance) run_.compliance->leave_loop(trainer_.global_step());
  take_late_numbers(/*wait=*/true);
  finish();
  if (run_.compliance) run_.compliance->end(reached_goal());
}

RunStatistics TrainingRun::statistics() const {
  RunStatistics statistics = statistics_of(*step_log_, run_.device.ranks());
  if (watcher_) {
    statistics.num_steps = watcher_->steps();
    statistics.average_wall_time =
        watcher_->steps() == 0 ? 0 : watcher_->seconds() * run_.device.ranks() / static_cast<double>(watcher_->steps());
  }
  if (statistics.num_steps > 0) statistics.last_average_loss = reported_loss();
  if (!run_.device.is_chief() && step_log_->chief_only()) {
    const int64_t own = std::max<int64_t>(0, trainer_.global_step() - steps_.first - steps_.warmup);
    statistics.num_steps = own * run_.device.ranks();
  }
  if (const auto last = last_evaluation()) set_accuracies(*last, statistics);
  // A signal of any process ends all of them.
  const bool all_by_signal = trainer_.stopped_by_signal() || session_->cut_evaluation().by_signal();
  statistics.stopped_by_signal = ranks() == nullptr ? stop_.reason() == core::StopReason::kSignal : all_by_signal;
  return statistics;
}

RunStatistics TrainingRun::run() {
  check_freezing(run_, trainer_);
  if (run_.options.update.sparsity) {
    static_cast<void>(optim::sparse_layers(run_.graph, run_.options.update.sparsity->exclude));  // knows all patterns
  }
  // Behind all that may fail before a training: until here the run that is there is as it was.
  settle_train_dir(run_, out_, stop_);
  session_.emplace(trainer_, session_options(run_, state_, early_stop_));
  // Before anything is read there that another run may be changing, and before anything is written.
  session_->open();
  out_ << "Generating training model\n";
  if (!own_dialect() && run_.mode() == RunMode::kTrainingAndEvaluation) {
    out_ << "Generating evaluation model\n";
  }
  if (run_.compliance) {
    run_.compliance->begin_training();
    if (run_.mode() == RunMode::kTrainingAndEvaluation) run_.compliance->begin_evaluations();
  }
  session_->resume();
  freeze_parameters(run_, trainer_);
  if (run_.options.update.sparsity) {
    const optim::SparsityOptions& sparsity = *run_.options.update.sparsity;
    log_pruning(train::prune_training(trainer_, sparsity), sparsity.algorithm);
  }
  steps_ = make_run_steps(run_, trainer_.global_step());
  if (run_.device.is_chief()) {
    benchmark_log_ = open_benchmark_log(run_);
  }
  count_all_workers();
  add_printers();
  session_->prepare(session_steps());
  out_ << "Initializing graph\n";
  print_rounded_warmup(run_, out_);
  if (const std::string& path = run_.options.display.graph_file; !path.empty() && run_.device.is_chief()) {
    write_graph_file(path, run_.graph, trainer_.parameters(), "GraphDef", print_);
  }
  const std::optional<std::string> ended = session_->early_end();
  if (ended && !steps_.none()) {
    core::log::info("nothing is left to do: {}; --early_stop={} has ended this run, a higher one lets it go on", *ended,
                    *run_.options.early_stop);
  }
  const bool evaluates = repeats_evaluation() && !ended;
  if (steps_.none() && evaluates) core::log::info("its last evaluation was cut off, and is repeated");
  if ((steps_.none() && !evaluates) || ended) {
    if (run_.compliance) run_.compliance->write_empty_loop(steps_.first);
    return statistics();
  }
  session_->run([this] { run_steps(); });
  return statistics();
}

}  // namespace

RunStatistics run_training(PreparedRun& run, std::ostream& out, const core::StopToken& stop) {
  require_memory(run);  // in front of the input, which makes a batch ahead
  return TrainingRun(run, out, stop).run();
}

}  // namespace trainyard::frontends
