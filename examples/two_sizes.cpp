// Devices with images of different sizes: one trains on images of 48 x 48, the other on images of 32 x 32, and both
// train the same weights. The program for one device differs in the line that names the trainer.

#include <memory>
#include <string>

#include <fmt/core.h>

#include "trainyard/tensorpack.h"

namespace {

using namespace trainyard;

constexpr int64_t kBatch = 16, kClasses = 2;

int64_t size_on(int device) {
  return device == 0 ? 48 : 32;
}

// Noise; the label says whether it changes from row to row or from column to column.
core::NamedTensors stripes(const data::BatchPlace& place) {
  const int64_t size = size_on(place.replica);
  const at::Tensor images = core::new_tensor({kBatch, 3, size, size}), labels = core::new_tensor({kBatch}, at::kLong);
  core::RandomStream random(1, "stripes", {static_cast<uint64_t>(place.batch), static_cast<uint64_t>(place.replica)});
  for (int64_t sample = 0; sample < kBatch; ++sample) {
    const int64_t label = sample % kClasses;
    labels[sample] = label;
    for (int64_t i = 0; i < size; ++i) images[sample].select(label == 0 ? 1 : 2, i).fill_(random.normal());
  }
  return {{"images", images}, {"labels", labels}};
}

// Weights of convolutions do not depend on the size of images, so all towers have the same.
train::TowerStep tower(train::TowerContext& context) {
  const int64_t size = size_on(context.index());
  nn::GraphBuilder b({.image = {3, size, size}, .name = "any_size"});
  auto x = b.convolution("conv", b.input(), {.out_channels = 16, .kernel = 3});
  x = b.global_average_pool("pool", b.activation("relu", x));
  nn::Executor& net =
      context.graph(b.build(b.linear("head", x, {.out_features = kClasses})), {.runs_whole_batch = true});
  return [&net](const train::TowerInput& in) -> train::TowerOutput {
    const at::Tensor logits = net.forward(in.batch["images"], in.random);
    return {.losses = {{"cost", nn::softmax_cross_entropy(logits, in.batch["labels"])}}};
  };
}

void run(const char* devices, const frontends::TrainerType& trainer) {
  frontends::TrainConfig config;
  config.model.tower = tower;
  config.model.make_optimizer = optim::momentum();
  config.model.learning_rate = optim::constant(0.1);
  config.data = [](int replicas) {
    return std::make_shared<data::FunctionSource>(
        stripes, data::FunctionSourceOptions{.replicas = replicas, .batch_size = kBatch, .batches_per_epoch = 15});
  };
  config.max_epoch = 2;
  const std::unique_ptr<train::Trainer> trained = frontends::launch_train_with_config(config, trainer);
  const auto& losses = trained->monitors().history("total_loss");
  fmt::print("{}: loss {:.3f} after epoch 1, {:.3f} after epoch 2\n", devices, losses[0].second, losses[1].second);
}

}  // namespace

int main() try {
  run("one device", frontends::SimpleTrainer());
  run("two devices", frontends::SyncMultiGPUTrainerReplicated({"cpu:0", "cpu:1"}));
} catch (const core::Error& error) {
  fmt::print(stderr, "{}\n", error.what());
  return core::exit_code(error.code());
}
