// Sharpness-aware minimization by its definition, in double, on a bowl whose gradient is known.
#include "trainyard/optim/optimizers/sharpness_aware.h"

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"

namespace trainyard::optim::sharpness_aware_test {
namespace {

constexpr double kRho = 0.3, kDecay = 0.05, kMomentum = 0.8;

// Two parameters of a bowl, of which the second has no decay.
class Bowl {
 public:
  explicit Bowl(at::ScalarType dtype = at::kDouble, const OptimizerOptions& more = {}) : set_({.dtype = dtype}) {
    set_.declare({.name = "body", .shape = {3}});
    set_.declare({.name = "head", .shape = {2}, .decay = false});
    set_.allocate();
    body().copy_(at::tensor({1.0, -2.0, 0.5}));
    head().copy_(at::tensor({-0.25, 0.75}));
    OptimizerOptions options = more;
    options.numbers["momentum"] = kMomentum;
    options.weight_decay = kDecay;
    optimizer_ = optimizers().get("tf_nesterov")(set_, options);
  }
  nn::ParameterSet& set() { return set_; }
  Optimizer& optimizer() { return *optimizer_; }
  at::Tensor body() const { return set_.value(*set_.find("body")); }
  at::Tensor head() const { return set_.value(*set_.find("head")); }

  // Without the decay: gradients of where the values are, times 8.
  void backward(int64_t step) {
    for (const char* name : {"body", "head"}) {
      const nn::ParameterId id = *set_.find(name);
      const at::Tensor value = set_.value(id).to(at::kDouble), gradient = at::empty_like(value);
      for (int64_t i = 0; i < value.numel(); ++i) {
        const double place = static_cast<double>(i) + (name[0] == 'h' ? 3.0 : 0.0);
        gradient[i] = 8 * slope(value[i].item<double>(), place, step);
      }
      set_.gradient(id).copy_(gradient);
    }
  }
  // Not linear, so that where a gradient is taken shows.
  static double slope(double w, double place, int64_t step) {
    const double x = w - std::sin(0.05 * static_cast<double>(step) + place);
    return (0.5 + 0.25 * place) * x + 0.2 * x * x * x;
  }
  std::vector<double> values() const {
    std::vector<double> all;
    for (const at::Tensor& part : {body(), head()}) {
      for (int64_t i = 0; i < part.numel(); ++i) all.push_back(part[i].item<double>());
    }
    return all;
  }

 private:
  nn::ParameterSet set_;
  std::unique_ptr<Optimizer> optimizer_;
};

double rate_at(int64_t step) {
  return 0.02 / (1 + 0.01 * static_cast<double>(step));
}

void step_of(Bowl& bowl, SharpnessAware& sam, int64_t step, bool skipped = false) {
  StepState state;
  state.write({.learning_rate = rate_at(step), .inverse_loss_scale = 0.125, .step = step, .found_inf = skipped});
  bowl.backward(step);
  sam.perturb(state);
  bowl.backward(step);
  sam.descend(state);
  bowl.optimizer().apply(state);
}

// The same by definition: w, then w + rho g / |g| with g of the whole loss, then Nesterov's update at w.
void defined_step(std::vector<double>& w, std::vector<double>& v, int64_t step) {
  const auto gradient = [step](const std::vector<double>& at) {
    std::vector<double> g;
    for (size_t i = 0; i < at.size(); ++i) {
      g.push_back(Bowl::slope(at[i], static_cast<double>(i), step) + (i < 3 ? kDecay * at[i] : 0));
    }
    return g;
  };
  std::vector<double> g = gradient(w), there = w;
  double squares = 0;
  for (const double each : g) squares += each * each;
  for (size_t i = 0; i < w.size(); ++i) there[i] += kRho * g[i] / std::sqrt(squares);
  g = gradient(there);
  for (size_t i = 0; i < w.size(); ++i) {
    v[i] = kMomentum * v[i] + g[i];
    w[i] -= rate_at(step) * (g[i] + kMomentum * v[i]);
  }
}

void expect_follows_the_definition(at::ScalarType dtype, double allowed) {
  Bowl bowl(dtype);
  SharpnessAware sam(bowl.optimizer(), {.rho = kRho});
  std::vector<double> w = bowl.values(), v(w.size(), 0.0);
  for (int64_t step = 0; step < 1000; ++step) {
    const bool skipped = step == 300;
    step_of(bowl, sam, step, skipped);
    if (!skipped) defined_step(w, v, step);
    const std::vector<double> values = bowl.values();
    for (size_t i = 0; i < w.size(); ++i) ASSERT_NEAR(values[i], w[i], allowed * (1 + std::abs(w[i]))) << step;
  }
}

TEST(SharpnessAware, FollowsItsDefinitionForAThousandSteps) {
  expect_follows_the_definition(at::kDouble, 1e-9);
  expect_follows_the_definition(at::kFloat, 1e-4);
}

TEST(SharpnessAware, ClimbsByRhoAndComesBackBitForBit) {
  Bowl bowl(at::kFloat);
  SharpnessAware sam(bowl.optimizer(), {.rho = kRho});
  const at::Tensor before = bowl.set().values().clone();
  const uint64_t version = bowl.set().version();
  StepState state;
  state.write({.learning_rate = 0.1, .inverse_loss_scale = 0.125});
  bowl.backward(0);
  EXPECT_GT(sam.perturb(state), 0);
  EXPECT_NEAR(bowl.set().values().sub(before).norm().item<double>(), kRho, 1e-6);
  EXPECT_GT(bowl.set().version(), version) << "caches of weights hear of it";
  bowl.backward(0);
  sam.descend(state);
  EXPECT_TRUE(bowl.set().values().equal(before));
  EXPECT_TRUE(bowl.optimizer().gradients_complete());
}

TEST(SharpnessAware, WithoutRhoIsTheOptimizer) {
  Bowl plain, wrapped;
  SharpnessAware sam(wrapped.optimizer(), {.rho = 0});
  for (int64_t step = 0; step < 5; ++step) {
    step_of(wrapped, sam, step);
    StepState state;
    state.write({.learning_rate = rate_at(step), .inverse_loss_scale = 0.125, .step = step});
    plain.backward(step);
    plain.optimizer().apply(state);
  }
  EXPECT_TRUE(plain.set().values().allclose(wrapped.set().values(), 1e-14, 1e-14));
}

// A radius of 1 is one as any other; with none nothing is said to have changed.
TEST(SharpnessAware, MovesByItsRadiusAlone) {
  for (const double rho : {0.0, 1.0, 2.5}) {
    Bowl bowl;
    SharpnessAware sam(bowl.optimizer(), {.rho = rho});
    const at::Tensor before = bowl.set().values().clone();
    const uint64_t version = bowl.set().version();
    StepState state;
    state.write({.inverse_loss_scale = 0.125});
    bowl.backward(0);
    const double norm = sam.perturb(state);
    EXPECT_NEAR(norm, bowl.set().gradients().norm().item<double>(), 1e-12);
    EXPECT_NEAR(bowl.set().values().sub(before).norm().item<double>(), rho, 1e-12);
    EXPECT_EQ(bowl.set().version() != version, rho > 0);
    const at::Tensor expected = before.add(bowl.set().gradients(), rho / norm);
    EXPECT_LT(bowl.set().values().sub(expected).abs().max().item<double>(), 1e-14);
  }
}

// The parameter that it moves has no gap behind it: the next one is another optimizer's.
TEST(SharpnessAware, LeavesTheParametersOfOthersAlone) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    nn::ParameterSet set({.dtype = dtype});
    set.declare({.name = "others", .shape = {16}, .init = nn::Initializer::normal(1.0)});
    set.declare({.name = "own", .shape = {2, 8}, .init = nn::Initializer::normal(1.0)});
    set.allocate();
    set.initialize(5);
    const auto optimizer = optimizers().get("sgd")(set, {.parameters = {"own"}});
    const at::Tensor before = set.values().clone();
    set.gradients().fill_(2);
    SharpnessAware sam(*optimizer, {.rho = kRho});
    StepState state;
    state.write({.inverse_loss_scale = 0.5});
    EXPECT_DOUBLE_EQ(sam.perturb(state), 4) << "of 16 ones";
    const at::Tensor moved = set.values().sub(before);
    const auto of = [&](const char* name) { return moved.narrow(0, set.segment(*set.find(name)).offset, 16); };
    EXPECT_EQ(of("others").abs().max().item<double>(), 0);
    EXPECT_NEAR(of("own").min().item<double>(), kRho / 4, 1e-6);
    EXPECT_NEAR(of("own").max().item<double>(), kRho / 4, 1e-6);
  }
}

TEST(SharpnessAware, StaysWhereTheGradientIsNotFinite) {
  Bowl bowl;
  SharpnessAware sam(bowl.optimizer(), {.rho = kRho});
  const at::Tensor before = bowl.set().values().clone();
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity(), 1e200}) {
    StepState state;
    state.write({.inverse_loss_scale = 0.125});
    bowl.backward(0);
    bowl.set().gradient(*bowl.set().find("body"))[1] = bad;
    EXPECT_FALSE(std::isfinite(sam.perturb(state))) << bad;
    EXPECT_TRUE(bowl.set().values().equal(before));
    sam.descend(state);
    EXPECT_TRUE(bowl.set().values().equal(before));
  }
  EXPECT_NE(core::message_of([&] { SharpnessAware(bowl.optimizer(), {.rho = -1}); }), "no error");
}

// What was kept for one step is not put back in a later one that did not perturb.
TEST(SharpnessAware, AStepThatDidNotClimbKeepsItsValues) {
  Bowl bowl;
  SharpnessAware sam(bowl.optimizer(), {.rho = kRho});
  step_of(bowl, sam, 0);
  const at::Tensor after_one_step = bowl.set().values().clone();
  StepState state;
  state.write({.learning_rate = 0.1, .inverse_loss_scale = 0.125});
  bowl.set().gradients().fill_(std::nan(""));
  EXPECT_FALSE(std::isfinite(sam.perturb(state)));
  sam.put_back();
  EXPECT_TRUE(bowl.set().values().equal(after_one_step));
}

TEST(SharpnessAware, GivesTheSameBitsOnAnyNumberOfThreads) {
  std::vector<at::Tensor> perturbed;
  const int threads = at::get_num_threads();
  for (const int count : {1, 2, 5}) {
    at::set_num_threads(count);
    nn::ParameterSet set;
    set.declare({.name = "a", .shape = {777'777}, .init = nn::Initializer::normal(1.0)});
    set.declare({.name = "b", .shape = {123'456}, .init = nn::Initializer::normal(1.0)});
    set.allocate();
    set.initialize(5);
    set.gradients().copy_(set.values().mul(0.37).sin());
    const auto optimizer = optimizers().get("sgd")(set, {.weight_decay = 0.1});
    SharpnessAware sam(*optimizer, {.rho = kRho});
    StepState state;
    state.write({.inverse_loss_scale = 0.5});
    sam.perturb(state);
    perturbed.push_back(set.values().clone());
  }
  at::set_num_threads(threads);
  EXPECT_TRUE(perturbed[0].equal(perturbed[1]));
  EXPECT_TRUE(perturbed[0].equal(perturbed[2]));
}

TEST(SharpnessAware, LeavesMaskedAndFrozenParametersAlone) {
  Bowl bowl;
  const nn::ParameterId body = *bowl.set().find("body");
  bowl.set().set_mask(body, at::tensor({1, 0, 1}).to(at::kBool));
  bowl.set().set_trainable(*bowl.set().find("head"), false);
  const at::Tensor head = bowl.head().clone();
  SharpnessAware sam(bowl.optimizer(), {.rho = kRho});
  for (int64_t step = 0; step < 10; ++step) {
    const at::Tensor before = bowl.set().values().clone();
    StepState state;
    state.write({.learning_rate = 0.1, .inverse_loss_scale = 0.125, .step = step});
    bowl.backward(step);
    sam.perturb(state);
    EXPECT_EQ(bowl.body()[1].item<double>(), 0) << "also where it has perturbed to";
    EXPECT_TRUE(bowl.head().equal(head));
    EXPECT_NEAR(bowl.set().values().sub(before).norm().item<double>(), kRho, 1e-12) << "over what moves alone";
    bowl.backward(step);
    sam.descend(state);
    bowl.optimizer().apply(state);
    EXPECT_EQ(bowl.body()[1].item<double>(), 0);
    EXPECT_TRUE(bowl.head().equal(head));
  }
}

}  // namespace
}  // namespace trainyard::optim::sharpness_aware_test
