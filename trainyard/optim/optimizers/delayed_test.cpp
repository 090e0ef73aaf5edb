// OptimizerOptions::delayed against an optimizer without it, which is given the gradients of the step before by hand,
// and against the formula in double.
#include <limits>
#include <memory>
#include <string>
#include <tuple>

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/optim/optimizers/optimizer.h"
#include "trainyard/optim/testing/numbers.h"
#include "trainyard/optim/testing/small_set.h"

namespace trainyard::optim::delayed_test {
namespace {

OptimizerOptions delayed_options(const std::string& optimizer, bool delayed = true) {
  return {.numbers = numbers_of(optimizer, {{"momentum", 0.8}}),
          .weight_decay = 0.02,
          .gradient_clip = 0.75,
          .parameters = {"body.*", "head.weight"},
          .norm_clip = NormClip{.bound = 1.5},
          .delayed = delayed};
}

class Delayed : public testing::TestWithParam<std::tuple<std::string, at::ScalarType>> {
 protected:
  static void set_gradients(nn::ParameterSet& set, int64_t step) {
    set.gradients().copy_(set.values().sub(0.1 * static_cast<double>(step)).mul(16));
  }
};

TEST_P(Delayed, AppliesTheCompleteGradientsOfTheUpdateBefore) {
  const auto& [name, dtype] = GetParam();
  nn::ParameterSet plain_set = small_set(dtype), set = small_set(dtype);
  const auto plain = optimizers().get(name)(plain_set, delayed_options(name, false)),
             optimizer = optimizers().get(name)(set, delayed_options(name));
  const nn::ParameterId frozen = *set.find("body.1.weight");
  at::Tensor before = at::zeros_like(set.values());
  StepState state;
  for (int64_t step = 0; step < 8; ++step) {
    const bool skipped = step == 4;
    state.write({.learning_rate = 0.05, .inverse_loss_scale = 1.0 / 8, .step = step, .found_inf = skipped});
    for (nn::ParameterSet* each : {&plain_set, &set}) {
      each->set_trainable(frozen, step < 2 || step > 5);
      set_gradients(*each, step);
      if (skipped) each->gradients().fill_(std::numeric_limits<double>::infinity());
    }
    if (!skipped) {
      plain->complete_gradients(state);
      for (const nn::Segment& segment : plain_set.segments()) {
        if (!plain_set.trainable(segment.id) || segment.spec.name == "head.bias") continue;
        at::Tensor kept = before.narrow(0, segment.offset, segment.count),
                   now = plain_set.gradient(segment.id).view(-1);
        const at::Tensor copy = now.clone();
        now.copy_(kept);
        kept.copy_(copy);
      }
    }
    plain->apply(state);
    optimizer->apply(state);
    ASSERT_TRUE(set.values().equal(plain_set.values())) << step;
    EXPECT_EQ(set.values().isnan().any().item<bool>(), false);
  }
}

TEST_P(Delayed, GoesOnWithTheGradientsThatWereSaved) {
  const auto& [name, dtype] = GetParam();
  nn::ParameterSet set = small_set(dtype), resumed_set = small_set(dtype);
  const auto optimizer = optimizers().get(name)(set, delayed_options(name)),
             resumed = optimizers().get(name)(resumed_set, delayed_options(name));
  StepState state;
  const auto step = [&](nn::ParameterSet& of, Optimizer& by, int64_t number) {
    state.write({.learning_rate = 0.05, .step = number});
    set_gradients(of, number);
    by.apply(state);
  };
  for (int64_t s = 0; s < 3; ++s) step(set, *optimizer, s);
  core::MemoryState saved;
  optimizer->save(saved);
  EXPECT_TRUE(saved.has("body.1.weight.delayed_gradient"));
  EXPECT_FALSE(saved.has("head.bias.delayed_gradient")) << "another optimizer's";
  resumed->load(saved);
  resumed_set.copy_from(set);
  for (int64_t s = 3; s < 6; ++s) {
    step(set, *optimizer, s);
    step(resumed_set, *resumed, s);
  }
  EXPECT_TRUE(resumed_set.values().equal(set.values()));
}

INSTANTIATE_TEST_SUITE_P(
    All, Delayed, testing::Combine(testing::ValuesIn(optimizers().names()), testing::Values(at::kFloat, at::kDouble)),
    [](const auto& each) { return std::get<0>(each.param) + "_" + at::toString(std::get<1>(each.param)); });

// w' = w - lr * (g + decay * w) of the step before, and of zeros at first.
TEST(DelayedSgd, FollowsItsFormula) {
  nn::ParameterSet set = small_set();
  const auto optimizer = optimizers().get("sgd")(set, {.weight_decay = 0.5, .delayed = true});
  StepState state;
  state.write({.learning_rate = 0.125});
  const at::Tensor weight = set.value(*set.find("body.1.weight")).view(-1)[0];
  double w = weight.item<double>(), before = 0;
  for (int step = 0; step < 5; ++step) {
    const double gradient = 1 + 0.25 * step;
    set.gradients().fill_(gradient);
    const double now = gradient + 0.5 * w;
    w -= 0.125 * before;
    before = now;
    optimizer->apply(state);
    EXPECT_NEAR(weight.item<double>(), w, 1e-14) << step;
  }
}

TEST(DelayedSgd, RefusesGradientsThatLieElsewhere) {
  nn::ParameterSet set = small_set(), other = small_set();
  const auto optimizer = optimizers().get("sgd")(set, {.delayed = true});
  EXPECT_EQ(core::code_of([&] { optimizer->apply(StepState(), other.gradients()); }), core::ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace trainyard::optim::delayed_test
