// All optimizers against what PyTorch, Keras and TensorFlow make of the same bowl in 1,000 steps, with groups, weight
// decay, a schedule and a skipped step (tools/golden/optimizers.py), and what they count and save.
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/optim/optimizers/optimizer.h"
#include "trainyard/optim/testing/numbers.h"
#include "trainyard/optim/testing/small_set.h"

namespace trainyard::optim::golden_steps_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kSkippedStep = 300;

struct Golden {
  std::string source, optimizer;
  OptimizerOptions options{};
  bool in_double = true;  // the source computes in double
  bool changes_momentum = false;
  bool is_result = false;  // the values are Optimizer::result()'s
};

std::istringstream golden_text() {
  return std::istringstream(core::local_file_system().read_file(
      core::join_path(TRAINYARD_SOURCE_DIR, "trainyard/optim/testdata/optimizers.txt")));
}

// Reads "<source>: <optimizer> <number> <value> ...".
std::vector<Golden> goldens() {
  std::istringstream text = golden_text();
  std::vector<Golden> all;
  for (std::string line; std::getline(text, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("#") || colon == std::string::npos) continue;
    Golden golden{.source = line.substr(0, colon)};
    std::istringstream words(line.substr(colon + 2));
    words >> golden.optimizer;
    for (std::string name; words >> name;) {
      if (name == "decoupled") {
        golden.options.decoupled_decay = true;
      } else if (name == "changed") {
        golden.changes_momentum = true;
      } else if (name == "result") {
        golden.is_result = true;
      } else if (name == "lookahead") {
        golden.options.lookahead = {.steps = 5, .alpha = 0.5};
      } else if (name == "lookahead_growing") {
        // One of the 1,000 steps is skipped. The script counts as Bowl::step() does: what is skipped is no step.
        golden.options.lookahead = {.steps = 5, .alpha = 1, .final_alpha = 1 - std::pow(0.95, 5), .updates = 999};
      } else if (name == "float") {
        golden.in_double = false;
      } else {
        words >> golden.options.numbers[name];
      }
    }
    all.push_back(golden);
  }
  return all;
}

// Step -> the values of "body" and "head" after it.
std::map<int64_t, std::vector<double>> golden_steps(const std::string& wanted) {
  std::istringstream text = golden_text();
  std::map<int64_t, std::vector<double>> steps;
  for (std::string line; std::getline(text, line);) {
    std::istringstream words(line);
    std::string source;
    int64_t step = 0;
    words >> source >> step;
    if (source != wanted) continue;
    for (double value = 0; words >> value;) steps[step].push_back(value);
  }
  return steps;
}

// The bowl of the script. The weight decay and the rate of "head" are its group's.
class Bowl {
 public:
  Bowl(const Golden& golden, at::ScalarType dtype)
      : set_({.dtype = dtype}), changes_momentum_(golden.changes_momentum), is_result_(golden.is_result) {
    for (const auto& [parameter, start] : kStart) {
      set_.declare({.name = parameter, .shape = {static_cast<int64_t>(start.size())}});
    }
    set_.allocate();
    for (const auto& [parameter, start] : kStart) {
      for (size_t i = 0; i < start.size(); ++i) element(parameter, i).fill_(start[i]);
    }
    OptimizerOptions options = golden.options;
    options.weight_decay = 0.02;
    options.groups = {{.pattern = "head", .rate_factor = 0.5, .weight_decay = 0.3}};
    optimizer_ = optimizers().get(golden.optimizer)(set_, options);
  }

  void step(int64_t step) {
    const bool skipped = step == kSkippedStep;
    for (size_t p = 0; p < kStart.size(); ++p) {
      const auto& [parameter, start] = kStart[p];
      for (size_t i = 0; i < start.size(); ++i) {
        const double place = static_cast<double>(i) + 4.0 * static_cast<double>(p);
        const double middle = std::sin(0.05 * static_cast<double>(step) + place);
        const double gradient = (0.5 + 0.25 * place) * (element(parameter, i).item<double>() - middle);
        set_.gradient(*set_.find(parameter))[static_cast<int64_t>(i)].fill_(
            skipped ? std::numeric_limits<double>::infinity() : gradient * 4);
      }
    }
    if (changes_momentum_) {
      optimizer_->set_hyperparameter("momentum", updates_ < 2 || (updates_ >= 100 && updates_ < 250) ? 0 : 0.8);
    }
    updates_ += skipped ? 0 : 1;
    StepState state;
    state.write({.learning_rate = 0.02 / (1 + 0.01 * static_cast<double>(step)),
                 .inverse_loss_scale = 0.25,
                 .step = updates_ - 1,
                 .found_inf = skipped});
    optimizer_->apply(state);
  }

  std::vector<double> values() {
    std::vector<double> all;
    const at::Tensor trained = set_.values().clone();
    if (is_result_) optimizer_->result(set_.values());
    for (const auto& [parameter, start] : kStart) {
      for (size_t i = 0; i < start.size(); ++i) all.push_back(element(parameter, i).item<double>());
    }
    set_.values().copy_(trained);
    return all;
  }

 private:
  static inline const std::vector<std::pair<std::string, std::vector<double>>> kStart = {
      {"body", {1.0, -2.0, 0.5, 3.0}}, {"head", {-0.25, 0.75, 2.0}}};

  at::Tensor element(const std::string& parameter, size_t i) const {
    return set_.value(*set_.find(parameter))[static_cast<int64_t>(i)];
  }

  nn::ParameterSet set_;
  std::unique_ptr<Optimizer> optimizer_;
  bool changes_momentum_ = false, is_result_ = false;
  int64_t updates_ = 0;
};

// Relative to the value, in float to 0.01 at least: its own rounding errors do not shrink with a value that passes 0.
void expect_follows(const Golden& golden, at::ScalarType dtype) {
  const auto expected = golden_steps(golden.source);
  ASSERT_EQ(expected.size(), 9u);
  Bowl bowl(golden, dtype);
  for (int64_t step = 0; step < 1000; ++step) {
    bowl.step(step);
    const auto shown = expected.find(step);
    if (shown == expected.end()) continue;
    const std::vector<double> values = bowl.values();
    ASSERT_EQ(shown->second.size(), values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      const double size = std::abs(shown->second[i]);
      const double allowed = dtype == at::kDouble ? 1e-9 * size : 1e-4 * std::max(size, 0.01);
      EXPECT_NEAR(values[i], shown->second[i], allowed) << golden.source << ", step " << step << ", value " << i;
    }
  }
}

class GoldenSteps : public ::testing::TestWithParam<Golden> {};

TEST_P(GoldenSteps, AreFollowedInDouble) {
  if (GetParam().in_double) expect_follows(GetParam(), at::kDouble);
}

TEST_P(GoldenSteps, AreFollowedInFloat) {
  expect_follows(GetParam(), at::kFloat);
}

void PrintTo(const Golden& golden, std::ostream* out) {
  *out << golden.source;
}

INSTANTIATE_TEST_SUITE_P(All, GoldenSteps, ::testing::ValuesIn(goldens()),
                         [](const auto& tested) { return tested.param.source; });

// Those without an original in another program: layer_rates_test.cpp. Those of matrices: muon_test.cpp.
TEST(GoldenStepsOf, AllOptimizersButLarsLambAndMuonAreThere) {
  std::vector<std::string> names = {"lamb", "lars", "muon_adamw", "muon_sgd"};
  for (const Golden& golden : goldens()) names.push_back(golden.optimizer);
  EXPECT_THAT(optimizers().names(), ::testing::IsSubsetOf(names));
  EXPECT_GE(names.size(), 26u);
}

// The package has one form of weight decay, which moves y and z; without a clip both of ours are that.
TEST(GoldenStepsOf, ScheduleFreeSgdAreTheSameWithDecoupledDecay) {
  int followed = 0;
  for (Golden golden : goldens()) {
    if (golden.optimizer != "schedule_free_sgd") continue;
    golden.options.decoupled_decay = true;
    expect_follows(golden, at::kDouble);
    ++followed;
  }
  EXPECT_GE(followed, 2) << "y, and the mean that is the result";
}

void bowl_step(nn::ParameterSet& set, Optimizer& optimizer, bool found_inf = false) {
  StepState state;
  state.write({.learning_rate = 0.05, .found_inf = found_inf});
  set.gradients().copy_(set.values().sub(0.25));
  optimizer.apply(state);
}

// A skipped update does not count, and the last step is the last one all the same.
TEST(LookaheadSteps, EndWithTheSlowWeightsAfterASkippedOne) {
  nn::ParameterSet set = small_set();
  const auto optimizer = optimizers().get("torch_momentum")(
      set, {.lookahead = Lookahead{.steps = 4, .alpha = 0.5, .final_alpha = 0.25, .updates = 6}});
  const Optimizer::Slot& slow = optimizer->slots().back();
  ASSERT_EQ(slow.name, "slow");
  for (int64_t step = 0; step < 7; ++step) {
    StepState state;
    state.write({.learning_rate = 0.05, .step = step, .found_inf = step == 1});
    set.gradients().copy_(set.values().sub(0.25));
    optimizer->apply(state);
    // After the fourth update, in step 4, and after the last step; not after one behind it.
    EXPECT_EQ(set.values().equal(slow.values), step == 4 || step == 5) << step;
  }
}

// A training with a loss scale may end with a skipped step: it ends with the average all the same.
TEST(LookaheadSteps, EndWithTheSlowWeightsWhenTheLastOneIsSkipped) {
  for (const int64_t first_skipped : {5, 0}) {
    nn::ParameterSet set = small_set();
    const auto optimizer = optimizers().get("torch_momentum")(
        set, {.lookahead = Lookahead{.steps = 4, .alpha = 0.5, .final_alpha = 0.25, .updates = 6}});
    const at::Tensor start = set.values().clone();
    for (int64_t step = 0; step < 6; ++step) {
      StepState state;
      state.write({.learning_rate = 0.05, .step = step, .found_inf = step >= first_skipped});
      set.gradients().copy_(set.values().sub(0.25));
      optimizer->apply(state);
      if (step == 4 && first_skipped == 5) {
        EXPECT_FALSE(set.values().equal(optimizer->slots().back().values));
      }
    }
    if (first_skipped == 0) {
      EXPECT_TRUE(set.values().equal(start)) << "there was no update, and so no average";
    } else {
      EXPECT_TRUE(set.values().equal(optimizer->slots().back().values));
      EXPECT_FALSE(set.values().equal(start));
    }
  }
}

TEST(UpdateCounts, GoOnToTheBit) {
  for (const std::string& name : optimizers().names()) {
    const OptimizerOptions options{.numbers = numbers_of(name, {{"dampening", 0.5}})};
    nn::ParameterSet any = small_set();
    if (!optimizers().get(name)(any, options)->update_count().defined()) continue;
    nn::ParameterSet straight = small_set(), stopped = small_set(), resumed = small_set();
    const auto first = optimizers().get(name)(straight, options), second = optimizers().get(name)(stopped, options);
    for (int i = 0; i < 5; ++i) {
      bowl_step(straight, *first);
      // Skipped steps do not count.
      if (i % 2 == 0) bowl_step(stopped, *second, true);
      bowl_step(stopped, *second);
    }
    core::MemoryState saved;
    second->save(saved);
    EXPECT_EQ(saved.tensor("head.bias.update_count")[0].item<double>(), 5) << name;
    resumed.copy_from(stopped);
    const auto third = optimizers().get(name)(resumed, options);
    third->load(saved);
    bowl_step(straight, *first);
    bowl_step(resumed, *third);
    EXPECT_TRUE(resumed.values().equal(straight.values())) << name;
    // What the count is for.
    const auto forgetful = optimizers().get(name)(stopped, options);
    bowl_step(stopped, *forgetful);
    EXPECT_FALSE(stopped.values().equal(straight.values())) << name;
  }
}

TEST(UpdateCounts, OfTwoOptimizersAreSavedSideBySide) {
  nn::ParameterSet set = small_set();
  const auto body = optimizers().get("torch_nadam")(set, {.parameters = {"body.1.*"}});
  const auto head = optimizers().get("tf_adam")(set, {.parameters = {"head.bias"}});
  core::MemoryState saved;
  body->save(saved);
  head->save(saved);
  EXPECT_THAT(saved.names("head"), ElementsAre("head.bias.mean", "head.bias.mean_square", "head.bias.update_count"));
  EXPECT_THAT(saved.names("body"),
              ElementsAre("body.1.weight.mean", "body.1.weight.mean_square", "body.1.weight.update_count"));
}

TEST(OptimizerNumbers, MayChangeWithinTheirRanges) {
  nn::ParameterSet set = small_set();
  const auto nadam = optimizers().get("torch_nadam")(set, {});
  EXPECT_THAT(nadam->hyperparameter_names(), ElementsAre("beta1", "beta2", "epsilon", "weight_decay"));
  EXPECT_THAT(optimizers().get("tf_rmsprop")(set, {})->hyperparameter_names(),
              ElementsAre("epsilon", "mean_square_decay", "momentum", "weight_decay"));
  for (const std::string& optimizer : optimizers().names()) {
    const auto tested = optimizers().get(optimizer)(set, {});
    for (const std::string& name : tested->hyperparameter_names()) {
      tested->set_hyperparameter(name, 0.5);
      EXPECT_EQ(tested->hyperparameter(name), 0.5) << optimizer;
      std::string words = name == "weight_decay" ? "weight decay" : name;
      EXPECT_THAT(core::message_of([&] { tested->set_hyperparameter(name, -0.5); }), HasSubstr(words));
      EXPECT_THAT(core::message_of([&] { tested->set_hyperparameter(name, std::nan("")); }), HasSubstr(words));
    }
  }
  EXPECT_THAT(core::message_of([&] { nadam->set_hyperparameter("beta1", 1); }), HasSubstr("[0, 1)"));
  EXPECT_THAT(core::message_of([&] { nadam->set_hyperparameter("beta2", 1); }), HasSubstr("[0, 1)"));
  EXPECT_THAT(core::message_of([&] { nadam->set_hyperparameter("epsilon", 0); }), HasSubstr("above 0"));
  EXPECT_EQ(nadam->hyperparameter("epsilon"), 1e-7);
}

}  // namespace
}  // namespace trainyard::optim::golden_steps_test
