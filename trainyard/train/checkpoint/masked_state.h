// A saved training with masks added, from which a pruned training continues.
#pragma once

#include <string>

#include "trainyard/core/base/stateful.h"
#include "trainyard/nn/execution/parameter_set.h"

namespace trainyard::train {

// Saves the entries of `saved`, with the masks of `masked`: as "model/<parameter>.mask", and as zeros in each copy of
// such a parameter, "<anything>/<parameter>", including averages of the weights. Optimizer slots are not copies and
// stay unchanged. Entries of independent replicas ("replica/") are left out: these start as the first replica. Both
// must outlive it.
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
