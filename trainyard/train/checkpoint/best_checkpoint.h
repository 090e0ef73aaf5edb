// The best checkpoint by validation, beside those from which a run goes on: a complete one in <train_dir>/best, which
// no pruning touches. It holds what it is best by, and that value, so a later run compares with them.
//
//   BestKeeper keeper(store, {.by = best_by(BestMetric::kTop1), .identity = identity, .state = state});
//   evaluation.on_evaluation = [&](const Evaluation& result, int64_t step) { keeper.offer(result, step); };
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "trainyard/core/base/export.h"
#include "trainyard/core/base/stateful.h"
#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/evaluation/evaluator.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

enum class BestMetric { kTop1, kLoss };  // the highest; the lowest

// What a checkpoint is the best by: the highest or the lowest of the values of that name, any that value_of() has
// (train/evaluation/evaluator.h).
struct BestBy {
  std::string name{};
  // Whether the lowest value is the best. Unset: what the name says, as lowest_is_best() reads it.
  std::optional<bool> lowest = std::nullopt;
};
// Returns {"top_1_accuracy", false} or {"loss", true}.
[[nodiscard]] BestBy best_by(BestMetric metric);
// Returns whether the lowest value is the best: as `by` says, else by its name. Losses and errors are better the lower
// they are ("loss", "val/center_loss", "mean_error"), accuracies, precisions, recalls, f1 and auc the higher. Throws
// kInvalidArgument for a name that says nothing.
[[nodiscard]] bool lowest_is_best(const BestBy& by);
// Returns the evaluation's value of that name. Throws kInvalidArgument, with the names that there are, where it has
// none.
[[nodiscard]] double value_to_compare(const Evaluation& evaluation, const BestBy& by);

struct BestCheckpoint {
  CheckpointInfo info{};
  std::string metric{};
  double value = 0;
};

struct BestKeeperOptions {
  BestBy by = best_by(BestMetric::kTop1);
  CheckpointIdentity identity{};
  std::shared_ptr<const core::Stateful> state{};  // what is saved
};

class BestKeeper {
 public:
  // Throws as lowest_is_best() does. Reads what an earlier run has kept. A damaged checkpoint is set aside, with a
  // warning. One by another metric gives way to the first evaluation, and a line says so. Throws kInvalidArgument for
  // one of another model, kIo.
  BestKeeper(CheckpointStore store, BestKeeperOptions options);

  // Saves the state if the value is better than all so far. At any moment there is the old best or the new one, whole.
  // A value that is not finite is never the best, and weights that are not finite are a warning. Throws what
  // CheckpointStore::save() throws.
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
TRAINYARD_EXPORT_END
