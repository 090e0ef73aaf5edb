// `trainyard find-lr` on the embedded data set: what it prints and writes, and that a run's folder stays as it is.
#include <filesystem>
#include <map>
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
  CommandResult find(const Arguments& more = {}) const {
    Arguments all = arguments("find-lr", {"--num_steps=12", "--output=" + temp_.file("found.svg")});
    return run_command(with_flags(all, more));
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
  const std::string numbers = core::local_file_system().read_file(temp_.file("found.csv"), 1 << 20);
  EXPECT_THAT(numbers, HasSubstr("\n1,0.0001,"));
  EXPECT_TRUE(core::local_file_system().exists(temp_.file("found.svg")));
  // Equal flags, equal test.
  ASSERT_EQ(find({"--min_lr=0.0001", "--max_lr=0.1"}).code, kSuccess);
  EXPECT_EQ(core::local_file_system().read_file(temp_.file("found.csv"), 1 << 20), numbers);
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
  for (const char* own : {"num_steps", "min_lr", "max_lr", "smoothing", "output", "=7"}) {
    EXPECT_THAT(command, Not(HasSubstr(own)));
  }
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
}

}  // namespace
}  // namespace trainyard::cli::find_lr_test
