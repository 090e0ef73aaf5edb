// What the commands do where mpirun or srun has started the program several times.
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/cli/testing/cli.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/environment.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/parallel/process_group/launcher_claims.h"

namespace trainyard::cli::copies_test {
namespace {

using ::testing::HasSubstr, ::testing::Not;

class StartedTwice : public ::testing::Test {
 protected:
  core::EnvironmentVariable size_{"OMPI_COMM_WORLD_SIZE", "2"};
  core::EnvironmentVariable rank_{"OMPI_COMM_WORLD_RANK", "0"};
  core::EnvironmentVariable separate_{parallel::kSeparateProcessesVariable, std::nullopt};
  core::TempDir temp_;
};

TEST_F(StartedTwice, CommandsThatWouldRunTwiceAreRefusedByName) {
  const std::string out = "--output=" + temp_.file("out");
  const std::map<std::string, Arguments> refused = {
      {"predict", {"predict", "--model=lenet", "x.jpg"}},
      {"export", {"export", "--model=lenet", out}},
      {"eval-detections", {"eval-detections", "a.json", "b.json"}},
      {"simulate", {"simulate", "--workers=2"}},
      {"suite", {"suite", "--list"}},
      {"tune", {"tune", "search.yaml"}},
      {"find-lr", {"find-lr", "--model=lenet", out}},
      {"quantize", {"quantize", "x", out}},
      {"sparsity", {"sparsity", "prune", "x"}},
      {"launch", {"launch", "-n", "2", "--dry_run", "--", "train"}},
      {"data convert", {"data", "convert", "--from=x", "--to=folder", out}},
      {"data make-shapes", {"data", "make-shapes", out}},
      {"data index", {"data", "index", "x"}},
      {"data show", {"data", "show", "--data_dir=x", out}},
  };
  for (const auto& [name, arguments] : refused) {
    const CommandResult result = run_command(arguments);
    EXPECT_EQ(result.code, kUsage) << name;
    EXPECT_THAT(result.err, HasSubstr("2 processes were started, and each would run `trainyard " + name +
                                      "` by itself: Open MPI: got OMPI_COMM_WORLD_SIZE=2"));
    EXPECT_EQ(result.out, "");
  }
  EXPECT_TRUE(core::local_file_system().list(temp_.path()).empty());
}

TEST_F(StartedTwice, TrainingsAndEvaluationsThatWouldRunAloneAreRefused) {
  const Arguments training = {"train",
                              "--model=trivial",
                              "--data_name=cifar10",
                              "--synthetic",
                              "--device=cpu",
                              "--batch_size=2",
                              "--num_batches=1",
                              "--num_warmup_batches=0",
                              "--num_intra_threads=1",
                              "--train_dir=" + temp_.file("run")};
  separate_.set("1");
  const CommandResult trained = run_command(training);
  ASSERT_EQ(trained.code, kSuccess) << trained.err;
  separate_.set(std::nullopt);
  for (const auto& [arguments, would] : std::vector<std::pair<Arguments, std::string>>{
           {with_flags(training, {"--train_dir="}), "train"},
           {{"--model=trivial", "--data_name=cifar10", "--device=cpu", "--num_batches=1", "--batch_size=2"}, "train"},
           {{"eval", "--synthetic", "--device=cpu", "--train_dir=" + temp_.file("run")}, "evaluate"},
           {{"train-ctl", "--num_iter=1", "--batch_size=2", "--precision=fp32"}, "train"}}) {
    const CommandResult result = run_command(arguments);
    EXPECT_EQ(result.code, kUsage) << arguments[0] << result.err;
    EXPECT_THAT(result.err, HasSubstr("2 processes were started, and each would " + would + " alone")) << arguments[0];
    EXPECT_THAT(result.err, HasSubstr("OMPI_COMM_WORLD_SIZE=2"));
  }
}

TEST_F(StartedTwice, WhatOnlyReadsAndPrintsRuns) {
  for (const Arguments& arguments : std::vector<Arguments>{{"models", "lenet"},
                                                           {"help"},
                                                           {"--version"},
                                                           {"--help"},
                                                           {"program", "--help"},
                                                           {"data"},
                                                           {"data", "convert", "--help"}}) {
    EXPECT_THAT(run_command(arguments).err, Not(HasSubstr("processes were started"))) << arguments[0];
  }
  EXPECT_THAT(run_command({"data", "verify", temp_.path()}).err, Not(HasSubstr("processes were started")));
}

TEST_F(StartedTwice, ProcessesWithJobsOfTheirOwnSaySo) {
  separate_.set("1");
  const CommandResult shapes = run_command(
      {"data", "make-shapes", "--output=" + temp_.file("shapes"), "--train_count=4", "--validation_count=4"});
  EXPECT_EQ(shapes.code, kSuccess) << shapes.err;
  const CommandResult trained =
      run_command({"train", "--model=trivial", "--data_name=cifar10", "--synthetic", "--device=cpu", "--num_batches=1",
                   "--batch_size=2", "--num_warmup_batches=0", "--train_dir="});
  EXPECT_EQ(trained.code, kSuccess) << trained.err;
}

TEST_F(StartedTwice, OneProcessIsNeverRefused) {
  size_.set("1");
  EXPECT_EQ(run_command({"suite", "--list", "--run=Vgg16*"}).code, kSuccess);
}

}  // namespace
}  // namespace trainyard::cli::copies_test
