// The state that fit() saves: the trainer, the model's description, and the steps of an epoch.
#pragma once

#include <cstdint>

#include "trainyard/core/base/stateful.h"
#include "trainyard/train/loop/trainer.h"
#include "trainyard/train/model/model_description.h"

namespace trainyard::train {

class FitState : public core::Stateful {
 public:
  // `trainer` must outlive it.
  FitState(Trainer& trainer, const ModelDescription& description, int64_t steps_per_epoch);

  void save(core::StateWriter& writer) const override;
  // Throws kInvalidArgument, naming the first difference, for a state of another graph, other classes or epochs of
  // another length, and for one that fit() has not saved. The trainer is unchanged then.
  void load(const core::StateReader& reader) override;

 private:
  Trainer& trainer_;
  ModelMetadata metadata_;
  int64_t steps_per_epoch_;
};

}  // namespace trainyard::train
