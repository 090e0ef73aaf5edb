// Freezes and thaws parameters at given steps of a training: a backbone that waits until a new head has learned, or
// first layers that stop learning before the end.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "trainyard/train/loop/callback.h"

namespace trainyard::train {

// Parameters that do not train in the steps [begin, end), which are counted over the whole training, from 0.
struct FreezePeriod {
  std::vector<std::string> patterns{};  // of names, as Trainer::set_trainable() takes them
  int64_t begin = 0;
  int64_t end = std::numeric_limits<int64_t>::max();

  [[nodiscard]] bool contains(int64_t step) const { return step >= begin && step < end; }
};

// Keeps exactly those parameters frozen that a period of the current step names, and thaws all others: what was frozen
// by hand before the training does not stay so. Nothing is saved, since the step says all: a run that resumes has the
// state of an uninterrupted one. Logs each change. All processes have one.
class FreezeSchedule : public Callback {
 public:
  explicit FreezeSchedule(std::vector<FreezePeriod> periods) : periods_(std::move(periods)) {}

  std::string name() const override { return "freeze_schedule"; }
  // Throws kNotFound for a pattern of any period, also of one that begins later, that no parameter matches.
  void before_train(Trainer& trainer) override;
  void before_step(Trainer& trainer) override;

  // Freezes what is frozen in this step, and thaws the rest.
  void apply(Trainer& trainer, int64_t step) const;

 private:
  // Returns which periods contain the step, by their indices.
  std::vector<bool> active_in(int64_t step) const;

  std::vector<FreezePeriod> periods_;
  std::vector<bool> active_{};  // the periods that have been applied last
};

}  // namespace trainyard::train
