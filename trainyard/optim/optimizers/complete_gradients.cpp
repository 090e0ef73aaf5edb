#include "trainyard/optim/optimizers/complete_gradients.h"

#include <ATen/TensorOperators.h>

#include "trainyard/optim/optimizers/norm_clipper.h"
#include "trainyard/optim/optimizers/optimizer.h"

namespace trainyard::optim {
void complete_on_device(const Optimizer& optimizer, const StepState& state) {
  const nn::ParameterSet& set = optimizer.parameters();
  const auto for_each_own = [&](const auto& work) {
    for (size_t i = 0; i < set.segments().size(); ++i) {
      if (optimizer.owns(i)) work(i, set.segments()[i].id);
    }
  };
  const NormClipper* const clipper = optimizer.norm_clipper();
  const at::Tensor inverse_scale = state.tensor()[StepState::kInverseLossScale];
  for_each_own([&](size_t, nn::ParameterId id) { set.gradient(id).mul_(inverse_scale); });
  if (clipper != nullptr && !clipper->clips_regularization()) clip_with_operators(optimizer, *clipper);
  for_each_own([&](size_t i, nn::ParameterId id) {
    const double decay = optimizer.l2_rate(i) * optimizer.weight_decay_factor();
    if (decay > 0) set.gradient(id).add_(set.value(id), decay);
  });
  if (clipper != nullptr && clipper->clips_regularization()) clip_with_operators(optimizer, *clipper);
}

at::Tensor unscaled_fields(const StepState& state) {
  at::Tensor fields = state.tensor().clone();
  fields[StepState::kInverseLossScale].fill_(1.0);
  return fields;
}

}  // namespace trainyard::optim
