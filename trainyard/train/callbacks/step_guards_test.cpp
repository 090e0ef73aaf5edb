#include <atomic>
#include <chrono>
#include <limits>
#include <memory>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/train/callbacks/debugging.h"
#include "trainyard/train/testing/callback_conformance.h"

namespace trainyard::train::step_guards_test {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

TRAINYARD_CALLBACK_CONFORMANCE(SessionRunTimeout,
                               [] { return std::make_shared<SessionRunTimeout>(milliseconds(60000)); });
TRAINYARD_CALLBACK_CONFORMANCE(CheckNumerics, [] { return std::make_shared<CheckNumerics>(); });

int64_t threads_of_this_process() {
  return std::ssize(core::local_file_system().list("/proc/self/task"));
}

TEST(SessionRunTimeout, EndsTheTrainingAndSaysWhichStepAndHowLong) {
  const int64_t threads = threads_of_this_process();
  PretendTrainer trainer;
  trainer.add(std::make_shared<SessionRunTimeout>(milliseconds(100)));
  trainer.in_step = [threads](int64_t step) {
    EXPECT_EQ(threads_of_this_process(), threads + 1);
    if (step == 4) std::this_thread::sleep_for(milliseconds(400));
  };
  testing::internal::CaptureStderr();
  const std::string message =
      core::message_of([&] { trainer.train({.steps_per_epoch = 3, .max_epoch = 9}); }, core::ErrorCode::kTimeout);
  EXPECT_THAT(message, HasSubstr("a step takes too long: epoch 2, step 2: expected at most 100 ms, got 0.1 s"));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("a step takes too long")) << "told at once";
  EXPECT_EQ(trainer.global_step(), 5) << "the step came to its end";
  EXPECT_EQ(threads_of_this_process(), threads);
}

// A step that waits for what never comes, until the watcher wakes it.
TEST(SessionRunTimeout, WakesAStepThatHangs) {
  const int64_t threads = threads_of_this_process();
  PretendTrainer trainer;
  std::atomic<bool> woken = false;
  trainer.add(std::make_shared<SessionRunTimeout>(milliseconds(50), [&] { woken = true; }));
  trainer.in_step = [&](int64_t) {
    while (!woken) std::this_thread::sleep_for(milliseconds(5));
    throw core::Error(core::ErrorCode::kCancelled, "the source was stopped");
  };
  testing::internal::CaptureStderr();
  EXPECT_THAT(core::message_of([&] { trainer.train({.steps_per_epoch = 3}); }, core::ErrorCode::kTimeout),
              HasSubstr("epoch 1, step 1"));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("behind this came: the source was stopped"));
  EXPECT_EQ(threads_of_this_process(), threads);
}

TEST(SessionRunTimeout, StepsInTimeAndTheTimeBetweenThemAreNotCounted) {
  const int64_t threads = threads_of_this_process();
  PretendTrainer trainer;
  trainer.add(std::make_shared<SessionRunTimeout>(milliseconds(1000)));
  struct Slow : Callback {
    std::string name() const override { return "slow"; }
    void before_epoch(Trainer&) override { std::this_thread::sleep_for(milliseconds(1500)); }
  };
  trainer.add(std::make_shared<Slow>());
  // So long that the watching thread sees each of them.
  trainer.in_step = [](int64_t) { std::this_thread::sleep_for(milliseconds(5)); };
  EXPECT_NO_THROW(trainer.train({.steps_per_epoch = 20, .max_epoch = 2}));
  EXPECT_EQ(threads_of_this_process(), threads);
  EXPECT_NE(core::message_of([] { SessionRunTimeout(milliseconds(0)); }), "no error");
}

TEST(SessionRunTimeout, ATrainingThatFailsLeavesNoThread) {
  const int64_t threads = threads_of_this_process();
  PretendTrainer trainer;
  trainer.add(std::make_shared<SessionRunTimeout>(milliseconds(60000)));
  trainer.in_step = [](int64_t) { throw core::Error(core::ErrorCode::kIo, "on purpose"); };
  EXPECT_THROW(trainer.train({.steps_per_epoch = 3}), core::Error);
  EXPECT_EQ(threads_of_this_process(), threads);
}

// Its loss is that of step 3, or NaN there.
class LossTrainer : public Trainer {
 public:
  double loss_of_step_3 = 1;

 protected:
  void run_step(StepView& view) override {
    view.replicas.resize(2);
    view.replicas[0].losses.set("cost", at::full({}, 1.0, at::kFloat));
    view.replicas[1].losses.set("cost", at::full({}, view.global_step == 3 ? loss_of_step_3 : 1.0, at::kFloat));
  }
};

TEST(CheckNumerics, EndsATrainingWhoseLossIsNotFinite) {
  const auto message = [](double loss) {
    LossTrainer trainer;
    trainer.loss_of_step_3 = loss;
    trainer.add(std::make_shared<CheckNumerics>());
    return core::message_of([&] { trainer.train({.steps_per_epoch = 10}); }, core::ErrorCode::kCorruptData);
  };
  EXPECT_EQ(message(2), "no error");
  EXPECT_EQ(message(std::numeric_limits<double>::quiet_NaN()),
            "loss 'cost' of replica 1 is not finite: epoch 1, step 4: callback 'check_numerics', after_step: got NaN");
  EXPECT_THAT(message(-std::numeric_limits<double>::infinity()), HasSubstr("got inf"));
}

TEST(CheckNumerics, EndsATrainingWithAParameterOrABufferThatIsNotFinite) {
  for (const bool buffer : {false, true}) {
    nn::ParameterSet set;
    const nn::ParameterId weight = set.declare({.name = "fc.weight", .shape = {2, 3}});
    const int mean = set.declare_buffer({.name = "bn.running_mean", .shape = {4}});
    set.allocate();
    set.initialize(1);
    PretendTrainer trainer;
    trainer.add(std::make_shared<CheckNumerics>(&set));
    trainer.in_step = [&](int64_t step) {
      if (step != 3) return;
      at::Tensor damaged = buffer ? set.buffer(mean) : set.value(weight).view({-1});
      damaged[2].fill_(std::numeric_limits<float>::infinity());
    };
    const std::string what = buffer ? "buffer 'bn.running_mean'" : "parameter 'fc.weight'";
    EXPECT_EQ(
        core::message_of([&] { trainer.train({.steps_per_epoch = 2, .max_epoch = 5}); }, core::ErrorCode::kCorruptData),
        what + " is not finite: epoch 2, step 2: callback 'check_numerics', trigger_epoch: got inf");
  }
}

}  // namespace
}  // namespace trainyard::train::step_guards_test
