#include "trainyard/optim/cuda/flat_update.h"

#include <limits>

namespace trainyard::optim::cuda {

FlatUpdate flat_update_of(const Optimizer& optimizer, const StepState& state) {
  const nn::ParameterSet& set = optimizer.parameters();
  const at::Tensor values = set.values(), gradients = set.gradients(), fields = state.tensor();
  const auto* const field = fields.const_data_ptr<double>();
  return {.is_double = values.scalar_type() == at::kDouble,
          .values = values.data_ptr(),
          .gradients = gradients.const_data_ptr(),
          .parts = optimizer.parts().data(),
          .part_count = optimizer.parts().count,
          .learning_rate = field + StepState::kLearningRate,
          .inverse_loss_scale = field + StepState::kInverseLossScale,
          .found_inf = field + StepState::kFoundInf,
          .decay = optimizer.effective_weight_decay(),
          .clip = optimizer.options().gradient_clip.value_or(std::numeric_limits<double>::infinity())};
}

}  // namespace trainyard::optim::cuda
