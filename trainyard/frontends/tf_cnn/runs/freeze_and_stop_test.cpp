// --freeze, --freeze_until, --freeze_after, --early_stop and --keep_best of `trainyard train`, and what
// train::load_model() makes of its run folders.
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/base/tensors.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/core/threads/stop_token.h"
#include "trainyard/frontends/model/trained_model.h"
#include "trainyard/frontends/testing/stopping_text.h"
#include "trainyard/frontends/tf_cnn/benchmark_cnn.h"
#include "trainyard/frontends/tf_cnn/flags.h"
#include "trainyard/frontends/tf_cnn/read_options.h"
#include "trainyard/frontends/tf_cnn/run_state.h"
#include "trainyard/train/model/model.h"

namespace trainyard::frontends::freeze_and_stop_test {
namespace {

using ::testing::AllOf, ::testing::HasSubstr;

class TrainFlags : public ::testing::Test {
 protected:
  const core::TempDir temp_;
  std::string log_;       // of the last run
  bool stopped_ = false;  // the last run, by a signal

  // Runs `trainyard train` on synthetic images, and returns what it printed. Later flags replace earlier ones. A signal
  // comes when it has printed `stops_at` so many times.
  std::string train(const std::vector<std::string>& more, const std::string& run = "run",
                    const std::string& stops_at = "", int times = 1) {
    std::vector<std::string> flags{"--synthetic",
                                   "--device=cpu",
                                   "--batch_size=2",
                                   "--display_every=1",
                                   "--num_intra_threads=1",
                                   "--deterministic",
                                   "--train_dir=" + temp_.file(run),
                                   "--existing_run=keep",
                                   "--progress=off",
                                   "--summary_verbosity=0"};
    flags.insert(flags.end(), more.begin(), more.end());
    core::StopSource stop;
    StoppingText printed(stops_at, times, stop);
    std::ostream out(&printed);
    testing::internal::CaptureStderr();
    std::optional<core::Error> error;
    try {
      const core::FlagValues values = core::parse_flags(tf_cnn_flags(Dialect::kTrainyard), flags);
      stopped_ = BenchmarkCnn(read_options(values, Dialect::kTrainyard)).run(out, stop.token()).stopped_by_signal;
    } catch (const core::Error& thrown) {
      error = thrown;
    }
    log_ = testing::internal::GetCapturedStderr();
    if (error) throw *error;
    return printed.str();
  }
  int64_t steps_of(const std::string& run = "run") const { return train::find_checkpoint(temp_.file(run)).global_step; }
  // Returns the names of what differs between the last checkpoints of two runs.
  std::set<std::string> moved(const std::string& before, const std::string& after) const {
    const auto a = train::load_model(temp_.file(before)), b = train::load_model(temp_.file(after));
    const nn::ParameterSet &x = a->parameters(), &y = b->parameters();
    std::set<std::string> names;
    for (const nn::Segment& segment : x.segments()) {
      if (!at::equal(x.value(segment.id), y.value(segment.id))) names.insert(segment.spec.name);
    }
    for (int i = 0; i < static_cast<int>(x.buffer_count()); ++i) {
      if (!at::equal(x.buffer(i), y.buffer(i))) names.insert(x.buffer_spec(i).name);
    }
    return names;
  }
};

// Weights that stand still: top-1 accuracy is the same in each evaluation.
const std::vector<std::string> kStandingStill{"--model=lenet",
                                              "--num_batches=40",
                                              "--init_learning_rate=0",
                                              "--weight_decay=0",
                                              "--num_eval_batches=1",
                                              "--eval_exact=false",
                                              "--eval_during_training_every_n_steps=2"};

std::vector<std::string> with(std::vector<std::string> flags, std::initializer_list<std::string> more) {
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

TEST_F(TrainFlags, EarlyStopEndsARunWhoseEvaluationsGetNoBetter) {
  EXPECT_THAT(train(with(kStandingStill, {"--early_stop=3", "--summary_verbosity=1"})),
              AllOf(HasSubstr("top_1_accuracy has not been better than"), HasSubstr("of step 2, in 3 evaluations"),
                    HasSubstr(" --early_stop=6\n")));
  EXPECT_EQ(steps_of(), 8);
  train(with(kStandingStill, {"--early_stop=3"}));
  EXPECT_EQ(steps_of(), 8) << "it stays stopped";
  EXPECT_THAT(log_, AllOf(HasSubstr("nothing is left to do"), HasSubstr("--early_stop=3 has ended this run")));
  train(with(kStandingStill, {"--early_stop=5"}));
  EXPECT_EQ(steps_of(), 12) << "it has counted 3";
  train(kStandingStill, "without");
  EXPECT_EQ(steps_of("without"), 40);
}

TEST_F(TrainFlags, EarlyStopFollowsWhatKeepBestNames) {
  EXPECT_THAT(train(with(kStandingStill, {"--early_stop=1", "--keep_best=loss"})),
              HasSubstr("loss has not been better than"));
  EXPECT_EQ(steps_of(), 4);
  const std::string lines =
      train(with(kStandingStill, {"--early_stop=1", "--keep_best=mean_class_accuracy"}), "classes");
  EXPECT_THAT(lines, AllOf(HasSubstr("mean_class_accuracy has not been better than"),
                           HasSubstr("best (step 2, mean_class_accuracy")));
  EXPECT_THAT(train(with(kStandingStill, {"--early_stop=1", "--keep_best=none"}), "none"),
              HasSubstr("top_1_accuracy has not been better than"));
  EXPECT_FALSE(core::local_file_system().exists(temp_.file("none/best")));
}

TEST_F(TrainFlags, EarlyStopAndKeepBestSayWhatTheyNeed) {
  EXPECT_THAT(core::message_of([&] {
                train({"--model=lenet", "--num_batches=2", "--early_stop=2"});
              }),
              AllOf(HasSubstr("--early_stop=2"), HasSubstr("--eval_during_training_every_n_epochs=1")));
  EXPECT_THAT(core::message_of([&] { train(with(kStandingStill, {"--early_stop=0"})); }), HasSubstr("early_stop"));
  EXPECT_THAT(core::message_of([&] { train(with(kStandingStill, {"--keep_best=top_l"})); }),
              AllOf(HasSubstr("--keep_best"), HasSubstr("mean_class_accuracy"), HasSubstr("did you mean top_1?")));
  for (const char* best : {"--keep_best=loss", "--keep_best=top_1"}) {
    EXPECT_THAT(core::message_of([&] {
                  train({"--model=lenet", "--num_batches=2", best});
                }),
                AllOf(HasSubstr(best), HasSubstr("--eval_during_training_every_n_epochs=1")));
  }
  EXPECT_NO_THROW(train({"--model=lenet", "--num_batches=2", "--keep_best=none"}, "nothing_kept"));
  EXPECT_EQ(read_best_by("center_loss:lowest")->name, "center_loss");
  EXPECT_EQ(read_best_by("center_loss:lowest")->lowest, true);
  EXPECT_EQ(read_best_by("score:highest")->lowest, false);
  EXPECT_EQ(read_best_by("none"), std::nullopt);
  for (const char* flag : {"--early_stop=2", "--freeze=conv*"}) {
    for (const char* mode : {"--eval", "--forward_only"}) {
      EXPECT_THAT(core::message_of([&] { train({"--model=lenet", flag, mode}); }), HasSubstr("is for trainings"));
    }
  }
}

const std::vector<std::string> kResnet{"--model=resnet20", "--data_name=cifar10", "--init_learning_rate=0.1"};

TEST_F(TrainFlags, FreezeKeepsParametersAndStatistics) {
  train(with(kResnet, {"--num_batches=1", "--freeze=conv1.*,bn1.*,layer*"}), "one");
  train(with(kResnet, {"--num_batches=3", "--freeze=conv1.*,bn1.*,layer*"}), "three");
  EXPECT_THAT(log_, HasSubstr("parameters are frozen: conv1.*, bn1.*, layer*"));
  EXPECT_THAT(moved("one", "three"), testing::ElementsAre("fc.bias", "fc.weight"));
  train(with(kResnet, {"--num_batches=1"}), "all");
  train(with(kResnet, {"--num_batches=3"}), "all_three");
  EXPECT_GT(moved("all", "all_three").size(), 60U);
}

TEST_F(TrainFlags, FreezeOfARunThatGoesOnIsTheFlags) {
  train(with(kResnet, {"--num_batches=2", "--freeze=conv1.*,bn1.*,layer*"}), "start");
  train(with(kResnet, {"--num_batches=2", "--freeze=conv1.*,bn1.*,layer*"}));
  train(with(kResnet, {"--num_batches=4"}));
  EXPECT_THAT(log_, HasSubstr("this one freezes 0 of"));
  EXPECT_GT(moved("start", "run").size(), 60U);
}

TEST_F(TrainFlags, FreezeSaysWhatWasMeant) {
  EXPECT_THAT(core::message_of(
                  [&] {
                    train({"--model=lenet", "--num_batches=1", "--freeze=conv1.*,cnov2.*"});
                  },
                  core::ErrorCode::kNotFound),
              AllOf(HasSubstr("no parameter is named as 'cnov2.*'"), HasSubstr("did you mean 'conv2.*'?"),
                    HasSubstr("conv2.weight")));
  EXPECT_THAT(core::message_of([&] {
                train({"--model=lenet", "--num_batches=1", "--freeze=*"});
              }),
              HasSubstr("all parameters are frozen"));
}

// The run that is there goes only where the new one can begin.
TEST_F(TrainFlags, APatternThatNothingMatchesCostsNoEarlierRun) {
  train({"--model=lenet", "--num_batches=1"});
  const auto refused = [&](const std::vector<std::string>& more, core::ErrorCode code) {
    std::vector<std::string> flags{"--model=lenet", "--num_batches=2", "--existing_run=delete"};
    flags.insert(flags.end(), more.begin(), more.end());
    std::string message = core::message_of([&] { train(flags); }, code);
    EXPECT_EQ(steps_of(), 1) << message;
    return message;
  };
  for (const char* flag : {"--freeze=cnov2.*", "--freeze_after=cnov2.*:900"}) {
    EXPECT_THAT(refused({flag}, core::ErrorCode::kNotFound), HasSubstr("did you mean 'conv2.*'?"));
  }
  for (const char* flag : {"--freeze=*", "--freeze_until=*:900", "--freeze_after=*:0"}) {
    EXPECT_THAT(refused({flag}, core::ErrorCode::kInvalidArgument),
                HasSubstr("there is nothing to train: all parameters are frozen"));
  }
  EXPECT_THAT(refused({"--asp", "--asp_exclude=cnov2"}, core::ErrorCode::kInvalidArgument), HasSubstr("'cnov2'"));
  const std::vector<std::string> goal{"--eval_during_training_every_n_steps=1", "--stop_at_top_1_accuracy=75"};
  EXPECT_THAT(refused(goal, core::ErrorCode::kInvalidArgument),
              HasSubstr("--stop_at_top_1_accuracy must be at most 1, not 75"));
}

TEST_F(TrainFlags, TheBackboneIsAllButTheLastLayer) {
  train(with(kResnet, {"--num_batches=1", "--freeze=backbone"}), "one");
  train(with(kResnet, {"--num_batches=3", "--freeze=backbone"}), "three");
  EXPECT_THAT(moved("one", "three"), testing::ElementsAre("fc.bias", "fc.weight"));
}

// An epoch has 50,000 images, 25,000 steps: 0.00008 of it are two.
TEST_F(TrainFlags, FreezeUntilAndAfterFollowTheEpochs) {
  const std::string until = "--freeze_until=backbone:0.00008", after = "--freeze_after=backbone:0.00016";
  const auto run = [&](int steps, const std::string& folder) {
    return train(with(kResnet, {"--num_batches=" + std::to_string(steps), until, after}), folder);
  };
  run(1, "one"), run(2, "two"), run(3, "three"), run(4, "four"), run(6, "six");
  const std::vector<std::string> head{"fc.bias", "fc.weight"};
  EXPECT_THAT(moved("one", "two"), testing::ElementsAreArray(head)) << "frozen";
  EXPECT_GT(moved("two", "three").size(), 60U) << "thawed";
  EXPECT_GT(moved("two", "four").size(), 60U);
  EXPECT_THAT(log_, HasSubstr("after step 4: "));
  EXPECT_THAT(log_, HasSubstr("parameters are frozen: backbone until epoch 8e-05, backbone after epoch 0.00016"));
  EXPECT_THAT(moved("four", "six"), testing::ElementsAreArray(head)) << "frozen again";
  for (const int stop : {1, 2, 3, 5}) {
    const std::string folder = "resumed" + std::to_string(stop);
    run(stop, folder), run(6, folder);
    EXPECT_THAT(log_, testing::Not(HasSubstr("the checkpoint's run had frozen"))) << stop;
    EXPECT_THAT(moved("six", folder), testing::IsEmpty()) << stop;
  }
}

TEST_F(TrainFlags, FreezeUntilSaysWhatItNeeds) {
  const auto refused = [&](const std::string& flag) {
    return core::message_of([&] { train({"--model=lenet", "--num_batches=1", flag}); });
  };
  EXPECT_THAT(refused("--freeze_until=conv1.*"), AllOf(HasSubstr("--freeze_until"), HasSubstr("PATTERN:EPOCH")));
  EXPECT_THAT(refused("--freeze_until=conv1.*:"), HasSubstr("PATTERN:EPOCH"));
  EXPECT_THAT(refused("--freeze_until=conv1.*:0"), HasSubstr("freeze_until"));
  EXPECT_THAT(refused("--freeze_after=conv1.*:-1"), HasSubstr("lower than the lower bound"));
  EXPECT_THAT(refused("--freeze_after=conv1.*:soon"), HasSubstr("freeze_after"));
  EXPECT_THAT(core::message_of(
                  [&] {
                    train({"--model=lenet", "--num_batches=1", "--freeze_after=cnov1.*:900"});
                  },
                  core::ErrorCode::kNotFound),
              HasSubstr("did you mean 'conv1.*'?"));
}

// What two runs leave is what one leaves that nothing stops.
TEST_F(TrainFlags, AnEvaluationThatASignalCutsOffIsRepeated) {
  const std::vector<std::string> flags =
      with(kStandingStill, {"--num_batches=6", "--init_learning_rate=0.05", "--summary_verbosity=1"});
  const auto text_of = [&](const std::string& run, const char* file) {
    return core::local_file_system().read_file(core::join_path(temp_.file(run), file));
  };
  const auto evaluated = [&](const std::string& run) {
    std::vector<int64_t> steps;
    std::istringstream lines(text_of(run, "metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const auto row = nlohmann::json::parse(line);
      if (row["phase"] == "eval") steps.push_back(row["global_step"].get<int64_t>());
    }
    return steps;
  };
  const auto status = [&](const std::string& run) {
    return nlohmann::json::parse(text_of(run, "run_summary.json"))["status"].get<std::string>();
  };
  train(flags, "whole");
  ASSERT_THAT(evaluated("whole"), testing::ElementsAre(2, 4, 6));
  for (const bool last : {false, true}) {
    const std::string run = last ? "last" : "between";
    const std::string begin =
        last ? "Running final evaluation at global_step 6" : "Running evaluation at global_step 4";
    train(flags, run, begin);
    EXPECT_TRUE(stopped_);
    EXPECT_EQ(status(run), "stopped");
    EXPECT_EQ(steps_of(run), last ? 6 : 4);
    EXPECT_THAT(train(flags, run), HasSubstr(begin));
    EXPECT_FALSE(stopped_);
    EXPECT_EQ(status(run), "finished");
    EXPECT_EQ(evaluated(run), evaluated("whole")) << run;
    EXPECT_THAT(moved("whole", run), testing::IsEmpty()) << run;
    EXPECT_EQ(steps_of(run + "/best"), steps_of("whole/best"));
    train(flags, run);
    EXPECT_THAT(log_, AllOf(HasSubstr("nothing is left to do"), testing::Not(HasSubstr("was cut off"))));
    EXPECT_EQ(evaluated(run), evaluated("whole")) << run;
  }
}

// The pass that is explained is complete then, and the evaluation is not.
TEST_F(TrainFlags, AnEvaluationThatIsCutOffInItsViewsIsNotExplained) {
  const std::vector<std::string> flags =
      with(kStandingStill, {"--num_batches=4", "--num_eval_batches=3", "--tta=flip"});
  const std::string path = core::join_path(temp_.file("run"), "evaluation.json");
  // Three batches after step 2, three after the last step, and the first one of the views.
  train(flags, "run", "examples/sec", /*times=*/7);
  EXPECT_TRUE(stopped_);
  EXPECT_FALSE(core::local_file_system().exists(path));
  train(flags);
  EXPECT_FALSE(stopped_);
  EXPECT_EQ(nlohmann::json::parse(core::local_file_system().read_file(path))["global_step"], 4);
}

TEST_F(TrainFlags, ARunFolderIsAModelForTheLibrary) {
  train(with(kStandingStill,
             {"--num_batches=4", "--init_learning_rate=0.01", "--image_size=32", "--normalization=mean_std"}));
  for (const bool best : {false, true}) {
    const auto model = train::load_model(temp_.file("run"), {.intra_op_threads = 1, .best = best});
    const TrainedModel expected = load_trained_model({.path = temp_.file(best ? "run/best" : "run")});
    const train::ModelDescription& said = model->description();
    EXPECT_EQ(said.name, "lenet");
    EXPECT_EQ(said.num_classes, expected.identity.num_classes);
    ASSERT_TRUE(said.input.has_value());
    EXPECT_EQ(said.input->height, 32);
    EXPECT_EQ(said.input->normalization, expected.input.normalization);
    EXPECT_EQ(said.input->eval_resize_size, expected.input.eval_resize_size);
    const at::Tensor images = core::new_tensor({2, 3, 32, 32}, at::kFloat).fill_(0.25);
    EXPECT_TRUE(model->logits(images).allclose(expected.executor->forward(images, {}), 1e-5, 1e-5)) << best;
  }
}

}  // namespace
}  // namespace trainyard::frontends::freeze_and_stop_test
