// Two replicas on two threads train one network: each step, each computes the gradients of half of the batch, and both
// apply the mean. The weights come out as those of one replica with the whole batch, but for rounding.
#include <iostream>

#include "trainyard/trainyard.h"

using namespace trainyard;

namespace {

at::Tensor train_with(int replicas) {
  const at::Tensor points = core::new_tensor({256, 2, 1, 1}), labels = core::new_tensor({256}, at::kLong);
  core::RandomStream random(1, "points");
  for (int64_t i = 0; i < 256; ++i) {
    const float x = random.uniform(-1, 1), y = random.uniform(-1, 1);
    points[i][0] = x, points[i][1] = y, labels[i] = x * y > 0 ? 1 : 0;
  }
  nn::GraphBuilder b({.image = {2, 1, 1}, .name = "quarters"});
  const auto hidden = b.activation("relu", b.linear("hidden", b.flatten("flat", b.input()), {.out_features = 32}));
  return train::fit({.graph = b.build(b.linear("head", hidden, {.out_features = 2})),
                     .train = std::make_shared<data::TensorSource>(
                         points, labels,
                         data::TensorSourceOptions{
                             .batch_size = 32 / replicas, .replicas = replicas, .shuffle = true, .seed = 1}),
                     .epochs = 30,
                     .learning_rate = 0.1,
                     .devices = {.replicas = replicas},
                     .variable_update = "replicated",
                     .seed = 1,
                     .on_epoch =
                         [&](const train::FitEpoch& epoch) {
                           if (epoch.epoch % 10 == 0) std::cout << replicas << " replicas: loss " << epoch.loss << "\n";
                         }})
      .model->parameters()
      .values();
}

}  // namespace

int main() try {
  const double difference = train_with(1).sub(train_with(2)).abs().max().item<double>();
  std::cout << "largest difference of a weight: " << difference << (difference < 1e-3 ? ": the same" : "") << "\n";
} catch (const core::Error& error) {
  std::cerr << error.what() << "\n";
  return core::exit_code(error.code());
}
