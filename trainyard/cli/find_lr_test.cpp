// `trainyard find-lr` on the embedded data set: what it prints and writes, and that a run's folder stays as it is.
#include <filesystem>
#include <iterator>
#include <map>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/cli/testing/cli.h"
#include "trainyard/cli/testing/shapes_suite.h"
#include "trainyard/core/files/file_system.h"

namespace trainyard::cli::find_lr_test {
namespace {

using ::testing::HasSubstr, ::testing::Not;

class FindLr : public ShapesSuite {
 protected:
  Arguments arguments(const std::string& command, const Arguments& more = {}) const {
    return with_flags(
        {command, "--model=resnet20", "--data_dir=" + shared->file("shapes"), "--device=cpu", "--batch_size=8",
         "--optimizer=tf_momentum", "--num_intra_threads=1", "--display_every=5", "--train_dir=" + temp_.file("run")},
        more);
  }
  CommandResult find(const Arguments& more = {}, const core::StopToken& stop = core::StopSource().token()) const {
    Arguments all = arguments("find-lr", {"--num_steps=12", "--output=" + temp_.file("found.svg")});
    return run_command(with_flags(all, more), stop);
  }
  // The steps of the last test, its rates and its losses.
  std::string numbers() const { return core::local_file_system().read_file(temp_.file("found.csv"), 1 << 20); }
  // Returns the rate of the first step that a command to train has.
  double first_rate(Arguments command) const {
    command.push_back("--plot_schedule=" + temp_.file("rate.svg"));
    const CommandResult drawn = run_command(command);
    EXPECT_EQ(drawn.code, kSuccess) << drawn.err;
    if (drawn.code != kSuccess) return 0;
    std::istringstream lines(core::local_file_system().read_file(temp_.file("rate.csv"), 1 << 20));
    std::string line;
    for (int i = 0; i < 2; ++i) std::getline(lines, line);  // the heads of the columns, the first step
    return std::stod(line.substr(line.rfind(',') + 1));
  }
  // Every file below the folder with what it holds and when it was changed.
  std::map<std::string, std::string> content(const std::string& folder) const {
    std::map<std::string, std::string> found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(temp_.file(folder))) {
      const std::string path = entry.path().string();
      const auto time = entry.last_write_time().time_since_epoch().count();
      found[path] = std::to_string(time) + (entry.is_regular_file() ? core::local_file_system().read_file(path) : "");
    }
    return found;
  }

  core::TempDir temp_;
};

TEST_F(FindLr, ARunIsOnlyRead) {
  ASSERT_EQ(run_command(arguments("train", {"--num_batches=3"})).code, kSuccess);
  const auto before = content("run");
  ASSERT_GT(before.size(), 3u);
  const CommandResult result = find();
  ASSERT_EQ(result.code, kSuccess) << result.err;
  EXPECT_THAT(result.out, HasSubstr("The test begins with a copy of " + temp_.file("run")));
  EXPECT_EQ(content("run"), before);
  // And the run continues as if nothing had been tested.
  ASSERT_EQ(run_command(arguments("train", {"--num_batches=6"})).code, kSuccess);
}

TEST_F(FindLr, ARunThatIsNotThereIsNotMade) {
  const CommandResult result = find({"--min_lr=0.0001", "--max_lr=0.1"});
  ASSERT_EQ(result.code, kSuccess) << result.err;
  EXPECT_FALSE(core::local_file_system().exists(temp_.file("run")));
  EXPECT_THAT(result.out, Not(HasSubstr("begins with a copy")));
  const std::string first = numbers();
  EXPECT_THAT(first, HasSubstr("\n1,0.0001,"));
  EXPECT_TRUE(core::local_file_system().exists(temp_.file("found.svg")));
  // Equal flags, equal test.
  ASSERT_EQ(find({"--min_lr=0.0001", "--max_lr=0.1"}).code, kSuccess);
  EXPECT_EQ(numbers(), first);
}

// Also where a run is continued, whose session would follow the evaluations.
TEST_F(FindLr, FlagsOfEvaluationsHaveNoEffect) {
  ASSERT_EQ(run_command(arguments("train", {"--num_batches=3"})).code, kSuccess);
  ASSERT_EQ(find().code, kSuccess);
  const std::string plain = numbers();
  const CommandResult result =
      find({"--eval_during_training_every_n_epochs=1", "--early_stop=5", "--early_stop_metric=loss",
            "--early_stop_min_delta=0.1", "--tta=flip_shift", "--top_k=1,3", "--calibration_bins=7", "--most_wrong=2"});
  ASSERT_EQ(result.code, kSuccess) << result.err;
  EXPECT_EQ(numbers(), plain);
}

TEST_F(FindLr, ASignalBeforeTheFirstStepIsNoError) {
  core::StopSource stop;
  stop.request_stop(core::StopReason::kSignal, "SIGTERM");
  const CommandResult result = find({}, stop.token());
  EXPECT_EQ(result.code, kStoppedBySignal) << result.err;
  EXPECT_THAT(result.out, HasSubstr("Stopped before the first step"));
  EXPECT_THAT(result.err, Not(HasSubstr("not finite")));
  EXPECT_FALSE(core::local_file_system().exists(temp_.file("found.svg")));
}

// Returns the arguments of the command to train that a test prints.
Arguments command_to_train(const CommandResult& found) {
  const std::string before = "Train:   trainyard ";
  const size_t at = found.out.find(before);
  EXPECT_NE(at, std::string::npos) << found.out;
  if (at == std::string::npos) return {};
  const size_t begin = at + before.size();
  std::istringstream words(found.out.substr(begin, found.out.find('\n', begin) - begin));
  return {std::istream_iterator<std::string>(words), {}};
}

double proposal_of(const CommandResult& found) {
  const std::string before = "Proposal: ";
  const size_t at = found.out.find(before);
  EXPECT_NE(at, std::string::npos) << found.out;
  return at == std::string::npos ? 0 : std::stod(found.out.substr(at + before.size()));
}

TEST_F(FindLr, TheCommandToTrainHasTheFlagsThatWereGiven) {
  const CommandResult result =
      find({"--num_steps=30", "--min_lr=0.0001", "--max_lr=0.3", "--smoothing=0.5", "--init_learning_rate=7"});
  ASSERT_EQ(result.code, kSuccess) << result.err;
  const size_t begin = result.out.find("Train:   trainyard train --model=resnet20");
  ASSERT_NE(begin, std::string::npos) << result.out;
  const std::string command = result.out.substr(begin, result.out.find('\n', begin) - begin);
  EXPECT_THAT(command, HasSubstr("--batch_size=8"));
  EXPECT_THAT(command, HasSubstr(" --init_learning_rate=0.0"));
  EXPECT_THAT(result.out, Not(HasSubstr("learning_rate_scaling")));
  for (const char* own : {"num_steps", "min_lr", "max_lr", "smoothing", "output", "=7"}) {
    EXPECT_THAT(command, Not(HasSubstr(own)));
  }
}

// Whatever was said of the rate, on the command line and in a file of flags.
TEST_F(FindLr, TheCommandToTrainHasTheRateThatWasProposed) {
  const Arguments range{"--num_steps=30", "--min_lr=0.0001", "--max_lr=0.3", "--smoothing=0.5"};
  core::FileSystem& files = core::local_file_system();
  files.write_file_atomically(temp_.file("piecewise.yaml"),
                              "learning_rate_schedule: piecewise\npiecewise_learning_rate_schedule: \"0.5;1;0.1\"\n");
  files.write_file_atomically(temp_.file("scaled.yaml"),
                              "init_learning_rate: 7\nlearning_rate_scaling: linear\n"
                              "learning_rate_base_batch_size: 4\nlearning_rate_schedule: cosine\n");
  for (const Arguments& said :
       {Arguments{"--init_learning_rate=7", "--learning_rate_scaling=sqrt", "--learning_rate_base_batch_size=32"},
        {"--piecewise_learning_rate_schedule=0.5;1;0.1"},
        {"--config=" + temp_.file("piecewise.yaml")},
        {"--config=" + temp_.file("scaled.yaml")}}) {
    SCOPED_TRACE(said[0]);
    const CommandResult result = find(with_flags(range, said));
    ASSERT_EQ(result.code, kSuccess) << result.err;
    EXPECT_NEAR(first_rate(command_to_train(result)) / proposal_of(result), 1, 0.02);
  }
  // Batches of 8 at rates for batches of 4.
  const CommandResult scaled = find(with_flags(range, {"--config=" + temp_.file("scaled.yaml")}));
  EXPECT_THAT(scaled.out, HasSubstr("\n         --learning_rate_scaling multiplies this rate by 2\n"));
}

TEST_F(FindLr, RefusesWhatMakesNoSense) {
  for (const auto& [flag, word] : {std::pair{"--num_steps=3", "num_steps"},
                                   {"--min_lr=0", "min_lr"},
                                   {"--min_lr=20", "highest rate"},
                                   {"--smoothing=1", "smoothing"},
                                   {"--forward_only", "range test"},
                                   {"--eval", "range test"},
                                   {"--lr=1", "init_learning_rate"},
                                   {"--output=/", "--output is a folder"}}) {
    const CommandResult result = find({flag});
    EXPECT_EQ(result.code, kUsage) << flag;
    EXPECT_THAT(result.err, HasSubstr(word)) << flag;
  }
  const CommandResult help = run_command({"find-lr", "--help"});
  EXPECT_EQ(help.code, kSuccess);
  EXPECT_EQ(count_lines(help.out, "^  --"), 5) << help.out;
  const CommandResult all = run_command({"find-lr", "--help=all"});
  EXPECT_EQ(all.code, kSuccess);
  for (const char* flag : {"min_lr", "output", "model", "weight_decay", "freeze"}) {
    EXPECT_EQ(count_lines(all.out, std::string("^  --") + flag + "( |=|$)"), 1) << flag;
  }
}

}  // namespace
}  // namespace trainyard::cli::find_lr_test
