// Fine-tuning in two parts: at first only the new head learns, on a body that is frozen; from the third epoch on a
// callback thaws the body. usage: example_freeze_and_thaw WEIGHTS.safetensors TRAIN_FOLDER VALIDATION_FOLDER
#include <iostream>

#include "trainyard/trainyard.h"

using namespace trainyard;

namespace {

constexpr double kRate = 0.1;

class ThawBody : public train::Callback {
 public:
  explicit ThawBody(int64_t epoch) : epoch_(epoch) {}
  std::string name() const override { return "thaw_body"; }
  void before_epoch(train::Trainer& trainer) override {
    if (trainer.epoch() != epoch_) return;
    trainer.set_trainable("*", true);  // saved with the run
    // Not a tenth of what it is: a run that continues within this epoch comes here once more.
    trainer.hyperparameters().set("learning_rate", kRate / 10);
    std::cout << "epoch " << epoch_ << ": " << trainer.frozen_parameters().size() << " parameters are frozen\n";
  }

 private:
  int64_t epoch_;
};

}  // namespace

int main(int, char** arguments) try {
  const auto train = data::open_folder(arguments[2], {.size = 32, .batch_size = 16, .seed = 1});
  const auto validation =
      data::open_folder(arguments[3], {.size = 32, .batch_size = 16, .training = false, .classes = train->classes()});
  const train::FitResult result =
      train::fit({.graph = models::build_model("resnet20", "cifar10", {.num_classes = std::ssize(train->classes())}),
                  .train = train,
                  .validation = validation,
                  .epochs = 4,
                  .best = {.name = "mean_class_accuracy"},
                  .learning_rate = kRate,
                  .weights = arguments[1],
                  .freeze = {"conv1.*", "bn1.*", "layer*"},  // all but fc: batch norms keep their statistics, too
                  .callbacks = {std::make_shared<ThawBody>(3)}});
  std::cout << "accuracy " << result.last->top_1 << "\n";
} catch (const core::Error& error) {
  std::cerr << error.what() << "\n";
  return core::exit_code(error.code());
}
