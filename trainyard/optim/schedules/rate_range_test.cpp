// The range test against a problem whose largest stable rate is known: gradient descent on a quadratic with curvature L
// converges for rates below 2 / L and diverges above (Nesterov, "Introductory lectures on convex optimization", 2004,
// section 1.2.3).
#include "trainyard/optim/schedules/rate_range.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/random/random.h"
#include "trainyard/core/testing/error.h"

namespace trainyard::optim::rate_range_test {
namespace {

// Runs the test by gradient descent on 0.5 * sum(curvature * w^2) from w = 1.
RangeTest tested(const std::vector<double>& curvatures, const RangeTestOptions& options) {
  RangeTest test(options);
  std::vector<double> w(curvatures.size(), 1.0);
  while (!test.done()) {
    double loss = 0;
    for (size_t i = 0; i < w.size(); ++i) loss += 0.5 * curvatures[i] * w[i] * w[i];
    const double rate = test.rate();
    for (size_t i = 0; i < w.size(); ++i) w[i] -= rate * curvatures[i] * w[i];
    test.note(loss);
  }
  return test;
}

TEST(RangeTest, FindsTheStableRatesOfAQuadratic) {
  for (const double largest : {0.5, 4.0, 100.0}) {
    const double stable = 2 / largest;
    const RangeTest test =
        tested({largest, largest / 3, largest / 10}, {.lowest = 1e-7, .highest = 1000, .steps = 200});
    ASSERT_TRUE(test.diverged()) << largest;
    const double last = test.points().back().rate;
    EXPECT_GT(last, stable) << "it diverged at a rate that converges";
    EXPECT_LT(last, 20 * stable) << "it went on with rates that diverge";
    const auto proposal = test.proposal();
    ASSERT_TRUE(proposal);
    for (const double rate : {proposal->steepest, proposal->tenth_of_minimum}) {
      EXPECT_LT(rate, stable);
      EXPECT_GT(rate, stable / 1000) << "it trains";
    }
    // Descent with the proposal converges, and with the rate at which the test ended it does not.
    EXPECT_LT(std::abs(1 - proposal->steepest * largest), 1);
    EXPECT_GT(std::abs(1 - last * largest), 1);
  }
}

TEST(RangeTest, RatesRiseExponentially) {
  RangeTest test({.lowest = 1e-4, .highest = 1, .steps = 17});
  while (!test.done()) test.note(1);
  ASSERT_EQ(test.points().size(), 17u);
  EXPECT_DOUBLE_EQ(test.points()[0].rate, 1e-4);
  EXPECT_NEAR(test.points()[4].rate, 1e-3, 1e-9);
  EXPECT_NEAR(test.points()[8].rate, 1e-2, 1e-8);
  EXPECT_NEAR(test.points()[16].rate, 1, 1e-12);
  EXPECT_FALSE(test.diverged());
  EXPECT_FALSE(test.proposal()) << "a loss that stays has no slope";
}

// fastai's AvgSmoothLoss: val = lerp(loss, val, 0.98), count += 1, value = val / (1 - 0.98^count), by hand for 4, 2, 3.
TEST(RangeTest, TheMeanIsCorrectedAsInFastai) {
  RangeTest test({.steps = 10});
  for (const double loss : {4.0, 2.0, 3.0}) test.note(loss);
  EXPECT_NEAR(test.points()[0].smoothed, 4, 1e-12);
  EXPECT_NEAR(test.points()[1].smoothed, (0.98 * 0.08 + 0.02 * 2) / (1 - 0.9604), 1e-12);
  EXPECT_NEAR(test.points()[2].smoothed, (0.98 * (0.98 * 0.08 + 0.02 * 2) + 0.02 * 3) / (1 - 0.941192), 1e-12);
}

TEST(RangeTest, EndsWhenTheLossPassesFourTimesItsBest) {
  RangeTest test({.steps = 100, .smoothing = 0});
  test.note(3);
  test.note(1);
  test.note(4);  // not above four times the best
  EXPECT_FALSE(test.done());
  test.note(4.01);
  EXPECT_TRUE(test.done());
  EXPECT_TRUE(test.diverged());
  EXPECT_EQ(test.points().size(), 4u);
}

TEST(RangeTest, ALossThatIsNoNumberEndsIt) {
  for (const double loss : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    RangeTest test({.steps = 100});
    test.note(1);
    test.note(loss);
    EXPECT_TRUE(test.done() && test.diverged());
    EXPECT_EQ(test.points().size(), 1u) << "it has no place in a picture";
  }
}

// With ten steps the line is through three points, whose slope is half the difference of the outer ones.
TEST(RangeTest, TheSteepestSlopeIsInFrontOfTheMinimum) {
  // Falls by 1, 3, 2, rises, then falls by 9 but not below the first minimum.
  RangeTest test({.lowest = 1, .highest = 1e9, .steps = 10, .smoothing = 0, .divergence = 1e9});
  for (const double loss : {10.0, 9.0, 6.0, 4.0, 14.0, 5.0, 6.0, 7.0, 8.0, 8.0}) test.note(loss);
  const auto proposal = test.proposal();
  ASSERT_TRUE(proposal);
  EXPECT_NEAR(proposal->steepest, 1e2, 1e-6);
  EXPECT_NEAR(proposal->minimum, 1e3, 1e-5);
  EXPECT_NEAR(proposal->tenth_of_minimum, 1e2, 1e-6);
}

// The seventh mean, of few losses, is the lowest because of one of them.
TEST(RangeTest, ALowLossAtTheBeginningIsNoMinimum) {
  RangeTest test({.lowest = 1, .highest = 1e29, .steps = 30});
  for (int i = 0; i < 30; ++i) test.note(i == 6 ? 1 : i < 20 ? 2.8 : 3);
  const auto& points = test.points();
  ASSERT_LT(points[6].smoothed, points[19].smoothed);
  const auto proposal = test.proposal();
  ASSERT_TRUE(proposal);
  EXPECT_GE(proposal->minimum, points[10].rate * 0.999);
  EXPECT_NEAR(proposal->fall, 0, 0.1) << "the loss hardly fell";
}

// A loss that falls from 3 to 2 around a rate of 1e-3, with noise as that of small batches: where the smoothed loss is
// the mean of few losses, its differences are those of the noise.
TEST(RangeTest, NoiseAtTheBeginningIsNoSlope) {
  for (const uint64_t seed : {1, 2, 3, 4, 5, 6, 7, 8}) {
    core::RandomStream random(seed, "noise");
    RangeTest test({.lowest = 1e-6, .highest = 1, .steps = 100});
    while (!test.done()) test.note(2.5 - 0.5 * std::tanh(2 * std::log10(test.rate() / 1e-3)) + 0.15 * random.normal());
    const auto proposal = test.proposal();
    ASSERT_TRUE(proposal);
    EXPECT_NEAR(std::log10(proposal->steepest), -3, 0.5) << seed;
  }
}

TEST(RangeTest, RefusesWhatIsNoRange) {
  for (const RangeTestOptions& options :
       {RangeTestOptions{.lowest = 0}, RangeTestOptions{.lowest = 1, .highest = 1}, RangeTestOptions{.steps = 9},
        RangeTestOptions{.smoothing = 1}, RangeTestOptions{.divergence = 1},
        RangeTestOptions{.highest = std::nan("")}}) {
    EXPECT_EQ(core::code_of([&] { RangeTest test(options); }), core::ErrorCode::kInvalidArgument);
  }
}

TEST(RangeTest, SaysWhichNumberItRefuses) {
  const auto message = [](const RangeTestOptions& options) { return core::message_of([&] { options.validate(); }); };
  const std::string none = "a range test of learning rates has no such ";
  EXPECT_EQ(message({.lowest = 0}), none + "lowest rate: expected a number above 0, got 0");
  EXPECT_EQ(message({.lowest = 2, .highest = 1}), none + "highest rate: expected a number above 2, got 1");
  EXPECT_EQ(message({.steps = 9}), none + "number of steps: expected 10 to 1000000, got 9");
  EXPECT_EQ(message({.steps = 1'000'001}), none + "number of steps: expected 10 to 1000000, got 1000001");
  EXPECT_EQ(message({.smoothing = 1}), none + "smoothing: expected at least 0 and below 1, got 1");
  EXPECT_EQ(message({.smoothing = -0.5}), none + "smoothing: expected at least 0 and below 1, got -0.5");
  EXPECT_EQ(message({.divergence = 1}), none + "limit of divergence: expected a number above 1, got 1");
  EXPECT_EQ(message({.steps = 10, .smoothing = 0}), "no error");
  EXPECT_EQ(message({.steps = 1'000'000}), "no error");
}

// Of ten steps the first three are not settled; of equal slopes the first is the proposal.
TEST(RangeTest, TellsHowFarTheLossFell) {
  RangeTest test({.lowest = 1, .highest = 1e9, .steps = 10, .smoothing = 0, .divergence = 1e9});
  for (const double loss : {10.0, 9.0, 8.0, 8.0, 6.0, 4.0, 2.0, 3.0, 4.0, 5.0}) test.note(loss);
  const auto proposal = test.proposal();
  ASSERT_TRUE(proposal);
  EXPECT_NEAR(proposal->steepest, 1e4, 1e-4);
  EXPECT_NEAR(proposal->minimum, 1e6, 1e-2);
  EXPECT_NEAR(proposal->tenth_of_minimum, 1e5, 1e-3);
  EXPECT_DOUBLE_EQ(proposal->fall, 0.75);
}

}  // namespace
}  // namespace trainyard::optim::rate_range_test
