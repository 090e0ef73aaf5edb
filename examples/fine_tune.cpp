// Fine-tuning: weights of a network that knows other classes, from a file of safetensors, begin a training for new
// ones. The head is new; the layers below it learn with a tenth of its rate. usage: example_fine_tune
// WEIGHTS.safetensors FOLDER MODEL.safetensors
#include <iostream>

#include "trainyard/trainyard.h"

using namespace trainyard;

int main(int, char** arguments) try {
  // A fifth of each class's images is kept from the training, which is evaluated on them.
  const auto train =
      data::open_folder(arguments[2], {.size = 32, .batch_size = 16, .part = data::FolderPart::kTraining, .seed = 1});
  const auto validation = data::open_folder(
      arguments[2], {.size = 32, .batch_size = 16, .training = false, .part = data::FolderPart::kValidation});
  const nn::Graph graph =
      models::build_model("resnet20", "cifar10", {.num_classes = static_cast<int64_t>(train->classes().size())});
  const nn::Node& head = graph.nodes.back();

  const train::FitResult result =
      train::fit({.graph = graph,
                  .train = train,
                  .validation = validation,
                  .epochs = 4,
                  .best = train::best_by(train::BestMetric::kTop1),
                  // The last group that names a parameter counts for it.
                  .optimizer = optim::momentum({.groups = {{.pattern = "*", .rate_factor = 0.1},
                                                           {.pattern = head.name + ".*", .rate_factor = 1}}}),
                  .learning_rate = 0.05,
                  .weights = arguments[1]});
  std::cout << "accuracy " << result.last->top_1 << "\n";
  train::save_model(arguments[3], result.model->description(), result.model->parameters());
} catch (const core::Error& error) {
  std::cerr << error.what() << "\n";
  return core::exit_code(error.code());
}
