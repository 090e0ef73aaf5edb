// Trainings whose input ends before their last step.
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/data/sources/combined_source.h"
#include "trainyard/data/sources/function_source.h"
#include "trainyard/train/callbacks/savers.h"
#include "trainyard/train/step/tower_trainer.h"
#include "trainyard/train/testing/tiny_model.h"

namespace trainyard::train::end_of_input_test {
namespace {

using ::testing::ElementsAre, ::testing::HasSubstr;

class Hooks : public Callback {
 public:
  explicit Hooks(std::vector<std::string>& lines) : lines_(lines) {}
  std::string name() const override { return "hooks"; }
  void before_step(Trainer& trainer) override { lines_.push_back("step " + std::to_string(trainer.global_step())); }
  void trigger(Trainer& trainer) override { lines_.push_back("epoch " + std::to_string(trainer.epoch())); }
  void after_train(Trainer& trainer) override { lines_.push_back("end: " + std::to_string(trainer.global_step())); }

 private:
  std::vector<std::string>& lines_;
};

TowerTrainerOptions stopping(int replicas = 1) {
  TowerTrainerOptions options = tiny_options({}, replicas);
  options.end_of_input = EndOfInput::kStop;
  return options;
}

TEST(EndOfInput, StopsBetweenTwoStepsAsAStopDoes) {
  const core::TempDir temp;
  std::vector<std::string> lines;
  TowerTrainer trainer(stopping(), tiny_source(24, 8, 1, /*repeat=*/false));
  trainer.add(std::make_shared<Hooks>(lines));
  const auto saver = std::make_shared<CheckpointCallback>(CheckpointStore(temp.path()), CheckpointCallbackOptions{});
  trainer.add(saver);
  trainer.train({.steps_per_epoch = 2, .max_epoch = 100});
  EXPECT_EQ(trainer.global_step(), 3);
  EXPECT_EQ(trainer.stop_reason(), "the input has ended, after 3 steps");
  EXPECT_FALSE(trainer.stopped_by_signal());
  EXPECT_THAT(lines, ElementsAre("step 0", "step 1", "epoch 1", "step 2", "end: 3"));
  ASSERT_TRUE(saver->last_saved().has_value()) << "what runs at the end of a training runs";
  EXPECT_EQ(saver->last_saved()->global_step, 3);

  // The steps are those of an input that repeats.
  TowerTrainer longer(tiny_options(), tiny_source(24, 8));
  longer.train({.steps_per_epoch = 3});
  EXPECT_TRUE(trainer.parameters().values().equal(longer.parameters().values()));
  // What is left to do is nothing.
  trainer.train({.steps_per_epoch = 2, .starting_epoch = 2, .max_epoch = 100, .starting_step = 1});
  EXPECT_EQ(trainer.global_step(), 3);
}

TEST(EndOfInput, IsAnErrorUnlessItIsToStop) {
  TowerTrainer trainer(tiny_options(), tiny_source(24, 8, 1, /*repeat=*/false));
  EXPECT_THAT(core::message_of([&] { trainer.train({.steps_per_epoch = 100}); }),
              HasSubstr("the input ended in the middle of the training"));
}

// No step begins for which a replica, or a micro-step, has no batch.
TEST(EndOfInput, LeavesOutWhatMakesNoWholeStep) {
  TowerTrainer replicas(stopping(2), tiny_source(40, 8, 2, /*repeat=*/false));
  replicas.train({.steps_per_epoch = 100});
  EXPECT_EQ(replicas.global_step(), 2) << "of 5 batches";

  TowerTrainerOptions micro = stopping();
  micro.micro_steps = 2;
  TowerTrainer parts(micro, tiny_source(40, 8, 1, /*repeat=*/false));
  parts.train({.steps_per_epoch = 100});
  EXPECT_EQ(parts.global_step(), 2);

  TowerTrainer joined(stopping(2), std::make_shared<data::JoinedSource>(std::vector<std::shared_ptr<data::BatchSource>>{
                                       tiny_source(40, 8, 1, false), tiny_source(24, 8, 1, false)}));
  joined.train({.steps_per_epoch = 100});
  EXPECT_EQ(joined.global_step(), 3);

  TowerTrainer shorter(stopping(), tiny_source(20, 8, 1, /*repeat=*/false));
  shorter.train({.steps_per_epoch = 100});
  EXPECT_EQ(shorter.global_step(), 3) << "a batch that is shorter is one";
}

// A checkpoint that is saved behind the error continues with the batches of the step that did not run.
TEST(EndOfInput, AnErrorBetweenMicroStepsSkipsNoBatch) {
  class Failing : public data::SourceDecorator {
   public:
    Failing() : SourceDecorator(tiny_source(240, 8)) {}
    std::vector<data::Batch> next() override {
      if (++calls_ == 4) throw core::Error(core::ErrorCode::kIo, "the disk is away");
      return source()->next();
    }

   private:
    int calls_ = 0;
  };
  TowerTrainerOptions options = stopping();
  options.micro_steps = 2;
  const core::TempDir temp;
  const auto source = std::make_shared<Failing>();
  TowerTrainer trainer(options, source);
  const auto saver = std::make_shared<CheckpointCallback>(CheckpointStore(temp.path()), CheckpointCallbackOptions{});
  trainer.add(saver);
  EXPECT_EQ(core::code_of([&] { trainer.train({.steps_per_epoch = 5}); }), core::ErrorCode::kIo);
  EXPECT_EQ(trainer.global_step(), 1);
  ASSERT_TRUE(saver->last_saved().has_value());
  EXPECT_EQ(saver->last_saved()->global_step, 1);
  EXPECT_EQ(source->position(), (data::Position{0, 16})) << "behind two batches of 8";
}

// Nor of sources that are combined, which no position restores.
TEST(EndOfInput, AnErrorBetweenMicroStepsSkipsNoBatchOfSeveralSources) {
  class FailingOnce : public data::SourceDecorator {
   public:
    FailingOnce() : SourceDecorator(tiny_source(240, 8)) {}
    std::vector<data::Batch> next() override {
      if (++calls_ == 4) throw core::Error(core::ErrorCode::kIo, "the disk is away");
      return source()->next();
    }

   private:
    int calls_ = 0;
  };
  TowerTrainerOptions options = stopping(2);
  options.micro_steps = 2;
  const auto sound = tiny_source(240, 8);
  const auto failing = std::make_shared<FailingOnce>();
  const auto source =
      std::make_shared<data::JoinedSource>(std::vector<std::shared_ptr<data::BatchSource>>{sound, failing});
  TowerTrainer trainer(options, source);
  EXPECT_EQ(core::code_of([&] { trainer.train({.steps_per_epoch = 5}); }), core::ErrorCode::kIo);
  EXPECT_EQ(trainer.global_step(), 1);
  for (const data::BatchSource* each : std::vector<const data::BatchSource*>{sound.get(), failing.get()}) {
    EXPECT_EQ(each->position(), (data::Position{0, 16})) << "behind two batches of 8";
  }
  EXPECT_EQ(source->position(), (data::Position{0, 32})) << "of both";
}

TEST(EndOfInput, IsNotWhereTowersTakeNoTensors) {
  TowerTrainerOptions options = stopping();
  options.graph = {};
  options.tower = [](TowerContext& context) -> TowerStep {
    TowerParameter& w = context.parameter({"w", {}, nn::Initializer::constant(1)});
    return [&w](const TowerInput&) -> TowerOutput { return {.losses = {{"cost", w.value().mul(w.value())}}}; };
  };
  TowerTrainer trainer(
      options, std::make_shared<data::FunctionSource>([](const data::BatchPlace&) { return core::NamedTensors(); },
                                                      data::FunctionSourceOptions{}));
  trainer.train({.steps_per_epoch = 5});
  EXPECT_EQ(trainer.global_step(), 5);
}

TEST(EndOfInput, CountsTheWaitForTheInput) {
  class Slow : public data::SourceDecorator {
   public:
    Slow() : SourceDecorator(tiny_source(240, 8)) {}
    std::vector<data::Batch> next() override {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      return source()->next();
    }
  };
  class Times : public Callback {
   public:
    std::string name() const override { return "times"; }
    void after_step(Trainer&, const StepView& view) override {
      EXPECT_GE(view.times.input, 0.02);
      EXPECT_GE(view.times.total, view.times.input + view.times.compute);
    }
  };
  TowerTrainer trainer(stopping(), std::make_shared<Slow>());
  trainer.add(std::make_shared<Times>());
  trainer.train({.steps_per_epoch = 3});
}

}  // namespace
}  // namespace trainyard::train::end_of_input_test
