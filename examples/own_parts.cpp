// A transform, a callback and a metric of one's own in a training on folders.
// usage: example_own_parts TRAIN_FOLDER VALIDATION_FOLDER
#include <iostream>
#include <utility>

#include "trainyard/trainyard.h"

using namespace trainyard;

namespace {

constexpr double kRate = 0.01;

// Shows half of the training images, by their place in the batch, without their colours. It works on batches, so that
// any source may be below it, and what that says of itself (classes, how images become input, the length of an epoch)
// is said of this one, too. A model sees its images as the inner source makes them: augment training images only.
class SomeGrey : public data::SourceDecorator {
 public:
  explicit SomeGrey(std::shared_ptr<data::BatchSource> images) : SourceDecorator(std::move(images)) {}
  std::vector<data::Batch> next() override {
    std::vector<data::Batch> batches = source()->next();
    for (data::Batch& batch : batches) {
      const at::Tensor images = batch.images().clone();
      const at::Tensor half = images.narrow(0, 0, images.size(0) / 2);
      half.copy_(half.mean(1, /*keepdim=*/true).expand_as(half));
      batch.tensors.set("images", images);
    }
    return batches;
  }
};

// Halves the rate at two thirds of the training. A run that continues within that epoch comes here once more: so it sets
// what the rate is then, and does not halve what it is now.
class LowerRate : public train::Callback {
 public:
  std::string name() const override { return "lower_rate"; }
  void before_epoch(train::Trainer& trainer) override {
    if (trainer.epoch() != 1 + trainer.loop().max_epoch * 2 / 3) return;
    trainer.hyperparameters().set("learning_rate", kRate / 2);  // saved with the run
    std::cout << "the rate is halved in epoch " << trainer.epoch() << "\n";
  }
};

// How sure the model is of what it takes for right, on average.
class Confidence : public train::SumMetric {
 public:
  Confidence() : SumMetric(/*counts=*/1, /*sums=*/1) {}
  void update(const train::MetricBatch& batch) override {
    add_count(0, batch.output().size(0));
    add_sum(0, batch.output().softmax(1).amax(1).sum().item<double>());
  }
  std::vector<std::pair<std::string, double>> results() const override {
    return {{"confidence", sum(0) / static_cast<double>(count(0))}};
  }
};

}  // namespace

int main(int, char** arguments) try {
  const auto train = data::open_folder(arguments[1], {.size = 32, .batch_size = 16});
  const auto validation =
      data::open_folder(arguments[2], {.size = 32, .batch_size = 16, .training = false, .classes = train->classes()});
  const train::BestBy by_confidence{.name = "confidence", .lowest = false};
  const auto result =
      train::fit({.graph = models::build_model("resnet20", "cifar10", {.num_classes = std::ssize(train->classes())}),
                  .train = std::make_shared<SomeGrey>(train),
                  .validation = validation,
                  .epochs = 3,
                  .best = by_confidence,
                  .metrics = {std::make_shared<Confidence>()},
                  .learning_rate = kRate,
                  .callbacks = {std::make_shared<LowerRate>()}});
  for (const auto& [name, value] : result.last->more) std::cout << name << " " << value << "\n";
  std::cout << "best: " << result.best->value << ", of step " << result.best->global_step << "\n";
} catch (const core::Error& error) {
  std::cerr << error.what() << "\n";
  return core::exit_code(error.code());
}
