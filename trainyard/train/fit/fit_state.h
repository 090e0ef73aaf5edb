// What fit() saves: the trainer, and what its model says of itself.
#pragma once

#include "trainyard/core/base/stateful.h"
#include "trainyard/train/loop/trainer.h"
#include "trainyard/train/model/model_description.h"

namespace trainyard::train {

class FitState : public core::Stateful {
 public:
  // `trainer` outlives it.
  FitState(Trainer& trainer, const ModelDescription& description);

  void save(core::StateWriter& writer) const override;
  // Throws kInvalidArgument, naming the first difference, for a state of another graph or other classes, and for one
  // that fit() has not saved. Then the trainer is as it was.
  void load(const core::StateReader& reader) override;

 private:
  Trainer& trainer_;
  ModelMetadata metadata_;
};

}  // namespace trainyard::train
