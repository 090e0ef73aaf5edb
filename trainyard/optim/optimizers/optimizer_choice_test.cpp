#include <functional>
#include <map>
#include <string>

#include <ATen/ops/equal.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/optim/optimizers/formula_optimizer.h"
#include "trainyard/optim/optimizers/optimizer.h"
#include "trainyard/optim/optimizers/optimizer_options.h"
#include "trainyard/optim/step/step_state.h"

namespace trainyard::optim::optimizer_choice_test {
namespace {

nn::ParameterSet parameters() {
  nn::ParameterSet set;
  set.declare({.name = "body.weight", .shape = {4, 3}, .init = nn::Initializer::normal(1)});
  set.declare({.name = "head.weight", .shape = {2, 4}, .init = nn::Initializer::normal(1)});
  set.allocate();
  set.initialize(3);
  return set;
}

// Returns the values after three steps.
at::Tensor trained(const std::function<std::unique_ptr<Optimizer>(nn::ParameterSet&)>& make) {
  nn::ParameterSet set = parameters();
  const auto optimizer = make(set);
  for (int step = 0; step < 3; ++step) {
    set.gradients().copy_(set.values().sin());
    StepState state;
    state.write({.learning_rate = 0.1, .step = step});
    optimizer->apply(state);
  }
  return set.values().clone();
}

// Numbers that are not the defaults, so that one which a function forgets is seen.
TEST(OptimizerChoice, FunctionsChooseByNameAndNumbers) {
  const std::vector<ParameterGroup> groups{{.pattern = "head.*", .rate_factor = 0.5}};
  const std::optional<NormClip> clip = NormClip{.bound = 0.25};
  const OptimizerNumbers means{{"beta1", 0.6}, {"beta2", 0.7}, {"epsilon", 0.01}};
  const std::pair<OptimizerChoice, OptimizerChoice> pairs[] = {
      {sgd({.weight_decay = 0.2, .groups = groups, .norm_clip = clip}),
       {"sgd", {.weight_decay = 0.2, .groups = groups, .norm_clip = clip}}},
      {momentum({.momentum = 0.6, .nesterov = true, .weight_decay = 0.2, .groups = groups, .norm_clip = clip}),
       {"torch_momentum",
        {.numbers = {{"momentum", 0.6}, {"nesterov", true}},
         .weight_decay = 0.2,
         .groups = groups,
         .norm_clip = clip}}},
      {rmsprop({.mean_square_decay = 0.7, .momentum = 0.6, .epsilon = 0.01, .centered = true, .weight_decay = 0.2}),
       {"torch_rmsprop",
        {.numbers = {{"momentum", 0.6}, {"mean_square_decay", 0.7}, {"centered", true}, {"epsilon", 0.01}},
         .weight_decay = 0.2}}},
      {adam({.beta1 = 0.6, .beta2 = 0.7, .epsilon = 0.01, .weight_decay = 0.2, .groups = groups}),
       {"torch_adam", {.numbers = means, .weight_decay = 0.2, .groups = groups}}},
      {adamw({.beta1 = 0.6, .beta2 = 0.7, .epsilon = 0.01, .weight_decay = 0.2, .parameters = {"body.*"}}),
       {"torch_adamw", {.numbers = means, .weight_decay = 0.2, .parameters = {"body.*"}}}},
      {lars({.momentum = 0.6, .trust_coefficient = 0.1, .weight_decay = 0.2}),
       {"lars", {.numbers = {{"momentum", 0.6}, {"trust_coefficient", 0.1}}, .weight_decay = 0.2}}},
      {lamb({.beta1 = 0.6, .beta2 = 0.7, .epsilon = 0.01, .bias_correction = false, .weight_decay = 0.2}),
       {"lamb",
        {.numbers = {{"beta1", 0.6}, {"beta2", 0.7}, {"epsilon", 0.01}, {"bias_correction", false}},
         .weight_decay = 0.2}}},
      {muon_sgd({.muon_momentum = 0.6,
                 .steps = 3,
                 .rate = MuonRate::kMatchRmsAdamw,
                 .normalize_weights = true,
                 .exclude = {"head"},
                 .momentum = 0.7,
                 .weight_decay = 0.2}),
       {"muon_sgd",
        {.numbers =
             {{"muon_momentum", 0.6}, {"muon_steps", 3}, {"muon_rate", 2}, {"normalize_weights", 1}, {"momentum", 0.7}},
         .weight_decay = 0.2,
         .muon_exclude = {"head"}}}},
      {muon_adamw({.exclude = {"head"}, .beta1 = 0.6, .beta2 = 0.7, .epsilon = 0.01}),
       {"muon_adamw", {.numbers = means, .muon_exclude = {"head"}}}},
      {lion({.beta1 = 0.6, .beta2 = 0.7, .weight_decay = 0.2}),
       {"lion", {.numbers = {{"beta1", 0.6}, {"beta2", 0.7}}, .weight_decay = 0.2}}},
      {schedule_free_sgd({.beta = 0.6, .weight_decay = 0.2}),
       {"schedule_free_sgd", {.numbers = {{"momentum", 0.6}}, .weight_decay = 0.2}}},
      {schedule_free_adamw({.beta = 0.6, .beta2 = 0.7, .epsilon = 0.01}), {"schedule_free_adamw", {.numbers = means}}}};
  for (const auto& [chosen, named] : pairs) {
    EXPECT_EQ(chosen.name, named.name);
    EXPECT_TRUE(at::equal(trained(chosen), trained(named))) << named.name;
    const OptimizerChoice defaults{named.name};
    EXPECT_FALSE(at::equal(trained(chosen), trained(defaults))) << named.name << ": the numbers change nothing";
  }
}

// As the structs declare them, whatever an optimizer's own defaults are.
TEST(OptimizerChoice, FunctionsChooseTheDefaultsOfTheirStructs) {
  const OptimizerNumbers means{{"beta1", 0.9}, {"beta2", 0.999}, {"epsilon", 1e-8}},
      muon{{"muon_momentum", 0.95}, {"muon_steps", 5}, {"muon_rate", 1}, {"normalize_weights", 0}};
  const auto with = [](OptimizerNumbers all, const OptimizerNumbers& more) {
    all.insert(more.begin(), more.end());
    return all;
  };
  const std::pair<OptimizerChoice, OptimizerNumbers> pairs[] = {
      {sgd(), OptimizerNumbers()},
      {momentum(), {{"momentum", 0.9}, {"nesterov", 0}}},
      {rmsprop(), {{"mean_square_decay", 0.99}, {"momentum", 0}, {"epsilon", 1e-8}, {"centered", 0}}},
      {adam(), means},
      {adamw(), means},
      {lars(), {{"momentum", 0.9}, {"trust_coefficient", 0.001}}},
      {lamb(), {{"beta1", 0.9}, {"beta2", 0.999}, {"epsilon", 1e-6}, {"bias_correction", 1}}},
      {muon_sgd(), with(muon, {{"momentum", 0.9}})},
      {muon_adamw(), with(muon, means)},
      {lion(), {{"beta1", 0.9}, {"beta2", 0.99}}},
      {schedule_free_sgd(), {{"momentum", 0.9}}},
      {schedule_free_adamw(), means}};
  for (const auto& [chosen, numbers] : pairs) {
    EXPECT_EQ(chosen.options.numbers, numbers) << chosen.name;
    EXPECT_EQ(chosen.options.weight_decay, 0) << chosen.name;
    EXPECT_TRUE(chosen.options.groups.empty() && chosen.options.parameters.empty()) << chosen.name;
    EXPECT_TRUE(!chosen.options.norm_clip && chosen.options.muon_exclude.empty()) << chosen.name;
  }
}

// What each optimizer keeps for a parameter and what it begins with, and its numbers where none is given; those that
// may not change between steps are fixed.
TEST(OptimizerDeclarations, HaveTheirSlotsAndTheDefaultsOfTheirNumbers) {
  const std::string means = " mean=0 mean_square=0: beta1=0.9 beta2=0.999 epsilon=",
                    rmsprop = ": mean_square_decay=0.9 momentum=0.9 epsilon=1e-07 centered=0 (fixed)",
                    muon = " muon_momentum=0.95 muon_steps=5 (fixed) normalize_weights=0 (fixed) muon_rate=1 (fixed)",
                    adapts = " adapt_undecayed=0 (fixed)";
  const std::map<std::string, std::string> expected = {
      {"keras_adamw", means + "1e-07"},
      {"keras_momentum", " momentum=0: momentum=0.9 nesterov=0 (fixed)"},
      {"keras_nadam", means + "1e-07"},
      {"keras_rmsprop", " mean_square=0 momentum=0 mean=0" + rmsprop},
      {"lamb", means + "1e-07 bias_correction=1 (fixed)" + adapts},
      {"lars", " momentum=0: momentum=0.9 trust_coefficient=0.001 (fixed)" + adapts},
      {"lion", " mean=0: beta1=0.9 beta2=0.99"},
      {"muon_adamw", means + "1e-08" + muon},
      {"muon_sgd", " momentum=0: momentum=0.9" + muon},
      {"schedule_free_adamw", " z=0 mean_square=0: beta1=0.9 beta2=0.999 epsilon=1e-08"},
      {"schedule_free_sgd", " z=0: momentum=0.9"},
      {"sgd", ":"},
      {"tf_adam", means + "1e-07"},
      {"tf_momentum", " momentum=0: momentum=0.9"},
      {"tf_nesterov", " momentum=0: momentum=0.9"},
      {"tf_rmsprop", " mean_square=1 momentum=0 mean=0" + rmsprop},
      {"torch_adam", means + "1e-07"},
      {"torch_adamw", means + "1e-07"},
      {"torch_momentum", " momentum=0: momentum=0.9 dampening=0 nesterov=0 (fixed)"},
      {"torch_nadam", means + "1e-07"},
      {"torch_radam", means + "1e-08"},
      {"torch_rmsprop", " mean_square=0 momentum=0 mean=0" + rmsprop}};
  std::map<std::string, std::string> declared;
  for (const std::string& name : optimizer_formulas().names()) {
    const FormulaOptimizer& optimizer = optimizer_formulas().get(name);
    std::string& text = declared[name];
    for (const FormulaOptimizer::Slot& slot : optimizer.slots) text += fmt::format(" {}={}", slot.name, slot.initial);
    text += ":";
    for (const OptimizerNumber& number : optimizer.numbers) {
      text += fmt::format(" {}={}{}", number.name, number.default_value, number.changes ? "" : " (fixed)");
    }
  }
  EXPECT_EQ(declared, expected);
}

TEST(OptimizerChoice, AnUnknownNameIsAnErrorWithTheNearest) {
  nn::ParameterSet set = parameters();
  EXPECT_THAT(core::message_of([&] { OptimizerChoice{"tf_momentun"}(set); }, core::ErrorCode::kNotFound),
              ::testing::HasSubstr("did you mean 'tf_momentum'"));
}

}  // namespace
}  // namespace trainyard::optim::optimizer_choice_test
