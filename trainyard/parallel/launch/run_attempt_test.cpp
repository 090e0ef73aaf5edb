// Starts of all ranks with a program in the place of mpirun and agents that the test speaks for.
#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/environment.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/parallel/launch/attempt.h"
#include "trainyard/parallel/launch/mpirun_command.h"
#include "trainyard/parallel/testing/fake_mpirun.h"

namespace trainyard::parallel::run_attempt_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

constexpr const char* kLost = "was lost: the process that watched it has ended, or its host does not answer";

std::string text_of(const AttemptResult& result) {
  std::string text;
  for (const RankEnd& rank : result.ranks) {
    text += fmt::format("{}: {}{}\n", rank.host, rank.end.description(), rank.ended_by_launch ? " by launch" : "");
  }
  return text + fmt::format("first failed {}{}", result.first_failed.value_or(-1), result.stopped ? ", stopped" : "");
}

class RunAttempt : public ::testing::Test {
 protected:
  RunAttempt() { std::filesystem::create_directory(mpirun_.file("tmp")); }

  LaunchOptions of_ranks(int ranks) const {
    return {.commands = {{.ranks = ranks, .arguments = {"program", "--flag"}}}, .trainyard = mpirun_.program()};
  }

  // Runs a start while a thread speaks for its agents.
  AttemptResult run(const LaunchOptions& options, const std::function<void()>& agents, int number = 1) {
    core::Thread speaker(core::ThreadOptions{.name = "agents"}, agents);
    AttemptResult result = run_attempt(options, options.commands[0], nullptr, {}, number, terminal_, stop_.token());
    speaker.join();
    terminal_.finish();
    return result;
  }

  std::string output() const { return core::local_file_system().read_file(mpirun_.file("output")); }
  // Lines of the error stream: those of mpirun, or all others.
  std::vector<std::string> errors(bool of_mpirun = false) const {
    std::istringstream lines(core::local_file_system().read_file(mpirun_.file("error")));
    std::vector<std::string> found;
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("mpirun: ") == of_mpirun) found.push_back(line);
    }
    return found;
  }

  FakeMpirun mpirun_;
  core::EnvironmentVariable temporary_{"TMPDIR", mpirun_.file("tmp")};
  core::Socket output_file_{::open(mpirun_.file("output").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600)};
  core::Socket error_file_{::open(mpirun_.file("error").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600)};
  Terminal terminal_{TerminalStream(output_file_.descriptor()), TerminalStream(error_file_.descriptor())};
  core::StopSource stop_;
};

TEST_F(RunAttempt, PrintsAndLogsWhatRanksSay) {
  LaunchOptions options = of_ranks(2);
  options.names = {"ps 0", "worker 0"};
  options.log_dir = mpirun_.file("logs/deep");
  const auto agents = [this] {
    const auto told = mpirun_.told(1);
    FakeAgent second(told, 1, 2);
    FakeAgent first(told, 0, 2);
    EXPECT_TRUE(first.starts());
    EXPECT_TRUE(second.starts());
    ::kill(::getpid(), SIGUSR2);
    EXPECT_EQ(first.signal(), SIGUSR2);
    EXPECT_EQ(second.signal(), SIGUSR2);
    first.say(OutputMessage{.is_error = true, .lines = "oops\n"});
    first.end_with(0);
    EXPECT_TRUE(first.is_left());
    second.say(OutputMessage{.lines = "a\nb\n"});
    second.end_with(3);
    EXPECT_TRUE(second.is_left());
    mpirun_.end(1, "0");
  };
  const AttemptResult result = run(options, agents, 4);
  ::signal(SIGUSR2, SIG_DFL);
  EXPECT_EQ(text_of(result), "node0: ended with code 0\nnode1: ended with code 3\nfirst failed 1");
  EXPECT_EQ(output(), "[1] a\n[1] b\n");
  EXPECT_THAT(errors(), ElementsAre("[0] oops", "launch: worker 0 (rank 1) on node1 ended with code 3"));
  EXPECT_THAT(errors(true), ElementsAre("mpirun: start 1", "mpirun: end 0"));
  core::FileSystem& files = core::local_file_system();
  EXPECT_EQ(files.list(options.log_dir).size(), 2U);
  EXPECT_EQ(files.read_file(options.log_dir + "/rank-0.log"), "launch: start 4 with 2 ranks\noops\n");
  EXPECT_EQ(files.read_file(options.log_dir + "/rank-1.log"), "launch: start 4 with 2 ranks\na\nb\n");
}

// A launch that looked at its ranks every 50 ms would be late. The best of ten lines, because the machine may be busy.
TEST_F(RunAttempt, PrintsALineAsSoonAsARankHasWrittenIt) {
  using Clock = std::chrono::steady_clock;
  auto best = Clock::duration::max();
  const AttemptResult result = run(of_ranks(1), [this, &best] {
    FakeAgent agent(mpirun_.told(1), 0, 1);
    EXPECT_TRUE(agent.starts());
    std::string expected;
    bool printed = true;
    for (int i = 0; printed && i < 10; ++i) {
      const std::string line = fmt::format("line {}\n", i);
      expected += "[0] " + line;
      const Clock::time_point said = Clock::now();
      agent.say(OutputMessage{.lines = line});
      while (output() != expected && Clock::now() - said < std::chrono::seconds(5)) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      best = std::min(best, Clock::now() - said);
      printed = output() == expected;
      EXPECT_TRUE(printed) << output();
    }
    agent.end_with(0);
    EXPECT_TRUE(agent.is_left());
    mpirun_.end(1, "0");
  });
  EXPECT_EQ(text_of(result), "node0: ended with code 0\nfirst failed -1");
  EXPECT_LT(best, std::chrono::milliseconds(40));
}

TEST_F(RunAttempt, StartsTheKeeperOfMpirunWithFoldersThatItHolds) {
  const LaunchOptions options = of_ranks(1);
  run(options, [this] {
    FakeAgent agent(mpirun_.told(1), 0, 1);
    EXPECT_TRUE(agent.starts());
    agent.end_with(0);
    EXPECT_TRUE(agent.is_left());
    mpirun_.end(1, "0");
  });
  std::vector<std::string> words = mpirun_.words(1);
  ASSERT_GT(words.size(), 4U);
  EXPECT_EQ(words[0], "launch-keeper");
  EXPECT_THAT(words[1], StartsWith(mpirun_.file("tmp/trainyard-launch-")));
  EXPECT_TRUE(mpirun_.was_held(1));
  MpirunFolders folders{.session = words[1]};
  size_t next = 2;
  if (::access("/dev/shm", W_OK) == 0) {
    folders.memory = words[next++];
    EXPECT_THAT(folders.memory, StartsWith("/dev/shm/trainyard-launch-"));
  }
  ASSERT_LT(next, words.size());
  EXPECT_EQ(words[next++], "--");
  words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(next));
  EXPECT_EQ(words, mpirun_command(options, options.commands[0], nullptr, {}, folders));
}

TEST_F(RunAttempt, WaitsForTheOthersOfAFailedRank) {
  const AttemptResult result = run(of_ranks(3), [this] {
    const auto told = mpirun_.told(1);
    FakeAgent other({told.first, "another"}, 0, 3);
    EXPECT_TRUE(other.is_left());
    FakeAgent first(told, 0, 3), second(told, 1, 3), third(told, 2, 3);
    EXPECT_TRUE(first.starts());
    EXPECT_TRUE(second.starts());
    EXPECT_TRUE(third.starts());
    second.end_with(1);
    EXPECT_TRUE(second.is_left());
    first.end_with(75);
    EXPECT_TRUE(first.is_left()) << "it was not told to end";
    third.end_with(4);
    EXPECT_TRUE(third.is_left());
    mpirun_.end(1, "0");
  });
  EXPECT_EQ(text_of(result),
            "node0: ended with code 75\nnode1: ended with code 1\nnode2: ended with code 4\nfirst failed 1");
  EXPECT_THAT(errors(),
              ElementsAre("launch: warning: refused a connection: it does not know this launch's token",
                          "launch: rank 1 on node1 ended with code 1", "launch: rank 2 on node2 ended with code 4"));
}

TEST_F(RunAttempt, EndsTheOthersOfAFailedRankInTime) {
  LaunchOptions options = of_ranks(2);
  options.failure_timeout = 0.05;
  const AttemptResult result = run(options, [this] {
    const auto told = mpirun_.told(1);
    FakeAgent first(told, 0, 2), second(told, 1, 2);
    EXPECT_TRUE(first.starts());
    EXPECT_TRUE(second.starts());
    first.end_with(1);
    EXPECT_TRUE(first.is_left());
    EXPECT_EQ(second.signal(), SIGKILL);
    second.say(EndMessage{{.kind = ProcessEnd::Kind::kSignalled, .value = SIGKILL}});
    EXPECT_TRUE(second.is_left());
    mpirun_.end(1, "0");
  });
  EXPECT_EQ(text_of(result), "node0: ended with code 1\nnode1: was ended by SIGKILL by launch\nfirst failed 0");
  EXPECT_EQ(worst_exit_code(result), 1);
  EXPECT_THAT(errors(), ElementsAre("launch: rank 0 on node0 ended with code 1",
                                    "launch: the others did not end within 0.05 s: ending them"));
}

TEST_F(RunAttempt, PassesAStopOn) {
  const AttemptResult result = run(of_ranks(2), [this] {
    const auto told = mpirun_.told(1);
    FakeAgent first(told, 0, 2), second(told, 1, 2);
    EXPECT_TRUE(first.starts());
    EXPECT_TRUE(second.starts());
    stop_.request_stop(core::StopReason::kSignal, "SIGINT");
    EXPECT_EQ(first.signal(), SIGINT);
    EXPECT_EQ(second.signal(), SIGINT);
    first.end_with(75);
    EXPECT_TRUE(first.is_left());
    second.end_with(75);
    EXPECT_TRUE(second.is_left()) << "it was asked once";
    mpirun_.end(1, "0");
  });
  EXPECT_EQ(text_of(result), "node0: ended with code 75\nnode1: ended with code 75\nfirst failed -1, stopped");
  EXPECT_THAT(errors(), IsEmpty());
}

TEST_F(RunAttempt, EndsRanksThatDoNotStopInTime) {
  LaunchOptions options = of_ranks(2);
  options.stop_timeout = 0.05;
  const AttemptResult result = run(options, [this] {
    const auto told = mpirun_.told(1);
    FakeAgent first(told, 0, 2), second(told, 1, 2);
    EXPECT_TRUE(first.starts());
    EXPECT_TRUE(second.starts());
    stop_.request_stop(core::StopReason::kSignal, "SIGTERM");
    for (FakeAgent* agent : {&first, &second}) {
      EXPECT_EQ(agent->signal(), SIGTERM);
      EXPECT_EQ(agent->signal(), SIGKILL);
    }
    first.end_with(75);
    EXPECT_TRUE(first.is_left());
    second.say(EndMessage{{.kind = ProcessEnd::Kind::kSignalled, .value = SIGKILL}});
    EXPECT_TRUE(second.is_left());
    mpirun_.end(1, "0");
  });
  EXPECT_EQ(text_of(result), "node0: ended with code 75\nnode1: was ended by SIGKILL\nfirst failed -1, stopped");
  EXPECT_THAT(errors(), ElementsAre("launch: not all ranks have stopped within 0.05 s: ending them"));
}

TEST_F(RunAttempt, EndsMpirunWhenItIsStoppedBeforeRanksStart) {
  const AttemptResult result = run(of_ranks(2), [this] {
    mpirun_.told(1);
    stop_.request_stop(core::StopReason::kSignal, "SIGTERM");
  });
  EXPECT_EQ(text_of(result), fmt::format(": {0}\n: {0}\nfirst failed -1, stopped", kLost));
  EXPECT_THAT(errors(), ElementsAre("launch: asked to stop before all ranks had started: ending them"));
  EXPECT_THAT(errors(true), UnorderedElementsAre("mpirun: start 1", "mpirun: end 143"));
}

TEST_F(RunAttempt, RanksThatDoNotStartInTimeAreAnError) {
  LaunchOptions options = of_ranks(3);
  options.start_timeout = 0.05;
  EXPECT_THAT(core::message_of([&] { run(options, [] {}); }, core::ErrorCode::kTimeout),
              core::Says("ranks have not started within 0.05 s", "rank 0, 1, 2", "or raise --start_timeout"));
}

TEST_F(RunAttempt, AnMpirunThatEndsBeforeRanksStartIsAnError) {
  mpirun_.end(1, "7");
  EXPECT_THAT(core::message_of([&] { run(of_ranks(2), [] {}); }, core::ErrorCode::kPeerFailed),
              core::Says("mpirun ended before it had started all ranks", "got code 7", "see what it says above"));
  EXPECT_THAT(errors(true), UnorderedElementsAre("mpirun: start 1", "mpirun: end 7"));
}

// The reader of the error stream is slower than mpirun.
TEST_F(RunAttempt, WhatMpirunHasSaidIsWrittenBeforeTheError) {
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC | O_NONBLOCK), 0);
  const core::Socket reads(pipe[0]), writes(pipe[1]);
  const std::string filler(4096, '.');
  while (::write(writes.descriptor(), filler.data(), filler.size()) > 0) {
  }
  Terminal full{TerminalStream(output_file_.descriptor()), TerminalStream(writes.descriptor())};
  mpirun_.end(1, "7");
  std::string said;
  core::Thread reader(core::ThreadOptions{.name = "reader"}, [&said, &reads] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    std::array<char, 4096> bytes{};
    while (said.find("end 7\n") == std::string::npos && std::chrono::steady_clock::now() < until) {
      const ssize_t count = ::read(reads.descriptor(), bytes.data(), bytes.size());
      if (count > 0) said.append(bytes.data(), static_cast<size_t>(count));
      if (count <= 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  const LaunchOptions options = of_ranks(1);
  EXPECT_EQ(core::code_of([&] { run_attempt(options, options.commands[0], nullptr, {}, 1, full, stop_.token()); }),
            core::ErrorCode::kPeerFailed);
  reader.join();
  EXPECT_THAT(said, HasSubstr("mpirun: start 1\n"));
  EXPECT_THAT(said, HasSubstr("mpirun: end 7\n"));
}

// One second is for what ranks may still say.
TEST_F(RunAttempt, RanksThatMpirunTakesAlongAreLost) {
  const AttemptResult result = run(of_ranks(2), [this] {
    const auto told = mpirun_.told(1);
    FakeAgent first(told, 0, 2), second(told, 1, 2);
    EXPECT_TRUE(first.starts());
    EXPECT_TRUE(second.starts());
    mpirun_.end(1, "kill");
    EXPECT_TRUE(first.is_left());
    EXPECT_TRUE(second.is_left());
  });
  EXPECT_EQ(text_of(result), fmt::format("node0: {0}\nnode1: {0}\nfirst failed -1", kLost));
  EXPECT_THAT(errors(), ElementsAre("launch: the keeper of mpirun was ended by SIGKILL before its ranks had"));
  EXPECT_FALSE(std::filesystem::exists(mpirun_.words(1).at(1))) << "the keeper could not remove it";
}

TEST_F(RunAttempt, ARankWhoseAgentSendsNoMessageIsLost) {
  LaunchOptions options = of_ranks(2);
  options.failure_timeout = 0.05;
  const AttemptResult result = run(options, [this] {
    const auto told = mpirun_.told(1);
    FakeAgent first(told, 0, 2), second(told, 1, 2);
    EXPECT_TRUE(first.starts());
    EXPECT_TRUE(second.starts());
    second.send(6, "");
    EXPECT_TRUE(second.is_left());
    EXPECT_EQ(first.signal(), SIGKILL);
    first.say(EndMessage{{.kind = ProcessEnd::Kind::kSignalled, .value = SIGKILL}});
    EXPECT_TRUE(first.is_left());
    mpirun_.end(1, "0");
  });
  EXPECT_EQ(text_of(result), fmt::format("node0: was ended by SIGKILL by launch\nnode1: {}\nfirst failed 1", kLost));
  const std::string refusal =
      core::message_of([] { decode_message({.kind = 6, .body = ""}); }, core::ErrorCode::kCorruptData);
  EXPECT_THAT(errors(), ElementsAre("launch: rank 1: " + refusal, fmt::format("launch: rank 1 on node1 {}", kLost),
                                    "launch: the others did not end within 0.05 s: ending them"));
}

TEST_F(RunAttempt, LeavesNoFolderWhereTheKeeperCannotBeStarted) {
  LaunchOptions options = of_ranks(1);
  options.trainyard = "/nowhere/trainyard";
  const auto own_folders = [this] {
    const std::string own = fmt::format("trainyard-launch-{}-", ::getpid());
    int count = 0;
    for (const std::string& base : {mpirun_.file("tmp"), std::string("/dev/shm")}) {
      std::error_code none;  // a system may have no such folder
      for (const auto& entry : std::filesystem::directory_iterator(base, none)) {
        count += entry.path().filename().string().starts_with(own) ? 1 : 0;
      }
    }
    return count;
  };
  const int before = own_folders();
  const auto error =
      core::error_of([&] { run_attempt(options, options.commands[0], nullptr, {}, 1, terminal_, stop_.token()); });
  ASSERT_TRUE(error);
  EXPECT_THAT(error->what(), HasSubstr("/nowhere/trainyard"));
  EXPECT_EQ(own_folders(), before);
}

}  // namespace
}  // namespace trainyard::parallel::run_attempt_test
