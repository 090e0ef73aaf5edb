// Keeps the best checkpoint by validation: a complete checkpoint in <train_dir>/best, in addition to those from which a
// run resumes, and never removed with old ones. It stores the metric and its value, so that a later run compares with
// them.
//
//   BestKeeper keeper(store, {.by = best_by(BestMetric::kTop1), .identity = identity, .state = state});
//   evaluation.on_evaluation = [&](const Evaluation& result, int64_t step) { keeper.offer(result, step); };
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/base/stateful.h"
#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/checkpoint/saving_time.h"
#include "trainyard/train/evaluation/evaluator.h"

namespace trainyard::train {

struct BestKeeperOptions {
  BestBy by = best_by(BestMetric::kTop1);
  CheckpointIdentity identity{};
  std::shared_ptr<const core::Stateful> state{};  // what is saved
  std::function<double()> clock{};                // seconds; default: a steady clock
};

class BestKeeper {
 public:
  // Throws as lowest_is_best() does. Reads the best checkpoint of an earlier run. Sets a damaged one aside, with a
  // warning. One by another metric is replaced at the first evaluation, which is logged. Throws kInvalidArgument for
  // one of another model, kIo.
  BestKeeper(CheckpointStore store, BestKeeperOptions options);
  // Writes as flush() does; an error is logged.
  ~BestKeeper();
  BestKeeper(const BestKeeper&) = delete;
  BestKeeper& operator=(const BestKeeper&) = delete;

  // Saves the state if the value is better than all so far. The replacement is atomic. A value that is not finite is
  // never the best; weights that are not finite are not saved, with a warning. Where writing takes more than its part
  // of the time (SavingTime), the state is copied, and written by a later call of flush(), or replaced by a better one.
  // Throws what CheckpointStore::save() throws.
  void offer(double value, int64_t global_step);
  // Offers the evaluation's value of that name. Throws kInvalidArgument when it has none.
  void offer(const Evaluation& evaluation, int64_t global_step);

  // Writes a state that offer() has only copied. Call it before each checkpoint from which a run resumes: what a crash
  // then loses is found again by the resumed run.
  void flush();

  // Returns the best of all runs in this directory.
  const std::optional<BestCheckpoint>& best() const { return best_; }

 private:
  void write(const core::Stateful& state, double value, int64_t global_step);

  CheckpointStore store_;
  BestKeeperOptions options_;
  bool lowest_;  // the lowest value is the best
  std::optional<BestCheckpoint> best_;
  std::unique_ptr<core::MemoryState> copied_;  // the best state, which is not written yet
  std::optional<BestCheckpoint> written_;      // what is in the directory while there is a copied one
  SavingTime time_;
};

}  // namespace trainyard::train
