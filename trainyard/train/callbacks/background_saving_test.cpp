// CheckpointCallback with a queue: what a training relies on is as it is when it waits for each checkpoint.
#include <cmath>
#include <memory>
#include <string>
#include <thread>

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/fault_injector.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/train/callbacks/savers.h"
#include "trainyard/train/checkpoint/checkpoint_manifest.h"
#include "trainyard/train/checkpoint/checkpoint_queue.h"
#include "trainyard/train/testing/callback_conformance.h"

namespace trainyard::train::background_saving_test {
namespace {

using ::testing::ElementsAre, ::testing::HasSubstr;

std::vector<int64_t> saved_steps(const std::string& directory) {
  std::vector<int64_t> steps;
  for (const CheckpointInfo& info : CheckpointStore(directory).list()) steps.push_back(info.global_step);
  return steps;
}

class BackgroundSaving : public ::testing::Test {
 protected:
  std::shared_ptr<CheckpointCallback> saver(CheckpointCallbackOptions options, core::FileSystem& files) {
    options.queue = queue_;
    return std::make_shared<CheckpointCallback>(CheckpointStore(directory_.path(), 0, files), std::move(options));
  }
  std::shared_ptr<CheckpointCallback> saver(CheckpointCallbackOptions options) {
    return saver(std::move(options), core::local_file_system());
  }

  const core::TempDir directory_;
  std::shared_ptr<CheckpointQueue> queue_ = std::make_shared<CheckpointQueue>();
};

TEST_F(BackgroundSaving, SavesTheStepsAndBytesOfTheForeground) {
  const core::TempDir foreground;
  PretendTrainer trainer, other;
  run_callback(other,
               std::make_shared<CheckpointCallback>(CheckpointStore(foreground.path(), 0),
                                                    CheckpointCallbackOptions{.save_steps = 4, .warmup_steps = 2}),
               {.steps_per_epoch = 11});
  const auto callback = saver({.save_steps = 4, .warmup_steps = 2});
  run_callback(trainer, callback, {.steps_per_epoch = 11});
  EXPECT_THAT(saved_steps(directory_.path()), ElementsAre(6, 10, 11)) << "train() waits for the last one";
  EXPECT_EQ(callback->last_saved()->global_step, 11);
  EXPECT_EQ(callback->last_saved()->path, directory_.file("model.ckpt-11"));
  core::FileSystem& files = core::local_file_system();
  for (const char* checkpoint : {"model.ckpt-6", "model.ckpt-10", "model.ckpt-11"}) {
    for (const std::string_view file : {kManifestFile, kTensorFile}) {
      EXPECT_EQ(files.read_file(core::join_path(directory_.file(checkpoint), file)),
                files.read_file(core::join_path(foreground.file(checkpoint), file)))
          << checkpoint;
    }
  }
}

// Looks after each step at what the callback says is saved.
class Auditor : public Callback {
 public:
  Auditor(std::shared_ptr<CheckpointCallback> saver, std::string directory)
      : saver_(std::move(saver)), directory_(std::move(directory)) {}
  std::string name() const override { return "auditor"; }
  void after_step(Trainer&, const StepView&) override {
    const std::optional<CheckpointInfo> said = saver_->last_saved();
    if (!said) return;
    ++looks;
    PretendTrainer loaded;
    load_checkpoint(*said, nullptr, loaded);
    EXPECT_EQ(loaded.global_step(), said->global_step);
  }
  int looks = 0;

 private:
  std::shared_ptr<CheckpointCallback> saver_;
  std::string directory_;
};

TEST_F(BackgroundSaving, NothingIsCalledSavedBeforeItIsThere) {
  PretendTrainer trainer;
  trainer.in_step = [](int64_t) { std::this_thread::sleep_for(std::chrono::milliseconds(2)); };
  const auto callback = saver({.save_steps = 1});
  const auto auditor = std::make_shared<Auditor>(callback, directory_.path());
  trainer.add(callback);
  trainer.add(auditor);
  trainer.train({.steps_per_epoch = 40});
  EXPECT_GT(auditor->looks, 5);
  EXPECT_EQ(saved_steps(directory_.path()).size(), 40U);
}

TEST_F(BackgroundSaving, AFullDiskEndsTheTrainingSoon) {
  core::FaultInjector faults;
  const auto files = make_file_system(faults);
  PretendTrainer trainer;
  trainer.in_step = [&](int64_t step) {
    if (step == 5) {
      queue_->drain();
      faults.fail_writes_from_nth(faults.calls() + 1, core::Fault::kNoSpace);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  // No later save, and no end, would report it.
  const auto due = [](int64_t done) { return done == 2 || done == 4 || done == 6; };
  const auto callback = saver({.due = due}, *files);
  const auto error = core::error_of([&] { run_callback(trainer, callback, {.steps_per_epoch = 20'000}); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), core::ErrorCode::kNoSpace);
  EXPECT_LT(trainer.global_step(), 10'000);
  EXPECT_THAT(std::string(error->what()), HasSubstr("callback 'checkpoint', after_step"));
  EXPECT_THAT(saved_steps(directory_.path()), ElementsAre(2, 4));
  EXPECT_EQ(callback->last_saved()->global_step, 4);
}

TEST_F(BackgroundSaving, AnErrorOfTheLastCheckpointIsThrown) {
  core::FaultInjector faults;
  const auto files = make_file_system(faults);
  faults.fail_writes_from_nth(1, core::Fault::kNoSpace);
  PretendTrainer trainer;
  const auto callback = saver({}, *files);
  const auto error = core::error_of([&] { run_callback(trainer, callback, {.steps_per_epoch = 3}); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), core::ErrorCode::kNoSpace);
  EXPECT_FALSE(callback->last_saved());
}

TEST_F(BackgroundSaving, WhatWasSavedBeforeAStepThatThrewIsThere) {
  PretendTrainer trainer;
  trainer.in_step = [](int64_t step) {
    if (step == 5) throw core::Error(core::ErrorCode::kInternal, "on purpose");
  };
  EXPECT_THROW(run_callback(trainer, saver({.save_steps = 2}), {.steps_per_epoch = 100}), core::Error);
  EXPECT_THAT(saved_steps(directory_.path()), ElementsAre(2, 4));
}

TEST_F(BackgroundSaving, ASignalSavesTheLastStep) {
  PretendTrainer trainer;
  core::StopSource stop;
  trainer.set_stop_token(stop.token());
  trainer.in_step = [&](int64_t step) {
    if (step == 4) stop.request_stop(core::StopReason::kSignal, "SIGTERM");
  };
  run_callback(trainer, saver({.save_steps = 3}), {.steps_per_epoch = 100});
  EXPECT_THAT(saved_steps(directory_.path()), ElementsAre(3, 5));
}

TEST_F(BackgroundSaving, WeightsThatAreNanAreNotSaved) {
  struct Weights : core::Stateful {
    explicit Weights(const Trainer& owner) : trainer(owner) {}
    void save(core::StateWriter& writer) const override {
      writer.tensor("model/weights", at::full({3}, trainer.global_step() >= 5 ? std::nan("") : 1.0));
    }
    void load(const core::StateReader&) override {}
    const Trainer& trainer;
  };
  PretendTrainer trainer;
  CheckpointCallbackOptions options{.save_steps = 2, .non_finite_is_error = false};
  options.state = std::make_shared<Weights>(trainer);
  ::testing::internal::CaptureStderr();
  run_callback(trainer, saver(options), {.steps_per_epoch = 9});
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(saved_steps(directory_.path()), ElementsAre(2, 4));
  for (const char* step : {"6", "8", "9"}) {
    EXPECT_THAT(log, HasSubstr(std::string("not finite: step ") + step + ", tensor model/weights"));
  }
  PretendTrainer other;
  options.non_finite_is_error = true;
  options.state = std::make_shared<Weights>(other);
  const auto error = core::error_of([&] { run_callback(other, saver(options), {.steps_per_epoch = 9}); });
  EXPECT_THAT(std::string(error->what()), HasSubstr("step 6: callback 'checkpoint'")) << "at the step itself";
}

TEST_F(BackgroundSaving, WithoutMemoryForACopyTheTrainingWaits) {
  queue_ = std::make_shared<CheckpointQueue>([] { return int64_t{-1}; });
  struct Weights : core::Stateful {
    void save(core::StateWriter& writer) const override { writer.tensor("model/weights", at::full({3}, 1.0)); }
    void load(const core::StateReader&) override {}
  };
  CheckpointCallbackOptions options{.save_steps = 2};
  options.state = std::make_shared<Weights>();
  PretendTrainer trainer;
  const auto callback = saver(options);
  run_callback(trainer, callback, {.steps_per_epoch = 5});
  EXPECT_THAT(saved_steps(directory_.path()), ElementsAre(2, 4, 5));
  EXPECT_EQ(callback->last_saved()->global_step, 5);
}

TEST_F(BackgroundSaving, SmallStatesAreSavedAfterEachEpochHoweverShort) {
  for (const bool by_choice : {false, true}) {
    const core::TempDir directory;
    CheckpointCallbackOptions options{.each_epoch = !by_choice, .queue = queue_};
    if (by_choice) options.due = [](int64_t) { return true; };
    options.due_is_each_epoch = true;
    PretendTrainer trainer;
    run_callback(trainer, std::make_shared<CheckpointCallback>(CheckpointStore(directory.path(), 0), options),
                 {.steps_per_epoch = 1, .max_epoch = 8});
    EXPECT_EQ(saved_steps(directory.path()).size(), 8U);
  }
}

// A checkpoint that could not be written is an error, but the last state is saved before it is thrown.
TEST_F(BackgroundSaving, AnEarlierErrorIsThrownWhenTheLastStateIsSaved) {
  struct Fails : Callback {  // behind the last look at the queue
    explicit Fails(CheckpointQueue& of) : queue(of) {}
    std::string name() const override { return "fails"; }
    void after_step(Trainer&, const StepView& view) override {
      if (view.global_step != 4) return;
      const auto write = queue.submit([] { throw core::Error(core::ErrorCode::kIo, "the disk is gone"); });
      while (write->state() == QueuedWrite::State::kPending) std::this_thread::yield();
    }
    CheckpointQueue& queue;
  };
  PretendTrainer trainer;
  trainer.add(saver({}));
  trainer.add(std::make_shared<Fails>(*queue_));
  const auto error = core::error_of([&] { trainer.train({.steps_per_epoch = 5}); });
  ASSERT_TRUE(error);
  EXPECT_THAT(std::string(error->what()), HasSubstr("the disk is gone"));
  EXPECT_THAT(saved_steps(directory_.path()), ElementsAre(5));
}

}  // namespace
}  // namespace trainyard::train::background_saving_test
