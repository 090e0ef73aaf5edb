// Which steps a run has, shows and saves after, and by which number its evaluations are compared.
#include "trainyard/frontends/tf_cnn/run_steps.h"

#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/flags/flag_value.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/skip_reasons.h"
#include "trainyard/frontends/tf_cnn/run_state.h"
#include "trainyard/frontends/tf_cnn/schedule.h"
#include "trainyard/frontends/tf_cnn/trainer_defaults.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/parallel/servers/server_group.h"
#include "trainyard/parallel/testing/on_ranks.h"

namespace trainyard::frontends::run_steps_test {
namespace {

using ::testing::HasSubstr;

// 25 steps of 4 images, of 40, 3 of them a warm-up.
PreparedRun run_of(Dialect dialect) {
  PreparedRun run;
  run.options.dialect = dialect;
  run.options.saving.train_dir = "runs/1";
  run.model = &models::find_model("lenet", "imagenet");
  run.batch_size = 4;
  run.train_examples = 40;
  run.plan.num_batches = 25;
  run.plan.num_warmup_batches = 3;
  return run;
}

// Returns "first warmup timed end".
std::string text_of(const RunSteps& steps) {
  std::ostringstream text;
  text << steps.first << ' ' << steps.warmup << ' ' << steps.timed << ' ' << steps.end();
  return text.str();
}

std::string log_of(const std::function<void()>& call) {
  testing::internal::CaptureStderr();
  call();
  return testing::internal::GetCapturedStderr();
}

TEST(RunSteps, OfATrainingCountAllItsRunsAndTimeOneAtLeast) {
  const PreparedRun run = run_of(Dialect::kTrainyard);
  EXPECT_TRUE(make_run_steps(run, 5).over_all_runs);
  EXPECT_EQ(text_of(make_run_steps(run, 5)), "5 3 17 25");
  EXPECT_EQ(text_of(make_run_steps(run, 21)), "21 3 1 25");
  EXPECT_EQ(text_of(make_run_steps(run, 23)), "23 1 1 25");
  EXPECT_EQ(text_of(make_run_steps(run, 24)), "24 0 1 25");
  EXPECT_FALSE(make_run_steps(run, 24).none());
}

TEST(RunSteps, OfABenchmarkComeBehindTheWarmupOfEachRun) {
  const PreparedRun run = run_of(Dialect::kTfCnnBenchmarks);
  EXPECT_FALSE(make_run_steps(run, 5).over_all_runs);
  EXPECT_EQ(text_of(make_run_steps(run, 0)), "0 3 25 28");
  EXPECT_EQ(text_of(make_run_steps(run, 24)), "24 3 1 28");
}

TEST(RunSteps, EndAfterTheEpochsThatWereAskedFor) {
  PreparedRun run = run_of(Dialect::kTrainyard);
  run.options.stop_after_epochs = 1.5;
  EXPECT_EQ(text_of(make_run_steps(run, 0)), "0 3 12 15");
  EXPECT_EQ(text_of(make_run_steps(run, 14)), "14 0 1 15");
  for (const int64_t done : {15, 20}) {
    RunSteps steps;
    EXPECT_THAT(log_of([&] { steps = make_run_steps(run, done); }),
                HasSubstr("--stop_after_epochs=1.5 is reached: " + std::to_string(done) + " steps are done"));
    EXPECT_TRUE(steps.none()) << done;
    EXPECT_EQ(steps.warmup, 0) << done;
  }
  run.options.stop_after_epochs = 100;
  EXPECT_EQ(text_of(make_run_steps(run, 0)), "0 3 22 25") << "no longer than the training";
}

TEST(RunSteps, TheLogSaysWhyNothingIsLeftToDo) {
  PreparedRun run = run_of(Dialect::kTrainyard);
  const auto log = [&] { return log_of([&] { EXPECT_EQ(remaining_steps(run, 30), 0); }); };
  const std::string done = "nothing is left to do: runs/1 has done 30 steps, and this run wants 25 ";
  EXPECT_THAT(log(), HasSubstr(done + "(without --num_batches or --num_epochs)"));
  run.options.steps.num_epochs = 2.5;
  EXPECT_THAT(log(), HasSubstr(done + "(--num_epochs=2.5 of 40 examples, 4 a step)"));
  run.options.steps.num_batches = 25;
  EXPECT_THAT(log(), HasSubstr(done + "(--num_batches=25)"));
  EXPECT_EQ(remaining_steps(run, 24), 1);
}

// Each step of each of two workers of parameter servers counts, at their own pace and in a benchmark; else a step of
// both is one.
TEST(RunSteps, OfWorkersAreCountedTogether) {
  if (!parallel::has_parameter_servers()) GTEST_SKIP() << core::skip::kNeedsGrpc;
  const auto workers = [](Dialect dialect, bool waits, const std::function<void(PreparedRun & run)>& check) {
    parallel::on_ranks(2, [&](const std::shared_ptr<parallel::ProcessGroup>& group) {
      PreparedRun run = run_of(dialect);
      run.device.processes = group;
      run.device.servers =
          std::make_shared<parallel::ServerGroup>(parallel::ServerGroupOptions{.addresses = {"127.0.0.1:1"}});
      run.options.device.cluster.cross_replica_sync = waits;
      run.options.saving.save_each_epoch = true;
      run.options.learning_rate = {.init_learning_rate = 1, .schedule = "cosine"};
      check(run);
    });
  };
  workers(Dialect::kTrainyard, true, [](const PreparedRun& run) {
    EXPECT_FALSE(run.counts_all_workers());
    EXPECT_EQ(run.examples_per_global_step(), 8);
    EXPECT_EQ(remaining_steps(run, 10), 15);
    EXPECT_EQ(text_of(make_run_steps(run, 10)), "10 3 12 25");
    EXPECT_NEAR(make_schedule(run).learning_rate(25), 0, 1e-12) << "the end of the training";
    train::SessionSteps steps;
    set_checkpoint_steps(run, steps);
    EXPECT_TRUE(steps.checkpoints->over_all_runs);
    ASSERT_TRUE(steps.checkpoints->due);
    EXPECT_TRUE(steps.checkpoints->due(5)) << "40 images";
    EXPECT_FALSE(steps.checkpoints->due(4));
  });
  workers(Dialect::kTrainyard, false, [](PreparedRun& run) {
    EXPECT_TRUE(run.own_pace());
    EXPECT_TRUE(run.counts_all_workers());
    EXPECT_EQ(run.examples_per_global_step(), 4);
    EXPECT_EQ(run.examples_per_step(), 8);
    EXPECT_EQ(remaining_steps(run, 10), 20) << "five steps of each are done";
    EXPECT_FALSE(make_run_steps(run, 10).over_all_runs);
    EXPECT_EQ(text_of(make_run_steps(run, 10)), "10 3 17 50") << "the warm-up is a part of them";
    EXPECT_NEAR(make_schedule(run).learning_rate(25), 0.5, 1e-12) << "half of the training";
    EXPECT_NEAR(make_schedule(run).learning_rate(50), 0, 1e-12) << "10, and 20 of each of the two: its end";
    train::SessionSteps steps;
    set_checkpoint_steps(run, steps);
    EXPECT_FALSE(steps.checkpoints->over_all_runs);
    EXPECT_FALSE(steps.checkpoints->due) << "an epoch ends between two steps of the chief";
    EXPECT_FALSE(steps.checkpoints->due_is_each_epoch);
    run.options.stop_after_epochs = 1.5;  // eight steps of both, of which five are done
    EXPECT_EQ(text_of(make_run_steps(run, 10)), "10 2 1 16");
    run.replicas = 3;
    run.options.update.gradient_reduction = "sum";
    run.options.learning_rate.schedule = "constant";
    run.options.learning_rate.scaling = optim::BatchScaling::kLinear;
    run.options.learning_rate.scaling_batch_size = 4;
    EXPECT_NEAR(make_schedule(run).learning_rate(0), 1, 1e-12) << "12 images for 4, over the replicas of one worker";
  });
  workers(Dialect::kTfCnnBenchmarks, true, [](const PreparedRun& run) {
    EXPECT_FALSE(run.own_pace());
    EXPECT_TRUE(run.counts_all_workers());
    EXPECT_EQ(remaining_steps(run, 10), 20);
    EXPECT_NEAR(make_schedule(run).learning_rate(28), 0.5, 1e-12) << "with the warm-up";
  });
}

TEST(RunSteps, AreShownByTheFlagAndAtTheEnd) {
  PreparedRun run = run_of(Dialect::kTrainyard);
  run.options.display.display_every = 4;
  EXPECT_EQ(displayed_steps(run).every, 4);
  EXPECT_EQ(displayed_steps(run).last, 25);
}

TEST(RunSteps, ARoundedWarmupIsSaidAmongTheLinesOfABenchmark) {
  const auto printed = [](Dialect dialect, bool rounded) {
    PreparedRun run = run_of(dialect);
    run.plan.warmup_was_rounded = rounded;
    std::ostringstream out;
    print_rounded_warmup(run, out);
    return out.str();
  };
  EXPECT_EQ(printed(Dialect::kTfCnnBenchmarks, true), "Round up warm up steps to 3 to match batch_group_size\n");
  EXPECT_EQ(printed(Dialect::kTfCnnBenchmarks, false), "");
  EXPECT_EQ(printed(Dialect::kTrainyard, true), "") << "its log has it";
}

TEST(CheckpointSteps, AreThoseOfTheFlags) {
  PreparedRun run = run_of(Dialect::kTrainyard);
  run.options.saving.save_model_steps = 7;
  run.options.saving.save_model_secs = 30;
  run.options.update.on_nan = train::OnNan::kStop;
  train::SessionSteps steps;
  set_checkpoint_steps(run, steps);
  ASSERT_TRUE(steps.checkpoints.has_value());
  EXPECT_EQ(steps.checkpoints->save_steps, 7);
  EXPECT_EQ(steps.checkpoints->save_seconds, 30);
  EXPECT_FALSE(steps.checkpoints->due);
  EXPECT_FALSE(steps.checkpoints->due_is_each_epoch);
  EXPECT_EQ(steps.checkpoints->warmup_steps, 3);
  EXPECT_TRUE(steps.checkpoints->over_all_runs);
  EXPECT_TRUE(steps.checkpoints->non_finite_is_error);

  run.options.saving.save_model_steps.reset();
  run.options.saving.save_each_epoch = true;
  run.options.update.on_nan = train::OnNan::kSkip;
  set_checkpoint_steps(run, steps);
  EXPECT_EQ(steps.checkpoints->save_steps, 0);
  EXPECT_TRUE(steps.checkpoints->due_is_each_epoch);
  ASSERT_TRUE(steps.checkpoints->due);
  EXPECT_TRUE(steps.checkpoints->due(10)) << "40 images";
  EXPECT_FALSE(steps.checkpoints->due(9));
  EXPECT_FALSE(steps.checkpoints->due(11));
  EXPECT_FALSE(steps.checkpoints->non_finite_is_error);
  for (const auto& [dialect, mode] : {std::pair{Dialect::kTrainyard, RunMode::kForwardOnly},
                                      std::pair{Dialect::kTfCnnBenchmarks, RunMode::kTraining}}) {
    run.options.dialect = dialect;
    run.options.mode = mode;
    set_checkpoint_steps(run, steps);
    EXPECT_FALSE(steps.checkpoints->over_all_runs);
  }
}

TEST(DamagedCheckpoints, ArePassedOverOrSetAsideIfTheFlagSaysSo) {
  PreparedRun run;
  for (const bool writes : {false, true}) {
    EXPECT_EQ(damaged_checkpoints(run, writes), train::DamagedCheckpoints::kStop);
  }
  run.options.saving.ignore_damaged_checkpoints = true;
  EXPECT_EQ(damaged_checkpoints(run, true), train::DamagedCheckpoints::kSetAside);
  EXPECT_EQ(damaged_checkpoints(run, false), train::DamagedCheckpoints::kPassOver);
}

TEST(KeepBest, NamesANumberAndWhichWayIsBetter) {
  const auto read = [](const std::string& text) {
    const std::optional<train::BestBy> by = read_best_by(text);
    return !by ? "nothing" : by->name + (train::lowest_is_best(*by) ? " lowest" : " highest");
  };
  EXPECT_EQ(read("none"), "nothing");
  EXPECT_EQ(read("loss"), "loss lowest");
  EXPECT_EQ(read("top_1"), "top_1_accuracy highest");
  EXPECT_EQ(read("top_1_accuracy"), "top_1_accuracy highest");
  EXPECT_EQ(read("top_5"), "top_5_accuracy highest");
  EXPECT_EQ(read("top_5_accuracy"), "top_5_accuracy highest");
  EXPECT_EQ(read("mean_class_accuracy"), "mean_class_accuracy highest");
  EXPECT_EQ(read("mean_average_precision"), "mean_average_precision highest");
  EXPECT_EQ(read("COCO/AP50"), "COCO/AP50 highest");
  EXPECT_EQ(read("COCO/AP50:lowest"), "COCO/AP50 lowest");
  EXPECT_EQ(read("a:b:highest"), "a:b highest");
  for (const char* unknown : {"score", "score:low", ":lowest", "COCO"}) {
    const core::Error error = core::thrown_by([&] { static_cast<void>(read_best_by(unknown, "early_stop_metric")); });
    EXPECT_EQ(error.detail().where, "--early_stop_metric") << unknown;
    EXPECT_EQ(error.detail().actual, unknown);
  }
}

TEST(EarlyStop, IsWhatTheFlagsSay) {
  PreparedRun run = run_of(Dialect::kTrainyard);
  run.options.mode = RunMode::kTrainingAndEvaluation;
  EXPECT_FALSE(read_early_stop(run).has_value());
  run.options.early_stop = 3;
  run.options.early_stop_min_delta = 0.5;
  const std::optional<train::EarlyStop> early = read_early_stop(run);
  ASSERT_TRUE(early.has_value());
  EXPECT_EQ(early->patience, 3);
  EXPECT_EQ(early->min_delta, 0.5);
}

TEST(EarlyStop, AndAllThatNeedsEvaluationsIsRefusedWithoutThem) {
  const auto message = [](const std::function<void(TfCnnOptions&)>& change) {
    PreparedRun run = run_of(Dialect::kTrainyard);
    change(run.options);
    return core::message_of([&] { read_early_stop(run); });
  };
  const std::string remedy = "add --eval_during_training_every_n_epochs=1, or leave ";
  EXPECT_EQ(message([](TfCnnOptions&) {}), "no error");
  EXPECT_THAT(message([](TfCnnOptions& o) { o.calibration_bins = 5; }),
              core::Says("nothing is evaluated that could be explained", "--top_k, --calibration_bins or --most_wrong",
                         remedy + "them out"));
  EXPECT_THAT(
      message([](TfCnnOptions& o) { o.early_stop = 7; }),
      core::Says("nothing is evaluated that could end the training", "--early_stop=7", remedy + "--early_stop out"));
  EXPECT_THAT(message([](TfCnnOptions& o) { o.saving.keep_best = "top_5"; }),
              core::Says("nothing is evaluated whose best checkpoint could be kept", "--keep_best=top_5",
                         remedy + "--keep_best out"));
  // `trainyard train` keeps the best one where it evaluates, and is not asked for it.
  EXPECT_EQ(message([](TfCnnOptions& o) {
              o.saving.keep_best = "top_5";
              o.flags.all.emplace_back("keep_best", core::FlagValue(std::string("top_5")));
            }),
            "no error");
}

}  // namespace
}  // namespace trainyard::frontends::run_steps_test
