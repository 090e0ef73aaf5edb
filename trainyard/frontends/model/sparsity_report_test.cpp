#include "trainyard/frontends/model/sparsity_report.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace trainyard::frontends::sparsity_report_test {
namespace {

using optim::SparsityTreatment;
using ::testing::HasSubstr;

// Two weights to prune, of 128 and 32 elements, between others that stay dense.
std::vector<optim::LayerSparsity> layers() {
  return {
      {.layer = {.parameter = "conv1.weight", .shape = {16, 3, 3, 3}, .treatment = SparsityTreatment::kFewInputs}},
      {.layer = {.parameter = "a.weight", .shape = {8, 16}},
       .density = 0.5,
       .two_of_four = true,
       .masked = true,
       .kept = 0.75},
      {.layer = {.parameter = "long.name.weight", .shape = {4, 8, 1, 1}}, .density = 0.75, .kept = 0.625},
      {.layer = {.parameter = "depthwise.weight", .shape = {32, 1, 3, 3}, .treatment = SparsityTreatment::kFewInputs}},
      {.layer = {.parameter = "fc.weight", .shape = {10, 64}, .treatment = SparsityTreatment::kExcluded}}};
}

TEST(SparsityReport, CountsTheWeightsToPruneAlone) {
  const SparsityCounts counts = count_sparsity(layers());
  EXPECT_EQ(counts.weights, 2);
  EXPECT_EQ(counts.two_of_four, 1);
  EXPECT_EQ(counts.elements, 160);
  EXPECT_EQ(counts.others_than_zero, 64 + 24);
  EXPECT_FALSE(counts.all());
  EXPECT_DOUBLE_EQ(counts.density(), 0.55);
  EXPECT_EQ(count_sparsity({}).density(), 1);
}

TEST(SparsityReport, TheTableHasALineForEachLayer) {
  EXPECT_EQ(sparsity_table(layers()),
            "weight            shape                density  2:4   kept\n"
            "conv1.weight      [16, 3, 3, 3]          1.000  no       -  dense: 3 inputs\n"
            "a.weight          [8, 16]                0.500  yes  0.750  mask\n"
            "long.name.weight  [4, 8, 1, 1]           0.750  no   0.625\n"
            "depthwise.weight  [32, 1, 3, 3]          1.000  no       -  dense: 1 input\n"
            "fc.weight         [10, 64]               1.000  no       -  dense: excluded\n"
            "1 of 2 weights that can be sparse are 2:4; their density is 0.550\n");
}

TEST(SparsityReport, TheLogTellsHowMuchIsKept) {
  ::testing::internal::CaptureStderr();
  log_pruning(layers(), optim::MaskAlgorithm::kMask2dBest);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("2:4 sparsity: 2 weights pruned by mask_2d_best, which keeps 62.5 to 75.0 % of their "
                        "magnitudes; dense: conv1.weight (3 inputs), depthwise.weight (1 input), fc.weight "
                        "(excluded)\n"));
  ::testing::internal::CaptureStderr();
  log_pruning({layers()[1]}, optim::MaskAlgorithm::kMask1d);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("1 weights pruned by mask_1d, which keeps 75.0 to 75.0 % of their magnitudes\n"));
}

TEST(SparsityReport, TheJsonHoldsEachNumber) {
  TrainedModel trained;
  trained.identity = {.model = "resnet20", .dataset = "cifar10", .num_classes = 10};
  trained.checkpoint.path = "run/model.ckpt-5";
  const auto json =
      nlohmann::json::parse(sparsity_json({layers()[1], layers()[4]}, trained, optim::MaskAlgorithm::kMask2dGreedy));
  EXPECT_EQ(json, nlohmann::json::parse(R"({
    "model": "resnet20", "dataset": "cifar10", "path": "run/model.ckpt-5", "mask_algo": "mask_2d_greedy",
    "weights": [
      {"name": "a.weight", "shape": [8, 16], "treatment": "sparse", "density": 0.5, "two_of_four": true,
       "masked": true, "kept": 0.75},
      {"name": "fc.weight", "shape": [10, 64], "treatment": "excluded", "density": 1.0, "two_of_four": false,
       "masked": false, "kept": 1.0}],
    "sparse_weights": 1, "two_of_four_weights": 1, "density": 0.5})"));
}

}  // namespace
}  // namespace trainyard::frontends::sparsity_report_test
