#include "trainyard/recipes/benchmark_training.h"

#include <memory>
#include <optional>
#include <ostream>
#include <string_view>

#include <fmt/format.h>

#include "trainyard/core/base/log.h"
#include "trainyard/recipes/benchmark_log_file.h"
#include "trainyard/recipes/benchmark_state.h"
#include "trainyard/recipes/compute_rate.h"
#include "trainyard/recipes/rank_agreement.h"
#include "trainyard/recipes/run_files.h"
#include "trainyard/recipes/run_report.h"
#include "trainyard/recipes/run_steps.h"
#include "trainyard/recipes/step_recording.h"
#include "trainyard/recipes/validation_run.h"
#include "trainyard/train/callbacks/benchmark_log.h"
#include "trainyard/train/callbacks/checkpoint_callback.h"
#include "trainyard/train/callbacks/evaluation_callback.h"
#include "trainyard/train/callbacks/progress_callback.h"
#include "trainyard/train/callbacks/run_summary.h"
#include "trainyard/train/callbacks/summary_callback.h"
#include "trainyard/train/loop/time_shares.h"

namespace trainyard::recipes {
namespace {

// Time shares of the steps after the warm-up, for the summary of the run.
class ShareCounter : public train::Callback {
 public:
  explicit ShareCounter(int64_t warmup_steps) : local_steps_(warmup_steps) {}
  std::string name() const override { return "share_counter"; }
  void before_train(train::Trainer& trainer) override { local_steps_.begin(trainer); }
  void after_step(train::Trainer&, const train::StepView& view) override {
    if (local_steps_.of(view) >= 0) shares_.add(view.times);
  }
  train::StepTimes shares() const { return shares_.shares(); }

 private:
  train::LocalSteps local_steps_;
  train::TimeShares shares_;
};

// A training of door 1 from its settings to its summary: the parts that look at each other while it runs.
class TrainingRun {
 public:
  TrainingRun(const core::FlagValues& values, const BenchmarkSettings& settings, std::ostream& out,
              const core::StopToken& stop)
      : values_(values),
        settings_(settings),
        out_(out),
        stop_(stop),
        print_([this](std::string_view lines) {
          progress_->clear();
          out_ << lines << std::endl;
        }),
        source_(make_source(settings, data::Subset::kTrain)),
        trainer_(make_trainer_options(values, settings), source_),
        state_(std::make_shared<BenchmarkState>(trainer_, settings)) {
    if (settings.device.processes == nullptr) {
      trainer_.set_stop_token(stop);
    } else {
      agreement_ = std::make_shared<RankAgreement>(settings.device.processes, stop);
    }
    progress_ = std::make_shared<train::ProgressCallback>(
        train::ProgressOptions{.model = settings.model->name,
                               .enabled = shows_progress(values) && settings.device.is_chief(),
                               .batch_size = settings.examples_per_step(),
                               .examples_per_epoch = settings.train_examples,
                               .learning_rate = [this] { return trainer_.current_learning_rate(); }});
  }

  void run();

 private:
  void add_callbacks();
  void run_steps();
  void finish();
  std::string epoch_and_rate() const;
  double reported_loss() const {
    return values_.text("loss_type_to_report") == "base_loss" ? trainer_.last_base_loss() : trainer_.last_total_loss();
  }
  int64_t warmup_steps() const { return steps_.warmup; }
  bool own_dialect() const { return settings_.dialect == Dialect::kTrainyard; }
  bool saves() const { return !settings_.train_dir.empty() && settings_.device.is_chief(); }
  std::string in_train_dir(const char* name) const { return core::join_path(settings_.train_dir, name); }

  const core::FlagValues& values_;
  const BenchmarkSettings& settings_;
  std::ostream& out_;
  const core::StopToken& stop_;
  std::unique_ptr<core::LockFile> lock_;  // of train_dir; outlives all that writes there
  train::Print print_;
  std::shared_ptr<data::BatchSource> source_;
  train::SingleCostTrainer trainer_;
  std::shared_ptr<BenchmarkState> state_;
  RunSteps steps_;
  std::optional<RunReport> report_;  // in `trainyard train` with a train_dir
  std::optional<ValidationRun> validation_;
  std::unique_ptr<train::BenchmarkLog> benchmark_log_;
  train::StepAccuracies accuracies_;
  std::shared_ptr<train::ProgressCallback> progress_;
  std::shared_ptr<train::StepLog> step_log_;
  std::shared_ptr<ShareCounter> share_counter_;
  std::shared_ptr<train::EvaluationCallback> evaluation_;
  std::shared_ptr<train::CheckpointCallback> checkpoint_;
  std::unique_ptr<train::BestKeeper> best_;
  std::shared_ptr<RankAgreement> agreement_;  // with other processes
};

// The cells that `trainyard train` has behind those of tf_cnn_benchmarks.
std::string TrainingRun::epoch_and_rate() const {
  return fmt::format("\t{:.2f}\t{:.4g}",
                     train::epoch_of(trainer_, settings_.examples_per_step(), settings_.train_examples),
                     trainer_.current_learning_rate());
}

void TrainingRun::add_callbacks() {
  const std::string loss_name = values_.text("loss_type_to_report");
  const int64_t batch_size = settings_.global_batch_size();

  train::StepLogOptions log;
  log.batch_size = batch_size;
  log.display_every = values_.integer("display_every");
  log.display_perf_ewma = values_.optional_real("display_perf_ewma");
  log.warmup_steps = warmup_steps();
  log.loss_name = loss_name;
  log.num_workers = settings_.device.ranks();
  log.print_total = settings_.mode != BenchmarkMode::kTrainingAndEvaluation;
  log.loss = [this](const train::StepView&) { return reported_loss(); };
  if (values_.boolean("print_training_accuracy")) {
    log.accuracies = [this](const train::StepView& view) { return accuracies_.of(view); };
  }
  log.top_5 = settings_.shows_top_5();
  log.print = print_;
  if (own_dialect()) {
    log.displayed = displayed_steps(values_, settings_);
    log.print_warmup = warmup_steps() > 0;
    log.more_columns = "\tepoch\tlearning_rate";
    log.more_cells = [this] { return epoch_and_rate(); };
  }
  log.on_line = [this](const train::StepReport& report) {
    progress_->set_loss(report.loss);
    if (benchmark_log_) benchmark_log_->write(report);
  };
  if (benchmark_log_) {
    log.on_total = [this](double speed) { benchmark_log_->write_total(speed, trainer_.global_step()); };
  }
  step_log_ = std::make_shared<train::StepLog>(log);
  trainer_.add(step_log_);
  share_counter_ = std::make_shared<ShareCounter>(warmup_steps());
  trainer_.add(share_counter_);
  trainer_.add(progress_);

  if (train::SummaryOptions summary; set_recorded_steps(values_, settings_, summary)) {
    summary.batch_size = settings_.examples_per_step();
    summary.examples_per_epoch = settings_.train_examples;
    summary.warmup_steps = warmup_steps();
    summary.values = {{"learning_rate", [this](const train::StepView&) { return trainer_.current_learning_rate(); }},
                      {loss_name, [this](const train::StepView&) { return reported_loss(); }}};
    if (settings_.device.loss_scale) {
      summary.values.emplace_back("loss_scale", [this](const train::StepView&) { return *trainer_.loss_scale(); });
    }
    if (log.accuracies) {
      summary.values.emplace_back("top_1_accuracy",
                                  [this](const train::StepView& view) { return accuracies_.of(view).top_1; });
      if (settings_.shows_top_5())
        summary.values.emplace_back("top_5_accuracy",
                                    [this](const train::StepView& view) { return accuracies_.of(view).top_5; });
    }
    trainer_.add(std::make_shared<train::SummaryCallback>(summary));
  }
  if (settings_.device.is_chief()) {
    add_recordings(
        trainer_, [this](train::StepRecorder* recorder) { trainer_.record(recorder); },
        {.executor = trainer_.options().executor,
         .replicas = settings_.replicas,
         .images = settings_.batch_size * settings_.micro_steps,
         .warmup_steps = warmup_steps()},
        values_, settings_, print_);
  }
  if (settings_.mode == BenchmarkMode::kTrainingAndEvaluation) {
    validation_.emplace(
        settings_, trainer_.parameters(), values_.integer("display_every"), print_,
        [this](int64_t done, int64_t all) { progress_->show_evaluation(done, all); }, stop_);
    train::EvaluationCallbackOptions evaluation;
    evaluation.evaluate = [this] {
      trainer_.wait();
      return validation_->run();
    };
    evaluation.over_all_runs = steps_.over_all_runs;
    evaluation.due = [this](int64_t done) {
      return settings_.plan.evaluate_after(done, steps_.over_all_runs ? steps_.end() : steps_.timed);
    };
    evaluation.stop_at_top_1_accuracy = values_.optional_real("stop_at_top_1_accuracy");
    evaluation.warmup_steps = warmup_steps();
    evaluation.batch_size = batch_size;
    evaluation.examples_per_epoch = settings_.train_examples;
    evaluation.print = print_;
    if (saves()) best_ = make_best_keeper(values_, settings_, state_);
    evaluation.on_evaluation = [this](const train::Evaluation& result, int64_t step) {
      if (benchmark_log_) benchmark_log_->write(result, step);
      if (best_) best_->offer(result, step);
    };
    evaluation_ = std::make_shared<train::EvaluationCallback>(evaluation);
    trainer_.add(evaluation_);
  }
  if (saves()) {
    checkpoint_ = make_checkpoint_callback(values_, settings_, state_);
    trainer_.add(checkpoint_);
  }
  if (agreement_) trainer_.add(agreement_);  // behind what may ask for the end
}

void TrainingRun::finish() {
  trainer_.monitors().close();
  if (benchmark_log_) benchmark_log_->close();
  const train::ComputeRate compute = compute_rate(settings_, step_log_->images_per_second());
  if (!report_) {
    log_compute_rate(compute);
    core::log::info("time: {}", train::time_shares_text(share_counter_->shares()));
    return;
  }
  train::RunSummary summary;
  summary.global_step = trainer_.global_step();
  summary.steps = step_log_->steps();
  summary.seconds = step_log_->elapsed_seconds();
  summary.images_per_second = step_log_->images_per_second();
  summary.compute = compute;
  summary.shares = share_counter_->shares();
  summary.bad_samples = source_->bad_samples();
  summary.skipped_steps = trainer_.skipped_steps();
  summary.stopped_by = trainer_.stop_reason();
  if (trainer_.global_step() > steps_.first)
    summary.metrics.emplace_back(values_.text("loss_type_to_report"), reported_loss());
  if (evaluation_ && evaluation_->last()) {
    summary.metrics.emplace_back("eval_top_1_accuracy", evaluation_->last()->top_1);
    if (settings_.shows_top_5()) summary.metrics.emplace_back("eval_top_5_accuracy", evaluation_->last()->top_5);
  }
  if (checkpoint_->last_saved()) summary.checkpoint = checkpoint_->last_saved()->path;
  if (best_) summary.best = best_->best();
  if (records_metrics(values_, settings_)) {
    summary.tensorboard_directory = settings_.train_dir;
    summary.metrics_json = in_train_dir(kMetricsJson);
    summary.metrics_csv = in_train_dir(kMetricsCsv);
    summary.curve = write_curve(settings_);
  }
  report_->end(summary);
  out_ << train::run_summary_text(summary, report_->path()) << std::endl;
}

void TrainingRun::run_steps() {
  // The whole training is one epoch of the loop, also over several runs: what is saved does not tell them apart.
  trainer_.train({.steps_per_epoch = steps_.end(), .starting_step = steps_.first});
  finish();
}

void TrainingRun::run() {
  // Before anything is read there that another run may be changing, and before anything is written.
  if (saves()) lock_ = lock_train_dir(settings_);
  out_ << "Generating training model\n";
  if (!own_dialect() && settings_.mode == BenchmarkMode::kTrainingAndEvaluation) {
    out_ << "Generating evaluation model\n";
  }
  if (!settings_.train_dir.empty()) resume(values_, settings_, *state_);
  steps_ = make_run_steps(values_, settings_, trainer_.global_step());
  if (agreement_) agreement_->require_same_start(steps_.first);
  if (settings_.device.is_chief()) {
    benchmark_log_ = open_benchmark_log(values_, settings_, settings_.global_batch_size());
  }
  add_monitors(values_, settings_, steps_.first, trainer_.monitors());
  add_callbacks();
  out_ << "Initializing graph\n";
  print_rounded_warmup(settings_, out_);
  if (steps_.none()) return;
  if (!own_dialect() || !saves()) return run_steps();
  report_.emplace(values_, settings_);
  report_->begin(steps_.first);
  try {
    run_steps();
  } catch (const core::Error& error) {
    report_->fail(error, trainer_.global_step());
    throw;
  }
}

}  // namespace

BenchmarkOutcome run_training(const core::FlagValues& values, const BenchmarkSettings& settings, std::ostream& out,
                              const core::StopToken& stop) {
  TrainingRun(values, settings, out, stop).run();
  return stop.reason() == core::StopReason::kSignal ? BenchmarkOutcome::kStoppedBySignal : BenchmarkOutcome::kFinished;
}

}  // namespace trainyard::recipes
