#include "trainyard/recipes/benchmark_training.h"

#include <memory>
#include <optional>
#include <ostream>
#include <string_view>

#include <fmt/format.h>

#include "trainyard/core/log.h"
#include "trainyard/recipes/benchmark_log_file.h"
#include "trainyard/recipes/benchmark_state.h"
#include "trainyard/recipes/compute_rate.h"
#include "trainyard/recipes/rank_agreement.h"
#include "trainyard/recipes/step_recording.h"
#include "trainyard/recipes/validation_run.h"
#include "trainyard/train/benchmark_log.h"
#include "trainyard/train/checkpoint_callback.h"
#include "trainyard/train/csv_monitor.h"
#include "trainyard/train/curve_svg.h"
#include "trainyard/train/evaluation_callback.h"
#include "trainyard/train/json_lines_monitor.h"
#include "trainyard/train/progress_callback.h"
#include "trainyard/train/run_summary.h"
#include "trainyard/train/summary_callback.h"
#include "trainyard/train/tensorboard_monitor.h"
#include "trainyard/train/time_shares.h"

namespace trainyard::recipes {
namespace {

constexpr const char* kMetricsJson = "metrics.jsonl";
constexpr const char* kMetricsCsv = "metrics.csv";
constexpr const char* kSummary = "run_summary.json";
constexpr const char* kCurve = "curve.svg";

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
    const std::string progress = values.text("progress");
    const bool shows = progress == "on" || (progress == "auto" && core::ProgressBar::stderr_is_terminal());
    progress_ = std::make_shared<train::ProgressCallback>(settings.model->name, shows && settings.device.is_chief());
  }

  void run();

 private:
  void add_monitors();
  void add_callbacks();
  void finish();
  double reported_loss() const {
    return values_.text("loss_type_to_report") == "base_loss" ? trainer_.last_base_loss() : trainer_.last_total_loss();
  }
  int64_t warmup_steps() const { return settings_.plan.num_warmup_batches; }
  bool saves() const { return !settings_.train_dir.empty() && settings_.device.is_chief(); }
  std::string in_train_dir(const char* name) const { return core::join_path(settings_.train_dir, name); }

  const core::FlagValues& values_;
  const BenchmarkSettings& settings_;
  std::ostream& out_;
  train::Print print_;
  std::shared_ptr<data::BatchSource> source_;
  train::SingleCostTrainer trainer_;
  std::shared_ptr<BenchmarkState> state_;
  int64_t first_step_ = 0, end_local_step_ = 0;
  std::optional<ValidationRun> validation_;
  std::unique_ptr<train::BenchmarkLog> benchmark_log_;
  train::StepAccuracies accuracies_;
  std::shared_ptr<train::ProgressCallback> progress_;
  std::shared_ptr<train::StepLog> step_log_;
  std::shared_ptr<ShareCounter> share_counter_;
  std::shared_ptr<train::EvaluationCallback> evaluation_;
  std::shared_ptr<train::CheckpointCallback> checkpoint_;
  std::shared_ptr<RankAgreement> agreement_;  // with other processes
};

void TrainingRun::add_monitors() {
  if (!saves()) return;
  trainer_.monitors().add(std::make_unique<train::JsonLinesMonitor>(in_train_dir(kMetricsJson)));
  trainer_.monitors().add(std::make_unique<train::CsvMonitor>(in_train_dir(kMetricsCsv)));
  trainer_.monitors().add(std::make_unique<train::TensorBoardMonitor>(settings_.train_dir, first_step_));
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
  log.print = print_;
  if (benchmark_log_) {
    log.on_line = [this](const train::StepReport& report) { benchmark_log_->write(report); };
    log.on_total = [this](double speed) { benchmark_log_->write_total(speed, trainer_.global_step()); };
  }
  step_log_ = std::make_shared<train::StepLog>(log);
  trainer_.add(step_log_);
  share_counter_ = std::make_shared<ShareCounter>(warmup_steps());
  trainer_.add(share_counter_);
  trainer_.add(progress_);

  if (saves() && values_.integer("summary_verbosity") > 0 && values_.integer("save_summaries_steps") > 0) {
    train::SummaryOptions summary;
    summary.every_steps = values_.integer("save_summaries_steps");
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
         .images = settings_.batch_size * settings_.micro_steps},
        values_, settings_, print_);
  }
  if (settings_.mode == BenchmarkMode::kTrainingAndEvaluation) {
    validation_.emplace(settings_, trainer_.parameters(), values_.integer("display_every"), print_);
    train::EvaluationCallbackOptions evaluation;
    evaluation.evaluate = [this] {
      trainer_.wait();
      return validation_->run();
    };
    evaluation.due = [this](int64_t done) { return settings_.plan.evaluate_after(done, end_local_step_); };
    evaluation.stop_at_top_1_accuracy = values_.optional_real("stop_at_top_1_accuracy");
    evaluation.warmup_steps = warmup_steps();
    evaluation.batch_size = batch_size;
    evaluation.examples_per_epoch = settings_.train_examples;
    evaluation.print = print_;
    if (benchmark_log_) {
      evaluation.on_evaluation = [this](const train::Evaluation& result, int64_t step) {
        benchmark_log_->write(result, step);
      };
    }
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
  if (!saves()) {
    log_compute_rate(compute);
    return;
  }
  core::FileSystem& files = core::local_file_system();
  train::RunSummary summary;
  summary.model = settings_.model->name;
  summary.dataset = settings_.dataset + (settings_.synthetic() ? " (synthetic)" : "");
  summary.mode = benchmark_mode_name(settings_.mode);
  summary.global_step = trainer_.global_step();
  summary.steps = step_log_->steps();
  summary.seconds = step_log_->elapsed_seconds();
  summary.images_per_second = step_log_->images_per_second();
  summary.compute = compute;
  summary.shares = share_counter_->shares();
  summary.bad_samples = source_->bad_samples();
  summary.stopped_by = trainer_.stop_reason();
  if (trainer_.global_step() > first_step_)
    summary.metrics.emplace_back(values_.text("loss_type_to_report"), reported_loss());
  if (evaluation_ && evaluation_->last()) {
    summary.metrics.emplace_back("eval_top_1_accuracy", evaluation_->last()->top_1);
    summary.metrics.emplace_back("eval_top_5_accuracy", evaluation_->last()->top_5);
  }
  if (checkpoint_->last_saved()) summary.checkpoint = checkpoint_->last_saved()->path;
  summary.tensorboard_directory = settings_.train_dir;
  summary.metrics_json = in_train_dir(kMetricsJson);
  summary.metrics_csv = in_train_dir(kMetricsCsv);
  train::write_run_summary(summary, in_train_dir(kSummary));
  if (files.exists(summary.metrics_json)) {
    const std::string curve = train::curve_svg(fmt::format("{} on {}", summary.model, summary.dataset),
                                               train::curve_panels(files.read_file(summary.metrics_json)));
    if (!curve.empty()) files.write_file_atomically(in_train_dir(kCurve), curve);
  }
  out_ << train::run_summary_text(summary, in_train_dir(kSummary)) << std::endl;
}

void TrainingRun::run() {
  out_ << "Generating training model\n";
  if (!settings_.train_dir.empty()) resume(settings_, *state_);
  first_step_ = trainer_.global_step();
  if (agreement_) agreement_->require_same_start(first_step_);
  end_local_step_ = remaining_steps(settings_, first_step_);
  if (settings_.device.is_chief()) {
    benchmark_log_ = open_benchmark_log(values_, settings_, settings_.global_batch_size());
  }
  add_monitors();
  add_callbacks();
  out_ << "Initializing graph\n";
  if (end_local_step_ == 0) return;
  // The whole training is one epoch of the loop, also over several runs: what is saved does not tell them apart.
  trainer_.train({.steps_per_epoch = first_step_ + warmup_steps() + end_local_step_, .starting_step = first_step_});
  finish();
}

}  // namespace

BenchmarkOutcome run_training(const core::FlagValues& values, const BenchmarkSettings& settings, std::ostream& out,
                              const core::StopToken& stop) {
  TrainingRun(values, settings, out, stop).run();
  return stop.reason() == core::StopReason::kSignal ? BenchmarkOutcome::kStoppedBySignal : BenchmarkOutcome::kFinished;
}

}  // namespace trainyard::recipes
