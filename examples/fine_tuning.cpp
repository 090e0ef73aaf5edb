// Fine-tuning: a network that knows six directions of stripes learns to tell those that lie from those that stand. Its
// new head trains alone at first; then the whole network does, the body with a tenth of the head's rate. Two validation
// sets are measured: new images like the training's, and images with more noise.

#include <cmath>
#include <memory>
#include <string>

#include <ATen/ops/empty.h>
#include <fmt/core.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/random/random.h"
#include "trainyard/data/sources/function_source.h"
#include "trainyard/optim/optimizers/optimizer.h"
#include "trainyard/train/loop/evaluator.h"
#include "trainyard/train/loop/single_cost_trainer.h"

namespace {

using namespace trainyard;

constexpr int64_t kSize = 16, kDirections = 6, kBatch = 32, kHeadSteps = 100, kSteps = 200;

struct Images {
  uint64_t seed = 1;
  int64_t classes = kDirections;
  float noise = 2;
};

// Stripes without an end. With two classes the label says whether they are nearer to lying or to standing.
std::shared_ptr<data::BatchSource> stripes(const Images& images) {
  const auto make = [images](const data::BatchPlace& place) -> core::NamedTensors {
    const at::Tensor pixels = at::empty({kBatch, 3, kSize, kSize}), labels = at::empty({kBatch}, at::kLong);
    auto* pixel = pixels.mutable_data_ptr<float>();
    for (int64_t sample = 0; sample < kBatch; ++sample) {
      core::RandomStream random(images.seed, "stripes", {static_cast<uint64_t>(place.batch * kBatch + sample)});
      const auto direction = static_cast<int64_t>(random.below(kDirections));
      const float angle = 3.1416F * static_cast<float>(direction) / kDirections, phase = random.uniform(0, 6.28F);
      const bool stands = std::abs(std::cos(angle)) > 0.6F;
      labels.mutable_data_ptr<int64_t>()[sample] = images.classes == 2 ? (stands ? 1 : 0) : direction;
      for (int64_t i = 0; i < 3 * kSize * kSize; ++i) {
        const auto x = static_cast<float>(i % kSize), y = static_cast<float>(i / kSize % kSize);
        *pixel++ = std::sin(x * std::cos(angle) + y * std::sin(angle) + phase) + images.noise * random.normal();
      }
    }
    return {{"images", pixels}, {"labels", labels}};
  };
  return std::make_shared<data::FunctionSource>(make, data::FunctionSourceOptions{.batch_size = kBatch});
}

train::SingleCostOptions options_for(int64_t classes, double body_rate) {
  nn::GraphBuilder b({.image = {3, kSize, kSize}, .name = "stripes"});
  auto x = b.input();
  for (const std::string name : {"body.1", "body.2"}) {
    x = b.convolution(name, x, {.out_channels = 16, .kernel = 3, .stride = 2, .padding = nn::Padding::all(1)});
    x = b.activation(name + ".relu", b.batch_norm(name + ".norm", x));
  }
  train::SingleCostOptions options;
  options.graph = b.build(b.linear("head", b.global_average_pool("pool", x), {.out_features = classes}));
  options.learning_rate = optim::constant(0.05);
  options.make_optimizer = [body_rate](nn::ParameterSet& set) {
    return optim::optimizers().get("nesterov")(set, {.groups = {{.pattern = "body.*", .rate_factor = body_rate}}});
  };
  return options;
}

// Copies values and statistics.
void take_body(const nn::ParameterSet& from, nn::ParameterSet& to) {
  for (const nn::Segment& segment : to.segments()) {
    const std::string& name = segment.spec.name;
    if (name.starts_with("body.")) to.value(*to.find(name)).copy_(from.value(*from.find(name)));
  }
  for (int i = 0; i < static_cast<int>(to.buffer_count()); ++i) to.buffer(i).copy_(from.buffer(i));
}

void run() {
  train::SingleCostTrainer first(options_for(kDirections, 1), stripes({}));
  first.train({.steps_per_epoch = 200});
  train::SingleCostOptions options = options_for(2, 0.1);
  options.start = [&](nn::ParameterSet& set) { take_body(first.parameters(), set); };
  train::SingleCostTrainer trainer(options, stripes({.seed = 2, .classes = 2}));
  const auto measure = [&](const char* what) {
    train::Evaluator evaluator({.graph = options.graph}, trainer.parameters());
    const auto right = [&](const Images& images) { return 100 * evaluator.run(*stripes(images), 20).top_1; };
    fmt::print("{}: {:.1f} % right, {:.1f} % of noisy images\n", what, right({.seed = 3, .classes = 2}),
               right({.seed = 4, .classes = 2, .noise = 4}));
  };
  trainer.set_trainable("body.*", false);
  trainer.train({.steps_per_epoch = kHeadSteps});
  measure("the head alone");
  trainer.set_trainable("body.*", true);
  trainer.train({.steps_per_epoch = kSteps, .starting_step = kHeadSteps});
  measure("the whole network");
}

}  // namespace

int main() {
  try {
    run();
  } catch (const core::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return core::exit_code(error.code());
  }
}
