// Falling learning rates against PyTorch's, Keras' and Paddle's own (tools/golden/schedules.py,
// paddle_training.py), and closed forms.
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/optim/schedules/learning_rate.h"
#include "trainyard/optim/testing/golden_schedules.h"

namespace trainyard::optim::decay_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

void expect_values(const Schedule& rate, const std::vector<std::pair<int64_t, double>>& oracle) {
  for (const auto& [step, expected] : oracle) EXPECT_NEAR(rate(step), expected, 1e-12 + expected * 1e-12) << step;
}

// tf_cnn_benchmarks' own test: ImageNet's 1,281,167 images at a batch of 32, half every 2 epochs.
TEST(Decay, ExponentialStaircaseHasAFloor) {
  const LearningRate rate = exponential_staircase(1.0, static_cast<int64_t>(1281167.0 / 32 * 2), 0.5, 0.375);
  expect_values(rate, {{0, 1.0}, {80071, 1.0}, {80072, 0.5}, {160143, 0.5}, {160144, 0.375}, {10000000, 0.375}});
}

TEST(Decay, ExponentialIsThatOfTheOthers) {
  expect_golden("keras_exponential", exponential(0.4, 12, 0.6));
  expect_golden("torch_exponential", exponential(0.4, 1, 0.93));
  expect_golden("keras_staircase", exponential_staircase(0.4, 12, 0.6, 0));
  expect_golden("torch_step", exponential_staircase(0.4, 6, 0.3, 0));
  expect_values(exponential(1, 10, 0.25, 0.1), {{5, 0.5}, {10, 0.25}, {20, 0.1}});
}

TEST(Decay, PolynomialIsThatOfTheOthers) {
  expect_golden("torch_polynomial", polynomial({.rate = 0.4, .steps = 20, .power = 1.7}));
  expect_golden("keras_polynomial", polynomial({.rate = 0.4, .steps = 15, .end = 0.01, .power = 2.5}));
  expect_golden("keras_polynomial_cycle",
                polynomial({.rate = 0.4, .steps = 15, .end = 0.01, .power = 0.5, .cycle = true}));
}

TEST(Decay, PolynomialIsPaddlesFromItsFirstCycleOn) {
  expect_golden("paddle_polynomial", polynomial({.rate = 0.4, .steps = 15, .end = 0.01, .power = 1.5, .cycle = true}));
}

TEST(Decay, CosineMeetsItsEndsAndMiddle) {
  const LearningRate rate = cosine(0.4, 110, 10);
  expect_values(rate, {{0, 0.4}, {10, 0.4}, {60, 0.2}, {110, 0.0}, {200, 0.0}});
  EXPECT_NEAR(rate(35), 0.2 * (1 + std::sqrt(0.5)), 1e-12);
}

TEST(Decay, CosineIsThatOfTheOthers) {
  expect_golden("torch_cosine", cosine(0.4, 20, 0, 0.05));
  expect_golden("keras_cosine", cosine(0.4, 30, 0, 0.02));
  // A warm-up in front, whose steps Keras counts beside the decay's.
  expect_golden("keras_warmup_then_cosine", with_warmup(cosine(0.4, 36, 6), 0.4, 6, 0.03));
  expect_golden("torch_warmup_then_cosine", with_warmup(cosine(0.4, 25, 5), 0.4, 5, 0.04));
}

TEST(Decay, RestartsAreThoseOfTheOthers) {
  for (const int factor : {1, 2, 3}) {
    expect_golden("torch_restarts_" + std::to_string(factor),
                  cosine_restarts({.rate = 0.4, .period = 7, .period_factor = double(factor), .minimum = 0.02}));
  }
  expect_golden("keras_restarts",
                cosine_restarts({.rate = 0.4, .period = 8, .period_factor = 1.5, .rate_factor = 0.7, .minimum = 0.04}));
  expect_golden("keras_restarts_even", cosine_restarts({.rate = 0.4, .period = 8, .rate_factor = 0.5}));
}

// Where the logarithm's last bit could put a step into the wrong period.
TEST(Decay, EachRestartBeginsWithItsRate) {
  for (const double factor : {1.0, 2.0, 3.0, 10.0}) {
    const CosineRestarts restarts{.rate = 1, .period = 3, .period_factor = factor};
    const LearningRate rate = cosine_restarts(restarts);
    const std::vector<int64_t> steps = restart_steps(restarts, int64_t{1} << 50, 30);
    EXPECT_GE(steps.size(), 14U);
    for (const int64_t step : steps) {
      EXPECT_EQ(rate(step), 1.0) << factor << " " << step;
      EXPECT_LT(rate(step - 1), 0.3) << factor << " " << step;
    }
  }
  EXPECT_THAT(restart_steps({.rate = 1, .period = 10, .period_factor = 2}, 70, 9), ElementsAre(10, 30));
  EXPECT_THAT(restart_steps({.rate = 1, .period = 10, .period_factor = 2}, 71, 9), ElementsAre(10, 30, 70));
  EXPECT_THAT(restart_steps({.rate = 1, .period = 5, .period_factor = 1.5}, 13, 9), ElementsAre(5));
  EXPECT_THAT(restart_steps({.rate = 1, .period = 5, .period_factor = 1.5}, 14, 9), ElementsAre(5, 13));
  EXPECT_THAT(restart_steps({.rate = 1, .period = 1}, 1000, 2), ElementsAre(1, 2));
}

// So many steps, that the logarithm of the last one of a period rounds to the first one of the next.
TEST(Decay, TheLastStepOfALongPeriodIsItsOwn) {
  struct Row {
    double factor;
    int64_t period, restart;
  };
  // period * (factor^n - 1) / (factor - 1)
  for (const Row& row : {Row{2, 5, 351'843'720'888'315}, Row{2, 1, 281'474'976'710'655}, Row{5, 1, 596'046'447'753'906},
                         Row{7, 1, 271'402'266'318'408}}) {
    const LearningRate rate =
        cosine_restarts({.rate = 1, .period = row.period, .period_factor = row.factor, .minimum = 0.25});
    EXPECT_NEAR(rate(row.restart - 1), 0.25, 1e-9) << row.factor << " " << row.restart;
    EXPECT_EQ(rate(row.restart), 1) << row.factor << " " << row.restart;
  }
}

TEST(Decay, OneCycleIsPyTorchs) {
  for (const auto& [shape, name] : {std::pair{OneCycle::Shape::kCosine, std::string("cos")},
                                    std::pair{OneCycle::Shape::kLinear, std::string("linear")}}) {
    const OneCycle two{.rate = 0.4, .steps = 41, .shape = shape};
    expect_golden("torch_one_cycle_" + name, one_cycle(two));
    expect_golden("torch_one_cycle_" + name + "_momentum", one_cycle_momentum(two));
    const OneCycle three{.rate = 0.4,
                         .steps = 41,
                         .rise = 0.45,
                         .shape = shape,
                         .start_divisor = 10,
                         .end_divisor = 50,
                         .three_phases = true,
                         .least_momentum = 0.8,
                         .most_momentum = 0.97};
    expect_golden("torch_three_phases_" + name, one_cycle(three));
    expect_golden("torch_three_phases_" + name + "_momentum", one_cycle_momentum(three));
  }
  const OneCycle cycle{.rate = 1, .steps = 10};
  EXPECT_NEAR(one_cycle(cycle)(9), 1 / 25.0 / 1e4, 1e-15);
  EXPECT_EQ(one_cycle(cycle)(1000), one_cycle(cycle)(9)) << "behind its last step";
  EXPECT_THAT(one_cycle_boundaries(cycle), ElementsAre(3));
  EXPECT_THAT(one_cycle_boundaries({.rate = 1, .steps = 10, .three_phases = true}), ElementsAre(3, 5));
  EXPECT_THAT(one_cycle_boundaries({.rate = 1, .steps = 1}), IsEmpty());
  EXPECT_TRUE(std::isfinite(one_cycle({.rate = 1, .steps = 10, .rise = 0.1})(0))) << "a phase without a length";
}

TEST(Decay, ValuesThatCannotBeAreRefused) {
  const auto refused = [](auto make) { return core::code_of(make) == core::ErrorCode::kInvalidArgument; };
  EXPECT_TRUE(refused([] { exponential_staircase(1.0, 0, 0.5, 0.0); }));
  EXPECT_TRUE(refused([] { exponential(1.0, 5, std::nan("")); }));
  EXPECT_TRUE(refused([] { cosine(1.0, 10, 10); }));
  EXPECT_TRUE(refused([] { cosine(1.0, 10, 0, -1); }));
  EXPECT_TRUE(refused([] { polynomial({.rate = 1, .steps = 0}); }));
  EXPECT_TRUE(refused([] { polynomial({.rate = 1, .steps = 5, .power = -1}); }));
  EXPECT_TRUE(refused([] { cosine_restarts({.rate = 1, .period = 0}); }));
  EXPECT_TRUE(refused([] { cosine_restarts({.rate = 1, .period = 5, .period_factor = 0.9}); }));
  EXPECT_TRUE(refused([] { cosine_restarts({.rate = 1, .period = 5, .rate_factor = 1.1}); }));
  EXPECT_TRUE(refused([] { one_cycle({.rate = 1, .steps = 0}); }));
  EXPECT_TRUE(refused([] { one_cycle({.rate = 1, .steps = 5, .rise = 0}); }));
  EXPECT_TRUE(refused([] { one_cycle({.rate = 1, .steps = 5, .rise = 0.6, .three_phases = true}); }));
  EXPECT_TRUE(refused([] { one_cycle({.rate = 1, .steps = 5, .end_divisor = 0}); }));
  EXPECT_TRUE(refused([] { one_cycle_momentum({.rate = 1, .steps = 5, .least_momentum = 0.96}); }));
  EXPECT_TRUE(refused([] { one_cycle_boundaries({.rate = 1, .steps = 0}); }));
  EXPECT_TRUE(refused([] { restart_steps({.rate = 1, .period = 0}, 10, 3); }));
}

TEST(Decay, SaysWhichValueItRefuses) {
  const auto message = [](const auto& make) { return core::message_of([&] { static_cast<void>(make()); }); };
  const std::string rate = " is not usable: expected a finite number, at least 0, got ";
  EXPECT_EQ(message([] { return exponential(1.0, 0, 0.5); }),
            "steps between two decays are not usable: expected at least 1, got 0");
  EXPECT_EQ(message([] { return exponential(-1.0, 5, 0.5); }), "the learning rate" + rate + "-1");
  EXPECT_EQ(message([] { return exponential(1.0, 5, -0.5); }), "the learning rate's decay factor" + rate + "-0.5");
  EXPECT_EQ(message([] { return exponential(1.0, 5, 0.5, -2.0); }), "the minimum of the learning rate" + rate + "-2");
  EXPECT_EQ(message([] { return polynomial({.rate = 1, .steps = 5, .end = -3}); }),
            "the last learning rate of a polynomial decay" + rate + "-3");
  EXPECT_EQ(message([] { return polynomial({.rate = -1, .steps = 5}); }), "the learning rate" + rate + "-1");
  EXPECT_EQ(message([] { return polynomial({.rate = 1, .steps = 5, .power = -2}); }),
            "the power of a polynomial decay" + rate + "-2");
  EXPECT_EQ(message([] { return polynomial({.rate = 1, .steps = 0}); }),
            "the steps of a polynomial decay are not usable: expected at least 1, got 0");
  EXPECT_EQ(message([] { return polynomial({.rate = 0, .steps = 1, .end = 0, .power = 0}); }), "no error");
  EXPECT_EQ(message([] { return cosine(-1, 10); }), "the learning rate" + rate + "-1");
  EXPECT_EQ(message([] { return cosine(1, 10, 0, -2); }), "the minimum of the learning rate" + rate + "-2");
  EXPECT_EQ(message([] { return cosine_restarts({.rate = -1, .period = 5}); }), "the learning rate" + rate + "-1");
  EXPECT_EQ(message([] { return cosine_restarts({.rate = 1, .period = 5, .minimum = -2}); }),
            "the minimum of the learning rate" + rate + "-2");
  EXPECT_EQ(message([] { return cosine(1.0, 10, 10); }),
            "the cosine's first step is not usable: expected one in [0, 10), got 10");
  EXPECT_EQ(message([] { return cosine(1.0, 10, -1); }),
            "the cosine's first step is not usable: expected one in [0, 10), got -1");
  EXPECT_EQ(message([] { return cosine_restarts({.rate = 1, .period = 0}); }),
            "steps to the first restart are not usable: expected at least 1, got 0");
  EXPECT_EQ(message([] { return cosine_restarts({.rate = 1, .period = 5, .period_factor = 0.5}); }),
            "the factor of a restart's period is not usable: expected a finite number, at least 1, got 0.5");
  EXPECT_EQ(message([] { return cosine_restarts({.rate = 1, .period = 5, .rate_factor = 1.5}); }),
            "the factor of a restart's rate is not usable: expected one in [0, 1], got 1.5");
  EXPECT_EQ(message([] { return cosine_restarts({.rate = 1, .period = 5, .rate_factor = 1}); }), "no error");
  EXPECT_EQ(message([] { return cosine_restarts({.rate = 1, .period = 5, .rate_factor = 0}); }), "no error");
}

TEST(Decay, SaysWhichPartOfACycleItRefuses) {
  const auto message = [](const OneCycle& cycle) {
    return core::message_of([&] { static_cast<void>(one_cycle(cycle)); });
  };
  EXPECT_EQ(message({.rate = -1, .steps = 5}),
            "the highest learning rate of a cycle is not usable: expected a finite number, at least 0, got -1");
  EXPECT_EQ(message({.rate = 1, .steps = 0}), "the steps of a cycle are not usable: expected at least 1, got 0");
  EXPECT_EQ(message({.rate = 1, .steps = 5, .rise = 1}),
            "the rising part of a cycle is not usable: expected more than 0 and less than 1, got 1");
  EXPECT_EQ(message({.rate = 1, .steps = 5, .rise = 0.75, .three_phases = true}),
            "the rising part of a cycle is not usable: expected more than 0 and at most 0.5, with three phases, got "
            "0.75");
  EXPECT_EQ(message({.rate = 1, .steps = 5, .rise = 0.75}), "no error");
  EXPECT_EQ(message({.rate = 1, .steps = 5, .rise = 0.5, .three_phases = true}), "no error");
  const std::string divisor =
      "a divisor of a cycle's learning rate is not usable: expected a finite number above 0, got ";
  EXPECT_EQ(message({.rate = 1, .steps = 5, .start_divisor = 0}), divisor + "0");
  EXPECT_EQ(message({.rate = 1, .steps = 5, .end_divisor = -2}), divisor + "-2");
  const std::string momenta = "the momenta of a cycle are not usable: expected 0 <= least <= most <= 1, got ";
  EXPECT_EQ(message({.rate = 1, .steps = 5, .least_momentum = 0.5, .most_momentum = 0.25}), momenta + "0.5 and 0.25");
  EXPECT_EQ(message({.rate = 1, .steps = 5, .least_momentum = -0.5, .most_momentum = 0.25}), momenta + "-0.5 and 0.25");
  EXPECT_EQ(message({.rate = 1, .steps = 5, .least_momentum = 0.5, .most_momentum = 1.5}), momenta + "0.5 and 1.5");
  EXPECT_EQ(message({.rate = 1, .steps = 5, .least_momentum = 0, .most_momentum = 1}), "no error");
  EXPECT_EQ(message({.rate = 1, .steps = 5, .least_momentum = 1, .most_momentum = 1}), "no error");
}

}  // namespace
}  // namespace trainyard::optim::decay_test
