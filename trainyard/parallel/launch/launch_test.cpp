// What a launch says that it would start, and how it restarts ranks, with a program in the place of mpirun and agents
// that the test speaks for. tests/launch runs whole launches.
#include "trainyard/parallel/launch/launch.h"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/environment.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/parallel/testing/fake_mpirun.h"

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

TEST(LaunchCommandLines, HaveALineForEachNumberOfRanks) {
  const RankCommand two{.ranks = 2, .arguments = {"program", "--of=2"}};
  const RankCommand one{.ranks = 1, .arguments = {"program", "--of=1"}};
  const std::string text =
      launch_command_lines({.commands = {two, one}, .trainyard = "/bin/trainyard", .max_restarts = 1});
  std::istringstream lines(text);
  std::string first, second, more;
  std::getline(lines, first);
  std::getline(lines, second);
  EXPECT_FALSE(std::getline(lines, more)) << more;
  EXPECT_THAT(first, ::testing::AllOf(::testing::StartsWith("env "), ::testing::HasSubstr(" -n 2 "),
                                      ::testing::HasSubstr("/trainyard-launch-XXXXXX "),
                                      ::testing::HasSubstr("=/dev/shm/trainyard-launch-XXXXXX "),
                                      ::testing::EndsWith(" launch-rank -- program --of=2")));
  EXPECT_THAT(second, ::testing::AllOf(::testing::StartsWith("env "), ::testing::HasSubstr(" -n 1 "),
                                       ::testing::EndsWith(" launch-rank -- program --of=1")));
}

class Launch : public ::testing::Test {
 protected:
  Launch() { std::filesystem::create_directory(mpirun_.file("tmp")); }

  LaunchOptions restarted(int most) const {
    return {.commands = {{.ranks = 2, .arguments = {"program"}}}, .trainyard = mpirun_.program(), .max_restarts = most};
  }

  // Returns the exit code of a launch while a thread speaks for its agents.
  int run(const LaunchOptions& options, const std::function<void()>& agents) {
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    int code = -1;
    {
      core::Thread speaker(core::ThreadOptions{.name = "agents"}, agents);
      code = launch(options, stop_.token());
      speaker.join();
    }
    std::istringstream lines(::testing::internal::GetCapturedStderr());
    output_ = ::testing::internal::GetCapturedStdout();
    for (std::string line; std::getline(lines, line);) {
      // What other launches of this machine have left is none of the test's.
      const bool is_own = line.find(mpirun_.folder()) != std::string::npos;
      const bool is_of_others = line.starts_with("launch: removed ") && !is_own;
      const bool is_of_library = line.find("listens on all addresses of this host") != std::string::npos;
      if (line.starts_with("launch: ") && !is_of_others && !is_of_library) said_.push_back(line.substr(8));
    }
    return code;
  }

  // Speaks for two ranks, of which the first, on `host` or "node0", ends with `code` and the second with 0.
  void end_first_with(int code, int start = 1, const std::string& host = "") const {
    const auto told = mpirun_.told(start);
    FakeAgent first(told, 0, 2, host), second(told, 1, 2);
    EXPECT_TRUE(first.starts());
    EXPECT_TRUE(second.starts());
    second.end_with(0);
    EXPECT_TRUE(second.is_left());
    first.say(OutputMessage{.lines = fmt::format("of start {}\n", start)});
    first.end_with(code);
    EXPECT_TRUE(first.is_left());
  }

  FakeMpirun mpirun_;
  const char* const path_before_ = std::getenv("PATH");
  core::EnvironmentVariable temporary_{"TMPDIR", mpirun_.file("tmp")};
  core::EnvironmentVariable path_{"PATH", mpirun_.folder() + ":" + (path_before_ == nullptr ? "" : path_before_)};
  core::StopSource stop_;
  std::vector<std::string> said_;  // lines of launch itself
  std::string output_;
};

// The host of the failed rank is left out. The order of ranks depends on which host is this machine: no machine's name
// has an underscore.
TEST_F(Launch, RestartsWithFewerRanksUntilNoneAreLeft) {
  const LaunchOptions options{
      .commands = {{.ranks = 2, .arguments = {"program"}}, {.ranks = 1, .arguments = {"program", "--one"}}},
      .trainyard = mpirun_.program(),
      .hosts = "a:1,host_0:1",
      .network = "127.0.0.0/8",
      .max_restarts = 2};
  const int code = run(options, [this] {
    end_first_with(1, 1, "host_0");
    mpirun_.end(1, "0");
    FakeAgent only(mpirun_.told(2), 0, 1);
    EXPECT_TRUE(only.starts());
    only.end_with(4);
    EXPECT_TRUE(only.is_left());
    mpirun_.end(2, "0");
  });
  EXPECT_EQ(code, 4);
  EXPECT_THAT(said_, ::testing::ElementsAre("rank 0 on host_0 ended with code 1",
                                            "starting again with 1 ranks, restart 1 of 2, in 1 s",
                                            "rank 0 on node0 ended with code 4", "fewer than 1 ranks are left"));
  EXPECT_EQ(output_, "[0] of start 1\n");
  const std::vector<std::string> first = mpirun_.words(1), second = mpirun_.words(2);
  EXPECT_THAT(first, ::testing::Contains("a:1,host_0:1"));
  EXPECT_THAT(first, ::testing::Not(::testing::Contains("--one")));
  EXPECT_EQ(first.at(2), "--") << "ranks of other hosts have no folder of shared memory here";
  EXPECT_THAT(second, ::testing::AllOf(::testing::Contains("a:1"), ::testing::Contains("--one")));
}

TEST_F(Launch, RestartsWithFewerRanksOnThisMachine) {
  const LaunchOptions options{
      .commands = {{.ranks = 2, .arguments = {"program"}}, {.ranks = 1, .arguments = {"program", "--one"}}},
      .trainyard = mpirun_.program(),
      .max_restarts = 2};
  const int code = run(options, [this] {
    end_first_with(1);
    mpirun_.end(1, "0");
    FakeAgent only(mpirun_.told(2), 0, 1);
    EXPECT_TRUE(only.starts());
    only.end_with(0);
    EXPECT_TRUE(only.is_left());
    mpirun_.end(2, "0");
  });
  EXPECT_EQ(code, 0);
  EXPECT_THAT(said_, ::testing::ElementsAre("rank 0 on node0 ended with code 1",
                                            "starting again with 1 ranks, restart 1 of 2, in 1 s"));
  EXPECT_THAT(mpirun_.words(1),
              ::testing::AllOf(::testing::Contains("localhost:2"), ::testing::Not(::testing::Contains("--one"))));
  EXPECT_THAT(mpirun_.words(2), ::testing::AllOf(::testing::Contains("localhost:1"), ::testing::Contains("--one")));
}

TEST_F(Launch, LeavesOutAHostThatIsListedByItsAddress) {
  const LaunchOptions options{
      .commands = {{.ranks = 2, .arguments = {"program"}}, {.ranks = 1, .arguments = {"program"}}},
      .trainyard = mpirun_.program(),
      .hosts = "a:1,127.0.0.1:1",
      .network = "127.0.0.0/8",
      .max_restarts = 1};
  const int code = run(options, [this] {
    end_first_with(1);
    mpirun_.end(1, "0");
    FakeAgent only(mpirun_.told(2), 0, 1);
    EXPECT_TRUE(only.starts());
    only.end_with(0);
    EXPECT_TRUE(only.is_left());
    mpirun_.end(2, "0");
  });
  EXPECT_EQ(code, 0);
  EXPECT_THAT(mpirun_.words(2), ::testing::Contains("a:1"));
}

TEST_F(Launch, StartsTheSameRanksAgain) {
  ::signal(SIGUSR2, SIG_IGN);
  LaunchOptions options = restarted(1);
  options.log_dir = mpirun_.file("logs");
  const int code = run(options, [this] {
    end_first_with(1);
    mpirun_.end(1, "0");
    end_first_with(3, 2);
    mpirun_.end(2, "0");
  });
  EXPECT_EQ(code, 3);
  EXPECT_THAT(said_, ::testing::ElementsAre("rank 0 on node0 ended with code 1",
                                            "starting again with 2 ranks, restart 1 of 1, in 1 s",
                                            "rank 0 on node0 ended with code 3"));
  EXPECT_EQ(output_, "[0] of start 1\n[0] of start 2\n");
  EXPECT_TRUE(::signal(SIGUSR2, SIG_DFL) == SIG_IGN) << "the handler from before";
  const auto log_of = [&](int rank) {
    return core::local_file_system().read_file(fmt::format("{}/rank-{}.log", options.log_dir, rank));
  };
  EXPECT_EQ(log_of(0),
            "launch: start 1 with 2 ranks\nof start 1\n"
            "launch: start 2 with 2 ranks\nof start 2\n");
  EXPECT_EQ(log_of(1), "launch: start 1 with 2 ranks\nlaunch: start 2 with 2 ranks\n");
}

// 75: they were stopped, and have saved.
TEST_F(Launch, RestartsNoRanksThatHaveNotFailed) {
  int start = 0;
  for (const int code : {0, 75}) {
    ++start;
    EXPECT_EQ(run(restarted(2),
                  [this, code, start] {
                    end_first_with(code, start);
                    mpirun_.end(start, "0");
                  }),
              code);
    EXPECT_THAT(said_, ::testing::IsEmpty());
  }
  EXPECT_FALSE(std::filesystem::exists(mpirun_.file("words.3")));
}

// A host that boots takes no ranks for some time.
TEST_F(Launch, StartsAgainWhereMpirunCouldNotStartTheRanksOfARestart) {
  mpirun_.end(2, "7");
  const int code = run(restarted(2), [this] {
    end_first_with(1);
    mpirun_.end(1, "0");
    end_first_with(0, 3);
    mpirun_.end(3, "0");
  });
  EXPECT_EQ(code, 0);
  EXPECT_THAT(said_, ::testing::ElementsAre("rank 0 on node0 ended with code 1",
                                            "starting again with 2 ranks, restart 1 of 2, in 1 s",
                                            ::testing::StartsWith("mpirun ended before it had started all ranks"),
                                            "starting again with 2 ranks, restart 2 of 2, in 2 s"));
}

TEST_F(Launch, DoesNotRestartAnMpirunThatHasNeverStartedItsRanks) {
  mpirun_.end(1, "7");
  EXPECT_EQ(core::code_of([&] { launch(restarted(1), stop_.token()); }), core::ErrorCode::kPeerFailed);
  EXPECT_FALSE(std::filesystem::exists(mpirun_.file("words.2")));
}

TEST_F(Launch, GoesOnWithoutAllRanksOfALostHost) {
  LaunchOptions options = restarted(1);
  options.hosts = "node0:1,node1:2";
  options.network = "127.0.0.0/8";
  options.failure_timeout = 1;
  options.commands = {{.ranks = 3, .arguments = {"program"}},
                      {.ranks = 2, .arguments = {"program"}},
                      {.ranks = 1, .arguments = {"program"}}};
  const int code = run(options, [this] {
    const auto told = mpirun_.told(1);
    FakeAgent first(told, 0, 3);
    {
      FakeAgent second(told, 1, 3, "node1"), third(told, 2, 3, "node1");
      EXPECT_TRUE(first.starts());
      EXPECT_TRUE(second.starts());
      EXPECT_TRUE(third.starts());
    }
    EXPECT_EQ(first.signal(), SIGKILL);
    first.say(EndMessage{{.kind = ProcessEnd::Kind::kSignalled, .value = SIGKILL}});
    EXPECT_TRUE(first.is_left());
    mpirun_.end(1, "0");
    FakeAgent left(mpirun_.told(2), 0, 1);
    EXPECT_TRUE(left.starts());
    left.end_with(0);
    EXPECT_TRUE(left.is_left());
    mpirun_.end(2, "0");
  });
  EXPECT_EQ(code, 0);
  EXPECT_EQ(said_.back(), "starting again with 1 ranks, restart 1 of 1, in 1 s");
  const std::vector<std::string> words = mpirun_.words(2);
  EXPECT_THAT(words, ::testing::Contains("node0:1"));
}

// The host that is left has no checkpoint, unless both share the folder.
TEST_F(Launch, SaysThatRank0IsOnAnotherHost) {
  LaunchOptions options = restarted(1);
  options.hosts = "node0:1,host_1:1";  // no machine, such as this one, has such a name
  options.network = "127.0.0.0/8";
  options.commands.push_back({.ranks = 1, .arguments = {"program"}});
  const int code = run(options, [this] {
    end_first_with(1);
    mpirun_.end(1, "0");
    FakeAgent left(mpirun_.told(2), 0, 1);
    EXPECT_TRUE(left.starts());
    left.end_with(0);
    EXPECT_TRUE(left.is_left());
    mpirun_.end(2, "0");
  });
  EXPECT_EQ(code, 0);
  EXPECT_THAT(said_, ::testing::ElementsAre("rank 0 on node0 ended with code 1",
                                            ::testing::StartsWith("warning: rank 0 is on host_1 now, not on node0: "),
                                            "starting again with 1 ranks, restart 1 of 1, in 1 s"));
  EXPECT_THAT(mpirun_.words(2), ::testing::Contains("host_1:1"));
}

TEST_F(Launch, DoesNotRestartWhatWouldFailAgain) {
  const std::string abandoned = mpirun_.file("tmp/trainyard-launch-2147483647-abcdef");
  std::filesystem::create_directory(abandoned);
  const int code = run(restarted(5), [this] {
    end_first_with(2);
    mpirun_.end(1, "0");
  });
  EXPECT_EQ(code, 2);
  EXPECT_THAT(said_, ::testing::ElementsAre(
                         fmt::format("removed {}, which a launch that was killed has left", abandoned),
                         "rank 0 on node0 ended with code 2",
                         "rank 0 ended with code 2: it would fail in the same way again, so there is no restart"));
  EXPECT_FALSE(std::filesystem::exists(abandoned));
}

TEST_F(Launch, WithoutRestartsReturnsTheCodeOfItsRank) {
  EXPECT_EQ(run(restarted(0),
                [this] {
                  end_first_with(65);
                  mpirun_.end(1, "0");
                }),
            65);
  EXPECT_THAT(said_, ::testing::ElementsAre("rank 0 on node0 ended with code 65"));
}

TEST_F(Launch, MayBeStoppedBeforeARestart) {
  const int code = run(restarted(1), [this] {
    end_first_with(1);
    // The ranks have ended, and mpirun has not: this stop is not for them.
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    stop_.request_stop(core::StopReason::kSignal, "SIGTERM");
    mpirun_.end(1, "0");
  });
  EXPECT_EQ(code, 75);
  EXPECT_THAT(said_, ::testing::ElementsAre("rank 0 on node0 ended with code 1",
                                            "starting again with 2 ranks, restart 1 of 1, in 1 s",
                                            "asked to stop before the restart"));
}

TEST_F(Launch, ThatIsStoppedBeforeItsRanksStartIsOneThatStops) {
  stop_.request_stop(core::StopReason::kSignal, "SIGTERM");
  EXPECT_EQ(run(restarted(1), [] {}), 75);
  EXPECT_THAT(said_, ::testing::ElementsAre("asked to stop before all ranks had started: ending them"));
}

TEST_F(Launch, NeedsMpirun) {
  path_.set(mpirun_.file("tmp"));
  EXPECT_THAT(core::message_of([&] { launch(restarted(0), stop_.token()); }, core::ErrorCode::kUnsupported),
              ::testing::HasSubstr("needs mpirun, which PATH does not have"));
}

}  // namespace
}  // namespace trainyard::parallel::launch_test
