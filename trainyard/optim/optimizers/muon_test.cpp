// Muon against torch.optim.Muon and airbench's in 1,000 steps (tools/golden/muon.py), and the orthogonalization against
// a singular value decomposition.
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_svd.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/optim/optimizers/optimizer.h"
#include "trainyard/optim/optimizers/orthogonalize.h"

namespace trainyard::optim::muon_test {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSkippedStep = 300;

struct Declared {
  const char* name;
  nn::Shape shape;
};
// Those of the script.
const std::vector<Declared> kParameters = {
    {"wide", {3, 7}}, {"tall", {5, 2}}, {"filters", {2, 1, 2, 2}}, {"head", {2, 3}}, {"bias", {3}}};

struct Golden {
  std::string source, optimizer;
  OptimizerOptions options{};
  std::map<int64_t, std::vector<double>> steps{};
};

std::vector<Golden> goldens() {
  std::istringstream text(
      core::local_file_system().read_file(core::join_path(TRAINYARD_SOURCE_DIR, "trainyard/optim/testdata/muon.txt")));
  std::vector<Golden> all;
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("#")) continue;
    std::istringstream words(line);
    std::string source;
    words >> source;
    if (source.ends_with(":")) {
      Golden golden{.source = source.substr(0, source.size() - 1)};
      words >> golden.optimizer;
      for (std::string name; words >> name;) {
        words >> (name == "weight_decay" ? golden.options.weight_decay : golden.options.numbers[name]);
      }
      golden.options.muon_exclude = {"head"};
      all.push_back(golden);
      continue;
    }
    int64_t step = 0;
    words >> step;
    for (double value = 0; words >> value;) all.back().steps[step].push_back(value);
  }
  return all;
}

class Bowl {
 public:
  Bowl(const Golden& golden, at::ScalarType dtype) : set_({.dtype = dtype}) {
    for (const Declared& each : kParameters) set_.declare({.name = each.name, .shape = each.shape});
    set_.allocate();
    for_each_element([](size_t p, int64_t i, at::Tensor value, at::Tensor) {
      value[i].fill_(std::cos(1.7 * static_cast<double>(i) + static_cast<double>(p)));
    });
    optimizer_ = optimizers().get(golden.optimizer)(set_, golden.options);
  }

  void step(int64_t step) {
    const bool skipped = step == kSkippedStep;
    for_each_element([&](size_t p, int64_t i, const at::Tensor& value, const at::Tensor& gradient) {
      const double place = static_cast<double>(i) + 4.0 * static_cast<double>(p);
      const double middle = std::sin(0.05 * static_cast<double>(step) + place);
      const double of = (0.5 + 0.25 * std::cos(place)) * (value[i].item<double>() - middle);
      gradient[i].fill_(skipped ? std::numeric_limits<double>::infinity() : of * 4);
    });
    StepState state;
    state.write({.learning_rate = 0.02 / (1 + 0.01 * static_cast<double>(step)),
                 .inverse_loss_scale = 0.25,
                 .step = step,
                 .found_inf = skipped});
    optimizer_->apply(state);
  }

  std::vector<double> values() {
    std::vector<double> all;
    for_each_element(
        [&](size_t, int64_t i, const at::Tensor& value, const at::Tensor&) { all.push_back(value[i].item<double>()); });
    return all;
  }

 private:
  template <typename Work>
  void for_each_element(const Work& work) {
    for (size_t p = 0; p < kParameters.size(); ++p) {
      const nn::ParameterId id = *set_.find(kParameters[p].name);
      const at::Tensor value = set_.value(id).view(-1), gradient = set_.gradient(id).view(-1);
      for (int64_t i = 0; i < value.numel(); ++i) work(p, i, value, gradient);
    }
  }

  nn::ParameterSet set_;
  std::unique_ptr<Optimizer> optimizer_;
};

void expect_follows(const Golden& golden, at::ScalarType dtype, double allowed) {
  SCOPED_TRACE(golden.source);
  ASSERT_GE(golden.steps.size(), 5u);
  Bowl bowl(golden, dtype);
  for (int64_t step = 0; step <= golden.steps.rbegin()->first; ++step) {
    bowl.step(step);
    const auto shown = golden.steps.find(step);
    if (shown == golden.steps.end()) continue;
    const std::vector<double> values = bowl.values();
    ASSERT_EQ(shown->second.size(), values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_NEAR(values[i], shown->second[i], allowed) << "step " << step << ", value " << i;
    }
  }
}

// Airbench adds 1e-7 to the norm, ours is 1e-7 at least, as torch's: a relative difference of that size in each step.
TEST(MuonSteps, AreTorchsAndAirbenchs) {
  const std::vector<Golden> all = goldens();
  ASSERT_EQ(all.size(), 6u);
  for (const Golden& golden : all) {
    if (golden.source == "bfloat16") continue;
    expect_follows(golden, at::kDouble, golden.source == "airbench" ? 1e-6 : 1e-9);
    expect_follows(golden, at::kFloat, 2e-4);
  }
}

// What torch.optim.Muon computes as it is: its iterations round to 8 bits.
TEST(MuonSteps, AreNearTorchsInBfloat16) {
  for (const Golden& golden : goldens()) {
    if (golden.source == "bfloat16") expect_follows(golden, at::kDouble, 0.05);
  }
}

// p(s) of each singular value, five times; U and V stay.
TEST(Orthogonalize, MovesSingularValuesAlone) {
  for (const auto& [rows, columns] : {std::pair{5, 300}, std::pair{300, 5}, std::pair{130, 70}, std::pair{1, 9}}) {
    SCOPED_TRACE(rows);
    const at::Tensor matrix = at::randn({rows, columns}, at::kDouble);
    const auto [u, singular, vt] = at::linalg_svd(matrix, false);
    at::Tensor moved = singular / matrix.norm();
    for (int i = 0; i < 5; ++i) moved = 3.4445 * moved - 4.7750 * moved.pow(3) + 2.0315 * moved.pow(5);
    at::Tensor actual = matrix.clone(), in_float = matrix.to(at::kFloat);
    Orthogonalizer orthogonalize;
    orthogonalize(actual, 5);
    orthogonalize(in_float, 5);
    const at::Tensor expected = (u * moved).matmul(vt);
    EXPECT_LT((actual - expected).abs().max().item<double>(), 1e-11);
    EXPECT_LT((in_float.to(at::kDouble) - expected).abs().max().item<double>(), 2e-4);
  }
  at::Tensor zeros = at::zeros({3, 4});
  Orthogonalizer()(zeros, 5);
  EXPECT_EQ(zeros.abs().max().item<float>(), 0);
}

// A matrix of 16 elements, which ends where the next parameter begins, in front of a vector and an excluded matrix.
nn::ParameterSet packed_set(const nn::Initializer& matrix) {
  nn::ParameterSet set({.dtype = at::kDouble});
  set.declare({.name = "head.weight", .shape = {4, 8}, .init = nn::Initializer::normal(1.0)});
  set.declare({.name = "vector", .shape = {16}, .init = nn::Initializer::normal(1.0)});
  set.declare({.name = "matrix", .shape = {2, 8}, .init = matrix});
  set.allocate();
  set.initialize(3);
  return set;
}

void packed_step(nn::ParameterSet& set, Optimizer& optimizer, int64_t step) {
  StepState state;
  state.write({.learning_rate = 0.05, .inverse_loss_scale = 0.5, .step = step});
  set.gradients().copy_(set.values().sub(0.25));
  optimizer.apply(state);
}

// To the bit, with a large epsilon, whose place in the formula counts.
TEST(Muon, LeavesOtherParametersToItsSecondFormula) {
  for (const auto& [name, other_name] :
       {std::pair{"muon_sgd", "tf_nesterov"}, std::pair{"muon_adamw", "torch_adamw"}}) {
    OptimizerOptions options{.weight_decay = 0.125, .muon_exclude = {"head"}};
    options.numbers = std::string(name) == "muon_sgd" ? OptimizerNumbers{{"momentum", 0.75}}
                                                      : OptimizerNumbers{{"beta1", 0.75}, {"epsilon", 0.5}};
    nn::ParameterSet set = packed_set(nn::Initializer::normal(1.0)), plain = packed_set(nn::Initializer::normal(1.0));
    const auto muon = optimizers().get(name)(set, options);
    options.muon_exclude = {};
    options.parameters = {"head.weight", "vector"};
    const auto other = optimizers().get(other_name)(plain, options);
    const at::Tensor matrix = set.value(*set.find("matrix")).clone();
    for (int64_t step = 0; step < 4; ++step) {
      packed_step(set, *muon, step);
      packed_step(plain, *other, step);
    }
    for (const char* parameter : {"head.weight", "vector"}) {
      EXPECT_TRUE(set.value(*set.find(parameter)).equal(plain.value(*plain.find(parameter)))) << name << parameter;
    }
    EXPECT_FALSE(set.value(*set.find("matrix")).equal(matrix)) << name;
  }
}

// Their norm cannot be that of the number of rows: the first step is that of weights without a norm.
TEST(Muon, NormalizesNoWeightsOfZero) {
  nn::ParameterSet set = packed_set(nn::Initializer::zeros()), plain = packed_set(nn::Initializer::zeros());
  const auto normalized = optimizers().get("muon_sgd")(set, {.numbers = {{"normalize_weights", 1}}}),
             other = optimizers().get("muon_sgd")(plain, {});
  packed_step(set, *normalized, 0);
  packed_step(plain, *other, 0);
  const at::Tensor matrix = set.value(*set.find("matrix"));
  EXPECT_TRUE(matrix.equal(plain.value(*plain.find("matrix"))));
  EXPECT_TRUE(matrix.isfinite().all().item<bool>());
  EXPECT_GT(matrix.norm().item<double>(), 0.01);
}

TEST(Muon, RefusesWhatItCannotDo) {
  nn::ParameterSet set({.dtype = at::kFloat});
  for (const Declared& each : kParameters) set.declare({.name = each.name, .shape = each.shape});
  set.allocate();
  const auto refusal = [&](const std::string& name, const OptimizerOptions& options, core::ErrorCode code) {
    return core::message_of([&] { optimizers().get(name)(set, options); }, code);
  };
  using core::ErrorCode;
  EXPECT_THAT(refusal("muon_sgd", {.numbers = {{"muon_steps", 2.5}}}, ErrorCode::kInvalidArgument),
              HasSubstr("a whole number from 1 to 99"));
  EXPECT_THAT(refusal("muon_sgd", {.numbers = {{"muon_rate", 4}}}, ErrorCode::kInvalidArgument),
              HasSubstr("spectral_unclamped"));
  EXPECT_THAT(refusal("muon_sgd", {.muon_exclude = {"haed"}}, ErrorCode::kNotFound), HasSubstr("haed"));
  EXPECT_THAT(refusal("sgd", {.muon_exclude = {"head"}}, ErrorCode::kInvalidArgument), HasSubstr("muon"));
  EXPECT_THAT(optimizers().get("muon_sgd")(set, {})->part_obstacle(), HasSubstr("whole matrices"));
}

}  // namespace
}  // namespace trainyard::optim::muon_test
