// apply() after complete_gradients() against apply() alone, and the complete gradients against their definition.
#include "trainyard/optim/optimizers/complete_gradients.h"

#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/optim/optimizers/optimizer.h"
#include "trainyard/optim/testing/numbers.h"
#include "trainyard/optim/testing/small_set.h"

namespace trainyard::optim::complete_gradients_test {
namespace {

OptimizerOptions everything(const std::string& optimizer) {
  return {.numbers = numbers_of(optimizer, {{"momentum", 0.8}}),
          .weight_decay = 0.02,
          .gradient_clip = 0.75,
          .groups = {{.pattern = "body.2.*", .rate_factor = 0.25, .weight_decay = 0.5}},
          .parameters = {"body.*", "head.weight"},
          .regularization = {{.name = "l2", .pattern = "body.1.*", .coefficient = 0.03},
                             {.name = "l1", .pattern = "*", .kind = RegularizationKind::kL1, .coefficient = 0.05}}};
}

class CompleteGradients : public testing::TestWithParam<std::tuple<std::string, at::ScalarType>> {};

TEST_P(CompleteGradients, AreAppliedAsTheOthersAre) {
  const auto& [name, dtype] = GetParam();
  nn::ParameterSet plain_set = small_set(dtype), set = small_set(dtype);
  const auto plain = optimizers().get(name)(plain_set, everything(name)),
             optimizer = optimizers().get(name)(set, everything(name));
  for (Optimizer* each : {plain.get(), optimizer.get()}) each->set_weight_decay_factor(2);
  const double allowed = dtype == at::kFloat ? 2e-6 : 1e-14;
  StepState state;
  for (int64_t step = 0; step < 10; ++step) {
    const bool skipped = step == 6;
    state.write({.learning_rate = 0.05, .inverse_loss_scale = 1.0 / 8, .step = step, .found_inf = skipped});
    for (nn::ParameterSet* each : {&plain_set, &set}) {
      each->set_trainable(*set.find("body.1.weight"), step != 3);
      each->gradients().copy_(plain_set.values().sub(0.25).mul(16));
      if (skipped) each->gradients().narrow(0, 0, 40).fill_(std::numeric_limits<double>::infinity());
    }
    plain->apply(state);
    // Every third step goes without, after which nothing may be left behind.
    if (step % 3 != 2) optimizer->complete_gradients(state);
    EXPECT_EQ(optimizer->gradients_complete(), step % 3 != 2);
    optimizer->apply(state);
    EXPECT_FALSE(optimizer->gradients_complete());
    ASSERT_LE((set.values() - plain_set.values()).abs().max().item<double>(), allowed) << step;
    for (size_t s = 0; s < plain->slots().size(); ++s) {
      ASSERT_LE((optimizer->slots()[s].values - plain->slots()[s].values).abs().max().item<double>(), allowed) << step;
    }
  }
}

TEST_P(CompleteGradients, AreThoseOfTheWholeLoss) {
  const auto& [name, dtype] = GetParam();
  const double allowed = dtype == at::kFloat ? 1e-6 : 1e-15;
  nn::ParameterSet set = small_set(dtype);
  const auto optimizer = optimizers().get(name)(set, everything(name));
  optimizer->set_weight_decay_factor(2);
  set.set_trainable(*set.find("body.1.weight"), false);
  set.gradients().fill_(4);
  StepState state;
  state.write({.learning_rate = 0.05, .inverse_loss_scale = 1.0 / 8});
  optimizer->complete_gradients(state);
  const auto expect = [&](const char* parameter, const at::Tensor& expected) {
    const at::Tensor actual = set.gradient(*set.find(parameter)).to(at::kDouble);
    EXPECT_LE((actual - expected).abs().max().item<double>(), allowed) << parameter;
  };
  const auto value = [&](const char* parameter) { return set.value(*set.find(parameter)).to(at::kDouble); };
  // Others make the weight decay in the update.
  const bool muon = name.starts_with("muon_");
  const double decays = !muon && optimizer->decay_form() == Optimizer::DecayForm::kCoupled ? 1 : 0;
  expect("body.2.weight", 0.5 + 2 * (decays * 0.5 * value("body.2.weight") + 0.05 * value("body.2.weight").sign()));
  expect("head.weight", 0.5 + 2 * (decays * 0.02 * value("head.weight") + 0.05 * value("head.weight").sign()));
  expect("body.1.weight", value("body.1.weight").mul(0).add(4));  // frozen
  expect("head.bias", value("head.bias").mul(0).add(4));          // another optimizer's
}

INSTANTIATE_TEST_SUITE_P(All, CompleteGradients,
                         testing::Combine(testing::ValuesIn(optimizers().names()),
                                          testing::Values(at::kFloat, at::kDouble)),
                         [](const auto& tested) {
                           return std::get<0>(tested.param) + "_" + at::toString(std::get<1>(tested.param));
                         });

// The operators for devices work on any memory.
TEST(CompleteGradientsOf, ADeviceAreTheSame) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    nn::ParameterSet set = small_set(dtype), there = small_set(dtype);
    const OptimizerOptions options{.weight_decay = 0.125, .parameters = {"body.*", "head.bias"}};
    const auto optimizer = optimizers().get("sgd")(set, options), device = optimizers().get("sgd")(there, options);
    StepState state;
    state.write({.learning_rate = 0.05, .inverse_loss_scale = 0.25, .step = 4, .found_inf = true});
    for (nn::ParameterSet* each : {&set, &there}) each->gradients().copy_(set.values().cos());
    complete_on_host(*optimizer, state);
    complete_on_device(*device, state);
    EXPECT_LE((set.gradients() - there.gradients()).abs().max().item<double>(), 1e-7);
    EXPECT_GT((set.gradients() - set.values().cos()).abs().max().item<double>(), 0.1);
    const at::Tensor fields = unscaled_fields(state);
    EXPECT_EQ(fields[StepState::kInverseLossScale].item<double>(), 1);
    EXPECT_EQ(fields[StepState::kLearningRate].item<double>(), 0.05);
    EXPECT_EQ(fields[StepState::kFoundInf].item<double>(), 1);
    EXPECT_EQ(state.read().inverse_loss_scale, 0.25);
  }
}

// By norms of each kind, with the weight decay in them and without.
TEST(CompleteGradientsOf, ADeviceAreClippedAsTheOthers) {
  std::vector<NormClip> clips;
  for (const NormClipKind kind : {NormClipKind::kParameter, NormClipKind::kGlobal, NormClipKind::kAdaptive}) {
    for (const NormClipRule rule : {NormClipRule::kTensorFlow, NormClipRule::kPyTorch}) {
      // The second bound is below PyTorch's epsilon.
      for (const double bound : {0.25, 5e-7}) {
        clips.push_back({.kind = kind, .bound = bound, .rule = rule, .excluded = {"body.2.*"}});
      }
    }
  }
  for (const NormClip& clip : clips) {
    const OptimizerOptions options{.weight_decay = 0.5, .parameters = {"body.*", "head.bias"}, .norm_clip = clip};
    nn::ParameterSet set = small_set(), there = small_set();
    const auto optimizer = optimizers().get("sgd")(set, options), device = optimizers().get("sgd")(there, options);
    for (Optimizer* each : {optimizer.get(), device.get()}) each->set_weight_decay_factor(2);
    StepState state;
    state.write({.learning_rate = 0.05, .inverse_loss_scale = 0.25});
    for (nn::ParameterSet* each : {&set, &there}) each->gradients().copy_(set.values().cos().mul(4));
    const at::Tensor before = set.gradients().clone();
    optimizer->complete_gradients(state);
    complete_on_device(*device, state);
    EXPECT_LT((set.gradients() - there.gradients()).abs().max().item<double>(), 1e-14);
    const auto changed = [&](const char* name) {
      const nn::Segment& segment = there.segment(*there.find(name));
      return !there.gradients()
                  .narrow(0, segment.offset, segment.count)
                  .equal(before.narrow(0, segment.offset, segment.count));
    };
    EXPECT_TRUE(changed("body.1.weight") && changed("body.2.weight") && changed("head.bias"));
    EXPECT_FALSE(changed("head.weight")) << "another optimizer's";
  }
}

TEST(CompleteGradientsOf, AnOptimizerAreForgottenOnLoading) {
  nn::ParameterSet set = small_set();
  const auto optimizer = optimizers().get("tf_momentum")(set, {});
  core::MemoryState saved;
  optimizer->save(saved);
  optimizer->complete_gradients(StepState());
  optimizer->load(saved);
  EXPECT_FALSE(optimizer->gradients_complete());
}

TEST(ApplyWithForeignGradients, TakesThoseOfAnotherSet) {
  nn::ParameterSet set = small_set(), same = small_set(), other = small_set();
  const auto optimizer = optimizers().get("tf_nesterov")(set, everything("tf_nesterov")),
             own = optimizers().get("tf_nesterov")(same, everything("tf_nesterov"));
  StepState state;
  state.write({.learning_rate = 0.05});
  set.gradients().fill_(100);
  same.gradients().fill_(0.5);
  other.gradients().fill_(0.5);
  optimizer->apply(state, other.gradients());
  own->apply(state);
  EXPECT_TRUE(set.values().equal(same.values()));
  EXPECT_EQ(core::code_of([&] { optimizer->apply(state, other.gradients().narrow(0, 0, 16)); }),
            core::ErrorCode::kInvalidArgument);
  EXPECT_EQ(core::code_of([&] { optimizer->apply(state, other.gradients().to(at::kFloat)); }),
            core::ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace trainyard::optim::complete_gradients_test
