// What a run saves of itself, where it is, and how its session resumes and compares evaluations.
#include "trainyard/frontends/tf_cnn/run_state.h"

#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/flags/flag_value.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/core/threads/stop_token.h"
#include "trainyard/data/datasets/dataset.h"
#include "trainyard/data/testing/label_sets.h"
#include "trainyard/frontends/tf_cnn/prepare.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/parallel/testing/on_ranks.h"
#include "trainyard/train/testing/callback_conformance.h"

namespace trainyard::frontends::run_state_test {
namespace {

using ::testing::ElementsAre, ::testing::IsEmpty;

PreparedRun run_of(Dialect dialect) {
  nn::GraphBuilder b({.image = {3, 4, 4}, .name = "linear"});
  PreparedRun run;
  run.options.dialect = dialect;
  run.model = &models::find_model("lenet", "imagenet");
  run.graph = b.build(b.linear("head", b.flatten("flat", b.input()), {.out_features = 2}));
  run.input.dataset = "imagenet";
  run.num_classes = 2;
  run.batch_size = 24;
  return run;
}

SavedRunOptions saved_by(const PreparedRun& run) {
  train::PretendTrainer trainer;
  return make_saved_run(trainer, run)->options();
}

TEST(SavedRunOfARun, HasWhatTheRunIsAndWhatItsDataAre) {
  PreparedRun run = run_of(Dialect::kTrainyard);
  run.input.transform.height = 20;
  run.input.transform.width = 24;
  run.input.preprocessor = "torchvision";
  run.classes = {.names = {"cat", "dog"}, .first_output = 1};
  run.input.data_dir = "photos";
  run.class_count = 3;
  run.input.division = data::Division{.validation = 0.25};
  const SavedRunOptions saved = saved_by(run);
  EXPECT_EQ(saved.identity.model, "lenet");
  EXPECT_EQ(saved.identity.dataset, "imagenet");
  EXPECT_EQ(saved.identity.num_classes, 2);
  EXPECT_EQ(saved.input.height, 20);
  EXPECT_EQ(saved.input.width, 24);
  EXPECT_EQ(saved.preprocessor, "torchvision");
  EXPECT_THAT(saved.classes.names, ElementsAre("cat", "dog"));
  EXPECT_EQ(saved.classes.first_output, 1);
  EXPECT_EQ(saved.data_dir, "photos");
  EXPECT_EQ(saved.class_count, 3);
  EXPECT_EQ(saved.division, (data::Division{.validation = 0.25}));
  EXPECT_FALSE(saved.label_sets);
  EXPECT_TRUE(saved.trains);
  EXPECT_FALSE(saved.tells_input) << "the run has said it before";
  EXPECT_EQ(saved.averaged_weights, std::nullopt);
  EXPECT_EQ(saved.batch_size, 0) << "a flag gives it";
  EXPECT_FALSE(saved.fine_tuning.has_value());
  EXPECT_EQ(saved.optimizer, "sgd");
}

TEST(SavedRunOfARun, HasWhatTheRunHasChosen) {
  PreparedRun run = run_of(Dialect::kTfCnnBenchmarks);
  run.options.mode = RunMode::kForwardOnly;
  run.options.batch_size = kLargestBatch;
  run.options.fine_tune = FineTuneOptions{.batch_size = 8, .num_epochs = 9, .early_stop = 4};
  run.options.update.optimizer = "torch_adamw";
  run.train_data = std::make_shared<data::LabelSets>();
  const SavedRunOptions saved = saved_by(run);
  EXPECT_TRUE(saved.label_sets);
  EXPECT_FALSE(saved.trains);
  EXPECT_TRUE(saved.tells_input);
  EXPECT_EQ(saved.batch_size, 24);
  ASSERT_TRUE(saved.fine_tuning.has_value());
  EXPECT_EQ(saved.fine_tuning->batch_size, 8);
  EXPECT_EQ(saved.fine_tuning->num_epochs, 9);
  EXPECT_EQ(saved.fine_tuning->early_stop, 4);
  EXPECT_EQ(saved.optimizer, "torch_adamw");
}

TEST(SavedRunOfARun, HasTheWeightsThatItsEvaluationsUseWhereItAverages) {
  const auto averaged = [](const AverageOptions& average, const std::string& optimizer = "sgd") {
    PreparedRun run = run_of(Dialect::kTrainyard);
    run.options.average = average;
    run.options.update.optimizer = optimizer;
    return saved_by(run).averaged_weights;
  };
  EXPECT_EQ(averaged({.ema_decay = 0.9}), true);
  EXPECT_EQ(averaged({.swa_start_epoch = 1.0}), true);
  EXPECT_EQ(averaged({}, "schedule_free_sgd"), true);
  EXPECT_EQ(averaged({.ema_decay = 0.9, .averaged_weights = false}), false);
  EXPECT_EQ(averaged({.averaged_weights = false}), std::nullopt);
}

TEST(SessionOptionsOfARun, AreThoseOfItsFlags) {
  train::PretendTrainer trainer;
  PreparedRun run = run_of(Dialect::kTrainyard);
  run.options.saving.train_dir = "runs/1";
  run.options.saving.max_ckpts_to_keep = 7;
  run.options.saving.keep_best = "loss";
  const std::shared_ptr<SavedRun> state = make_saved_run(trainer, run);
  const train::SessionOptions session = session_options(run, state);
  EXPECT_EQ(session.directory, "runs/1");
  EXPECT_EQ(session.identity.model, "lenet");
  EXPECT_EQ(session.identity.dataset, "imagenet");
  EXPECT_EQ(session.identity.num_classes, 2);
  EXPECT_EQ(session.state, state);
  EXPECT_EQ(session.ranks, nullptr);
  EXPECT_FALSE(session.own_pace);
  EXPECT_EQ(session.max_to_keep, 7);
  EXPECT_FALSE(session.early_stop.has_value());
  EXPECT_FALSE(session.compare.has_value()) << "nothing ends the training early";
  EXPECT_EQ(session.resume.damaged, train::DamagedCheckpoints::kStop);
  EXPECT_EQ(session.resume.optimizer, "sgd");
  EXPECT_TRUE(static_cast<bool>(session.resume.check));
  EXPECT_EQ(session.resume.another_run, "another --train_dir, with --weights=FILE to start from an export of this one");
  run.options.saving.ignore_damaged_checkpoints = true;
  EXPECT_EQ(session_options(run, state).resume.damaged, train::DamagedCheckpoints::kSetAside);
  parallel::on_ranks(2, [&](const std::shared_ptr<parallel::ProcessGroup>& group) {
    train::PretendTrainer of_rank;
    PreparedRun shared = run;
    shared.device.processes = group;
    const train::SessionOptions options = session_options(shared, make_saved_run(of_rank, shared));
    EXPECT_EQ(options.ranks, group);
    EXPECT_EQ(options.resume.damaged,
              group->rank() == 0 ? train::DamagedCheckpoints::kSetAside : train::DamagedCheckpoints::kPassOver);
  });
}

TEST(SessionOptionsOfARun, CompareWhatMayEndTheTrainingEarly) {
  const auto compared = [](const std::string& keep_best, const std::string& metric) -> std::string {
    train::PretendTrainer trainer;
    PreparedRun run = run_of(Dialect::kTrainyard);
    run.options.saving.keep_best = keep_best;
    run.options.early_stop_metric = metric;
    const train::SessionOptions session =
        session_options(run, make_saved_run(trainer, run), train::EarlyStop{.patience = 3, .min_delta = 0.5});
    EXPECT_TRUE(session.early_stop.has_value() && session.early_stop->patience == 3);
    EXPECT_TRUE(session.early_stop.has_value() && session.early_stop->min_delta == 0.5);
    return session.compare ? session.compare->name : "nothing";
  };
  EXPECT_EQ(compared("loss", ""), "loss");
  EXPECT_EQ(compared("top_5", ""), "top_5_accuracy");
  EXPECT_EQ(compared("loss", "top_5"), "top_5_accuracy");
  EXPECT_EQ(compared("none", "mean_class_accuracy"), "mean_class_accuracy");
  EXPECT_EQ(compared("none", ""), "top_1_accuracy");
}

// The flags that the run's files record name the folder, too.
TEST(TrainDirectory, OfANewRunIsRecorded) {
  const core::TempDir temp;
  const core::StopSource stop;
  std::ostringstream out;
  const auto settled = [&](RunMode mode, const std::string& train_dir) {
    PreparedRun run = run_of(Dialect::kTrainyard);
    run.options.mode = mode;
    run.options.saving.train_dir = train_dir;
    run.options.saving.new_runs_in = temp.file("runs");
    run.options.flags.all = {{"model", core::FlagValue(std::string("lenet"))},
                             {"train_dir", core::FlagValue(train_dir)}};
    ::testing::internal::CaptureStderr();
    settle_train_dir(run, out, stop.token());
    ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(run.options.flags.all[0].second, core::FlagValue(std::string("lenet")));
    EXPECT_EQ(run.options.flags.all[1].second, core::FlagValue(run.train_dir()));
    return run.train_dir();
  };
  EXPECT_EQ(settled(RunMode::kTraining, ""), temp.file("runs/lenet-1"));
  EXPECT_EQ(settled(RunMode::kTrainingAndEvaluation, ""), temp.file("runs/lenet-2"));
  EXPECT_EQ(settled(RunMode::kTraining, temp.file("mine")), temp.file("mine"));
  EXPECT_EQ(settled(RunMode::kForwardOnly, ""), "");
  EXPECT_THAT(core::local_file_system().list(temp.file("runs")), ElementsAre("lenet-1", "lenet-2"));
}

// The first rank makes the folder for all, which save nothing of their own.
TEST(TrainDirectory, IsMadeByTheFirstRank) {
  const core::TempDir temp;
  ::testing::internal::CaptureStderr();
  parallel::on_ranks(2, [&](const std::shared_ptr<parallel::ProcessGroup>& group) {
    const core::StopSource stop;
    std::ostringstream out;
    PreparedRun run = run_of(Dialect::kTrainyard);
    run.options.saving.new_runs_in = temp.file("runs");
    run.device.processes = group;
    settle_train_dir(run, out, stop.token());
    EXPECT_EQ(run.train_dir(), group->rank() == 0 ? temp.file("runs/lenet-1") : "");
  });
  ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(core::local_file_system().list(temp.file("runs")), ElementsAre("lenet-1"));
  EXPECT_THAT(core::local_file_system().list(temp.file("runs/lenet-1")), IsEmpty());
}

}  // namespace
}  // namespace trainyard::frontends::run_state_test
