#include <cmath>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/nn/execution/loss.h"
#include "trainyard/train/step/graph_tower.h"

namespace trainyard::train {

void DistillationOptions::validate() const {
  if (weight >= 0 && weight <= 1 && temperature > 0 && std::isfinite(temperature)) return;
  throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "options of distillation are out of range",
                                                        .expected = "a weight of 0 to 1 and a temperature above 0",
                                                        .actual = fmt::format("{} and {}", weight, temperature)});
}

LossModule distilled(LossModule loss, Teacher teacher, const DistillationOptions& options) {
  options.validate();
  if (teacher.weights == nullptr || !teacher.weights->allocated()) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "a teacher has no weights", .expected = "an allocated set of its parameters"});
  }
  const auto shared = std::make_shared<const Teacher>(std::move(teacher));
  return [loss = std::move(loss), shared, options](TowerContext& context) -> Loss {
    nn::Executor& network = context.frozen_graph(nn::main_output_graph(shared->graph), *shared->weights,
                                                 {.runs_whole_batch = true, .other_sizes = shared->other_sizes});
    return [hard = loss(context), shared, &network, options](const LossInput& in) {
      at::Tensor taught;
      {
        const at::NoGradGuard without_gradients;
        taught = network.forward(in.batch["images"], in.step.random);
      }
      const at::Tensor soft =
          nn::distillation_loss(in.outputs.begin()->tensor, taught, options.temperature).mul(options.weight);
      return options.weight == 1 ? soft : hard(in).mul(1 - options.weight).add(soft);
    };
  };
}

}  // namespace trainyard::train
