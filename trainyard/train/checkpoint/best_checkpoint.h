// Keeps the best checkpoint by validation: a complete checkpoint in <train_dir>/best, in addition to those from which a
// run resumes, and never removed with old ones. It stores the metric and its value, so that a later run compares with
// them.
//
//   BestKeeper keeper(store, {.by = best_by(BestMetric::kTop1), .identity = identity, .state = state});
//   evaluation.on_evaluation = [&](const Evaluation& result, int64_t step) { keeper.offer(result, step); };
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "trainyard/core/base/stateful.h"
#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/checkpoint/checkpoint_copy.h"
#include "trainyard/train/checkpoint/checkpoint_queue.h"
#include "trainyard/train/checkpoint/saving_time.h"
#include "trainyard/train/evaluation/evaluator.h"

namespace trainyard::train {

struct BestKeeperOptions {
  BestBy by = best_by(BestMetric::kTop1);
  CheckpointIdentity identity{};
  std::shared_ptr<const core::Stateful> state{};  // what is saved
  std::function<double()> clock{};                // seconds; default: a steady clock
  std::shared_ptr<CheckpointQueue> queue{};       // writes in the background; null: the calls write
};

class BestKeeper {
 public:
  // Throws as lowest_is_best() does. Reads the best checkpoint of an earlier run. Sets a damaged one aside, with a
  // warning. One by another metric is replaced at the first evaluation, which is logged. Throws kInvalidArgument for
  // one of another model, kIo.
  BestKeeper(CheckpointStore store, BestKeeperOptions options);
  // Does what finish() does; an error is logged.
  ~BestKeeper();
  BestKeeper(const BestKeeper&) = delete;
  BestKeeper& operator=(const BestKeeper&) = delete;

  // Saves the state if the value is better than all so far. The replacement is atomic. A value that is not finite is
  // never the best; weights that are not finite are not saved, with a warning. Where writing takes more than its part
  // of the time (SavingTime), the state is copied, and written by a later call of flush(), or replaced by a better one.
  // With a queue the state is always copied, and what is written is durable when the queue has written it. Throws what
  // CheckpointStore::save() throws, and with a queue what an earlier write of it threw.
  void offer(double value, int64_t global_step);
  // Offers the evaluation's value of that name. Throws kInvalidArgument when it has none.
  void offer(const Evaluation& evaluation, int64_t global_step);

  // Writes a state that offer() has only copied, or gives it to the queue. Call it before each checkpoint from which a
  // run resumes: what a crash then loses is found again by the resumed run.
  void flush();
  // Does the same, and blocks until the best checkpoint is durable. Throws what a write of the queue threw.
  void finish();

  // Returns the best of all runs in this directory, also when it is not written yet, except for one whose write failed.
  [[nodiscard]] std::optional<BestCheckpoint> best() const;

 private:
  struct Queued {
    std::shared_ptr<const QueuedWrite> write;
    BestCheckpoint checkpoint;
    double begin;
  };

  void settle();
  void copy_state(const BestCheckpoint& offered);
  void write_state(const BestCheckpoint& offered);
  void write_copy();

  CheckpointStore store_;
  BestKeeperOptions options_;
  bool lowest_;                                   // the lowest value is the best
  std::optional<BestCheckpoint> written_;         // what is in the directory
  std::deque<Queued> queued_;                     // the oldest first
  std::shared_ptr<const CheckpointCopy> copied_;  // a state that is neither written nor queued yet; null: none
  BestCheckpoint copied_best_;                    // what the copy is
  SavingTime time_;
};

}  // namespace trainyard::train
