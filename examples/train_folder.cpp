// Trains on images in folders, one a class: evaluates behind each epoch, saves checkpoints, ends when the validation
// gets no better. Called again, it continues where it stopped. usage: example_train_folder TRAIN_FOLDER
// VALIDATION_FOLDER TRAIN_DIR
#include <iostream>

#include "trainyard/trainyard.h"

using namespace trainyard;

int main(int, char** arguments) try {
  const auto train = data::open_folder(arguments[1], {.size = 32, .batch_size = 16, .seed = 1});
  const auto validation =
      data::open_folder(arguments[2], {.size = 32, .batch_size = 16, .training = false, .classes = train->classes()});
  const auto classes = static_cast<int64_t>(train->classes().size());
  const train::FitResult result =
      train::fit({.graph = models::build_model("resnet20", "cifar10", {.num_classes = classes}),
                  .train = train,
                  .validation = validation,
                  .epochs = 6,
                  .train_dir = arguments[3],
                  .early_stop = train::EarlyStop{.patience = 4},
                  .optimizer = optim::momentum({.nesterov = true, .weight_decay = 1e-4}),
                  .schedule = [](int64_t steps) { return optim::cosine(0.05, steps); },
                  .on_epoch =
                      [](const train::FitEpoch& epoch) {
                        std::cout << "epoch " << epoch.epoch << ": accuracy " << epoch.validation->top_1 << std::endl;
                      }});
  std::cout << "accuracy " << result.last->top_1 << " after " << result.global_step << " steps\n";
  const std::string file = std::string(arguments[3]) + "/model.safetensors";
  train::save_model(file, result.model->description(), result.model->parameters());
} catch (const core::Error& error) {
  std::cerr << error.what() << "\n";
  return core::exit_code(error.code());
}
