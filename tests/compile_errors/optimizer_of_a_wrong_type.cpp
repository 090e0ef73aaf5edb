// error: static assertion failed: make_optimizer is a function of nn::ParameterSet& that returns
// std::unique_ptr<optim::Optimizer>
#include <memory>

#include "trainyard/optim/optimizers/optimizer.h"
#include "trainyard/train/step/tower_trainer.h"

namespace optimizer_of_a_wrong_type {

namespace nn = trainyard::nn;
namespace optim = trainyard::optim;
namespace train = trainyard::train;

void run(const nn::Graph& graph, const std::shared_ptr<trainyard::data::BatchSource>& source) {
  const train::TowerTrainer trainer(
      {.graph = graph,
#ifdef MISTAKE
       .make_optimizer = [](nn::ParameterSet&) { return optim::OptimizerOptions{.weight_decay = 0.1}; },
#else
       .make_optimizer =
           [](nn::ParameterSet& set) {
             return optim::optimizers().get("tf_momentum")(set, {.numbers = {{"momentum", 0.9}}});
           },
#endif
       .learning_rate = optim::constant(0.1)},
      source);
}

}  // namespace optimizer_of_a_wrong_type
