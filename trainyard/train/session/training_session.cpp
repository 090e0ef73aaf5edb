#include "trainyard/train/session/training_session.h"

#include <exception>
#include <utility>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/parallel/process_group/rank_agreement.h"
#include "trainyard/parallel/process_group/shared_outcome.h"
#include "trainyard/train/callbacks/agreement_callback.h"
#include "trainyard/train/loop/rank_times.h"
#include "trainyard/train/session/gather_state_callback.h"
#include "trainyard/train/session/share_counter.h"
#include "trainyard/train/session/slow_rank_callback.h"
#include "trainyard/train/step/tower_trainer.h"

namespace trainyard::train {

using core::Error;
using core::ErrorCode;

namespace {

void take_evaluation(ValidationRecord* record, BestKeeper* best, const Evaluation& evaluation, int64_t global_step) {
  if (record != nullptr) record->add(evaluation, global_step);
  if (best != nullptr) best->offer(evaluation, global_step);
}

}  // namespace

TrainingSession::TrainingSession(Trainer& trainer, SessionOptions options)
    : trainer_(trainer), options_(std::move(options)) {
  // The trainer owns what holds its own state.
  if (options_.state == nullptr) options_.state = {std::shared_ptr<void>(), &trainer_};
  options_.resume.identity = options_.identity;
  if (options_.resumes && options_.resume.directory.empty()) options_.resume.directory = options_.directory;
  cut_ = std::make_shared<CutEvaluation>();
  if (!options_.own_pace) cut_->set_ranks(options_.ranks);
  trainer_.add(cut_);
  if (options_.compare) {
    record_ = std::make_shared<ValidationRecord>(*options_.compare, options_.early_stop);
    trainer_.add(record_);
  } else if (options_.early_stop) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "an early stop needs a number by which evaluations compare",
                                              .where = "SessionOptions::early_stop",
                                              .remedy = "set SessionOptions::compare"});
  }
}

TrainingSession::~TrainingSession() {
  try {
    // The trainer's callbacks may outlive the lock.
    if (best_) best_->finish();
    if (queue_) queue_->drain();
  } catch (const std::exception& error) {
    core::log::error("a checkpoint is lost: {}", error.what());
  }
  if (!lock_) return;
  try {
    trainer_.monitors().flush();  // what they write lies in the directory, and the lock is given back now
  } catch (const Error& error) {
    core::log::warning("the last numbers of the run may be lost: {}", error.what());
  }
}

bool TrainingSession::is_chief() const {
  return ranks() == nullptr || ranks()->rank() == 0;
}

void TrainingSession::print(std::shared_ptr<Callback> callback) {
  trainer_.add(std::move(callback));
}

void TrainingSession::open() {
  if (ranks() != nullptr && options_.start) {
    StartFacts facts;
    add_program_facts(facts);
    facts.insert(facts.end(), options_.start->begin(), options_.start->end());
    parallel::require_same_facts(*ranks(), facts);
  }
  const auto lock = [this] {
    if (saves()) lock_.emplace(options_.directory);
  };
  ranks() == nullptr ? lock() : parallel::together(*ranks(), "taking the lock of the run's directory", lock);
}

std::optional<CheckpointInfo> TrainingSession::resume() {
  std::optional<CheckpointInfo> checkpoint = resume_together(ranks(), *options_.state, options_.resume);
  first_step_ = trainer_.global_step();
  return checkpoint;
}

void TrainingSession::prepare(SessionSteps steps) {
  first_step_ = trainer_.global_step();
  if (saves()) queue_ = std::make_shared<CheckpointQueue>();
  if (steps.keep_best && saves()) {
    best_ = std::make_shared<BestKeeper>(
        CheckpointStore(options_.directory),
        BestKeeperOptions{
            .by = *steps.keep_best, .identity = options_.identity, .state = options_.state, .queue = queue_});
  }
  if (steps.monitors && is_chief()) {
    for (auto& monitor : steps.monitors(first_step_)) trainer_.monitors().add(std::move(monitor));
  }
  share_counter_ = std::make_shared<ShareCounter>(steps.warmup_steps);
  trainer_.add(share_counter_);
  if (steps.summary) trainer_.add(std::make_shared<SummaryCallback>(*std::move(steps.summary)));
  if (steps.recalibration != nullptr) trainer_.add(std::move(steps.recalibration));
  if (steps.evaluation) add_evaluation(*std::move(steps.evaluation));
  if (ranks() != nullptr && !options_.own_pace) {
    trainer_.add(std::make_shared<AgreementCallback>(
        std::make_shared<parallel::RankAgreement>(options_.ranks),
        [counter = share_counter_](double seconds) { counter->add_waiting(seconds); }));
    trainer_.add(std::make_shared<SlowRankCallback>(options_.ranks, share_counter_));
  }
  if (steps.checkpoints && saves()) {
    steps.checkpoints->identity = options_.identity;
    steps.checkpoints->state = options_.state;
    steps.checkpoints->queue = queue_;
    if (best_) steps.checkpoints->before_save = [best = best_] { best->flush(); };
    // The last evaluation comes behind the checkpoint of the last step.
    steps.checkpoints->changed = [cut = cut_] { return cut->changed(); };
    checkpoints_ = std::make_shared<CheckpointCallback>(CheckpointStore(options_.directory, options_.max_to_keep),
                                                        *std::move(steps.checkpoints));
  }
  auto* const tower_trainer = dynamic_cast<TowerTrainer*>(&trainer_);
  if (ranks() != nullptr && tower_trainer != nullptr && gathers_state(*tower_trainer)) {
    trainer_.add(std::make_shared<GatherStateCallback>(
        options_.ranks, [tower_trainer] { gather_state(*tower_trainer); }, checkpoints_));
  }
  if (checkpoints_) trainer_.add(checkpoints_);
  if (is_chief()) report_options_ = std::move(steps.report);
}

// The trainer may outlive the session: its callback keeps what it needs.
void TrainingSession::add_evaluation(EvaluationCallbackOptions options) {
  options.cut = cut_;
  options.on_evaluation = [record = record_, best = best_, own = std::move(options.on_evaluation)](
                              const Evaluation& evaluation, int64_t global_step) {
    if (own) own(evaluation, global_step);
    take_evaluation(record.get(), best.get(), evaluation, global_step);
  };
  if (options_.early_stop) {
    options.goal = [record = record_,
                    own = std::move(options.goal)](const Evaluation& evaluation) -> std::optional<std::string> {
      if (own) {
        if (auto reached = own(evaluation)) return reached;
      }
      return record->stop_reason();
    };
  }
  evaluation_ = std::make_shared<EvaluationCallback>(std::move(options));
  trainer_.add(evaluation_);
}

void TrainingSession::run(const std::function<void()>& work) {
  if (!report_options_) return work();
  // Only now: it computes a digest of the data, which a run without a step does not need.
  report_.emplace(*report_options_);
  report_->begin(first_step_);
  try {
    work();
  } catch (const Error& error) {
    report_->fail(error, trainer_.global_step());
    throw;
  }
}

Evaluation TrainingSession::evaluate(nn::ParameterSet& parameters, const std::function<Evaluation()>& own) {
  evaluations_.begin(ranks(), nullptr, trainer_.global_step(), parameters);
  return evaluate_over_ranks(ranks(), own);
}

Evaluation TrainingSession::evaluate(nn::ParameterSet& parameters, Evaluator& evaluator, data::BatchSource& source,
                                     bool shared) {
  evaluations_.begin(ranks(), &source, trainer_.global_step(), parameters);
  shared = shared && shares_batches(ranks(), source);
  const auto own = [&] {
    if (shared) return evaluate_own_batches(*ranks(), evaluator, source);
    source.seek({});
    return evaluator.run(source);
  };
  return evaluate_over_ranks(ranks(), own, shared);
}

void TrainingSession::note(const Evaluation& evaluation, int64_t global_step) {
  cut_->set_missing(false);
  take_evaluation(record_.get(), best_.get(), evaluation, global_step);
}

std::optional<CheckpointInfo> TrainingSession::save_into(CheckpointStore& store) {
  if (!saves()) return std::nullopt;
  trainer_.progress("save");
  if (best_) best_->flush();
  const int64_t step = trainer_.global_step();
  // By the queue, too: a best checkpoint of the same step is then written once.
  const auto copy = queue_ ? queue_->copy(*options_.state, step) : nullptr;
  std::optional<CheckpointInfo> saved;
  if (copy != nullptr) queue_->submit([&] { saved = store.save_copy(step, options_.identity, *copy); });
  if (queue_) queue_->drain();
  return copy != nullptr ? saved : store.save(step, options_.identity, *options_.state);
}

std::optional<CheckpointInfo> TrainingSession::save() {
  CheckpointStore store(options_.directory, options_.max_to_keep);
  return save_into(store);
}

std::optional<CheckpointInfo> TrainingSession::save_alone_in(const std::string& directory) {
  // One is kept: that which is saved, though another may have come further.
  CheckpointStore store(directory, /*max_to_keep=*/1);
  return save_into(store);
}

RunSummary TrainingSession::summary() {
  RunSummary summary;
  summary.global_step = trainer_.global_step();
  summary.stopped_by = trainer_.stop_reason();
  // The last evaluation comes when the loop has ended, and has said why.
  if (summary.stopped_by.empty() && cut_->missing()) summary.stopped_by = cut_->end().message;
  summary.shares = shares();
  if (ranks() != nullptr && share_counter_) {
    summary.rank_seconds = gather_times(*ranks(), share_counter_->shares().sum());
  }
  if (checkpoints_ && checkpoints_->last_saved()) summary.checkpoint = checkpoints_->last_saved()->path;
  if (best_) {
    best_->finish();
    summary.best = best_->best();
  }
  return summary;
}

void TrainingSession::end(RunSummary& summary) {
  if (report_) report_->end(summary);
}

std::optional<std::string> TrainingSession::early_end() const {
  return record_ ? record_->stop_reason() : std::nullopt;
}

std::optional<BestValue> TrainingSession::best_value() const {
  return record_ ? record_->best() : std::nullopt;
}

std::optional<Evaluation> TrainingSession::last_evaluation() const {
  return evaluation_ ? evaluation_->last() : std::nullopt;
}

StepTimes TrainingSession::shares() const {
  return share_counter_ ? share_counter_->shares().shares() : StepTimes();
}

}  // namespace trainyard::train
