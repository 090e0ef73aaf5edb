// Manages a run around its training steps: the lock of its directory, resuming, the facts that its ranks compare,
// validation, checkpoints, the best checkpoint, numbers for monitors, and the summary at the end. A front end passes a
// trainer, options, and callbacks that print; it builds none of these parts itself.
//
//   TrainingSession session(trainer, {.directory = "out/run1", .identity = identity, .ranks = devices.processes});
//   session.print(step_lines);                       // callbacks that print lines, and others of the front end
//   session.open();                                  // 1. ranks compare their starts; rank 0 takes the lock
//   session.resume();                                // 2. the newest checkpoint, for all ranks
//   session.prepare({.checkpoints = {...}});         // 3. what happens at which steps: now that the first one is known
//   session.run([&] { session.train(loop); });       // 4. the training, within the run's report
//
// The order of the callbacks decides what each of them sees (docs/design/training.md):
//
//   cut evaluation and    in front of all: they are loaded with the checkpoint
//   validation record
//   print()               lines of a step come in front of what others do after it; their state is loaded, too
//   time shares
//   summary               numbers of a step are written in front of those of its evaluation
//   recalibration         averaged weights are complete when they are evaluated and saved
//   evaluation            may ask for the end, and keeps the best checkpoint
//   agreement             ranks hear of every wish for the end, and do not wait for what follows
//   slow rank             compares the times of the ranks now and then
//   checkpoint            last: it holds what all others have counted
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/parallel/process_group/process_group.h"
#include "trainyard/train/callbacks/cut_evaluation.h"
#include "trainyard/train/callbacks/evaluation_callback.h"
#include "trainyard/train/callbacks/progress_callbacks.h"
#include "trainyard/train/callbacks/savers.h"
#include "trainyard/train/checkpoint/best_checkpoint.h"
#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/checkpoint/checkpoint_queue.h"
#include "trainyard/train/loop/trainer.h"
#include "trainyard/train/session/rank_evaluation.h"
#include "trainyard/train/session/resume.h"
#include "trainyard/train/session/run_lock.h"
#include "trainyard/train/session/run_report.h"
#include "trainyard/train/session/start_facts.h"
#include "trainyard/train/session/validation_record.h"

namespace trainyard::train {

class ShareCounter;

// Options that are known before a checkpoint is read.
struct SessionOptions {
  // The directory that rank 0 locks and writes to. Empty: nothing is locked, read or saved.
  std::string directory{};
  CheckpointIdentity identity{};                    // of what is saved and resumed
  std::shared_ptr<core::Stateful> state{};          // what is saved and resumed; null: the trainer
  std::shared_ptr<parallel::ProcessGroup> ranks{};  // that train together; null: this process alone
  // Ranks take steps at their own pace, so that no step is a meeting of theirs: each ends by itself.
  bool own_pace = false;
  // What must be the same on all ranks in addition to the program (add_program_facts()). Unset: they have compared it
  // before.
  std::optional<StartFacts> start{};
  // How the run resumes. An empty resume.directory is `directory`; the identity is the one above.
  ResumeOptions resume{};
  bool resumes = true;      // from the directory's newest checkpoint; false: from resume.checkpoint alone
  int64_t max_to_keep = 5;  // checkpoints; 0: all
  // The value by which evaluations are compared, for early_stop and for BestValue. Unset: they are not compared.
  std::optional<BestBy> compare{};
  std::optional<EarlyStop> early_stop{};  // with `compare`
};

// Options that may depend on the first step of the run: what happens at which steps.
struct SessionSteps {
  int64_t warmup_steps = 0;  // whose times are no part of the run's summary
  std::optional<SummaryOptions> summary{};
  std::shared_ptr<Callback> recalibration{};  // of averaged weights; null: none
  // Evaluations during the training, and how they print. A training with early_stop may end after one of them.
  std::optional<EvaluationCallbackOptions> evaluation{};
  std::optional<BestBy> keep_best{};  // in <directory>/best, of what note() is given
  // When checkpoints are saved; identity and state are the session's. Unset: by save() alone.
  std::optional<CheckpointCallbackOptions> checkpoints{};
  // Makes the monitors of a run that begins at this global step. Called on rank 0 only. Empty: the run has no monitors.
  std::function<std::vector<std::unique_ptr<Monitor>>(int64_t first_step)> monitors{};
  std::optional<RunReportOptions> report{};  // on rank 0 alone; unset: run_summary.json is not written
};

// One thread, the trainer's. Collective calls are made by all ranks in the same order.
class TrainingSession {
 public:
  // Adds the callbacks that are loaded with the checkpoint to the trainer, which must outlive the session. Throws
  // kInvalidArgument for an early stop without `compare`.
  TrainingSession(Trainer& trainer, SessionOptions options);
  ~TrainingSession();
  TrainingSession(const TrainingSession&) = delete;
  TrainingSession& operator=(const TrainingSession&) = delete;

  // Adds a callback of the front end, such as one that prints lines. Call it before prepare().
  void print(std::shared_ptr<Callback> callback);

  // Collective: compares the ranks' starts, and takes the directory's lock on rank 0. Throws what
  // parallel::require_same_facts() and RunLock throw.
  void open();
  // Collective: loads the newest checkpoint, as resume_together() does, and returns it.
  std::optional<CheckpointInfo> resume();
  // Opens the monitors and the store of the best checkpoint, and adds the session's callbacks to the trainer. Throws
  // what their constructors throw.
  void prepare(SessionSteps steps);

  // Calls `work`, which trains. Writes run_summary.json before the call, and again when it throws.
  void run(const std::function<void()>& work);
  // Trains; may be called again for the epochs that follow.
  void train(const LoopOptions& loop) { trainer_.train(loop); }

  // Collective: evaluates `parameters` on all ranks; the first evaluation, and that of each source, has the time of a
  // first step (RankDeadlines::start). `own` evaluates this rank's part. Throws kCancelled where one of them was
  // stopped, and what `own` throws.
  Evaluation evaluate(nn::ParameterSet& parameters, const std::function<Evaluation()>& own);
  // Collective: does the same with all samples of `source`, which ends. With `shared`, and where shares_batches()
  // holds, each rank reads its part of them, else each reads all.
  Evaluation evaluate(nn::ParameterSet& parameters, Evaluator& evaluator, data::BatchSource& source,
                      bool shared = true);
  // Compares an evaluation with earlier ones, and keeps the checkpoint of the best one. Evaluations of
  // SessionSteps::evaluation are noted already.
  void note(const Evaluation& evaluation, int64_t global_step);
  // Knows whether a stop has cut off the evaluation after the last step, in this run or in the one that it continues.
  // SessionSteps::evaluation is then repeated, before the first step or at the end of a train() without steps. Front
  // ends that evaluate by themselves say so when theirs is cut off or repeated.
  [[nodiscard]] CutEvaluation& cut_evaluation() const { return *cut_; }
  // Saves a checkpoint now, between steps, and blocks until it is durable. Returns nothing when nothing is saved:
  // without a directory, and on all ranks except 0.
  std::optional<CheckpointInfo> save();
  // Saves into another directory, where it becomes the only checkpoint.
  std::optional<CheckpointInfo> save_alone_in(const std::string& directory);

  // Collective: returns the summary of the run so far: steps, times, checkpoints, and why it ended.
  RunSummary summary();
  // Writes the summary of a run that has ended, if the session has a report.
  void end(RunSummary& summary);

  // Returns whether this process is the one that prints and saves.
  [[nodiscard]] bool is_chief() const;
  // Returns whether this process saves checkpoints.
  [[nodiscard]] bool saves() const { return is_chief() && !options_.directory.empty(); }
  parallel::ProcessGroup* ranks() const { return options_.ranks.get(); }  // null: this process is alone
  // Returns the global step at which this run began, after resume().
  int64_t first_step() const { return first_step_; }
  // Returns why evaluations end the training, those of earlier runs included. Nothing: they do not end it.
  [[nodiscard]] std::optional<std::string> early_end() const;
  // Returns the best value of all evaluations so far, those of earlier runs included.
  [[nodiscard]] std::optional<BestValue> best_value() const;
  // Returns the last evaluation that SessionSteps::evaluation made in this run.
  [[nodiscard]] std::optional<Evaluation> last_evaluation() const;
  // Returns the shares of time of the steps after the warm-up.
  [[nodiscard]] StepTimes shares() const;
  // Returns run_summary.json's path; empty where there is no report.
  [[nodiscard]] std::string report_path() const { return report_ ? report_->path() : ""; }

 private:
  void add_evaluation(EvaluationCallbackOptions options);
  std::optional<CheckpointInfo> save_into(CheckpointStore& store);

  Trainer& trainer_;
  SessionOptions options_;
  std::optional<RunLock> lock_;             // outlives all that writes into the directory
  std::shared_ptr<CheckpointQueue> queue_;  // writes checkpoints in the background; null: nothing is saved
  int64_t first_step_ = 0;
  RankEvaluations evaluations_;
  std::shared_ptr<CutEvaluation> cut_;
  std::shared_ptr<ValidationRecord> record_;
  std::shared_ptr<BestKeeper> best_;
  std::shared_ptr<ShareCounter> share_counter_;
  std::shared_ptr<EvaluationCallback> evaluation_;
  std::shared_ptr<CheckpointCallback> checkpoints_;
  std::optional<RunReportOptions> report_options_;
  std::optional<RunReport> report_;  // within run()
};

}  // namespace trainyard::train
