// Averaged weights from the command line: kept, gone on with, evaluated, exported. And what else regularizes a training
// by flags.
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/cli/testing/cli.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/temp_dir.h"

namespace trainyard::cli::averaged_weights_test {
namespace {

using ::testing::HasSubstr;

class AveragedWeights : public ::testing::Test {
 protected:
  CommandResult train(const std::string& run, int steps, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"train",
                                          "--model=resnet20",
                                          "--data_name=cifar10",
                                          "--synthetic",
                                          "--device=cpu",
                                          "--batch_size=4",
                                          "--num_batches=" + std::to_string(steps),
                                          "--num_classes=10",
                                          "--init_learning_rate=0.05",
                                          "--optimizer=tf_nesterov",
                                          "--deterministic",
                                          "--existing_run=keep",
                                          "--train_dir=" + temp_.file(run)};
    return run_command(with_flags(arguments, more));
  }

  // The file that `trainyard export` writes.
  std::string exported(const std::string& run, const std::string& which = "") {
    std::vector<std::string> arguments = {"export", "--train_dir=" + temp_.file(run),
                                          "--output=" + temp_.file("w.safetensors")};
    if (!which.empty()) arguments.push_back("--weights_of=" + which);
    const CommandResult result = run_command(arguments);
    EXPECT_EQ(result.code, kSuccess) << result.err;
    return core::local_file_system().read_file(temp_.file("w.safetensors"));
  }

  // What `trainyard eval` says of images and accuracy.
  std::string evaluated(const std::string& run, const std::string& which) {
    const CommandResult result = run_command(
        {"eval", "--model=resnet20", "--data_name=cifar10", "--device=cpu", "--batch_size=4", "--num_eval_batches=20",
         "--deterministic", "--synthetic", "--train_dir=" + temp_.file(run), "--weights_of=" + which});
    EXPECT_EQ(result.code, kSuccess) << result.err;
    const size_t begin = result.out.find("Accuracy @ 1");
    EXPECT_NE(begin, std::string::npos) << result.out;
    return result.out.substr(begin, result.out.find('\n', begin) - begin);
  }

  const core::TempDir temp_;
};

TEST_F(AveragedWeights, AreExportedAndEvaluatedUnlessTheLastAreAskedFor) {
  const CommandResult trained = train("run", 6, {"--ema_decay=0.9"});
  ASSERT_EQ(trained.code, kSuccess) << trained.err;
  const std::string average = exported("run", "average"), last = exported("run", "last");
  EXPECT_EQ(exported("run"), average);
  EXPECT_NE(average, last);
  ASSERT_EQ(train("plain", 6, {}).code, kSuccess);
  EXPECT_EQ(exported("plain"), last) << "an average changes nothing in the training";
  EXPECT_NE(evaluated("run", "average"), evaluated("run", "last"));
  EXPECT_EQ(evaluated("plain", "average"), evaluated("run", "last"));
}

// With everything that draws and that has state.
TEST_F(AveragedWeights, GoOnBitForBit) {
  for (const std::vector<std::string>& average :
       {std::vector<std::string>{"--ema_decay=0.9", "--ema_warmup", "--average_every=2"},
        std::vector<std::string>{"--swa_start_epoch=0.0002", "--average_every=2", "--recalibrate_batch_norm=3"}}) {
    std::vector<std::string> flags = {"--dropout=0.3", "--stochastic_depth=0.4", "--clip_global_norm=0.5",
                                      "--batch_norm_decay=0.8"};
    flags.insert(flags.end(), average.begin(), average.end());
    const std::string name = average[0].substr(2, 3);
    ASSERT_EQ(train(name + "_straight", 7, flags).code, kSuccess);
    ASSERT_EQ(train(name + "_parts", 4, flags).code, kSuccess);
    const CommandResult rest = train(name + "_parts", 7, flags);
    ASSERT_EQ(rest.code, kSuccess) << rest.err;
    EXPECT_EQ(exported(name + "_straight", "average"), exported(name + "_parts", "average")) << average[0];
    EXPECT_EQ(exported(name + "_straight", "last"), exported(name + "_parts", "last")) << average[0];
  }
}

// An epoch has 12,500 steps.
TEST_F(AveragedWeights, AreTheLastOnesUntilTheEpochBegins) {
  for (const auto& [start, begun] : {std::pair("0.0004", false), std::pair("0.0001", true)}) {
    const std::string run = std::string("from_") + start;
    ASSERT_EQ(train(run, 4, {std::string("--swa_start_epoch=") + start, "--average_every=1"}).code, kSuccess);
    EXPECT_EQ(exported(run, "average") != exported(run, "last"), begun) << start;
  }
}

TEST_F(AveragedWeights, BeginAnewWithAWarning) {
  ASSERT_EQ(train("run", 2, {}).code, kSuccess);
  const CommandResult with = train("run", 4, {"--ema_decay=0.5"});
  ASSERT_EQ(with.code, kSuccess);
  EXPECT_THAT(with.err, HasSubstr("has no averaged weights"));
  const CommandResult without = train("run", 6, {});
  ASSERT_EQ(without.code, kSuccess);
  EXPECT_THAT(without.err, HasSubstr("averaged weights end here"));
}

TEST_F(AveragedWeights, AreEvaluatedDuringTheTraining) {
  const std::vector<std::string> evaluates = {"--eval_during_training_every_n_steps=4", "--num_eval_batches=20",
                                              "--swa_start_epoch=0", "--average_every=1", "--recalibrate_batch_norm=4"};
  const CommandResult trained = train("run", 8, evaluates);
  ASSERT_EQ(trained.code, kSuccess) << trained.err;
  EXPECT_THAT(trained.err, HasSubstr("recalibrating the batch norms over 4 batches"));
  // The last line of the evaluation is that of the checkpoint.
  const size_t begin = trained.out.rfind("Accuracy @ 1");
  ASSERT_NE(begin, std::string::npos) << trained.out;
  const CommandResult again =
      run_command({"eval", "--model=resnet20", "--data_name=cifar10", "--device=cpu", "--batch_size=4",
                   "--num_eval_batches=20", "--deterministic", "--synthetic", "--train_dir=" + temp_.file("run")});
  EXPECT_THAT(again.out, HasSubstr(trained.out.substr(begin, trained.out.find('[', begin) - begin)));
  // Without recalibration it is another model.
  std::vector<std::string> not_recalibrated = evaluates;
  not_recalibrated.back() = "--recalibrate_batch_norm=0";
  ASSERT_EQ(train("other", 8, not_recalibrated).code, kSuccess);
  EXPECT_NE(exported("other"), exported("run"));
  EXPECT_EQ(exported("other", "last"), exported("run", "last"));
}

TEST_F(AveragedWeights, RecalibrationIsOfTheLastWeightsWithoutAnAverage) {
  ASSERT_EQ(train("plain", 3, {}).code, kSuccess);
  ASSERT_EQ(train("run", 3, {"--recalibrate_batch_norm=2"}).code, kSuccess);
  EXPECT_NE(exported("run"), exported("plain"));
}

TEST_F(AveragedWeights, MessagesOfFlagsThatDoNotGoTogether) {
  const auto message = [&](const std::vector<std::string>& flags) {
    const CommandResult result = train("refused", 2, flags);
    EXPECT_EQ(result.code, kUsage);
    EXPECT_FALSE(core::local_file_system().exists(temp_.file("refused"))) << result.err;
    return result.err;
  };
  EXPECT_THAT(message({"--clip_norm=1", "--clip_global_norm=1"}),
              HasSubstr("At most one of --clip_norm, --clip_global_norm and --adaptive_clip can be specified"));
  EXPECT_THAT(message({"--clip_rule=pytorch"}),
              HasSubstr("--clip_rule requires --clip_norm, --clip_global_norm or --adaptive_clip"));
  EXPECT_THAT(message({"--adaptive_clip=0"}), HasSubstr("--adaptive_clip must be above 0, not 0"));
  EXPECT_THAT(message({"--ema_decay=0.9", "--swa_start_epoch=1"}),
              HasSubstr("At most one of --ema_decay and --swa_start_epoch can be specified"));
  EXPECT_THAT(message({"--ema_warmup"}), HasSubstr("--ema_warmup requires --ema_decay"));
  EXPECT_THAT(message({"--average_every=3"}), HasSubstr("--average_every requires --ema_decay or --swa_start_epoch"));
  EXPECT_THAT(message({"--ema_decay=1"}), HasSubstr("Param ema_decay value of 1 must be below 1"));
  EXPECT_THAT(message({"--model=alexnet", "--stochastic_depth=0.1"}), HasSubstr("there are no residual blocks"));
  EXPECT_THAT(message({"--model=alexnet", "--batch_norm_decay=0.1"}), HasSubstr("there are no batch norms"));
  EXPECT_THAT(message({"--recalibrate_batch_norm=2", "--staged_vars"}),
              HasSubstr("--recalibrate_batch_norm is not for --staged_vars"));
  EXPECT_THAT(message({"--recalibrate_batch_norm=2", "--job_name=worker", "--nocross_replica_sync"}),
              HasSubstr("--recalibrate_batch_norm is not for --nocross_replica_sync"));
  EXPECT_THAT(message({"--model=alexnet", "--recalibrate_batch_norm=1"}),
              HasSubstr("there are no batch norms to recalibrate"));
}

}  // namespace
}  // namespace trainyard::cli::averaged_weights_test
