#include "trainyard/parallel/servers/optimizer_settings.h"

#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"

namespace trainyard::parallel::optimizer_settings_test {
namespace {

using core::Says;

std::string settings_with(const std::string& name, const optim::OptimizerOptions& options = {}) {
  nn::ParameterSet set;
  set.declare({.name = "w", .shape = {2, 3}, .decay = true});
  set.declare({.name = "b", .shape = {3}});
  set.allocate();
  return optimizer_settings(*optim::optimizers().get(name)(set, options));
}

TEST(OptimizerSettings, DifferForEachThatNoStepCarries) {
  const std::vector<optim::OptimizerOptions> each{
      {},
      {.decoupled_decay = true},
      {.gradient_clip = 0.5},
      {.gradient_clip = 0.25},
      {.groups = {{.pattern = "b", .rate_factor = 0.5}}},
      {.groups = {{.pattern = "w", .rate_factor = 0.5}}},
      {.groups = {{.pattern = "b", .rate_factor = 0.5, .weight_decay = 0.125}}},
      {.layer_decay = 0.5},
      {.parameters = {"w"}},
      {.regularization = {{.name = "sum", .pattern = "w", .coefficient = 0.5}}},
      {.regularization = {{.name = "sum", .pattern = "w", .kind = optim::RegularizationKind::kL1, .coefficient = 0.5}}},
      {.norm_clip = optim::NormClip{.bound = 0.5}},
      {.norm_clip = optim::NormClip{.bound = 0.25}},
      {.norm_clip = optim::NormClip{.kind = optim::NormClipKind::kParameter, .bound = 0.5}},
      {.norm_clip = optim::NormClip{.bound = 0.5, .rule = optim::NormClipRule::kPyTorch}},
      {.norm_clip = optim::NormClip{.bound = 0.5, .excluded = {"b"}}},
      {.delayed = true},
      {.lookahead = optim::Lookahead{}},
      {.lookahead = optim::Lookahead{.steps = 6}},
      {.lookahead = optim::Lookahead{.alpha = 0.25}},
      {.lookahead = optim::Lookahead{.final_alpha = 0.25, .updates = 10}},
      {.lookahead = optim::Lookahead{.final_alpha = 0.25, .updates = 11}},
  };
  std::set<std::string> all;
  for (const optim::OptimizerOptions& options : each) all.insert(settings_with("sgd", options));
  EXPECT_EQ(all.size(), each.size());
}

TEST(OptimizerSettings, SayWhatEachIs) {
  const auto has = [](const optim::OptimizerOptions& options, const std::string& line) {
    EXPECT_THAT("\n" + settings_with("sgd", options), ::testing::HasSubstr("\n" + line + "\n"));
  };
  has({}, "optimizer sgd");
  has({}, "decoupled weight decay false");
  has({.decoupled_decay = true}, "decoupled weight decay true");
  has({}, "gradient clip none");
  has({.gradient_clip = 0.5}, "gradient clip 0.5");
  has({}, "clip by norm none");
  has({.norm_clip = optim::NormClip{.bound = 0.5, .excluded = {"b"}}},
      "clip by norm of all gradients 0.5 by TensorFlow's rule, without [b]");
  has({.norm_clip = optim::NormClip{.bound = 0.5, .rule = optim::NormClipRule::kPyTorch}},
      "clip by norm of all gradients 0.5 by PyTorch's rule, without []");
  has({.norm_clip = optim::NormClip{.kind = optim::NormClipKind::kParameter, .bound = 0.25}},
      "clip by norm of each parameter 0.25 by TensorFlow's rule, without []");
  has({}, "Lookahead none");
  has({.lookahead = optim::Lookahead{.steps = 6, .alpha = 0.25}}, "Lookahead 6 steps, alpha 0.25");
  has({.lookahead = optim::Lookahead{.steps = 6, .alpha = 0.5, .final_alpha = 0.25, .updates = 12}},
      "Lookahead 6 steps, alpha 0.5 to 0.25 over 12 updates");
  has({}, "gradients of the update before false");
  has({.delayed = true}, "gradients of the update before true");
  has({.layer_decay = 0.5}, "layer decay 0.5");
  has({}, "groups []");
  has({.groups = {{.pattern = "b", .rate_factor = 0.5, .weight_decay = 0.125}, {.pattern = "w", .rate_factor = 2.5}}},
      "groups [b with 0.5 times the rate and decay 0.125; w with 2.5 times the rate and decay none]");
  has({}, "regularization []");
  has({.regularization = {{.name = "one", .pattern = "w", .kind = optim::RegularizationKind::kL1, .coefficient = 0.5},
                          {.name = "two", .pattern = "b", .kind = optim::RegularizationKind::kL1, .coefficient = 2}}},
      "regularization [l1 0.5 of w: one; l1 2 of b: two]");
  has({.parameters = {"w"}}, "parameters [w]");
}

TEST(OptimizerSettings, NameTheOptimizerAndItsConstantsAlone) {
  EXPECT_NE(settings_with("tf_momentum"), settings_with("tf_nesterov"));
  EXPECT_NE(settings_with("muon_sgd"), settings_with("muon_adamw"));
  EXPECT_NE(settings_with("muon_sgd"), settings_with("muon_sgd", {.muon_exclude = {"w"}}));
  EXPECT_NE(settings_with("lars"), settings_with("lars", {.numbers = {{"adapt_undecayed", 1}}}));
  EXPECT_EQ(settings_with("tf_momentum"),
            settings_with("tf_momentum", {.numbers = {{"momentum", 0.5}}, .weight_decay = 0.125}));
}

TEST(OptimizerSettings, AllOfThemHaveTheHyperparameters) {
  nn::ParameterSet set;
  set.declare({.name = "w", .shape = {2, 3}, .decay = true});
  set.allocate();
  const auto optimizer = optim::optimizers().get("tf_momentum")(set, {.weight_decay = 0.125});
  EXPECT_EQ(all_optimizer_settings(*optimizer), optimizer_settings(*optimizer) + "momentum 0.9\nweight_decay 0.125\n");
  optimizer->set_hyperparameter("momentum", 0.5);
  EXPECT_EQ(all_optimizer_settings(*optimizer), optimizer_settings(*optimizer) + "momentum 0.5\nweight_decay 0.125\n");
}

TEST(OptimizerSettings, TheFirstThatDiffersIsNamed) {
  const auto refusal = [](const std::string& servers, const std::string& workers) {
    return core::message_of([&] { require_same_settings(servers, workers, "worker 1"); });
  };
  EXPECT_EQ(refusal("a 1\nb 2\n", "a 1\nb 2\n"), "no error");
  EXPECT_THAT(refusal("a 1\nb 2\nc 3\n", "a 1\nb 4\nc 5\n"), Says("worker 1: expected b 2, got b 4"));
  EXPECT_THAT(refusal("a 1\n", "a 1\nb 2\n"), Says("worker 1: expected nothing, got b 2"));
  EXPECT_THAT(refusal("a 1\n", "a 1"), Says("worker 1: expected nothing, got nothing"));
  const std::string longer(1000, 'x');
  EXPECT_THAT(refusal("a\n", longer), Says("worker 1: expected a, got " + longer.substr(0, 200) + "..."));
  EXPECT_THAT(refusal("a\n", longer.substr(0, 201)), Says("worker 1: ", "got " + longer.substr(0, 200) + "...;"));
  EXPECT_THAT(refusal("a\n", longer.substr(0, 200)), Says("worker 1: ", "got " + longer.substr(0, 200) + ";"));
}

}  // namespace
}  // namespace trainyard::parallel::optimizer_settings_test
