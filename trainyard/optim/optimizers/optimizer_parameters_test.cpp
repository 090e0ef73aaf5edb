// Optimizers of a part of the parameters, and parameters with masks.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/optim/optimizers/optimizer.h"
#include "trainyard/optim/optimizers/regularization_loss.h"
#include "trainyard/optim/testing/numbers.h"
#include "trainyard/optim/testing/small_set.h"

namespace trainyard::optim::optimizer_parameters_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

void step(nn::ParameterSet& set, const std::vector<Optimizer*>& optimizers, int64_t number) {
  StepState state;
  state.write({.learning_rate = 0.05, .step = number});
  set.gradients().copy_(set.values().sub(0.25));
  for (Optimizer* optimizer : optimizers) optimizer->apply(state);
}

at::Tensor value(const nn::ParameterSet& set, const std::string& name) {
  return set.value(*set.find(name));
}

TEST(OptimizerParameters, OthersAreLeftAlone) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    nn::ParameterSet set = small_set(dtype), whole = small_set(dtype), start = small_set(dtype);
    const OptimizerOptions all{.numbers = {{"momentum", 0.8}}, .weight_decay = 0.1};
    OptimizerOptions part = all;
    part.parameters = {"body.*", "head.bias"};
    const auto optimizer = optimizers().get("tf_nesterov")(set, part),
               every = optimizers().get("tf_nesterov")(whole, all);
    for (int i = 0; i < 5; ++i) {
      step(set, {optimizer.get()}, i);
      step(whole, {every.get()}, i);
    }
    for (const char* name : {"body.1.weight", "body.2.weight", "head.bias"}) {
      EXPECT_TRUE(value(set, name).equal(value(whole, name))) << name;
    }
    EXPECT_TRUE(value(set, "head.weight").equal(value(start, "head.weight")));
    EXPECT_FALSE(value(whole, "head.weight").equal(value(start, "head.weight")));
    // It does not count what another one regularizes.
    const double expected = 0.05 * (value(set, "body.1.weight").to(at::kDouble).square().sum() +
                                    value(set, "body.2.weight").to(at::kDouble).square().sum())
                                       .item<double>();
    EXPECT_NEAR(RegularizationLoss(*optimizer)().item<double>(), expected, 1e-12);
  }
}

// Each is as if an optimizer of its own had begun when it was not frozen any more.
TEST(OptimizerParameters, CountTheUpdatesThatEachHasMissed) {
  // By place in own(): how many of the first updates leave a parameter out.
  const std::vector<std::vector<int64_t>> cases = {{2, 2, 5, 0}, {2, 5, 3, 5}, {0, 2, 0, 2}};
  for (const char* name : {"torch_momentum", "torch_adam", "torch_nadam", "torch_radam"}) {
    for (const std::vector<int64_t>& missed : cases) {
      OptimizerOptions options{.numbers = numbers_of(name, {{"momentum", 0.8}, {"dampening", 0.5}, {"beta2", 0.9}}),
                               .weight_decay = 0.1};
      nn::ParameterSet set = small_set(), apart = small_set();
      const auto optimizer = optimizers().get(name)(set, options);
      std::vector<std::unique_ptr<Optimizer>> single;
      for (const nn::Segment& segment : set.segments()) {
        options.parameters = {segment.spec.name};
        single.push_back(optimizers().get(name)(apart, options));
      }
      ASSERT_EQ(single.size(), missed.size());
      for (int64_t i = 0; i < 12; ++i) {
        std::vector<Optimizer*> begun;
        for (size_t p = 0; p < missed.size(); ++p) {
          set.set_trainable(set.segments()[p].id, i >= missed[p]);
          if (i >= missed[p]) begun.push_back(single[p].get());
        }
        step(set, {optimizer.get()}, i);
        step(apart, begun, i);
      }
      for (size_t p = 0; p < missed.size(); ++p) {
        const std::string& parameter = set.segments()[p].spec.name;
        EXPECT_LT(value(set, parameter).sub(value(apart, parameter)).abs().max().item<double>(), 1e-13)
            << name << ", " << parameter;
        EXPECT_EQ(optimizer->missed_updates()[static_cast<int64_t>(p)].item<double>(), static_cast<double>(missed[p]));
      }
    }
  }
}

// PyTorch keeps nothing of a parameter without a gradient: one that was frozen at first begins as in a new optimizer.
TEST(OptimizerParameters, WhatWasFrozenCountsItsOwnUpdatesAsInPyTorch) {
  for (const char* name : {"torch_momentum", "torch_adam", "torch_adamw", "torch_nadam", "torch_radam", "muon_adamw"}) {
    OptimizerOptions options{.numbers = numbers_of(name, {{"momentum", 0.8}, {"dampening", 0.5}}), .weight_decay = 0.1};
    nn::ParameterSet set = small_set(), later = small_set(), resumed = small_set();
    const auto optimizer = optimizers().get(name)(set, options);
    const auto train_head = [&set](bool trains) {
      for (const nn::ParameterId id : set.matching("head.*")) set.set_trainable(id, trains);
    };
    train_head(false);
    for (int i = 0; i < 5; ++i) step(set, {optimizer.get()}, i);
    train_head(true);
    options.parameters = {"head.*"};
    const auto fresh = optimizers().get(name)(later, options);
    for (int i = 5; i < 8; ++i) {
      step(set, {optimizer.get()}, i);
      step(later, {fresh.get()}, i);
    }
    core::MemoryState saved;
    optimizer->save(saved);
    EXPECT_EQ(std::as_const(saved).tensor("head.weight.missed_updates").item<double>(), 5) << name;
    EXPECT_FALSE(saved.has("body.1.weight.missed_updates")) << name;
    resumed.copy_from(set);
    options.parameters = {};
    const auto continued = optimizers().get(name)(resumed, options);
    continued->load(saved);
    for (int i = 8; i < 11; ++i) {
      step(set, {optimizer.get()}, i);
      step(later, {fresh.get()}, i);
      step(resumed, {continued.get()}, i);
    }
    for (const char* parameter : {"head.weight", "head.bias"}) {
      EXPECT_LT(value(set, parameter).sub(value(later, parameter)).abs().max().item<double>(), 1e-14)
          << name << ", " << parameter;
    }
    EXPECT_TRUE(resumed.values().equal(set.values())) << name;
  }
  nn::ParameterSet set = small_set();
  // These count for all parameters.
  EXPECT_FALSE(optimizers().get("tf_adam")(set, {})->missed_updates().defined());
  EXPECT_FALSE(optimizers().get("keras_nadam")(set, {})->missed_updates().defined());
}

TEST(OptimizerParameters, TwoOptimizersTrainAndSaveSideBySide) {
  nn::ParameterSet set = small_set(), whole = small_set(), resumed = small_set();
  const OptimizerOptions all{.numbers = {{"momentum", 0.8}}};
  OptimizerOptions body = all, head = all;
  body.parameters = {"body.*"};
  head.parameters = {"head.*"};
  const auto make = [](nn::ParameterSet& of, const OptimizerOptions& options) {
    return optimizers().get("tf_momentum")(of, options);
  };
  const auto first = make(set, body), second = make(set, head), every = make(whole, all);
  for (int i = 0; i < 5; ++i) {
    step(set, {first.get(), second.get()}, i);
    step(whole, {every.get()}, i);
  }
  EXPECT_TRUE(set.values().equal(whole.values()));

  core::MemoryState both, own;
  first->save(both);
  second->save(both);
  second->save(own);
  EXPECT_THAT(own.names(), ElementsAre("head.bias.momentum", "head.weight.momentum"));
  EXPECT_THAT(both.names(), ElementsAre("body.1.weight.momentum", "body.2.weight.momentum", "head.bias.momentum",
                                        "head.weight.momentum"));
  resumed.copy_from(set);
  const auto third = make(resumed, all);
  third->load(both);
  step(resumed, {third.get()}, 5);
  step(whole, {every.get()}, 5);
  EXPECT_TRUE(resumed.values().equal(whole.values()));
}

TEST(OptimizerParameters, APatternMustNameSome) {
  nn::ParameterSet set = small_set();
  EXPECT_THAT(core::message_of(
                  [&] {
                    optimizers().get("sgd")(set, {.parameters = {"body.*", "tail.*"}});
                  },
                  core::ErrorCode::kNotFound),
              HasSubstr("no parameter is named as 'tail.*'"));
}

TEST(OptimizerMasks, MaskedElementsStayZeroAfterEachUpdate) {
  for (const std::string& name : optimizers().names()) {
    nn::ParameterSet set = small_set(), free = small_set();
    const nn::ParameterId id = *set.find("body.2.weight");
    const at::Tensor mask = set.value(id).gt(0);
    set.set_mask(id, mask);
    const auto optimizer = optimizers().get(name)(set, {}), other = optimizers().get(name)(free, {});
    for (int i = 0; i < 3; ++i) {
      step(set, {optimizer.get()}, i);
      step(free, {other.get()}, i);
      EXPECT_TRUE(set.value(id).ne(0).equal(mask)) << name;
      // The norms of a parameter are others below a mask, and so is what is made orthogonal.
      if (name == "lars" || name == "lamb" || name.starts_with("muon_")) continue;
      EXPECT_TRUE(set.value(id).equal(free.value(id).mul(mask))) << name;
    }
    EXPECT_TRUE(value(set, "head.weight").equal(value(free, "head.weight"))) << name;
    set.set_mask(id, {});
    step(set, {optimizer.get()}, 3);
    EXPECT_TRUE(set.value(id).ne(0).all().item<bool>()) << name;
  }
}

// The variance of gradients that do not change is 0, and some of its roundings are negative.
TEST(CenteredRmsprop, GradientsThatDoNotChangeLeaveFiniteValues) {
  for (const char* name : {"tf_rmsprop", "keras_rmsprop", "torch_rmsprop"}) {
    nn::ParameterSet set({.dtype = at::kFloat});
    set.declare({.name = "w", .shape = {200}, .init = nn::Initializer::constant(1.0)});
    set.allocate();
    set.initialize(0);
    const auto optimizer = optimizers().get(name)(set, {.numbers = {{"momentum", 0.0}, {"centered", 1.0}}});
    for (int i = 0; i < 200; ++i) {
      StepState state;
      state.write({.learning_rate = 1e-9, .step = i});
      const at::Tensor gradients = set.gradient(*set.find("w"));
      for (int64_t k = 0; k < 200; ++k) gradients.mutable_data_ptr<float>()[k] = 0.37F * static_cast<float>(k + 1);
      optimizer->apply(state);
    }
    EXPECT_TRUE(value(set, "w").isfinite().all().item<bool>()) << name;
  }
}

}  // namespace
}  // namespace trainyard::optim::optimizer_parameters_test
