// The keeper of a command in a process of its own: the test takes the place of launch.
#include "trainyard/parallel/launch/keeper.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trainyard/core/sockets/socket.h"
#include "trainyard/core/testing/temp_dir.h"

namespace trainyard::parallel::keeper_test {
namespace {

constexpr int kMostWait = 10'000;  // milliseconds

class KeeperProcess {
 public:
  explicit KeeperProcess(const std::vector<std::string>& command, const std::vector<std::string>& folders = {},
                         bool stopped_before = false) {
    std::array<int, 2> control{}, output{};
    EXPECT_EQ(::pipe2(control.data(), O_CLOEXEC), 0);
    EXPECT_EQ(::pipe2(output.data(), O_CLOEXEC), 0);
    process_ = ::fork();
    if (process_ == 0) {
      ::dup2(control[0], STDIN_FILENO);
      ::dup2(output[1], STDOUT_FILENO);
      ::dup2(output[1], STDERR_FILENO);
      for (const int descriptor : {control[0], control[1], output[0], output[1]}) ::close(descriptor);
      core::StopSource stop;
      if (stopped_before) stop.request_stop(core::StopReason::kSignal, "SIGTERM");
      ::_exit(run_launch_keeper(command, folders, stop.token()));
    }
    ::close(control[0]);
    ::close(output[1]);
    control_ = core::Socket(control[1]);
    output_ = core::Socket(output[0]);
  }
  KeeperProcess(const KeeperProcess&) = delete;
  KeeperProcess& operator=(const KeeperProcess&) = delete;
  ~KeeperProcess() {
    if (process_ <= 0) return;
    control_ = core::Socket();  // it ends its command
    ::waitpid(process_, nullptr, 0);
  }

  // Returns what it and its command write up to the end of a line, or to the end of all. The test fails when neither
  // is seen in time.
  std::string read_line() { return read(true); }
  std::string read_all() { return read(false); }

  void write_byte() const { EXPECT_EQ(::write(control_.descriptor(), "x", 1), 1); }
  void close_pipe() { control_ = core::Socket(); }
  bool lives() const {
    siginfo_t info{};
    return ::waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
  }
  // Waits for its end. Returns its exit code.
  int code() {
    int status = -1;
    ::waitpid(std::exchange(process_, 0), &status, 0);
    EXPECT_TRUE(WIFEXITED(status)) << status;
    return WEXITSTATUS(status);
  }

 private:
  std::string read(bool line) const {
    std::string text;
    for (;;) {
      pollfd source{.fd = output_.descriptor(), .events = POLLIN, .revents = 0};
      if (::poll(&source, 1, kMostWait) != 1) {
        ADD_FAILURE() << "no end of " << text;
        return text;
      }
      char byte = 0;
      if (::read(output_.descriptor(), &byte, 1) != 1) return text;
      text.push_back(byte);
      if (line && byte == '\n') return text;
    }
  }

  pid_t process_ = 0;
  core::Socket control_, output_;
};

// A shell that prints "ready" and lives on. A trap is run within ten milliseconds.
std::vector<std::string> shell_with(const std::string& traps) {
  return {"sh", "-c", traps + "\necho ready; while :; do sleep 0.01; done"};
}

TEST(Keeper, ReturnsTheCodeOfItsCommandAndRemovesWhatIsLeft) {
  const core::TempDir base;
  const std::vector<std::string> folders{base.file("session"), base.file("memory")};
  for (const std::string& folder : folders) std::filesystem::create_directories(folder + "/a/b");
  const std::string script = "[ -e \"$0/owner\" ] && [ -e \"$1/owner\" ] && echo held; sleep 1000 & echo $!; exit 3";
  KeeperProcess keeper({"sh", "-c", script, folders[0], folders[1]}, folders);
  std::istringstream said(keeper.read_all());
  std::string held;
  int left = 0;
  said >> held >> left;
  EXPECT_EQ(held, "held");
  EXPECT_EQ(keeper.code(), 3);
  for (const std::string& folder : folders) EXPECT_FALSE(std::filesystem::exists(folder)) << folder;
  ASSERT_GT(left, 1);
  EXPECT_EQ(::kill(left, 0), -1);
  EXPECT_EQ(errno, ESRCH);
}

TEST(Keeper, TellsWhichSignalEndedItsCommand) {
  KeeperProcess keeper({"sh", "-c", "kill -KILL $$"});
  EXPECT_EQ(keeper.code(), 137);
}

TEST(Keeper, EndsItsCommandWhenLaunchClosesThePipe) {
  KeeperProcess keeper(shell_with("trap 'exit 9' TERM"));
  EXPECT_EQ(keeper.read_line(), "ready\n");
  keeper.close_pipe();
  EXPECT_EQ(keeper.code(), 9);
}

TEST(Keeper, EndsItsCommandWhenItIsStopped) {
  KeeperProcess keeper({"sleep", "1000"}, {}, true);
  EXPECT_EQ(keeper.code(), 128 + SIGTERM);
}

TEST(Keeper, AByteInThePipeMeansNothing) {
  KeeperProcess keeper({"sh", "-c", "trap 'exit 9' TERM; echo ready; sleep 0.2; exit 4"});
  EXPECT_EQ(keeper.read_line(), "ready\n");
  keeper.write_byte();
  EXPECT_EQ(keeper.code(), 4);
}

// Launch sees the end of mpirun by that of its streams.
TEST(Keeper, LeavesTheStreamsToItsCommandAlone) {
  KeeperProcess keeper({"sh", "-c", "echo out; echo error >&2; exec >/dev/null 2>&1; while :; do sleep 0.01; done"});
  EXPECT_EQ(keeper.read_all(), "out\nerror\n");
  EXPECT_TRUE(keeper.lives());
  keeper.close_pipe();
  EXPECT_EQ(keeper.code(), 128 + SIGTERM);
}

TEST(Keeper, SaysThatItsCommandCannotBeStarted) {
  const core::TempDir base;
  const std::string folder = base.file("session");
  std::filesystem::create_directories(folder);
  KeeperProcess keeper({"/nowhere/mpirun"}, {folder});
  EXPECT_THAT(keeper.read_all(), ::testing::HasSubstr("/nowhere/mpirun"));
  EXPECT_EQ(keeper.code(), 127);
  EXPECT_FALSE(std::filesystem::exists(folder));
}

// mpirun needs its time to end the processes of other hosts.
TEST(Keeper, LeavesItsCommandTimeToEnd) {
  KeeperProcess keeper(shell_with("trap 'sleep 0.4; exit 9' TERM"));
  EXPECT_EQ(keeper.read_line(), "ready\n");
  keeper.close_pipe();
  EXPECT_EQ(keeper.code(), 9);
}

// It is asked once, and has three seconds.
TEST(Keeper, KillsACommandThatDoesNotEnd) {
  KeeperProcess keeper(shell_with("trap 'echo asked' TERM"));
  EXPECT_EQ(keeper.read_line(), "ready\n");
  const auto begin = std::chrono::steady_clock::now();
  keeper.close_pipe();
  EXPECT_EQ(keeper.read_all(), "asked\n");
  EXPECT_EQ(keeper.code(), 128 + SIGKILL);
  const auto taken = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(taken, std::chrono::milliseconds(2900));
  EXPECT_LT(taken, std::chrono::seconds(9));
}

// The end of an orphan that it has adopted is not that of its command.
TEST(Keeper, WaitsForItsCommandAlone) {
  KeeperProcess keeper({"sh", "-c", "(sleep 0.05 & exit 0); echo left; sleep 0.4; exit 6"});
  EXPECT_EQ(keeper.read_line(), "left\n");
  EXPECT_EQ(keeper.code(), 6);
}

}  // namespace
}  // namespace trainyard::parallel::keeper_test
