// Records the evaluations of a training: the best one, and how many in a row were no improvement that counts. It is
// saved with the run, so that a resumed run continues the comparison.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trainyard/train/evaluation/evaluator.h"
#include "trainyard/train/loop/callback.h"

namespace trainyard::train {

class ValidationRecord : public Callback {
 public:
  // Throws as lowest_is_best() does.
  ValidationRecord(BestBy by, std::optional<EarlyStop> early_stop);

  std::string name() const override { return "validation"; }

  // Adds an evaluation. A value that is not finite is never better. Throws kInvalidArgument when the evaluation has no
  // value of that name.
  void add(const Evaluation& evaluation, int64_t global_step);
  // Returns the best evaluation, by however little it is better: the one whose checkpoint BestKeeper keeps.
  const std::optional<BestValue>& best() const { return best_; }
  // Returns why the training ends, or nothing when it continues.
  std::optional<std::string> stop_reason() const;

  // A saved state of another metric than `by` is ignored.
  void save(core::StateWriter& writer) const override;
  void load(const core::StateReader& reader) override;

 private:
  BestBy by_;
  bool lowest_;  // the lowest value is the best
  std::optional<EarlyStop> early_stop_;
  std::optional<BestValue> best_;
  std::optional<BestValue> counted_;  // the last improvement by more than EarlyStop::min_delta
  int64_t not_better_ = 0;            // evaluations since that one
};

}  // namespace trainyard::train
