// A saved training with masks: what pruning makes of a checkpoint, for a training that goes on from it.
#pragma once

#include <string>

#include "trainyard/core/base/stateful.h"
#include "trainyard/nn/execution/parameter_set.h"

namespace trainyard::train {

// Saves what `saved` holds, with the masks of `masked`: as "model/<parameter>.mask", and as zeros in each copy of such
// a parameter, "<anything>/<parameter>", averages of the weights among them. An optimizer's slots are no copies; they
// stay as they are. What independent replicas have of their own ("replica/") is left out: they start as the first one.
// Both must outlive it.
class MaskedState : public core::Stateful {
 public:
  MaskedState(const core::StateReader& saved, const nn::ParameterSet& masked) : saved_(&saved), masked_(&masked) {}

  void save(core::StateWriter& writer) const override;
  // Throws kInternal: it is for saving only.
  void load(const core::StateReader& reader) override;

 private:
  // Returns the mask of the parameter that the entry is a copy of, or an undefined tensor.
  at::Tensor mask_of(const std::string& entry) const;

  const core::StateReader* saved_;
  const nn::ParameterSet* masked_;
};

}  // namespace trainyard::train
