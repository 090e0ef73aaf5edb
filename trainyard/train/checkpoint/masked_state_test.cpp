#include "trainyard/train/checkpoint/masked_state.h"

#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/optim/sparsity/mask_algorithm.h"
#include "trainyard/optim/sparsity/prune.h"
#include "trainyard/train/testing/tiny_model.h"

namespace trainyard::train::masked_state_test {
namespace {

TEST(MaskedState, WritesMasksAndZerosAndLeavesTheRest) {
  TowerTrainerOptions options = tiny_options({}, 2);
  options.exchange.variable_update = "independent";
  TowerTrainer trainer(options, tiny_source(160, 8, 2));
  trainer.train({.steps_per_epoch = 3});
  core::MemoryState saved, written;
  trainer.save(saved);
  const at::Tensor average = at::ones({6, 8});
  saved.tensor("average/fc.weight", average);
  saved.tensor("average/fc.weight.other", average);
  saved.tensor("other/fc.weight", at::ones({2}));
  saved.tensor("model/head.weight", at::ones({3}));

  nn::ParameterSet model = trainer.parameters().clone();
  const nn::ParameterId weight = *model.find("fc.weight");
  const at::Tensor mask = optim::sparsity_mask(model.value(weight), optim::MaskAlgorithm::kMask1d);
  model.set_mask(weight, mask);
  // Values are those of the saved state, whatever the set has.
  model.value(weight).mul_(2);
  MaskedState(saved, model).save(written);

  const core::MemoryState &before = saved, &after = written;
  EXPECT_TRUE(after.tensor("model/fc.weight").equal(before.tensor("model/fc.weight").mul(mask)));
  EXPECT_TRUE(after.tensor("model/fc.weight.mask").equal(mask));
  EXPECT_TRUE(after.tensor("average/fc.weight").equal(mask.to(at::kFloat)));
  EXPECT_TRUE(after.names("replica/").empty());
  EXPECT_FALSE(before.names("replica/").empty());
  for (const char* same : {"model/conv.weight", "model/bn.running_mean", "model/head.weight", "average/fc.weight.other",
                           "other/fc.weight", "optimizer/fc.weight.momentum"}) {
    EXPECT_TRUE(after.tensor(same).equal(before.tensor(same))) << same;
  }
  EXPECT_EQ(before.names().size() - before.names("replica/").size() + 1, after.names().size());

  // A training goes on from it.
  TowerTrainer resumed(options, tiny_source(160, 8, 2));
  resumed.load(written);
  EXPECT_EQ(resumed.global_step(), 3);
  resumed.train({.steps_per_epoch = 5, .starting_step = 3});
  EXPECT_TRUE(optim::is_two_of_four(resumed.parameters().value(weight)));
  EXPECT_EQ(core::code_of([&] { MaskedState(saved, model).load(written); }), core::ErrorCode::kInternal);
}

}  // namespace
}  // namespace trainyard::train::masked_state_test
