// The state that fit() saves: the trainer, and the model's description.
#pragma once

#include "trainyard/core/base/stateful.h"
#include "trainyard/train/loop/trainer.h"
#include "trainyard/train/model/model_description.h"

namespace trainyard::train {

class FitState : public core::Stateful {
 public:
  // `trainer` must outlive it.
  FitState(Trainer& trainer, const ModelDescription& description);

  void save(core::StateWriter& writer) const override;
  // Throws kInvalidArgument, naming the first difference, for a state of another graph or other classes, and for one
  // that fit() has not saved. The trainer is unchanged then.
  void load(const core::StateReader& reader) override;

 private:
  Trainer& trainer_;
  ModelMetadata metadata_;
};

}  // namespace trainyard::train
