// Training with masks of 2:4 sparsity, in each mode of exchange, and after a resume.
#include <map>
#include <memory>
#include <string>

#include <ATen/TensorOperators.h>
#include <ATen/ops/linspace.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/optim/sparsity/mask_algorithm.h"
#include "trainyard/optim/sparsity/prune.h"
#include "trainyard/train/step/tower_trainer.h"
#include "trainyard/train/testing/tiny_model.h"

namespace trainyard::train::prune_training_test {
namespace {

TowerTrainerOptions sparse_options(const std::string& mode, int replicas) {
  nn::GraphBuilder b({.image = {3, 5, 5}, .name = "sparse"});
  auto x = b.convolution("stem", b.input(), {.out_channels = 6, .kernel = 3, .padding = nn::Padding::all(1)});
  x = b.activation("relu", b.batch_norm("bn", x));
  x = b.convolution("middle", x, {.out_channels = 8, .kernel = 3, .padding = nn::Padding::all(1)});
  x = b.global_average_pool("pool", b.activation("relu2", x));
  TowerTrainerOptions options = tiny_options({}, replicas);
  options.graph = b.build(b.linear("fc", x, {.out_features = kTinyClasses}));
  options.exchange.variable_update = mode;
  options.micro_steps = 2;
  return options;
}

std::unique_ptr<TowerTrainer> make_trainer(const std::string& mode, int replicas) {
  return std::make_unique<TowerTrainer>(sparse_options(mode, replicas), tiny_source(240, 8, replicas));
}

// Returns how many copies of the values there are, all of which have 2:4 weights with masks.
int sparse_copies(TowerTrainer& trainer) {
  int copies = 0;
  trainer.change_parameters([&](nn::ParameterSet& set) {
    ++copies;
    const nn::ParameterId middle = *set.find("middle.weight");
    EXPECT_TRUE(optim::is_two_of_four(set.value(middle)));
    EXPECT_TRUE(set.value(middle).ne(0).equal(set.mask(middle)));
    EXPECT_FALSE(set.mask(*set.find("fc.weight")).defined());
  });
  return copies;
}

TEST(PruneTraining, HoldsInEachModeAndAfterAResumeBitForBit) {
  const std::map<std::string, int> copies = {
      {"parameter_server", 1}, {"replicated", 2}, {"independent", 2}, {"asynchronous", 1}};
  for (const auto& [mode, expected] : copies) {
    for (const int replicas : {1, 2}) {
      SCOPED_TRACE(mode + " of " + std::to_string(replicas));
      const auto whole = make_trainer(mode, replicas);
      const std::vector<optim::LayerSparsity> report = prune_training(*whole, {});
      ASSERT_EQ(report.size(), 3U);
      EXPECT_EQ(report[1].layer.parameter, "middle.weight");
      EXPECT_TRUE(report[1].masked);
      EXPECT_FALSE(report[0].masked || report[2].masked);
      EXPECT_TRUE(prune_training(*whole, {}).empty()) << "once";
      whole->train({.steps_per_epoch = 3});
      EXPECT_EQ(sparse_copies(*whole), replicas == 1 ? 1 : expected);
      core::MemoryState saved;
      whole->save(saved);
      whole->train({.steps_per_epoch = 6, .starting_step = 3});

      const auto resumed = make_trainer(mode, replicas);
      resumed->load(saved);
      EXPECT_TRUE(prune_training(*resumed, {.algorithm = optim::MaskAlgorithm::kMask2dBest}).empty())
          << "it goes on with the masks it has";
      resumed->train({.steps_per_epoch = 6, .starting_step = 3});
      EXPECT_EQ(sparse_copies(*resumed), replicas == 1 ? 1 : expected);
      if (mode == "asynchronous" && replicas > 1) continue;  // the order in which replicas come is nobody's
      EXPECT_TRUE(resumed->parameters().values().equal(whole->parameters().values()));
    }
  }
}

TEST(PruneTraining, PrunesWhatADenseCheckpointHolds) {
  const auto dense = make_trainer("replicated", 2);
  dense->train({.steps_per_epoch = 3});
  core::MemoryState saved;
  dense->save(saved);
  const auto pruned = make_trainer("replicated", 2);
  pruned->load(saved);
  EXPECT_EQ(prune_training(*pruned, {.exclude = std::vector<std::string>()}).size(), 3U);
  const auto weight = [](TowerTrainer& trainer, const char* name) {
    return trainer.parameters().value(*trainer.parameters().find(name));
  };
  for (const char* name : {"middle.weight", "fc.weight"}) {
    const at::Tensor mask = optim::sparsity_mask(weight(*dense, name), optim::MaskAlgorithm::kMask1d);
    EXPECT_TRUE(weight(*pruned, name).equal(weight(*dense, name).mul(mask))) << name;
  }
  EXPECT_TRUE(weight(*pruned, "stem.weight").equal(weight(*dense, "stem.weight")));
  pruned->train({.steps_per_epoch = 5, .starting_step = 3});
  EXPECT_TRUE(optim::is_two_of_four(weight(*pruned, "fc.weight")));

  pruned->load(saved);
  EXPECT_FALSE(optim::has_masks(pruned->parameters())) << "a state without masks takes them off";
}

TEST(PruneTraining, RefusesAModelWithoutWeightsToPrune) {
  TowerTrainer trainer(tiny_options(), tiny_source(80, 8));
  EXPECT_NE(core::message_of([&] { prune_training(trainer, {}); }, core::ErrorCode::kInvalidArgument)
                .find("no weight that could be pruned"),
            std::string::npos);
}

}  // namespace
}  // namespace trainyard::train::prune_training_test
