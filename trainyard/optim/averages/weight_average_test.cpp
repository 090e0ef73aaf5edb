// Averages of weights against TensorFlow's and PyTorch's (tools/golden/weight_average.py), and what belongs to them.
#include "trainyard/optim/averages/weight_average.h"

#include <cmath>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/optim/optimizers/optimizer.h"
#include "trainyard/optim/testing/small_set.h"

namespace trainyard::optim::weight_average_test {
namespace {

// Case -> steps done -> five values.
std::map<std::string, std::map<int64_t, std::vector<double>>> average_goldens() {
  std::istringstream text(core::local_file_system().read_file(
      core::join_path(TRAINYARD_SOURCE_DIR, "trainyard/optim/testdata/weight_average.txt")));
  std::map<std::string, std::map<int64_t, std::vector<double>>> goldens;
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("#")) continue;
    std::istringstream words(line);
    std::string which;
    int64_t step = 0;
    words >> which >> step;
    for (double value = 0; words >> value;) goldens[which][step].push_back(value);
  }
  return goldens;
}

nn::ParameterSet five_values(at::ScalarType dtype) {
  nn::ParameterSet set({.dtype = dtype});
  set.declare({.name = "w", .shape = {5}});
  set.declare_buffer({.name = "statistics", .shape = {5}});
  set.allocate();
  return set;
}

// The script's weights; statistics are twice as much.
void set_step(nn::ParameterSet& set, int64_t step) {
  for (int64_t i = 0; i < 5; ++i) {
    const double value = std::sin(0.3 * static_cast<double>(step) + static_cast<double>(i)) + 0.01 * double(step);
    set.value({0})[i] = value;
    set.buffer(0)[i] = 2 * value;
  }
}

struct Case {
  std::string golden;
  WeightAverageOptions options;
  int64_t start = -1;  // the step whose weights the average begins with
  double tolerance = 1e-13;
};

const std::vector<Case> kCases = {
    {"tf_constant", {.decay = 0.9375}},
    {"tf_warmup", {.decay = 0.95, .warmup = true}, -1, 5e-7},
    {"torch_equal", {.kind = AverageKind::kEqual}},
    {"torch_equal_late", {.kind = AverageKind::kEqual, .every = 7, .first_step = 20}},
    {"torch_exponential", {.decay = 0.9}, 0},
};

TEST(WeightAverage, FollowsTensorFlowAndPyTorch) {
  const auto goldens = average_goldens();
  for (const Case& tested : kCases) {
    for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
      nn::ParameterSet set = five_values(dtype);
      set_step(set, tested.start);
      WeightAverage average(tested.options, set);
      int compared = 0;
      for (int64_t step = tested.start + 1; step < 200; ++step) {
        set_step(set, step);
        average.after_step(step, false);
        const auto& golden = goldens.at(tested.golden);
        if (!golden.contains(step + 1)) continue;
        ++compared;
        const nn::ParameterSet& weights = average.weights();
        for (int64_t i = 0; i < 5; ++i) {
          const double expected = golden.at(step + 1)[static_cast<size_t>(i)];
          EXPECT_NEAR(weights.value({0})[i].item<double>(), expected, dtype == at::kDouble ? tested.tolerance : 1e-5)
              << tested.golden << " after " << step + 1;
          if (tested.options.kind == AverageKind::kExponential) {
            EXPECT_NEAR(weights.buffer(0)[i].item<double>(), 2 * expected,
                        dtype == at::kDouble ? 2 * tested.tolerance : 2e-5);
          }
        }
      }
      EXPECT_GE(compared, 3) << tested.golden;
    }
  }
}

// What TensorFlow rounds, by its definition in double.
TEST(WeightAverage, WarmsUpAsDefined) {
  nn::ParameterSet set = five_values(at::kDouble);
  set_step(set, 0);
  WeightAverage average({.decay = 0.5, .warmup = true}, set);
  std::vector<double> expected(5);
  for (size_t i = 0; i < 5; ++i) expected[i] = std::sin(static_cast<double>(i));
  for (int64_t step = 1; step < 30; ++step) {
    set_step(set, step);
    average.after_step(step, false);
    const double decay = std::min(0.5, (1.0 + double(step)) / (10.0 + double(step)));
    for (size_t i = 0; i < 5; ++i) {
      const double w = std::sin(0.3 * double(step) + double(i)) + 0.01 * double(step);
      expected[i] = decay * expected[i] + (1 - decay) * w;
      EXPECT_NEAR(average.weights().value({0})[static_cast<int64_t>(i)].item<double>(), expected[i], 1e-14);
    }
  }
}

TEST(WeightAverage, AnEqualAverageCopiesStatisticsAndIsTheWeightsBeforeItBegins) {
  nn::ParameterSet set = five_values(at::kDouble);
  WeightAverage average({.kind = AverageKind::kEqual, .first_step = 2}, set);
  for (int64_t step = 0; step < 2; ++step) {
    set_step(set, step);
    average.after_step(step, false);
    EXPECT_TRUE(average.weights().values().equal(set.values()));
  }
  EXPECT_EQ(average.updates(), 0);
  for (int64_t step = 2; step < 6; ++step) {
    set_step(set, step);
    average.after_step(step, false);
  }
  EXPECT_EQ(average.updates(), 4);
  EXPECT_FALSE(average.weights().values().equal(set.values()));
  EXPECT_TRUE(average.weights().buffer(0).equal(set.buffer(0)));
}

TEST(WeightAverage, SkippedStepsDoNotCount) {
  nn::ParameterSet set = five_values(at::kDouble), other = five_values(at::kDouble);
  WeightAverage with({.decay = 0.9, .warmup = true, .every = 2}, set),
      without = WeightAverage({.decay = 0.9, .warmup = true, .every = 2}, other);
  for (int64_t step = 0; step < 9; ++step) {
    set_step(set, step);
    with.after_step(step, false);
    with.after_step(step, true);
    set_step(other, step);
    without.after_step(step, false);
  }
  EXPECT_EQ(with.updates(), 4);
  EXPECT_TRUE(with.weights().values().equal(without.weights().values()));
}

// The mean of the weights at the ends of epochs of 4 steps behind step 8, by its definition: those of steps 11, 15 and
// 19, whatever steps were skipped, and also of a run that asks for the average in the middle of an epoch.
TEST(WeightAverage, AnEqualAverageStaysAtTheEndsOfEpochs) {
  const auto value_at = [](int64_t step) { return std::sin(0.3 * static_cast<double>(step)) + 0.01 * double(step); };
  const WeightAverageOptions options{.kind = AverageKind::kEqual, .every = 4, .first_step = 8};
  // The first step that the average sees, and those that are skipped: none, one in an epoch, the end of one.
  const std::vector<std::pair<int64_t, int64_t>> cases{{0, -1}, {0, 9}, {0, 15}, {10, -1}, {10, 13}, {13, -1}};
  for (const auto& [first, skipped] : cases) {
    nn::ParameterSet set = five_values(at::kDouble);
    set_step(set, first - 1);
    WeightAverage average(options, set);
    double sum = 0;
    int64_t ends = 0;
    for (int64_t step = first; step < 20; ++step) {
      if (step != skipped) set_step(set, step);
      average.after_step(step, step == skipped);
      if (step != 11 && step != 15 && step != 19) continue;
      sum += value_at(step == skipped ? step - 1 : step);
      ++ends;
      EXPECT_NEAR(average.weights().value({0})[0].item<double>(), sum / static_cast<double>(ends), 1e-14)
          << first << " " << skipped << " " << step;
    }
    EXPECT_EQ(average.updates(), ends) << first << " " << skipped;
  }
}

// Of two workers that count steps together, one has every second number: 1, 3, 5 and so on.
TEST(WeightAverage, AnEqualAverageFindsTheEndsOfEpochsBetweenItsSteps) {
  nn::ParameterSet set = five_values(at::kDouble);
  WeightAverage average({.kind = AverageKind::kEqual, .every = 5}, set);
  for (int64_t step = 1; step < 20; step += 2) {
    set_step(set, step);
    average.after_step(step, false);
  }
  // The first steps that are not before 4, 9, 14 and 19.
  double sum = 0;
  for (const double step : {5.0, 9.0, 15.0, 19.0}) sum += std::sin(0.3 * step) + 0.01 * step;
  EXPECT_EQ(average.updates(), 4);
  EXPECT_NEAR(average.weights().value({0})[0].item<double>(), sum / 4, 1e-14);
}

TEST(WeightAverage, AnEqualAverageCountsNoWeightsTwice) {
  nn::ParameterSet set = five_values(at::kDouble);
  WeightAverage average({.kind = AverageKind::kEqual}, set);
  set_step(set, 1);
  average.after_step(0, false);
  average.after_step(1, true);
  set_step(set, 2);
  average.after_step(2, false);
  EXPECT_EQ(average.updates(), 2);
  const double expected = (std::sin(0.3) + 0.01 + std::sin(0.6) + 0.02) / 2;
  EXPECT_NEAR(average.weights().value({0})[0].item<double>(), expected, 1e-14);
  const at::Tensor before = average.weights().values().clone();
  set_step(set, 9);
  average.source_replaced();
  EXPECT_TRUE(average.weights().values().equal(before)) << "it has begun";
}

TEST(WeightAverage, GoesOnFromItsSavedStateBitForBit) {
  for (const WeightAverageOptions& options :
       {WeightAverageOptions{.decay = 0.9, .warmup = true, .every = 2},
        WeightAverageOptions{.kind = AverageKind::kEqual, .every = 3, .first_step = 4}}) {
    for (const int64_t stop : {2, 5, 8}) {
      nn::ParameterSet set = five_values(at::kFloat), again = five_values(at::kFloat);
      WeightAverage straight(options, set);
      core::MemoryState saved;
      for (int64_t step = 0; step < 20; ++step) {
        set_step(set, step);
        straight.after_step(step, false);
        if (step == stop) straight.save(saved);
      }
      set_step(again, stop);
      WeightAverage resumed(options, again);
      resumed.load(saved);
      for (int64_t step = stop + 1; step < 20; ++step) {
        set_step(again, step);
        resumed.after_step(step, false);
      }
      EXPECT_EQ(resumed.updates(), straight.updates());
      EXPECT_TRUE(resumed.weights().values().equal(straight.weights().values()));
      EXPECT_TRUE(resumed.weights().buffer(0).equal(straight.weights().buffer(0)));
    }
  }
}

TEST(WeightAverage, AnotherKindBeginsAnew) {
  nn::ParameterSet set = five_values(at::kFloat);
  set_step(set, 1);
  WeightAverage equal({.kind = AverageKind::kEqual}, set), exponential({.decay = 0.5}, set);
  set_step(set, 2);
  equal.after_step(0, false);
  core::MemoryState saved;
  equal.save(saved);
  exponential.load(saved);
  EXPECT_EQ(exponential.updates(), 0);
  EXPECT_TRUE(exponential.weights().values().equal(set.values()));
}

// The next end of an epoch is that of the steps behind the restart.
TEST(WeightAverage, ARestartCountsNoStepsFromBefore) {
  nn::ParameterSet set = five_values(at::kDouble);
  WeightAverage average({.kind = AverageKind::kEqual, .every = 2}, set), exponential({.decay = 0.5}, set);
  for (int64_t step = 0; step < 3; ++step) {
    set_step(set, step);
    average.after_step(step, false);
    exponential.after_step(step, false);
  }
  EXPECT_EQ(average.updates(), 1);
  set_step(set, 9);
  average.restart();
  exponential.restart();
  EXPECT_EQ(average.updates(), 0);
  EXPECT_EQ(exponential.updates(), 0);
  EXPECT_TRUE(average.weights().values().equal(set.values()));
  EXPECT_TRUE(exponential.weights().values().equal(set.values()));
  average.after_step(3, true);
  EXPECT_EQ(average.updates(), 0) << "no step has changed the weights since";
  average.restart();
  average.after_step(1, false);
  EXPECT_EQ(average.updates(), 1) << "steps are numbered as after a resume";
  set_step(set, 11);
  exponential.source_replaced();
  EXPECT_TRUE(exponential.weights().values().equal(set.values())) << "it has not begun";
}

// The step at the end of the epoch is skipped: the weights of a step before the checkpoint count there, if there was
// one.
TEST(WeightAverage, WhatWasDoneBeforeACheckpointCountsAtTheNextEndOfAnEpoch) {
  for (const bool trained : {false, true}) {
    nn::ParameterSet set = five_values(at::kDouble);
    set_step(set, 0);
    WeightAverage first({.kind = AverageKind::kEqual, .every = 2}, set),
        resumed({.kind = AverageKind::kEqual, .every = 2}, set);
    if (trained) first.after_step(0, false);
    core::MemoryState saved;
    first.save(saved);
    EXPECT_EQ(std::as_const(saved).integer("steps"), trained ? 1 : 0);
    EXPECT_EQ(std::as_const(saved).integer("updates"), 0);
    EXPECT_EQ(std::as_const(saved).text("kind"), "equal");
    resumed.load(saved);
    resumed.after_step(1, true);
    EXPECT_EQ(resumed.updates(), trained ? 1 : 0);
  }
}

TEST(WeightAverage, KeepsTheZerosOfMasks) {
  nn::ParameterSet set = five_values(at::kDouble);
  set_step(set, 0);
  WeightAverage average({.decay = 0.9}, set);
  average.after_step(0, false);
  const at::Tensor mask = set.value({0}).ne(set.value({0})[2]);
  set.set_mask({0}, mask);
  average.after_step(1, false);
  EXPECT_EQ(average.weights().value({0})[2].item<double>(), 0) << "though the average was not zero before";
  EXPECT_NE(average.weights().value({0})[1].item<double>(), 0);
  EXPECT_TRUE(average.weights().mask({0}).equal(mask));
  core::MemoryState saved;
  average.save(saved);
  EXPECT_TRUE(saved.has("weights/w.mask"));
  set.set_mask({0}, {});
  EXPECT_FALSE(average.weights().mask({0}).defined());
}

TEST(WeightAverage, HasTheSameBitsOnAnyNumberOfThreads) {
  const int before = at::get_num_threads();
  std::vector<at::Tensor> results;
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    nn::ParameterSet set;
    set.declare({.name = "w", .shape = {200'003}, .init = nn::Initializer::normal(1.0)});
    set.allocate();
    set.initialize(3);
    WeightAverage average({.decay = 0.7}, set);
    for (int64_t step = 0; step < 3; ++step) {
      set.values().copy_(set.values().cos());
      average.after_step(step, false);
    }
    results.push_back(average.weights().values().clone());
  }
  at::set_num_threads(before);
  EXPECT_TRUE(results[0].equal(results[1]));
  EXPECT_TRUE(results[0].equal(results[2]));
}

TEST(WeightAverage, SaysThatValuesChanged) {
  nn::ParameterSet set = five_values(at::kFloat);
  WeightAverage average({.decay = 0.9}, set);
  const uint64_t version = average.weights().version();
  average.after_step(0, false);
  EXPECT_GT(average.weights().version(), version);
}

// Other values put into the set, as by a checkpoint: an average that has begun keeps its own.
TEST(WeightAverage, BeginsWithWhatReplacedTheValuesBeforeItsFirstStepAlone) {
  nn::ParameterSet set = five_values(at::kDouble);
  set_step(set, 1);
  WeightAverage average({.decay = 0.5, .every = 2}, set);
  set_step(set, 2);
  average.source_replaced();
  EXPECT_TRUE(average.weights().values().equal(set.values()));
  const at::Tensor before = set.values().clone();
  average.after_step(0, false);  // the first of two
  set_step(set, 3);
  average.source_replaced();
  EXPECT_TRUE(average.weights().values().equal(before));
}

// a += (1 - d) * (w - a), in the order of this form: numbers so far apart that another one rounds differently.
TEST(WeightAverage, MovesByAPartOfTheDifferenceAsItIsWritten) {
  for (const auto& [dtype, start] : {std::pair{at::kFloat, 1e8}, std::pair{at::kDouble, 1e17}}) {
    nn::ParameterSet set = five_values(dtype);
    set.values().fill_(start);
    set.buffer(0).fill_(start);
    WeightAverage average({.decay = 0.25}, set);
    set.values().fill_(4);
    set.buffer(0).fill_(4);
    average.after_step(0, false);
    for (const int64_t i : {0, 4}) {
      EXPECT_EQ(average.weights().value({0})[i].item<double>(), start / 4) << dtype;
      EXPECT_EQ(average.weights().buffer(0)[i].item<double>(), start / 4) << dtype;
    }
  }
}

// Of whole numbers it takes the last ones.
TEST(WeightAverage, AveragesStatisticsOfOtherTypes) {
  nn::ParameterSet set;
  set.declare({.name = "w", .shape = {3}});
  for (const at::ScalarType type : {at::kBFloat16, at::kLong}) {
    set.provide_buffer(set.declare_buffer({.name = at::toString(type), .shape = {2}}), at::full({2}, 2, type));
  }
  set.allocate();
  WeightAverage average({.decay = 0.5}, set);
  for (const int buffer : {0, 1}) set.buffer(buffer).fill_(6);
  average.after_step(0, false);
  for (const int64_t i : {0, 1}) {
    EXPECT_EQ(average.weights().buffer(0)[i].item<double>(), 4);
    EXPECT_EQ(average.weights().buffer(1)[i].item<int64_t>(), 6);
  }
}

// The average has counted further than the state that it loads.
TEST(WeightAverage, EndsOfEpochsAreThoseOfTheStepsBehindALoad) {
  nn::ParameterSet set = five_values(at::kDouble);
  WeightAverage average({.kind = AverageKind::kEqual, .every = 2}, set);
  core::MemoryState saved;
  for (int64_t step = 0; step < 8; ++step) {
    set_step(set, step);
    average.after_step(step, false);
    if (step == 2) average.save(saved);
  }
  EXPECT_EQ(average.updates(), 4);
  average.load(saved);
  EXPECT_EQ(average.updates(), 1);
  set_step(set, 3);
  average.after_step(3, false);
  EXPECT_EQ(average.updates(), 2);
  const double expected = (std::sin(0.3) + 0.01 + std::sin(0.9) + 0.03) / 2;
  EXPECT_NEAR(average.weights().value({0})[0].item<double>(), expected, 1e-14);
}

// A schedule-free optimizer and its set, whose weights y and slot z are apart after two steps.
struct ScheduleFree {
  ScheduleFree() {
    set_step(set, 0);
    optimizer = optimizers().get("schedule_free_sgd")(set, {.numbers = {{"momentum", 0.8}}});
    for (int i = 0; i < 2; ++i) step();
  }
  void step() {
    StepState state;
    state.write({.learning_rate = 0.1});
    set.gradients().copy_(set.values().sub(0.25));
    optimizer->apply(state);
  }
  // x = y + (1 - 1 / beta) (z - y)
  at::Tensor result() const {
    const at::Tensor y = set.values(), z = optimizer->slots()[0].values;
    return y.add(z.sub(y).mul(1 - 1 / 0.8));
  }

  nn::ParameterSet set = five_values(at::kDouble);
  std::unique_ptr<Optimizer> optimizer;
};

void expect_is(const WeightAverage& average, const at::Tensor& expected) {
  EXPECT_LT(average.weights().values().sub(expected).abs().max().item<double>(), 1e-14);
}

constexpr WeightAverageOptions kOfOptimizer{.kind = AverageKind::kOptimizer, .decay = 0.5};

TEST(OptimizersAverage, IsTheResultOfTheOptimizerWhenItIsRead) {
  ScheduleFree trained;
  WeightAverage average(kOfOptimizer, trained.set, trained.optimizer.get());
  const at::Tensor result = trained.result();
  EXPECT_GT(result.sub(trained.set.values()).abs().max().item<double>(), 1e-4) << "the weights are not the result";
  expect_is(average, result);
  EXPECT_TRUE(average.weights().buffer(0).equal(trained.set.buffer(0)));
  average.after_step(0, false);
  EXPECT_EQ(average.updates(), 1);
  expect_is(average, result);

  // Statistics that the caller has computed stay until the weights change.
  average.weights().buffer(0).fill_(7);
  EXPECT_EQ(average.weights().buffer(0)[3].item<double>(), 7);
  const uint64_t version = average.weights().version();
  trained.step();
  EXPECT_GT(trained.result().sub(result).abs().max().item<double>(), 1e-4);
  expect_is(average, trained.result());
  EXPECT_TRUE(average.weights().buffer(0).equal(trained.set.buffer(0)));
  EXPECT_GT(average.weights().version(), version);
}

TEST(OptimizersAverage, IsTheResultAlsoBehindARestartAndALoad) {
  ScheduleFree trained;
  WeightAverage average(kOfOptimizer, trained.set, trained.optimizer.get());
  expect_is(average, trained.result());
  core::MemoryState saved;
  average.save(saved);
  EXPECT_EQ(std::as_const(saved).text("kind"), "optimizer");
  average.restart();
  expect_is(average, trained.result());
  trained.step();
  expect_is(average, trained.result());
  average.load(saved);
  expect_is(average, trained.result());
}

TEST(OptimizersAverage, NeedsAnOptimizerWithAResult) {
  nn::ParameterSet set = five_values(at::kDouble);
  const auto sgd = optimizers().get("sgd")(set, {});
  for (const Optimizer* optimizer :
       {static_cast<const Optimizer*>(nullptr), static_cast<const Optimizer*>(sgd.get())}) {
    EXPECT_EQ(core::problem_of([&] { WeightAverage(kOfOptimizer, set, optimizer); }),
              "the optimizer keeps no mean of the weights");
  }
  EXPECT_EQ(average_kind_names(), (std::vector<std::string>{"exponential", "equal", "optimizer"}));
}

TEST(WeightAverage, SaysWhatIsWrongWithItsOptions) {
  const auto refused = [](const WeightAverageOptions& options) {
    return core::message_of([&] { options.validate(); });
  };
  EXPECT_EQ(refused({.decay = 1}), "the decay of averaged weights is not usable: expected a number in [0, 1), got 1");
  EXPECT_EQ(refused({.decay = 0, .every = 1}), "no error");
  EXPECT_EQ(refused({.every = 0}), "the period of averaged weights is not usable: expected at least 1 step, got 0");
  EXPECT_EQ(refused({.first_step = 3}),
            "the first step of averaged weights is not usable: expected 0 for an exponential average, got 3");
  EXPECT_EQ(refused({.kind = AverageKind::kEqual, .first_step = -1}),
            "the first step of averaged weights is not usable: expected at least 0, got -1");
  EXPECT_EQ(refused({.kind = AverageKind::kEqual, .first_step = 3}), "no error");
}

TEST(WeightAverage, RefusesWhatItCannotDo) {
  nn::ParameterSet set = five_values(at::kFloat);
  for (const WeightAverageOptions& bad :
       {WeightAverageOptions{.decay = 1.0}, WeightAverageOptions{.decay = -0.1}, WeightAverageOptions{.every = 0},
        WeightAverageOptions{.first_step = 3}, WeightAverageOptions{.kind = AverageKind::kEqual, .first_step = -1}}) {
    EXPECT_THROW(WeightAverage(bad, set), core::Error);
  }
}

}  // namespace
}  // namespace trainyard::optim::weight_average_test
