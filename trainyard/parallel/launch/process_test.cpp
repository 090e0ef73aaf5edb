#include "trainyard/parallel/launch/process.h"

#include <array>
#include <csignal>
#include <string>

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/threads/stop_token.h"

namespace trainyard::parallel::process_test {
namespace {

// What a shell's command prints, and how it ends.
struct Ran {
  std::string output;
  ProcessEnd end;
};

Ran run_in_shell(const std::string& script, ProcessToStart process = {}) {
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) return {};
  process.arguments = {"sh", "-c", script};
  process.output = pipe[1];
  const pid_t child = start_process(process);
  ::close(pipe[1]);
  Ran ran;
  std::array<char, 256> bytes;
  for (ssize_t count = 0; (count = ::read(pipe[0], bytes.data(), bytes.size())) > 0;) {
    ran.output.append(bytes.data(), static_cast<size_t>(count));
  }
  ::close(pipe[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  ran.end = process_end(status);
  return ran;
}

TEST(Process, EndsAsItSays) {
  const Ran exited = run_in_shell("echo out; exit 3");
  EXPECT_EQ(exited.output, "out\n");
  EXPECT_EQ(exited.end.code(), 3);
  EXPECT_EQ(exited.end.description(), "ended with code 3");
  const Ran killed = run_in_shell("kill -KILL $$");
  EXPECT_EQ(killed.end.code(), 137);
  EXPECT_EQ(killed.end.description(), "was ended by SIGKILL");
}

TEST(Process, ThatCannotBeStartedIsAnError) {
  EXPECT_EQ(core::thrown_by([] { start_process({.arguments = {"/nowhere/program"}}); }).code(),
            core::ErrorCode::kNotFound);
  EXPECT_EQ((ProcessEnd{.kind = ProcessEnd::Kind::kNotStarted, .text = "why"}.code()), 127);
}

TEST(Process, GetsTheVariablesThatItShould) {
  ::setenv("TRAINYARD_TEST_SECRET", "secret", 1);
  ::setenv("TRAINYARD_TEST_OTHER", "old", 1);
  const Ran ran = run_in_shell("echo $TRAINYARD_TEST_SECRET.$TRAINYARD_TEST_OTHER",
                               {.without = {"TRAINYARD_TEST_SECRET"}, .with = {"TRAINYARD_TEST_OTHER=new"}});
  EXPECT_EQ(ran.output, ".new\n");
}

// The parent blocks SIGTERM and has no standard input to give; descriptors of its own stay its own.
TEST(Process, BeginsWithNothingOfItsParent) {
  sigset_t blocked, before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &blocked, &before);
  ::signal(SIGHUP, SIG_IGN);
  const int careless = ::open("/dev/null", O_RDONLY);
  const Ran ran =
      run_in_shell(fmt::format("cat; [ -e /proc/self/fd/{} ] || echo none; kill -HUP $$; echo alive", careless));
  ::close(careless);
  ::signal(SIGHUP, SIG_DFL);
  EXPECT_EQ(run_in_shell("kill -TERM $$; echo alive").end.code(), 128 + SIGTERM);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  EXPECT_EQ(ran.output, "none\n");
  EXPECT_EQ(ran.end.code(), 128 + SIGHUP);
}

// In a process of its own, which adopts the orphan that the shell leaves.
TEST(Process, NoDescendantIsLeft) {
  const pid_t adopter = ::fork();
  if (adopter == 0) {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    run_in_shell(
        "(trap '' TERM HUP; sleep 1000 >/dev/null 2>&1 & sleep 1000 >/dev/null 2>&1) >/dev/null 2>&1 & exit 0");
    end_descendants();
    ::_exit(::waitpid(-1, nullptr, WNOHANG) == -1 && errno == ECHILD ? 0 : 1);
  }
  int status = -1;
  ::waitpid(adopter, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(Process, EndsWithTheOneThatStartedIt) {
  for (const int signal : {SIGKILL, SIGHUP}) {
    std::array<int, 2> pipe{};
    ASSERT_EQ(::pipe(pipe.data()), 0);
    const pid_t parent = ::fork();
    if (parent == 0) {
      start_process(
          {.arguments = {"sh", "-c", "echo started; exec sleep 1000"}, .output = pipe[1], .signal_at_our_end = signal});
      char byte = 0;
      [[maybe_unused]] const ssize_t started = ::read(pipe[0], &byte, 1);
      ::_exit(0);
    }
    ::close(pipe[1]);
    int status = -1;
    ::waitpid(parent, &status, 0);
    EXPECT_EQ(status, 0);
    std::string rest;
    std::array<char, 16> bytes{};
    for (ssize_t count = 0; (count = ::read(pipe[0], bytes.data(), bytes.size())) > 0;) {
      rest.append(bytes.data(), static_cast<size_t>(count));
    }
    EXPECT_EQ(rest, "tarted\n") << "of signal " << signal;  // and the end: no process has the pipe any more
    ::close(pipe[0]);
  }
}

TEST(Process, IsOfItsParentsSessionUnlessItIsAskedForANewOne) {
  const std::string script = "cut -d ' ' -f 6 /proc/self/stat; echo $$";
  const std::string own = std::to_string(::getsid(0)) + "\n";
  const Ran same = run_in_shell(script);
  EXPECT_TRUE(same.output.starts_with(own)) << same.output << "expected " << own;
  const Ran other = run_in_shell(script, {.new_session = true});
  const size_t line = other.output.find('\n') + 1;
  EXPECT_EQ(other.output.substr(0, line), other.output.substr(line)) << "the shell leads its session";
  EXPECT_NE(other.output.substr(0, line), own);
}

// Its first descriptor behind the standard streams, which its parent has opened without care.
TEST(Process, HasTheThreeStandardStreamsAlone) {
  constexpr int kFirst = 3;
  const int careless = ::open("/dev/null", O_RDONLY);
  const int before = ::fcntl(kFirst, F_DUPFD_CLOEXEC, 10);
  if (careless != kFirst) ::dup2(careless, kFirst);
  const Ran ran = run_in_shell("[ -e /proc/self/fd/3 ] && echo three; [ -e /proc/self/fd/2 ] && echo two");
  if (before >= 0 && careless != kFirst) ::dup2(before, kFirst);
  if (careless == kFirst || before < 0) ::close(kFirst);
  if (before >= 0) ::close(before);
  if (careless != kFirst) ::close(careless);
  EXPECT_EQ(ran.output, "two\n");
}

TEST(Process, ForWhichNoPipeCanBeOpenedIsAnError) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::close(next);
  const rlimit lower{.rlim_cur = static_cast<rlim_t>(next), .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &lower), 0);
  const auto error = core::error_of([] { start_process({.arguments = {"some_program", "argument"}}); });
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), core::ErrorCode::kIo);
  EXPECT_STREQ(error->what(), "start program failed: some_program: got Too many open files");
}

TEST(Process, EndsThatNobodySawSayWhy) {
  EXPECT_EQ((ProcessEnd{.kind = ProcessEnd::Kind::kNotStarted, .text = "no such file"}.description()),
            "could not be started: no such file");
  EXPECT_EQ(ProcessEnd().description(), "was lost: the process that watched it has ended, or its host does not answer");
  EXPECT_EQ(ProcessEnd().code(), 1);
}

TEST(Process, IsStoppedByTheSignalThatAskedForIt) {
  const auto signal_for = [](const std::string& message) {
    core::StopSource source;
    source.request_stop(core::StopReason::kSignal, message);
    return signal_of(source.token());
  };
  EXPECT_EQ(signal_for("SIGINT"), SIGINT);
  EXPECT_EQ(signal_for("SIGUSR1"), SIGUSR1);
  EXPECT_EQ(signal_for("SIGTERM"), SIGTERM);
  EXPECT_EQ(signal_for("the target is reached"), SIGTERM);
}

}  // namespace
}  // namespace trainyard::parallel::process_test
