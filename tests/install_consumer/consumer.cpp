// A program outside the tree: registers a model of its own and trains it with the installed library on data of its own.
#include <algorithm>
#include <cstdio>
#include <memory>

#include <ATen/ops/empty.h>

#include "trainyard/trainyard.h"
#include "trainyard/version.h"

namespace {

namespace data = trainyard::data;
namespace models = trainyard::models;
namespace nn = trainyard::nn;
namespace train = trainyard::train;

nn::Graph build(const models::ModelOptions& options) {
  nn::GraphBuilder b({.image = options.image_shape(), .name = "consumer_net"});
  auto x = b.convolution("conv", b.input(), {.out_channels = 4, .kernel = 3, .padding = nn::Padding::all(1)});
  x = b.activation("relu", b.batch_norm("bn", x));
  return b.build(b.linear("fc", b.global_average_pool("pool", x), {.out_features = options.num_classes}));
}

const models::ModelRegistration kModel(
    {.name = "consumer_net", .family = models::DatasetFamily::kCifar10, .image_size = 8, .build = build});

// Images of one colour; the colour is the label.
std::shared_ptr<data::BatchSource> colours() {
  constexpr int64_t kSamples = 6;
  const at::Tensor images = at::empty({kSamples, 3, 8, 8}), labels = at::empty({kSamples}, at::kLong);
  auto* pixel = images.mutable_data_ptr<float>();
  for (int64_t sample = 0; sample < kSamples; ++sample) {
    labels.mutable_data_ptr<int64_t>()[sample] = sample % 3;
    for (int64_t channel = 0; channel < 3; ++channel) {
      pixel = std::fill_n(pixel, 64, channel == sample % 3 ? 1.0f : -1.0f);
    }
  }
  return std::make_shared<data::TensorSource>(trainyard::core::NamedTensors{{"images", images}, {"labels", labels}},
                                              data::TensorSourceOptions{.batch_size = kSamples});
}

int train_it() {
  if (trainyard::core::build_info().version != TRAINYARD_VERSION) {
    std::fprintf(stderr, "the library is not of version %s, for which this program is compiled\n", TRAINYARD_VERSION);
    return 1;
  }
  train::TowerTrainer trainer(
      {.graph = models::build_model("consumer_net", "cifar10", {.num_classes = 3}),
       .make_optimizer = [](nn::ParameterSet& set) { return trainyard::optim::optimizers().get("sgd")(set, {}); },
       .learning_rate = trainyard::optim::constant(0.5)},
      colours());
  trainer.train({.steps_per_epoch = 1});
  const double first = trainer.last_total_loss();
  trainer.train({.steps_per_epoch = 40});
  const double last = trainer.last_total_loss();
  std::printf("trainyard %.*s: loss %.3f, after 40 steps %.3f\n",
              static_cast<int>(trainyard::core::build_info().version.size()),
              trainyard::core::build_info().version.data(), first, last);
  return last < 0.2 * first ? 0 : 1;
}

}  // namespace

int main() {
  try {
    return train_it();
  } catch (const trainyard::core::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return trainyard::core::exit_code(error.code());
  }
}
