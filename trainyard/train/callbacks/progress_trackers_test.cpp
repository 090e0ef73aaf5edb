#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/train/callbacks/callback_wrappers.h"
#include "trainyard/train/callbacks/progress_callbacks.h"
#include "trainyard/train/testing/callback_conformance.h"
#include "trainyard/train/testing/fake_accelerator.h"

namespace trainyard::train::progress_trackers_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TRAINYARD_CALLBACK_CONFORMANCE(MovingAverageSummary,
                               [] { return std::make_shared<MovingAverageSummary>(std::vector<std::string>{"loss"}); });
TRAINYARD_CALLBACK_CONFORMANCE(EstimatedTimeLeft, [] { return std::make_shared<EstimatedTimeLeft>(); });
TRAINYARD_CALLBACK_CONFORMANCE(ThroughputTracker, [] { return std::make_shared<ThroughputTracker>(8); });
TRAINYARD_CALLBACK_CONFORMANCE(DeviceMemoryTracker, [] {
  return std::make_shared<DeviceMemoryTracker>(
      std::vector<std::shared_ptr<nn::Accelerator>>{std::make_shared<FakeAccelerator>()});
});

// Writes the loss of each step, 1 / (steps done).
std::shared_ptr<Callback> writing_loss() {
  return std::make_shared<RunFunction>(
      "writing_loss",
      [](Trainer& trainer) {
        const auto step = static_cast<double>(trainer.global_step());
        trainer.monitors().write(
            {.global_step = trainer.global_step(), .phase = "train", .values = {{"loss", 1 / step}}});
      },
      RunFunctionTimes{.before_train = false, .as_trigger = false, .each_step = true});
}

// The debiased average of 1 / k over the steps first .. last, by definition.
double average_of(int64_t first, int64_t last, double decay) {
  double sum = 0, weights = 0, weight = 1;
  for (int64_t k = last; k >= first; --k, weight *= decay) {
    sum += weight / static_cast<double>(k);
    weights += weight;
  }
  return sum / weights;
}

TEST(MovingAverageSummary, IsTheExponentialAverageOfAllValues) {
  for (const double decay : {0.95, 0.5, 0.0}) {
    PretendTrainer trainer;
    trainer.add(writing_loss());
    trainer.add(std::make_shared<MovingAverageSummary>(std::vector<std::string>{"loss", "nobody_writes_it"}, decay));
    trainer.train({.steps_per_epoch = 700, .max_epoch = 2});
    const auto& history = trainer.monitors().history("loss/moving_average");
    ASSERT_EQ(history.size(), 2U);
    EXPECT_NEAR(history[0].second, average_of(1, 700, decay), 1e-12);
    EXPECT_NEAR(history[1].second, average_of(1, 1400, decay), 1e-12);
    EXPECT_THAT(trainer.monitors().history("nobody_writes_it/moving_average"), IsEmpty());
  }
  EXPECT_NE(core::message_of([] { MovingAverageSummary({"loss"}, 1.0); }), "no error");
  EXPECT_NE(core::message_of([] { MovingAverageSummary({}); }), "no error");
}

TEST(MovingAverageSummary, GoesOnAfterAResumeWhereTheValuesAreKept) {
  for (const bool keeps : {true, false}) {
    const auto make = [&] {
      auto trainer = std::make_unique<PretendTrainer>();
      trainer->add(writing_loss());
      trainer->add(std::make_shared<MovingAverageSummary>(std::vector<std::string>{"loss"}));
      if (keeps) trainer->monitors().keep("loss");
      return trainer;
    };
    const auto first = make();
    first->train({.steps_per_epoch = 10});
    core::MemoryState saved;
    first->save(saved);
    EXPECT_EQ(saved.names("trainer/monitors").empty(), !keeps);
    const auto second = make();
    second->load(saved);
    second->train({.steps_per_epoch = 10, .starting_epoch = 2, .max_epoch = 2});
    EXPECT_NEAR(*second->monitors().latest("loss/moving_average"), average_of(keeps ? 1 : 11, 20, 0.95), 1e-12);
  }
}

TEST(EstimatedTimeLeft, IsTheMedianOfTheLastEpochsTimesThoseThatAreLeft) {
  double now = 0;
  const auto tracker = std::make_shared<EstimatedTimeLeft>(3, [&] { return now; });
  PretendTrainer trainer;
  trainer.add(tracker);
  std::vector<double> left;
  trainer.add(std::make_shared<RunFunction>(
      "left", [&](Trainer&) { left.push_back(tracker->seconds_left()); }, RunFunctionTimes{.before_train = false}));
  const std::vector<double> seconds{100, 3600, 10, 20, 30};
  trainer.in_step = [&](int64_t step) { now += seconds[static_cast<size_t>(step)]; };
  testing::internal::CaptureStderr();
  trainer.train({.steps_per_epoch = 1, .max_epoch = 5});
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(left, (std::vector<double>{100 * 4, 1850 * 3, 100 * 2, 20 * 1, 0}));
  EXPECT_THAT(log, HasSubstr("estimated time left: 6:40"));
  EXPECT_THAT(log, HasSubstr("estimated time left: 1:32:30"));
  EXPECT_THAT(log, Not(HasSubstr("left: 0:00")));
  EXPECT_NE(core::message_of([] { EstimatedTimeLeft(0); }), "no error");
}

TEST(ThroughputTracker, CountsStepsInsideOfEpochs) {
  double now = 0;
  const auto history = [&](int64_t samples, Period period, const char* name) {
    PretendTrainer trainer;
    trainer.in_step = [&](int64_t step) { now += step < 4 ? 0.5 : 0.25; };
    trainer.add(
        std::make_shared<PeriodicTrigger>(std::make_shared<ThroughputTracker>(samples, [&] { return now; }), period));
    // Time that passes between epochs.
    trainer.add(std::make_shared<RunFunction>("slow", [&](Trainer&) { now += 1000; }));
    trainer.train({.steps_per_epoch = 4, .max_epoch = 2});
    core::MemoryState saved;
    trainer.save(saved);
    EXPECT_THAT(saved.names("trainer/monitors"), IsEmpty()) << "speeds are not saved";
    return trainer.monitors().history(name);
  };
  using History = MonitorSet::History;
  EXPECT_EQ(history(0, {.every_k_epochs = 1}, "steps_per_second"), (History{{4, 2}, {8, 4}}));
  EXPECT_EQ(history(16, {.every_k_epochs = 1}, "samples_per_second"), (History{{4, 32}, {8, 64}}));
  EXPECT_EQ(history(0, {.every_k_epochs = 2}, "steps_per_second"), (History{{8, 8 / 3.0}}));
  EXPECT_EQ(history(0, {.every_k_steps = 3}, "steps_per_second"), (History{{3, 2}, {6, 3}}));
  EXPECT_NE(core::message_of([] { ThroughputTracker(-1); }), "no error");
}

TEST(DeviceMemoryTracker, WritesWhatEachDeviceSays) {
  struct Device : FakeAccelerator {
    nn::DeviceMemory memory() override { return {.total = 1LL << 40, .held = 3 << 20, .used = 1 << 19}; }
  };
  PretendTrainer trainer;
  trainer.add(std::make_shared<DeviceMemoryTracker>(
      std::vector<std::shared_ptr<nn::Accelerator>>{std::make_shared<FakeAccelerator>(), std::make_shared<Device>()}));
  trainer.train({.steps_per_epoch = 2});
  EXPECT_EQ(trainer.monitors().latest("device_0/memory_used_mib"), 700.0 / (1 << 20));
  EXPECT_EQ(trainer.monitors().latest("device_1/memory_used_mib"), 0.5);
  EXPECT_EQ(trainer.monitors().latest("device_1/memory_held_mib"), 3);
}

TEST(ProgressTrackers, NameTheNumbersThatCannotBe) {
  const std::vector<std::string> names{"loss", "accuracy"};
  for (const double decay : {1.0, -0.5}) {
    EXPECT_THAT(core::message_of([&] { MovingAverageSummary average(names, decay); }),
                HasSubstr(decay > 0 ? "a decay in [0, 1), got 2 names, 1" : "a decay in [0, 1), got 2 names, -0.5"));
  }
  EXPECT_EQ(core::message_of([&] { MovingAverageSummary average(names, 0.0); }), "no error");
  EXPECT_THAT(core::message_of([] { EstimatedTimeLeft left(-3); }), HasSubstr("at least one epoch: got -3"));
  EXPECT_THAT(core::message_of([] { ThroughputTracker tracker(-1); }), HasSubstr("number of samples: got -1"));
}

}  // namespace
}  // namespace trainyard::train::progress_trackers_test
