// Terms of regularization against their definition in double.
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/optim/optimizers/optimizer.h"
#include "trainyard/optim/optimizers/regularization_loss.h"
#include "trainyard/optim/testing/small_set.h"

namespace trainyard::optim::regularization_test {
namespace {

using ::testing::HasSubstr;

OptimizerOptions with_terms() {
  return {.weight_decay = 0.02,
          .regularization = {
              {.name = "body", .pattern = "body.*", .kind = RegularizationKind::kL2, .coefficient = 0.03},
              {.name = "half", .pattern = "*.2.*", .kind = RegularizationKind::kL2Half, .coefficient = 0.04},
              {.name = "sparse", .pattern = "head.*", .kind = RegularizationKind::kL1, .coefficient = 0.05}}};
}

double sign(double w) {
  return w > 0 ? 1 : w < 0 ? -1 : 0;
}

// The derivative of the terms above, written out by parameter.
double derivative(const std::string& name, double w) {
  if (name == "body.1.weight") return 0.02 * w + 2 * 0.03 * w;
  if (name == "body.2.weight") return 0.02 * w + 2 * 0.03 * w + 0.04 * w;
  if (name == "head.weight") return 0.02 * w + 0.05 * sign(w);
  return 0.05 * sign(w);  // head.bias, which does not decay
}

TEST(Regularization, AddsTheGradientOfEachTerm) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    for (const double factor : {1.0, 3.0}) {
      nn::ParameterSet set = small_set(dtype), before = small_set(dtype);
      for (nn::ParameterSet* each : {&set, &before}) each->value(*set.find("head.bias")).narrow(0, 1, 2).zero_();
      const auto optimizer = optimizers().get("sgd")(set, with_terms());
      optimizer->set_weight_decay_factor(factor);
      StepState state;
      state.write({.learning_rate = 0.5, .inverse_loss_scale = 0.25});
      set.gradients().fill_(2.0);
      optimizer->apply(state);
      for (const nn::Segment& segment : set.segments()) {
        for (int64_t i = segment.offset; i < segment.offset + segment.count; ++i) {
          const double w = before.values()[i].item<double>();
          const double expected = w - 0.5 * (0.5 + factor * derivative(segment.spec.name, w));
          ASSERT_NEAR(set.values()[i].item<double>(), expected, dtype == at::kDouble ? 1e-15 : 1e-6)
              << segment.spec.name << " " << i;
        }
      }
      // At 0 the gradient of |w| is 0: nothing but the loss moves it.
      EXPECT_EQ(set.value(*set.find("head.bias"))[1].item<double>(), -0.25);
    }
  }
}

TEST(Regularization, IsReportedByTermAndInTotal) {
  nn::ParameterSet set = small_set(at::kFloat);
  const auto optimizer = optimizers().get("sgd")(set, with_terms());
  const auto of = [&](const char* name) { return set.value(*set.find(name)).to(at::kDouble); };
  const auto squares = [&](const char* name) { return of(name).square().sum().item<double>(); };
  const double body = squares("body.1.weight") + squares("body.2.weight");
  const double absolutes = (of("head.weight").abs().sum() + of("head.bias").abs().sum()).item<double>();
  const std::vector<std::pair<std::string, double>> expected = {
      {"weight_decay", 0.02 * (body + squares("head.weight")) / 2},
      {"body", 0.03 * body},
      {"half", 0.04 * squares("body.2.weight") / 2},
      {"sparse", 0.05 * absolutes}};
  const RegularizationLoss loss(*optimizer);
  const auto terms = loss.by_term();
  ASSERT_EQ(terms.size(), expected.size());
  double total = 0;
  for (size_t t = 0; t < terms.size(); ++t) {
    EXPECT_EQ(terms[t].first, expected[t].first);
    EXPECT_EQ(terms[t].second.scalar_type(), at::kDouble);
    EXPECT_NEAR(terms[t].second.item<double>(), expected[t].second, 1e-12);
    total += expected[t].second;
  }
  EXPECT_NEAR(loss().item<double>(), total, 1e-12);
  nn::ParameterSet twice = set.clone();
  twice.values().mul_(2);
  EXPECT_NEAR(RegularizationLoss(*optimizer, twice).by_term()[1].second.item<double>(), 4 * expected[1].second, 1e-12);
  EXPECT_EQ(RegularizationLoss(*optimizers().get("sgd")(set, {}))().item<double>(), 0);
  EXPECT_TRUE(RegularizationLoss(*optimizers().get("sgd")(set, {})).by_term().empty());
}

// A parameter that no term is for has no part in the loss, whatever it holds: 0 times infinity is not a number.
TEST(Regularization, ParametersWithoutACoefficientDoNotCount) {
  nn::ParameterSet set = small_set();
  set.value(*set.find("head.bias"))[2] = std::numeric_limits<double>::infinity();
  const auto optimizer = optimizers().get("sgd")(
      set, {.weight_decay = 0.02,
            .regularization = {
                {.name = "sparse", .pattern = "body.1.*", .kind = RegularizationKind::kL1, .coefficient = 0.05}}});
  double squares = 0;
  for (const char* name : {"body.1.weight", "body.2.weight", "head.weight"}) {
    squares += set.value(*set.find(name)).square().sum().item<double>();
  }
  const auto terms = RegularizationLoss(*optimizer).by_term();
  ASSERT_EQ(terms.size(), 2U);
  EXPECT_NEAR(terms[0].second.item<double>(), 0.02 * squares / 2, 1e-12);
  EXPECT_NEAR(terms[1].second.item<double>(), 0.05 * set.value(*set.find("body.1.weight")).abs().sum().item<double>(),
              1e-12);
}

TEST(Regularization, BadTermsAreRefused) {
  nn::ParameterSet set = small_set();
  const auto problem = [&](const std::vector<RegularizationTerm>& terms,
                           core::ErrorCode code = core::ErrorCode::kInvalidArgument) {
    return core::message_of([&] { optimizers().get("sgd")(set, {.regularization = terms}); }, code);
  };
  const RegularizationTerm good{.name = "a", .pattern = "*", .coefficient = 0.1};
  EXPECT_THAT(problem({good, good}), HasSubstr("'a' again"));
  EXPECT_THAT(problem({{.name = "weight_decay", .pattern = "*"}}), HasSubstr("names of their own"));
  EXPECT_THAT(problem({{.name = "", .pattern = "*"}}), HasSubstr("names of their own"));
  EXPECT_THAT(problem({{.name = "b", .pattern = "*", .coefficient = -1}}), HasSubstr("coefficient of the term 'b'"));
  EXPECT_THAT(problem({{.name = "b", .pattern = "*", .coefficient = NAN}}), HasSubstr("coefficient of the term 'b'"));
  EXPECT_THAT(problem({{.name = "b", .pattern = "tail.*"}}, core::ErrorCode::kNotFound), HasSubstr("'tail.*'"));
}

}  // namespace
}  // namespace trainyard::optim::regularization_test
