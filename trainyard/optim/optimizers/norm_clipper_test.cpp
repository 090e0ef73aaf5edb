// Clipping by norm against what Keras and PyTorch make of it (tools/golden/clipping.py), and what it leaves alone.
#include "trainyard/optim/optimizers/norm_clipper.h"

#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/optim/optimizers/optimizer.h"
#include "trainyard/optim/testing/small_set.h"

namespace trainyard::optim::norm_clipper_test {
namespace {

using Numbers = std::vector<double>;

// Case -> parameter -> its values after the last step.
std::map<std::string, std::map<std::string, Numbers>> clipping_goldens() {
  std::istringstream text(core::local_file_system().read_file(
      core::join_path(TRAINYARD_SOURCE_DIR, "trainyard/optim/testdata/clipping.txt")));
  std::map<std::string, std::map<std::string, Numbers>> goldens;
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("#")) continue;
    std::istringstream words(line);
    std::string which, parameter;
    words >> which >> parameter;
    for (double value = 0; words >> value;) goldens[which][parameter].push_back(value);
  }
  return goldens;
}

const std::vector<std::string> kParameters = {"body.1.weight", "body.2.weight", "head.weight", "head.bias"};

nn::ParameterSet golden_set(at::ScalarType dtype) {
  nn::ParameterSet set = small_set(dtype);
  for (size_t p = 0; p < kParameters.size(); ++p) {
    const at::Tensor value = set.value(*set.find(kParameters[p])).view(-1);
    for (int64_t i = 0; i < value.numel(); ++i) {
      value[i] = std::sin(0.7 * static_cast<double>(i) + static_cast<double>(p));
    }
  }
  return set;
}

// The gradients of the script, times `scale`.
void fill_golden_gradients(nn::ParameterSet& set, int step, double scale) {
  for (size_t p = 0; p < kParameters.size(); ++p) {
    const nn::ParameterId id = *set.find(kParameters[p]);
    const at::Tensor value = set.value(id).view(-1), gradient = set.gradient(id).view(-1);
    for (int64_t i = 0; i < value.numel(); ++i) {
      const double place = 0.3 * step + static_cast<double>(i) + 2.0 * static_cast<double>(p);
      gradient[i] = scale * (1 + std::cos(step)) * (0.8 * value[i].item<double>() + 0.5 * std::sin(place));
    }
  }
}

const std::map<std::string, NormClip> kCases = {
    {"keras_norm", {.kind = NormClipKind::kParameter, .bound = 1.5}},
    {"keras_global_norm", {.kind = NormClipKind::kGlobal, .bound = 2.5}},
    {"torch_norm", {.kind = NormClipKind::kParameter, .bound = 1.5, .rule = NormClipRule::kPyTorch}},
    {"torch_global_norm", {.kind = NormClipKind::kGlobal, .bound = 2.5, .rule = NormClipRule::kPyTorch}},
    {"adaptive",
     {.kind = NormClipKind::kAdaptive, .bound = 0.3, .rule = NormClipRule::kPyTorch, .excluded = {"head.*"}}}};

class NormClipTest : public testing::TestWithParam<std::string> {};

TEST_P(NormClipTest, FollowsKerasAndPyTorch) {
  const auto goldens = clipping_goldens();
  const auto& golden = goldens.at(GetParam());
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
    nn::ParameterSet set = golden_set(dtype);
    const auto optimizer = optimizers().get("sgd")(set, {.weight_decay = 0.1, .norm_clip = kCases.at(GetParam())});
    StepState state;
    int clipped = 0;
    for (int step = 0; step < 40; ++step) {
      state.write({.learning_rate = 0.05, .inverse_loss_scale = 1.0 / 8, .step = step});
      fill_golden_gradients(set, step, 8);
      if (set.gradients().norm().item<double>() / 8 > 2.5) ++clipped;
      optimizer->apply(state);
    }
    if (GetParam().ends_with("global_norm")) {
      EXPECT_GT(clipped, 5);
      EXPECT_LT(clipped, 35) << "some steps are not clipped";
    }
    for (const auto& [parameter, values] : golden) {
      const at::Tensor value = set.value(*set.find(parameter)).view(-1);
      ASSERT_EQ(value.numel(), static_cast<int64_t>(values.size()));
      for (int64_t i = 0; i < value.numel(); ++i) {
        const double expected = values[static_cast<size_t>(i)];
        EXPECT_NEAR(value[i].item<double>(), expected, dtype == at::kDouble ? 1e-12 : 2e-6) << parameter << " " << i;
      }
    }
  }
}

// On devices, complete_gradients() clips by operators.
TEST_P(NormClipTest, OperatorsClipAsTheLoops) {
  const NormClip& clip = kCases.at(GetParam());
  nn::ParameterSet set = golden_set(at::kDouble), other = golden_set(at::kDouble);
  const OptimizerOptions options{.weight_decay = 0.1, .norm_clip = clip};
  const auto by_loops = optimizers().get("sgd")(set, options), by_operators = optimizers().get("sgd")(other, options);
  const auto plain = optimizers().get("sgd")(other, {.weight_decay = 0.1});
  StepState state;
  state.write({.learning_rate = 1});
  fill_golden_gradients(set, 0, 1);
  fill_golden_gradients(other, 0, 1);
  by_loops->complete_gradients(state);
  if (clip.rule == NormClipRule::kPyTorch) {
    clip_with_operators(*by_operators, *by_operators->norm_clipper());
    plain->complete_gradients(state);
  } else {
    plain->complete_gradients(state);
    clip_with_operators(*by_operators, *by_operators->norm_clipper());
  }
  EXPECT_LT(set.gradients().sub(other.gradients()).abs().max().item<double>(), 1e-14);
}

// Norms below the least one that the code of adaptive clipping divides by.
TEST(NormClip, OperatorsLeaveTinyGradientsAloneThatAreNotTooLarge) {
  const OptimizerOptions options{.norm_clip = NormClip{.kind = NormClipKind::kAdaptive, .bound = 1e-4}};
  for (const double gradient : {0.5e-7, 5e-7}) {
    nn::ParameterSet set = golden_set(at::kDouble), other = golden_set(at::kDouble);
    const auto by_loops = optimizers().get("sgd")(set, options), by_operators = optimizers().get("sgd")(other, options);
    set.values().zero_();
    other.values().zero_();
    set.gradients().zero_();
    for (const nn::Segment& segment : set.segments()) set.gradient(segment.id).flatten()[0] = gradient;
    other.gradients().copy_(set.gradients());
    StepState state;
    state.write({.learning_rate = 1});
    by_loops->complete_gradients(state);
    clip_with_operators(*by_operators, *by_operators->norm_clipper());
    EXPECT_LT(set.gradients().sub(other.gradients()).abs().max().item<double>(), 1e-22) << gradient;
    const double expected = gradient > 1e-7 ? 1e-7 / 1e-6 * gradient : gradient;
    EXPECT_NEAR(other.gradients().max().item<double>(), expected, 1e-22);
  }
}

TEST_P(NormClipTest, GradientsThatAreLookedAtAreClippedOnce) {
  const OptimizerOptions options{.weight_decay = 0.1, .norm_clip = kCases.at(GetParam())};
  nn::ParameterSet set = golden_set(at::kDouble), seen = golden_set(at::kDouble);
  const auto optimizer = optimizers().get("sgd")(set, options), looked_at = optimizers().get("sgd")(seen, options);
  StepState state;
  state.write({.learning_rate = 0.25, .inverse_loss_scale = 0.5});
  fill_golden_gradients(set, 0, 2);
  fill_golden_gradients(seen, 0, 2);
  const at::Tensor start = set.values().clone();
  optimizer->apply(state);
  looked_at->complete_gradients(state);
  EXPECT_LT(start.sub(seen.gradients(), 0.25).sub(set.values()).abs().max().item<double>(), 1e-14);
  looked_at->apply(state);
  EXPECT_LT(seen.values().sub(set.values()).abs().max().item<double>(), 1e-14);
}

TEST_P(NormClipTest, HasTheSameBitsOnAnyNumberOfThreads) {
  NormClip clip = kCases.at(GetParam());
  clip.bound = clip.kind == NormClipKind::kAdaptive ? 1.0 : 3.0;
  clip.excluded.clear();
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    std::vector<at::Tensor> results;
    const int before = at::get_num_threads();
    for (const int threads : {1, 2, 3}) {
      at::set_num_threads(threads);
      nn::ParameterSet set({.dtype = dtype});
      // Units of odd sizes, which threads would cut, and one of several parts.
      set.declare({.name = "a", .shape = {701, 37, 3}, .init = nn::Initializer::normal(1.0)});
      set.declare({.name = "b", .shape = {70001}, .init = nn::Initializer::normal(1.0)});
      set.declare({.name = "c", .shape = {3, 33333}, .init = nn::Initializer::normal(1.0)});
      set.allocate();
      set.initialize(5);
      const auto optimizer = optimizers().get("tf_nesterov")(set, {.weight_decay = 0.01, .norm_clip = clip});
      StepState state;
      for (int step = 0; step < 4; ++step) {
        state.write({.learning_rate = 0.3, .inverse_loss_scale = 0.7, .step = step});
        set.gradients().copy_(set.values().cos());
        optimizer->apply(state);
      }
      results.push_back(set.values().clone());
    }
    at::set_num_threads(before);
    EXPECT_TRUE(results[0].equal(results[1]));
    EXPECT_TRUE(results[0].equal(results[2]));
  }
}

INSTANTIATE_TEST_SUITE_P(All, NormClipTest,
                         testing::Values("keras_norm", "keras_global_norm", "torch_norm", "torch_global_norm",
                                         "adaptive"),
                         [](const auto& tested) { return tested.param; });

TEST(NormClip, CountsWhatItClipsAlone) {
  const NormClip clip{.kind = NormClipKind::kGlobal, .bound = 1, .excluded = {"body.2.*"}};
  nn::ParameterSet set = small_set();
  const auto body = optimizers().get("sgd")(set, {.parameters = {"body.*", "head.weight"}, .norm_clip = clip});
  set.set_trainable(*set.find("head.weight"), false);
  set.gradients().fill_(2);
  const at::Tensor start = set.values().clone();
  StepState state;
  state.write({.learning_rate = 1});
  body->apply(state);
  // The norm of 21 twos: those that train, that it owns and that are not excluded.
  const double norm = 2 * std::sqrt(21.0);
  const at::Tensor change = start.sub(set.values());
  const auto change_of = [&](const char* name) { return change[set.segment(*set.find(name)).offset].item<double>(); };
  EXPECT_NEAR(change_of("body.1.weight"), 2 / norm, 1e-12);
  EXPECT_NEAR(change_of("body.2.weight"), 2, 1e-12);
  EXPECT_EQ(change_of("head.weight"), 0);
  EXPECT_EQ(change_of("head.bias"), 0);
}

// w - f * (g + c1 * w + c2 * sign(w)) where the rule is TensorFlow's, w - f * g - (c1 * w + c2 * sign(w)) where it is
// PyTorch's.
TEST(NormClip, CountsRegularizationByItsRule) {
  for (const NormClipRule rule : {NormClipRule::kTensorFlow, NormClipRule::kPyTorch}) {
    nn::ParameterSet set = small_set();
    const auto optimizer = optimizers().get("sgd")(
        set, {.regularization = {{.name = "l2", .pattern = "*", .coefficient = 0.125},
                                 {.name = "l1", .pattern = "*", .kind = RegularizationKind::kL1, .coefficient = 0.5}},
              .norm_clip = NormClip{.bound = 1.5, .rule = rule}});
    const at::Tensor start = set.values().clone();
    at::Tensor gradients = start.cos().sub(0.25).mul(start.ne(0));  // gaps stay zero
    set.gradients().copy_(gradients.mul(8));
    at::Tensor regularization = start.mul(0.25).add(start.sign(), 0.5);
    const bool together = rule == NormClipRule::kTensorFlow;
    if (together) gradients = gradients.add(regularization);
    const double norm = gradients.norm().item<double>();
    ASSERT_GT(norm, 2);
    const double factor = together ? 1.5 / norm : 1.5 / (norm + 1e-6);
    at::Tensor expected = start.sub(gradients, factor);
    if (!together) expected = expected.sub(regularization);
    StepState state;
    state.write({.learning_rate = 1, .inverse_loss_scale = 0.125});
    optimizer->apply(state);
    EXPECT_LT(set.values().sub(expected).abs().max().item<double>(), 1e-13);
  }
}

// Brock et al., 2021: g * bound * max(|w|, 1e-3) / |g| where |g| is larger; their code divides by no less than 1e-6.
TEST(NormClip, AnAdaptiveFactorIsThatOfBothNorms) {
  EXPECT_DOUBLE_EQ(adaptive_clip_factor(0.5, 4, 2), 0.25);
  EXPECT_DOUBLE_EQ(adaptive_clip_factor(0.5, 1, 2), 1) << "as large as it may be";
  EXPECT_DOUBLE_EQ(adaptive_clip_factor(0.5, 0.25, 2), 1);
  EXPECT_DOUBLE_EQ(adaptive_clip_factor(1, 0.01, 0), 0.1) << "weights of no length count as 1e-3";
  EXPECT_DOUBLE_EQ(adaptive_clip_factor(1e-4, 5e-7, 0), 0.1) << "gradients are divided by 1e-6";
}

TEST(NormClip, NormsThatAreNotFinite) {
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::nan("");
  const NormClip keras{.bound = 2}, torch{.bound = 2, .rule = NormClipRule::kPyTorch};
  EXPECT_TRUE(std::isnan(clip_factor(keras, infinity)));
  EXPECT_TRUE(std::isnan(clip_factor(keras, nan)));
  EXPECT_EQ(clip_factor(torch, infinity), 0);
  EXPECT_TRUE(std::isnan(clip_factor(torch, nan)));
  EXPECT_EQ(clip_factor(keras, 2), 1);
  EXPECT_EQ(clip_factor(keras, 0), 1);
  EXPECT_DOUBLE_EQ(clip_factor(keras, 8), 0.25);
  EXPECT_DOUBLE_EQ(clip_factor(torch, 2), 2 / (2 + 1e-6));
}

// Their squares are too large for a float, their norm is not.
TEST(NormClip, LargeGradientsOfFloatsAreClipped) {
  nn::ParameterSet set = small_set(at::kFloat);
  const auto optimizer = optimizers().get("sgd")(set, {.norm_clip = NormClip{.bound = 1}});
  for (const nn::Segment& segment : set.segments()) set.gradient(segment.id).fill_(1e25);
  const at::Tensor before = set.values().clone();
  StepState state;
  state.write({.learning_rate = 1});
  optimizer->apply(state);
  EXPECT_NEAR(set.values().sub(before).norm().item<double>(), 1, 1e-5);
}

TEST(NormClip, ASkippedStepLeavesAllBits) {
  nn::ParameterSet set = small_set();
  const auto optimizer = optimizers().get("tf_momentum")(set, {.norm_clip = NormClip{.bound = 1}});
  set.gradients().fill_(std::nan(""));
  const at::Tensor before = set.values().clone();
  StepState state;
  state.write({.learning_rate = 1, .found_inf = true});
  optimizer->apply(state);
  EXPECT_TRUE(set.values().equal(before));
}

TEST(NormClip, RefusesWhatItCannotDo) {
  nn::ParameterSet set = small_set();
  const auto& sgd = optimizers().get("sgd");
  for (const double bound : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_THROW(sgd(set, {.norm_clip = NormClip{.bound = bound}}), core::Error) << bound;
  }
  EXPECT_THROW(sgd(set, {.norm_clip = NormClip{.excluded = {"tail.*"}}}), core::Error);
}

}  // namespace
}  // namespace trainyard::optim::norm_clipper_test
