#include "trainyard/optim/sparsity/prune.h"

#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/optim/optimizers/optimizer.h"
#include "trainyard/optim/sparsity/mask_algorithm.h"

namespace trainyard::optim::prune_test {
namespace {

using ::testing::ElementsAre, ::testing::HasSubstr;

// A stem of three inputs, a grouped and a depthwise convolution, a linear layer at each pixel, an activation behind the
// last layer.
nn::Graph small_graph() {
  nn::GraphBuilder b({.image = {3, 6, 6}, .name = "small"});
  auto x = b.convolution("stem", b.input(), {.out_channels = 10, .kernel = 3});
  x = b.convolution("grouped", b.batch_norm("bn", x), {.out_channels = 8, .kernel = 3, .groups = 2, .bias = true});
  x = b.convolution("depthwise", x, {.out_channels = 8, .kernel = 1, .groups = 8});
  x = b.convolution("tokens", x, {.out_channels = 9, .kernel = 1, .form = nn::Convolution::Form::kJoinedLinear});
  x = b.linear("hidden", b.flatten("flatten", x), {.out_features = 12});
  return b.build(b.activation("end", b.linear("fc", x, {.out_features = 5})));
}

class Prune : public ::testing::Test {
 protected:
  Prune() {
    executor_ = nn::make_executor("reference", graph_, {.mode = nn::Mode::kInference, .parameters = &set_});
    set_.allocate();
    set_.initialize(4);
  }
  at::Tensor value(const std::string& name) const { return set_.value(*set_.find(name)); }

  nn::Graph graph_ = small_graph();
  nn::ParameterSet set_;
  std::unique_ptr<nn::Executor> executor_;
};

std::map<std::string, std::string> treatments(const std::vector<SparseLayer>& layers) {
  std::map<std::string, std::string> result;
  for (const SparseLayer& each : layers) result[each.parameter] = treatment_name(each.treatment);
  return result;
}

TEST_F(Prune, ChoosesConvolutionsAndLinearLayersWithFoursOfInputs) {
  using Expected = std::map<std::string, std::string>;
  const Expected all = {{"stem.weight", "few inputs"},      {"grouped.weight", "sparse"}, {"tokens_weight", "sparse"},
                        {"depthwise.weight", "few inputs"}, {"hidden.weight", "sparse"},  {"fc.weight", "sparse"}};
  EXPECT_EQ(treatments(sparse_layers(graph_, std::vector<std::string>())), all);
  Expected last = all;
  last["fc.weight"] = "excluded";
  EXPECT_EQ(treatments(sparse_layers(graph_)), last) << "the layer of the output by itself";
  Expected named = all;
  named["grouped.weight"] = named["tokens_weight"] = named["hidden.weight"] = "excluded";
  EXPECT_EQ(treatments(sparse_layers(graph_, {{"gr*", "tokens_weight", "hidden"}})), named);
  EXPECT_THAT(core::message_of([&] { sparse_layers(graph_, {{"hiden"}}); }, core::ErrorCode::kInvalidArgument),
              HasSubstr("hidden"));
  EXPECT_THAT(core::message_of([&] { sparse_layers(graph_, {{"bn"}}); }, core::ErrorCode::kInvalidArgument),
              HasSubstr("bn"));
}

TEST_F(Prune, SetsMasksAndSaysWhatItDid) {
  const std::vector<SparseLayer> layers = sparse_layers(graph_);
  const at::Tensor before = set_.values().clone();
  const std::vector<LayerSparsity> dense = measure_sparsity(set_, layers, MaskAlgorithm::kMask1d);
  EXPECT_TRUE(set_.values().equal(before));
  EXPECT_FALSE(has_masks(set_));
  const std::map<std::string, at::Tensor> weights = {{"grouped.weight", value("grouped.weight").clone()},
                                                     {"tokens_weight", value("tokens_weight").clone()},
                                                     {"hidden.weight", value("hidden.weight").clone()}};
  const uint64_t version = set_.version();
  const std::vector<LayerSparsity> report = prune(set_, layers, MaskAlgorithm::kMask1d);
  EXPECT_GT(set_.version(), version);
  EXPECT_TRUE(has_masks(set_));
  ASSERT_EQ(report.size(), 6U);
  for (size_t i = 0; i < report.size(); ++i) {
    const LayerSparsity &was = dense[i], &is = report[i];
    const std::string& name = is.layer.parameter;
    SCOPED_TRACE(name);
    const bool sparse = weights.contains(name);
    EXPECT_EQ(is.layer.treatment == SparsityTreatment::kSparse, sparse);
    EXPECT_EQ(is.masked, sparse);
    EXPECT_EQ(is.two_of_four, sparse);
    // Two and one of five inputs stay.
    EXPECT_EQ(is.density, !sparse ? 1.0 : name == "grouped.weight" ? 0.6 : 0.5);
    EXPECT_EQ(was.kept, is.kept);
    EXPECT_FALSE(was.two_of_four || was.masked);
    EXPECT_EQ(was.density, 1.0);
    if (!sparse) {
      EXPECT_EQ(is.kept, 1.0);
      continue;
    }
    const at::Tensor mask = sparsity_mask(weights.at(name), MaskAlgorithm::kMask1d);
    EXPECT_TRUE(value(name).equal(weights.at(name).mul(mask)));
    const double kept =
        value(name).abs().sum(at::kDouble).item<double>() / weights.at(name).abs().sum(at::kDouble).item<double>();
    EXPECT_NEAR(is.kept, kept, 1e-6);
    EXPECT_GT(kept, 0.6);
  }
  for (const LayerSparsity& again : measure_sparsity(set_, layers, MaskAlgorithm::kMask1d)) EXPECT_EQ(again.kept, 1.0);
}

TEST_F(Prune, AWeightThatCannotBePrunedLeavesAllAsTheyWere) {
  value("hidden.weight").view(-1)[7] = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor before = value("grouped.weight").clone();
  EXPECT_THAT(core::message_of([&] { prune(set_, sparse_layers(graph_), MaskAlgorithm::kMask2dBest); },
                               core::ErrorCode::kInvalidArgument),
              HasSubstr("hidden.weight"));
  EXPECT_TRUE(value("grouped.weight").equal(before));
  EXPECT_FALSE(has_masks(set_));
  EXPECT_THAT(core::message_of([&] { prune(set_, {{.layer = "a", .parameter = "fc.wieght"}}, MaskAlgorithm::kMask1d); },
                               core::ErrorCode::kNotFound),
              HasSubstr("fc.weight"));
}

// With momentum, decay and a found_inf, and another optimizer that goes on from what was saved.
TEST_F(Prune, EveryOptimizerKeepsFoursThroughEachStepAndAResume) {
  prune(set_, sparse_layers(graph_), MaskAlgorithm::kMask2dGreedy);
  const at::Tensor start = set_.values().clone();
  const at::Tensor mask = set_.mask(*set_.find("grouped.weight"));
  for (const std::string& name : optimizers().names()) {
    SCOPED_TRACE(name);
    set_.values().copy_(start);
    const OptimizerOptions options{.weight_decay = 0.01};
    const auto optimizer = optimizers().get(name)(set_, options);
    const auto step = [](Optimizer& of, int64_t number) {
      StepState state;
      state.write({.learning_rate = 0.05, .step = number, .found_inf = number == 1});
      nn::ParameterSet& parameters = of.parameters();
      parameters.gradients().copy_(parameters.values().sub(0.25 + 0.125 * static_cast<double>(number)));
      of.apply(state);
      return parameters.value(*parameters.find("grouped.weight"));
    };
    for (int i = 0; i < 4; ++i) {
      EXPECT_TRUE(is_two_of_four(step(*optimizer, i)));
      EXPECT_TRUE(value("grouped.weight").ne(0).equal(mask));
    }
    core::MemoryState saved, slots;
    set_.save(saved);
    optimizer->save(slots);
    nn::ParameterSet resumed = set_.clone();
    for (const nn::Segment& segment : resumed.segments()) {
      resumed.set_mask(segment.id, {});
      resumed.value(segment.id).fill_(9);
    }
    resumed.load(saved);
    const auto other = optimizers().get(name)(resumed, options);
    other->load(slots);
    for (int i = 4; i < 8; ++i) EXPECT_TRUE(step(*optimizer, i).equal(step(*other, i)));
    EXPECT_TRUE(resumed.values().equal(set_.values()));
    EXPECT_TRUE(is_two_of_four(value("hidden.weight")));
  }
}

}  // namespace
}  // namespace trainyard::optim::prune_test
