// Keeps the best checkpoint by validation: a complete checkpoint in <train_dir>/best, in addition to those from which a
// run resumes, and never removed with old ones. It stores the metric and its value, so that a later run compares with
// them.
//
//   BestKeeper keeper(store, {.by = best_by(BestMetric::kTop1), .identity = identity, .state = state});
//   evaluation.on_evaluation = [&](const Evaluation& result, int64_t step) { keeper.offer(result, step); };
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "trainyard/core/base/stateful.h"
#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/evaluation/evaluator.h"

namespace trainyard::train {

struct BestKeeperOptions {
  BestBy by = best_by(BestMetric::kTop1);
  CheckpointIdentity identity{};
  std::shared_ptr<const core::Stateful> state{};  // what is saved
};

class BestKeeper {
 public:
  // Throws as lowest_is_best() does. Reads the best checkpoint of an earlier run. Sets a damaged one aside, with a
  // warning. One by another metric is replaced at the first evaluation, which is logged. Throws kInvalidArgument for
  // one of another model, kIo.
  BestKeeper(CheckpointStore store, BestKeeperOptions options);

  // Saves the state if the value is better than all so far. The replacement is atomic. A value that is not finite is
  // never the best; weights that are not finite are not saved, with a warning. Throws what CheckpointStore::save()
  // throws.
  void offer(double value, int64_t global_step);
  // Offers the evaluation's value of that name. Throws kInvalidArgument when it has none.
  void offer(const Evaluation& evaluation, int64_t global_step);

  // Returns the best of all runs in this directory.
  const std::optional<BestCheckpoint>& best() const { return best_; }

 private:
  CheckpointStore store_;
  BestKeeperOptions options_;
  bool lowest_;  // the lowest value is the best
  std::optional<BestCheckpoint> best_;
};

}  // namespace trainyard::train
