// Micro-steps, which accumulate gradients: k batches of n / k images are one step of n, with every optimizer and with
// what may stand between gradients and weights, for a network without batch norm; and their runs resume bit for bit.
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/optim/optimizers/optimizer.h"
#include "trainyard/train/step/tower_trainer.h"
#include "trainyard/train/testing/tiny_model.h"

namespace trainyard::train::micro_steps_test {
namespace {

constexpr int64_t kImages = 8, kSteps = 6;

using Change = std::function<void(TowerTrainerOptions&, optim::OptimizerOptions&)>;

TowerTrainerOptions options_of(const std::string& optimizer, const Change& change, int replicas = 1) {
  TowerTrainerOptions options = tiny_options({.batch_norm = false}, replicas);
  options.devices.executor = "reference";
  options.devices.dtype = at::kDouble;
  optim::OptimizerOptions update{.weight_decay = 1e-3};
  if (change) change(options, update);
  options.make_optimizer = [optimizer, update](nn::ParameterSet& set) {
    return optim::optimizers().get(optimizer)(set, update);
  };
  return options;
}

std::unique_ptr<TowerTrainer> trainer_of(TowerTrainerOptions options, int micro_steps) {
  options.micro_steps = micro_steps;
  const int replicas = options.devices.replicas;
  return std::make_unique<TowerTrainer>(options, tiny_source(240, kImages / micro_steps, replicas));
}

core::MemoryState state_of(const TowerTrainer& trainer) {
  core::MemoryState state;
  trainer.save(state);
  return state;
}

// Returns the names of the weights, of what the optimizer keeps, and of the average of the weights.
std::vector<std::string> tensors_of(const core::MemoryState& state) {
  std::vector<std::string> names;
  for (const char* part : {"model/", "optimizer/", "average/weights/"}) {
    for (const std::string& name : state.names(part)) names.push_back(name);
  }
  return names;
}

void expect_near(const core::MemoryState& actual, const core::MemoryState& expected, double tolerance) {
  int compared = 0;
  for (const std::string& name : tensors_of(expected)) {
    ASSERT_TRUE(actual.has(name)) << name;
    const at::Tensor wanted = expected.tensor(name).to(at::kDouble), have = actual.tensor(name).to(at::kDouble);
    const double size = 1 + wanted.abs().max().item<double>();
    EXPECT_LE((have - wanted).abs().max().item<double>(), tolerance * size) << name;
    ++compared;
  }
  EXPECT_GE(compared, 3);
}

void expect_one_step_of_all(const std::string& optimizer, const Change& change = {}, int replicas = 1) {
  const TowerTrainerOptions options = options_of(optimizer, change, replicas);
  const auto whole = trainer_of(options, 1);
  const at::Tensor start = whole->parameters().values().clone();
  whole->train({.steps_per_epoch = kSteps});
  EXPECT_GT(whole->parameters().values().sub(start).abs().max().item<double>(), 1e-6) << "it learns nothing";
  for (const int micro_steps : {2, 4}) {
    SCOPED_TRACE(micro_steps);
    const auto parts = trainer_of(options, micro_steps);
    parts->train({.steps_per_epoch = kSteps});
    expect_near(state_of(*parts), state_of(*whole), 1e-9);
  }
}

void expect_same_bits_after_resume(const std::string& optimizer, const Change& change = {}, int replicas = 1) {
  const TowerTrainerOptions options = options_of(optimizer, change, replicas);
  const auto whole = trainer_of(options, 4), first = trainer_of(options, 4), second = trainer_of(options, 4);
  whole->train({.steps_per_epoch = kSteps});
  first->train({.steps_per_epoch = 3});
  second->load(state_of(*first));
  second->train({.steps_per_epoch = kSteps - 3});
  const core::MemoryState expected = state_of(*whole), actual = state_of(*second);
  for (const std::string& name : tensors_of(expected)) {
    EXPECT_TRUE(actual.tensor(name).equal(expected.tensor(name))) << name;
  }
}

// What may be between gradients and weights.
const std::vector<std::pair<std::string, Change>>& parts_of_updates() {
  static const std::vector<std::pair<std::string, Change>> parts = {
      {"clip by value", [](auto&, auto& update) { update.gradient_clip = 0.01; }},
      {"clip by norm", [](auto&, auto& update) { update.norm_clip = optim::NormClip{.bound = 0.05}; }},
      {"adaptive clip",
       [](auto&, auto& update) {
         update.norm_clip = optim::NormClip{.kind = optim::NormClipKind::kAdaptive, .bound = 0.01};
       }},
      {"delayed", [](auto&, auto& update) { update.delayed = true; }},
      {"groups",
       [](auto&, auto& update) {
         update.groups = {{.pattern = "fc.*", .rate_factor = 3, .weight_decay = 0.1}};
         update.layer_decay = 0.5;
       }},
      {"lookahead", [](auto&, auto& update) { update.lookahead = optim::Lookahead{.steps = 2}; }},
      {"average", [](auto& options, auto&) { options.average = optim::WeightAverageOptions{.decay = 0.7}; }},
      {"sharpness aware",
       [](auto& options, auto&) { options.sharpness_aware = optim::SharpnessAwareOptions{.rho = 0.1}; }},
  };
  return parts;
}

class MicroSteps : public ::testing::TestWithParam<std::string> {};

TEST_P(MicroSteps, AreOneStepOfAllTheirImages) {
  expect_one_step_of_all(GetParam());
}

TEST_P(MicroSteps, GoOnWithTheSameBits) {
  expect_same_bits_after_resume(GetParam());
}

INSTANTIATE_TEST_SUITE_P(All, MicroSteps, ::testing::ValuesIn(optim::optimizers().names()));

TEST(MicroStepsOfUpdates, AreOneStepOfAllTheirImages) {
  for (const auto& [name, change] : parts_of_updates()) {
    SCOPED_TRACE(name);
    for (const char* optimizer : {"torch_momentum", "torch_adamw"}) {
      SCOPED_TRACE(optimizer);
      expect_one_step_of_all(optimizer, change);
      expect_same_bits_after_resume(optimizer, change);
    }
  }
}

TEST(MicroStepsOfReplicas, AreOneStepOfAllTheirImages) {
  for (const char* mode : {"parameter_server", "replicated"}) {
    SCOPED_TRACE(mode);
    const Change change = [mode](auto& options, auto&) { options.exchange.variable_update = mode; };
    expect_one_step_of_all("tf_nesterov", change, 2);
    expect_same_bits_after_resume("tf_nesterov", change, 2);
  }
}

}  // namespace
}  // namespace trainyard::train::micro_steps_test
