#include "trainyard/train/step/nan_guard.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"

namespace trainyard::train::nan_guard_test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();

// Two parameters and two statistics, of different sizes. Backward computes the gradient of the head first.
struct Parameters {
  Parameters() {
    set.allocate();
    set.values().fill_(1);
    set.gradients().zero_();
    set.buffer(mean).fill_(2);
    set.buffer(variance).fill_(3);
  }
  nn::ParameterSet set;
  nn::ParameterId body = set.declare({.name = "body", .shape = {2}});
  nn::ParameterId head = set.declare({.name = "head", .shape = {3}});
  int mean = set.declare_buffer({.name = "mean", .shape = {4}});
  int variance = set.declare_buffer({.name = "variance", .shape = {5}});
};

TEST(OnNan, HasThreeNames) {
  EXPECT_EQ(on_nan_from_name("stop"), OnNan::kStop);
  EXPECT_EQ(on_nan_from_name("skip"), OnNan::kSkip);
  EXPECT_EQ(on_nan_from_name("ignore"), OnNan::kIgnore);
  EXPECT_EQ(core::message_of([] { static_cast<void>(on_nan_from_name("halt")); }),
            "no such way to treat NaN: expected stop, skip or ignore, got halt");
}

TEST(NanGuard, TheFirstGradientIsThatWhichBackwardComputesFirst) {
  Parameters parameters;
  EXPECT_EQ(first_non_finite_gradient(parameters.set), std::nullopt);
  parameters.set.gradient(parameters.body)[0] = kNan;
  EXPECT_EQ(first_non_finite_gradient(parameters.set), "body (NaN)");
  EXPECT_EQ(first_non_finite_gradient(parameters.set, /*marked=*/true), "body (NaN)");
  parameters.set.gradient(parameters.head)[2] = kInfinity;
  EXPECT_EQ(first_non_finite_gradient(parameters.set), "head (inf)");
}

TEST(NanGuard, TheMarkOfALossIsNoGradient) {
  Parameters parameters;
  parameters.set.gradients()[0] = kNan;
  EXPECT_EQ(first_non_finite_gradient(parameters.set), "head (NaN)");
  EXPECT_EQ(first_non_finite_gradient(parameters.set, /*marked=*/true), std::nullopt);
  parameters.set.gradients()[1] = kInfinity;
  EXPECT_EQ(first_non_finite_gradient(parameters.set, /*marked=*/true), "head (inf)");
}

TEST(NanGuard, TheFirstValueIsThatWhichForwardReadsFirst) {
  Parameters parameters;
  EXPECT_EQ(first_non_finite_value(parameters.set), std::nullopt);
  parameters.set.buffer(parameters.variance)[4] = kInfinity;
  EXPECT_EQ(first_non_finite_value(parameters.set), "variance (inf)");
  parameters.set.buffer(parameters.mean)[0] = kNan;
  EXPECT_EQ(first_non_finite_value(parameters.set), "mean (NaN)");
  parameters.set.value(parameters.head)[0] = kInfinity;
  EXPECT_EQ(first_non_finite_value(parameters.set), "head (inf)");
  parameters.set.value(parameters.body)[1] = kNan;
  EXPECT_EQ(first_non_finite_value(parameters.set), "body (NaN)");
}

// Those of a replica, and of its last step.
TEST(NanGuard, RestoresTheStatisticsOfTheBeginOfTheStep) {
  Parameters parameters;
  NanGuard guard({.replicas = 2});
  guard.begin_step(1, parameters.set);
  parameters.set.buffer(parameters.mean).fill_(7);
  guard.begin_step(1, parameters.set);
  parameters.set.buffer(parameters.mean).fill_(8);
  parameters.set.buffer(parameters.variance).fill_(9);
  const uint64_t version = parameters.set.version();
  guard.restore_statistics(0, parameters.set);  // which has begun no step
  EXPECT_EQ(parameters.set.buffer(parameters.variance)[4].item<double>(), 9);
  for (int time = 0; time < 2; ++time) {
    guard.restore_statistics(1, parameters.set);
    EXPECT_TRUE(parameters.set.buffer(parameters.mean).equal(at::full({4}, 7.0)));
    EXPECT_TRUE(parameters.set.buffer(parameters.variance).equal(at::full({5}, 3.0)));
    parameters.set.buffer(parameters.variance).fill_(9);
  }
  EXPECT_GT(parameters.set.version(), version) << "executors that fold statistics must hear of it";
}

TEST(NanGuard, WhereNumbersAreIgnoredNoStatisticsAreKept) {
  Parameters parameters;
  NanGuard guard({.on_nan = OnNan::kIgnore});
  guard.begin_step(0, parameters.set);
  parameters.set.buffer(parameters.mean).fill_(8);
  guard.restore_statistics(0, parameters.set);
  EXPECT_TRUE(parameters.set.buffer(parameters.mean).equal(at::full({4}, 8.0)));
}

// The other replicas learn of the loss of one by the first of its gradients, and the update by its state.
TEST(NanGuard, ALossThatIsNotFiniteMarksTheFirstGradientAndTheUpdate) {
  for (const OnNan on_nan : {OnNan::kStop, OnNan::kSkip, OnNan::kIgnore}) {
    for (const bool exchange : {true, false}) {
      Parameters parameters;
      NanGuard guard({.on_nan = on_nan, .replicas = 2, .exchange = exchange});
      optim::StepState state;
      state.write({.learning_rate = 0.1});
      guard.begin_step(1, parameters.set);
      guard.look_at_loss(1, at::full({}, 2.5), parameters.set);
      EXPECT_EQ(guard.loss(1), 2.5);
      EXPECT_TRUE(parameters.set.gradients().eq(0).all().item<bool>());
      guard.look_at_gradients(1, parameters.set, state);
      EXPECT_EQ(state.tensor()[optim::StepState::kFoundInf].item<double>(), 0);
      EXPECT_FALSE(guard.found());

      const bool marks = exchange && on_nan != OnNan::kIgnore;
      EXPECT_EQ(guard.marks_gradients(at::full({}, kNan)), marks);
      EXPECT_FALSE(guard.marks_gradients(at::full({}, 2.5)));
      guard.look_at_loss(1, at::full({}, kNan), parameters.set);
      const at::Tensor gradients = parameters.set.gradients();
      EXPECT_EQ(std::isnan(gradients[0].item<double>()), marks);
      EXPECT_TRUE(gradients.narrow(0, 1, gradients.numel() - 1).eq(0).all().item<bool>());
      EXPECT_EQ(guard.first_gradient(parameters.set), std::nullopt) << "the mark is none";
      guard.look_at_gradients(1, parameters.set, state);
      EXPECT_TRUE(guard.found(1) && !guard.found(0));
      EXPECT_EQ(state.tensor()[optim::StepState::kFoundInf].item<double>(), on_nan == OnNan::kIgnore ? 0 : 1);
    }
  }
}

// An automatic loss scale skips steps with infinite gradients by its own rule; what an update knows is not looked for.
TEST(NanGuard, LooksAtGradientsOnlyWhereNoneElseDoes) {
  const auto found = [](bool scaler_owns_gradients, std::optional<bool> finite) {
    Parameters parameters;
    parameters.set.gradients()[1] = kInfinity;
    NanGuard guard({.scaler_owns_gradients = scaler_owns_gradients});
    optim::StepState state;
    state.write({.learning_rate = 0.1});
    guard.begin_step(0, parameters.set);
    guard.look_at_gradients(0, parameters.set, state, finite);
    EXPECT_EQ(state.read().found_inf, guard.found());
    return guard.found();
  };
  EXPECT_TRUE(found(false, std::nullopt));
  EXPECT_TRUE(found(false, false));
  EXPECT_FALSE(found(false, true));
  EXPECT_FALSE(found(true, std::nullopt));
  EXPECT_FALSE(found(true, false));
}

TEST(NanGuard, WithoutParametersThereIsNoGradientToMark) {
  nn::ParameterSet none;
  NanGuard guard(NanGuard::Options{});
  guard.look_at_loss(0, at::full({}, kNan), none);
  EXPECT_TRUE(guard.loss_found(0));
}

TEST(NanGuard, AfterTheOnlyWarningNothingIsLookedAt) {
  Parameters parameters;
  NanGuard guard({.on_nan = OnNan::kIgnore});
  optim::StepState state;
  state.write({.learning_rate = 0.1});
  EXPECT_TRUE(guard.watching());
  guard.stop_watching();
  EXPECT_FALSE(guard.watching());
  guard.look_at_loss(0, at::full({}, kNan), parameters.set);
  guard.look_at_gradients(0, parameters.set, state, /*finite=*/false);
  EXPECT_FALSE(guard.found());
  EXPECT_EQ(guard.loss(0), 0);
}

TEST(NanGuard, AStepBeginsWithoutWhatTheLastOneFound) {
  Parameters parameters;
  NanGuard guard({.replicas = 2});
  optim::StepState state;
  guard.look_at_loss(1, at::full({}, kNan), parameters.set);
  EXPECT_TRUE(guard.found() && guard.loss_found(1) && !guard.found(0));
  guard.look_at_gradients(0, parameters.set, state, /*finite=*/false);
  EXPECT_TRUE(guard.found(0));
  for (const int replica : {0, 1}) guard.begin_step(replica, parameters.set);
  EXPECT_FALSE(guard.found());
  EXPECT_EQ(guard.loss(1), 0);
}

}  // namespace
}  // namespace trainyard::train::nan_guard_test
