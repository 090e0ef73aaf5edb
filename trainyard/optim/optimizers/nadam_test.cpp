// Both forms of Nadam against what Keras, PyTorch and tf.keras' optimizer of up to 2.10 make of the same bowl in 1,000
// steps (tools/golden/nadam.py), and what is saved of them.
#include <cmath>
#include <limits>
#include <map>
#include <memory>
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
#include "trainyard/optim/testing/small_set.h"

namespace trainyard::optim {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kSkippedStep = 300;

// Source -> step -> the values of "body" and "head".
std::map<std::string, std::map<int64_t, std::vector<double>>> nadam_goldens() {
  std::istringstream text(
      core::local_file_system().read_file(core::join_path(TRAINYARD_SOURCE_DIR, "trainyard/optim/testdata/nadam.txt")));
  std::map<std::string, std::map<int64_t, std::vector<double>>> goldens;
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("#")) continue;
    std::istringstream words(line);
    std::string source;
    int64_t step = 0;
    words >> source >> step;
    for (double value = 0; words >> value;) goldens[source][step].push_back(value);
  }
  return goldens;
}

// The bowl of the script, with its weight decay in a group.
class Bowl {
 public:
  Bowl(const std::string& name, at::ScalarType dtype) : set_({.dtype = dtype}) {
    for (const auto& [parameter, start] : kStart) {
      set_.declare({.name = parameter, .shape = {static_cast<int64_t>(start.size())}});
    }
    set_.allocate();
    for (const auto& [parameter, start] : kStart) {
      for (size_t i = 0; i < start.size(); ++i) element(parameter, i).fill_(start[i]);
    }
    optimizer_ = optimizers().get(name)(set_, {.beta1 = 0.85,
                                               .beta2 = 0.99,
                                               .epsilon = 1e-5,
                                               .weight_decay = 0.02,
                                               .groups = {{.pattern = "head", .weight_decay = 0.3}}});
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
    StepState state;
    state.write({.learning_rate = 0.02 / (1 + 0.01 * static_cast<double>(step)),
                 .inverse_loss_scale = 0.25,
                 .step = step,
                 .found_inf = skipped});
    optimizer_->apply(state);
  }

  std::vector<double> values() const {
    std::vector<double> all;
    for (const auto& [parameter, start] : kStart) {
      for (size_t i = 0; i < start.size(); ++i) all.push_back(element(parameter, i).item<double>());
    }
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
};

void expect_follows(const std::string& name, const std::string& source, at::ScalarType dtype) {
  const auto goldens = nadam_goldens();
  ASSERT_TRUE(goldens.contains(source));
  const double allowed = dtype == at::kDouble ? 1e-9 : 1e-4;
  Bowl bowl(name, dtype);
  int compared = 0;
  for (int64_t step = 0; step < 1000; ++step) {
    bowl.step(step);
    const auto golden = goldens.at(source).find(step);
    if (golden == goldens.at(source).end()) continue;
    const std::vector<double> values = bowl.values();
    ASSERT_EQ(golden->second.size(), values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_NEAR(values[i], golden->second[i], allowed * std::abs(golden->second[i])) << source << " " << step;
    }
    ++compared;
  }
  EXPECT_EQ(compared, 9);
}

TEST(Nadam, IsKerasFor1000Steps) {
  expect_follows("keras_nadam", "keras", at::kDouble);
  expect_follows("keras_nadam", "keras", at::kFloat);
}

TEST(Nadam, IsPyTorchsFor1000Steps) {
  expect_follows("nadam", "torch", at::kDouble);
  expect_follows("nadam", "torch", at::kFloat);
}

TEST(Nadam, IsThatOfTfKeras210For1000Steps) {
  expect_follows("nadam", "tf_keras", at::kFloat);
}

void nadam_step(nn::ParameterSet& set, Optimizer& optimizer, bool found_inf = false) {
  StepState state;
  state.write({.learning_rate = 0.05, .found_inf = found_inf});
  set.gradients().copy_(set.values().sub(0.25));
  optimizer.apply(state);
}

TEST(Nadam, GoesOnToTheBit) {
  for (const char* name : {"nadam", "keras_nadam"}) {
    nn::ParameterSet straight = small_set(), stopped = small_set(), resumed = small_set();
    const auto first = optimizers().get(name)(straight, {}), second = optimizers().get(name)(stopped, {});
    for (int i = 0; i < 5; ++i) {
      nadam_step(straight, *first);
      // Skipped steps do not count.
      if (i == 2) nadam_step(stopped, *second, true);
      nadam_step(stopped, *second);
    }
    core::MemoryState saved;
    second->save(saved);
    EXPECT_EQ(saved.integer("head.bias.nadam_updates"), 5);
    resumed.copy_from(stopped);
    const auto third = optimizers().get(name)(resumed, {});
    third->load(saved);
    nadam_step(straight, *first);
    nadam_step(resumed, *third);
    EXPECT_TRUE(resumed.values().equal(straight.values())) << name;
  }
}

TEST(Nadam, TwoSaveSideBySide) {
  nn::ParameterSet set = small_set();
  const auto body = optimizers().get("nadam")(set, {.parameters = {"body.1.*"}});
  const auto head = optimizers().get("keras_nadam")(set, {.parameters = {"head.bias"}});
  core::MemoryState saved;
  body->save(saved);
  head->save(saved);
  EXPECT_THAT(saved.names("head"), ElementsAre("head.bias.mean", "head.bias.mean_square",
                                               "head.bias.nadam_momentum_product", "head.bias.nadam_updates"));
  EXPECT_THAT(saved.names("body"), ElementsAre("body.1.weight.mean", "body.1.weight.mean_square",
                                               "body.1.weight.nadam_momentum_product", "body.1.weight.nadam_updates"));
}

TEST(Nadam, ItsNumbersMayChangeWithinTheirRanges) {
  nn::ParameterSet set = small_set();
  const auto nadam = optimizers().get("nadam")(set, {});
  EXPECT_THAT(nadam->hyperparameter_names(), ElementsAre("beta1", "beta2", "epsilon", "weight_decay"));
  for (const char* name : {"beta1", "beta2", "epsilon"}) {
    nadam->set_hyperparameter(name, 0.5);
    EXPECT_EQ(nadam->hyperparameter(name), 0.5);
    EXPECT_THAT(core::message_of([&] { nadam->set_hyperparameter(name, -0.5); }), HasSubstr(name));
    EXPECT_THAT(core::message_of([&] { nadam->set_hyperparameter(name, std::nan("")); }), HasSubstr(name));
  }
  EXPECT_THAT(core::message_of([&] { nadam->set_hyperparameter("beta1", 1); }), HasSubstr("[0, 1)"));
  EXPECT_THAT(core::message_of([&] { nadam->set_hyperparameter("beta2", 1); }), HasSubstr("[0, 1)"));
  EXPECT_THAT(core::message_of([&] { nadam->set_hyperparameter("epsilon", 0); }), HasSubstr("above 0"));
  EXPECT_EQ(nadam->hyperparameter("epsilon"), 0.5);
}

}  // namespace
}  // namespace trainyard::optim
