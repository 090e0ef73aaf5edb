// Trainings whose batches come from combined sources.

#include <cmath>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/data/sources/combined_source.h"
#include "trainyard/data/sources/described_source.h"
#include "trainyard/data/sources/function_source.h"
#include "trainyard/data/sources/tensor_source.h"
#include "trainyard/train/step/tower_trainer.h"
#include "trainyard/train/testing/tiny_model.h"

namespace trainyard::train::tower_sources_test {
namespace {

using Source = std::shared_ptr<data::BatchSource>;

// Ten shuffled images of `side` x `side` pixels, all different.
Source squares(int64_t side, int64_t batch_size, float scale) {
  const at::Tensor images = at::arange(10 * 3 * side * side, at::kFloat).mul(0.37).sin().mul(scale);
  return std::make_shared<data::TensorSource>(
      core::NamedTensors{{"images", images.view({10, 3, side, side})}},
      data::TensorSourceOptions{.batch_size = batch_size, .shuffle = true, .seed = 3});
}

// Images of 8 x 8 pixels on the first device, of 5 x 5 on the second.
Source joined(float scale) {
  return std::make_shared<data::JoinedSource>(std::vector<Source>{
      data::checked(squares(8, 2, scale), {{"images", at::kFloat, {2, 3, 8, 8}}}, "large"), squares(5, 3, scale)});
}

// The number that the outputs should come close to, from a generator of seven numbers.
Source targets() {
  const auto make = [](int64_t epoch, const core::StopToken&) -> data::Generator {
    return [epoch, next = 0]() mutable -> std::optional<core::NamedTensors> {
      if (next == 7) return std::nullopt;
      return core::NamedTensors{{"target", at::full({}, std::sin(static_cast<double>(10 * epoch + next++)))}};
    };
  };
  return std::make_shared<data::GeneratorSource>(make, data::GeneratorSourceOptions{.replicas = 2});
}

Source all_together() {
  const auto mixed = std::make_shared<data::MixedSource>(std::vector<data::MixedPart>{{joined(1), 2}, {joined(0.1F)}},
                                                         data::MixedSourceOptions{.seed = 5});
  return std::make_shared<data::ZippedSource>(std::vector<Source>{mixed, targets()});
}

TowerTrainerOptions options_of_tower() {
  TowerTrainerOptions options = tiny_options({}, 2);
  options.graph = {};
  options.tower = [](TowerContext& context) -> TowerStep {
    const int64_t side = context.first() ? 8 : 5;
    nn::GraphBuilder b({.image = {3, side, side}, .name = "any_size"});
    auto x = b.convolution("conv", b.input(), {.out_channels = 4, .kernel = 3});
    nn::Executor& net = context.graph(b.build(b.linear("fc", b.global_average_pool("pool", x), {.out_features = 2})));
    return [&net](const TowerInput& in) -> TowerOutput {
      return {.losses = {{"cost", net.forward(in.batch["images"], in.random).sub(in.batch["target"]).square().mean()}}};
    };
  };
  return options;
}

TEST(TowerSources, ATrainingGoesOnBitForBit) {
  TowerTrainer straight(options_of_tower(), all_together());
  straight.train({.steps_per_epoch = 12});
  core::MemoryState saved;
  {
    TowerTrainer first(options_of_tower(), all_together());
    first.train({.steps_per_epoch = 5});
    first.save(saved);
  }
  TowerTrainer second(options_of_tower(), all_together());
  const at::Tensor untrained = second.parameters().values().clone();
  second.load(saved);
  second.train({.steps_per_epoch = 12, .starting_step = 5});
  EXPECT_TRUE(second.parameters().values().equal(straight.parameters().values()));
  EXPECT_EQ(second.last_base_loss(), straight.last_base_loss());
  EXPECT_FALSE(second.parameters().values().equal(untrained));
}

}  // namespace
}  // namespace trainyard::train::tower_sources_test
