// What a launch says that it would start. tests/launch runs launches.
#include "trainyard/parallel/launch/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/environment.h"
#include "trainyard/core/testing/error.h"

namespace trainyard::parallel::launch_test {
namespace {

// A shell must make the same words of the line again.
TEST(LaunchCommandLines, QuoteWhatAShellWouldTakeApart) {
  const RankCommand command{.ranks = 2, .arguments = {"program", "--flag=a/b_1,2", "two words", "it's", "$HOME", ""}};
  const std::string lines = launch_command_lines({.commands = {command}, .trainyard = "/bin/trainyard"});
  EXPECT_THAT(lines, ::testing::EndsWith(" /bin/trainyard launch-rank -- program --flag=a/b_1,2 'two words' "
                                         "'it'\\''s' '$HOME' ''\n"));
}

TEST(LaunchCommandLines, NameAFolderOfTemporaryFilesThatIsNotThere) {
  const core::EnvironmentVariable none("TMPDIR", "/no/such/folder");
  const RankCommand command{.ranks = 2, .arguments = {"program"}};
  EXPECT_THAT(
      core::message_of(
          [&] { static_cast<void>(launch_command_lines({.commands = {command}, .trainyard = "/bin/trainyard"})); },
          core::ErrorCode::kIo),
      ::testing::AllOf(::testing::HasSubstr("/no/such/folder"), ::testing::HasSubstr("set TMPDIR to a folder")));
}

}  // namespace
}  // namespace trainyard::parallel::launch_test
