// The agent of a rank in a process of its own: the test takes the place of launch.
#include "trainyard/parallel/launch/agent.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/environment.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/core/threads/signal_watcher.h"
#include "trainyard/parallel/launch/agent_listener.h"

namespace trainyard::parallel::agent_test {
namespace {

using ::testing::HasSubstr;
constexpr auto kMostWait = std::chrono::seconds(10);
constexpr auto kLook = std::chrono::milliseconds(1);

// How the agent of the test is started.
struct AgentStart {
  std::vector<std::string> command;
  std::string network{};         // empty: not set
  bool watches_signals = false;  // as the program does: with a thread
  bool stopped_before = false;   // its stop is requested before it begins
};

// An agent of rank 1 of 2.
class AgentProcess {
 public:
  explicit AgentProcess(const AgentStart& start) {
    process_ = ::fork();
    if (process_ == 0) ::_exit(run(start));
  }
  AgentProcess(const AgentProcess&) = delete;
  AgentProcess& operator=(const AgentProcess&) = delete;
  ~AgentProcess() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }

  pid_t process() const { return process_; }

  // Waits until it has said who it is. Returns its rank and host.
  std::pair<int, std::string> arrive() {
    const auto until = std::chrono::steady_clock::now() + kMostWait;
    std::pair<int, std::string> who{-1, ""};
    while (!connection_ && std::chrono::steady_clock::now() < until) {
      for (ArrivedAgent& each : listener_.take_in([](const std::string& why) { ADD_FAILURE() << why; })) {
        who = {each.rank, each.host};
        connection_ = std::make_unique<core::FrameConnection>(std::move(each.connection));
      }
      std::this_thread::sleep_for(kLook);
    }
    EXPECT_NE(connection_, nullptr);
    return who;
  }

  // Returns the port of its end of the connection; 0 before it has arrived.
  int port() const {
    sockaddr_in peer{};
    socklen_t size = sizeof peer;
    if (connection_) ::getpeername(connection_->descriptor(), reinterpret_cast<sockaddr*>(&peer), &size);
    return ntohs(peer.sin_port);
  }

  void send(const LaunchMessage& message) {
    if (!connection_) return;
    const core::Frame frame = encode_message(message);
    connection_->send(frame.kind, frame.body);
    EXPECT_TRUE(connection_->flush());
  }

  // Reads messages until `done` returns true. The test fails when it does not in time.
  void read_until(const std::function<bool()>& done) {
    const auto until = std::chrono::steady_clock::now() + kMostWait;
    bool open = connection_ != nullptr;
    while (open && !done() && std::chrono::steady_clock::now() < until) {
      std::vector<core::Frame> frames;
      open = connection_->receive(frames);
      for (const core::Frame& frame : frames) note(decode_message(frame));
      if (frames.empty()) std::this_thread::sleep_for(kLook);
    }
    EXPECT_TRUE(done()) << "output so far: " << output << "; errors: " << error;
  }
  void read_to_the_end() {
    read_until([this] { return end.has_value(); });
  }

  // Closes the connection as launch does, or as its end does. Returns waitpid's status of the agent.
  int leave() {
    connection_.reset();
    int status = -1;
    ::waitpid(std::exchange(process_, 0), &status, 0);
    return status;
  }

  std::string output, error;      // lines of the rank
  std::optional<ProcessEnd> end;  // of the rank

 private:
  int run(const AgentStart& start) const {
    ::setenv(kLaunchAddressVariable, listener_.address().c_str(), 1);
    ::setenv(kLaunchTokenVariable, listener_.token().c_str(), 1);
    ::unsetenv(kLaunchNetworkVariable);
    ::unsetenv(kListenAddressVariable);
    if (!start.network.empty()) ::setenv(kLaunchNetworkVariable, start.network.c_str(), 1);
    ::setenv("OMPI_COMM_WORLD_RANK", "1", 1);
    ::setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    core::StopSource stop;
    const auto request = [&stop](int signal) {
      stop.request_stop(core::StopReason::kSignal, core::signal_name(signal));
    };
    if (start.stopped_before) request(SIGTERM);
    try {
      std::unique_ptr<core::SignalWatcher> watcher;
      if (start.watches_signals) {
        const std::vector<int> signals{SIGTERM, SIGINT, SIGUSR1};
        watcher = std::make_unique<core::SignalWatcher>(signals, request, [](int) {});
      }
      run_launch_agent(start.command, stop.token());
    } catch (const core::Error&) {
      return 1;
    }
    return 0;
  }

  void note(const LaunchMessage& message) {
    if (const auto* lines = std::get_if<OutputMessage>(&message)) (lines->is_error ? error : output) += lines->lines;
    if (const auto* last = std::get_if<EndMessage>(&message)) end = last->end;
  }

  AgentListener listener_{"127.0.0.1", 2};
  std::unique_ptr<core::FrameConnection> connection_;
  pid_t process_ = 0;
};

std::string own_host() {
  std::array<char, 256> name{};
  EXPECT_EQ(::gethostname(name.data(), name.size() - 1), 0);
  return name.data();
}

// A shell that prints "ready" and lives on. A trap is run within ten milliseconds.
std::vector<std::string> shell_with(const std::string& traps, const std::string& argument = "") {
  return {"sh", "-c", traps + "\necho ready; while :; do sleep 0.01; done", argument};
}

TEST(Agent, SendsWhatItsRankWritesAndHowItEnds) {
  const std::string script =
      "echo \"$TRAINYARD_RANK_OF_LAUNCH $TRAINYARD_LISTEN_ADDRESS\"\n"
      "echo \".$TRAINYARD_LAUNCH_ADDRESS$TRAINYARD_LAUNCH_TOKEN$TRAINYARD_LAUNCH_NETWORK.\"\n"
      "echo \"$OMPI_COMM_WORLD_RANK\"; echo one >&2; printf two; printf three >&2; exit 3";
  AgentProcess agent({.command = {"sh", "-c", script}, .network = "127.0.0.0/8"});
  const auto [rank, host] = agent.arrive();
  EXPECT_EQ(rank, 1);
  EXPECT_EQ(host, own_host());
  agent.send(StartMessage());
  agent.read_to_the_end();
  EXPECT_EQ(agent.output, "1 127.0.0.1\n..\n1\ntwo\n");
  EXPECT_EQ(agent.error, "one\nthree\n");
  ASSERT_TRUE(agent.end);
  EXPECT_EQ(agent.end->description(), "ended with code 3");
  EXPECT_EQ(agent.leave(), 0);
}

// Returns the kind of the timer that the kernel shows for the established connection whose own end has this port.
std::string timer_of(int port) {
  std::ifstream table("/proc/net/tcp");
  for (std::string line; std::getline(table, line);) {
    std::istringstream words(line);
    std::string number, own, peer, state, queues, timer;
    words >> number >> own >> peer >> state >> queues >> timer;
    if (own.ends_with(fmt::format(":{:04X}", port)) && state == "01") return timer.substr(0, 2);
  }
  return "";
}

// A host of launch that has lost its power closes no connection: the rank must end then.
TEST(Agent, AsksWhetherTheHostOfLaunchIsThere) {
  AgentProcess agent({.command = {"sh", "-c", "true"}});
  agent.arrive();
  const auto until = std::chrono::steady_clock::now() + kMostWait;
  // Another timer runs while something that was sent is not acknowledged.
  std::string timer = timer_of(agent.port());
  while (timer != "02" && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(kLook);
    timer = timer_of(agent.port());
  }
  EXPECT_EQ(timer, "02") << "keep-alive";
  EXPECT_EQ(agent.leave(), 0);
}

TEST(Agent, SetsNoListenAddressWithoutANetwork) {
  AgentProcess agent({.command = {"sh", "-c", "echo \"${TRAINYARD_LISTEN_ADDRESS-none}\"; kill -KILL $$"}});
  agent.arrive();
  agent.send(StartMessage());
  agent.read_to_the_end();
  EXPECT_EQ(agent.output, "none\n");
  EXPECT_EQ(agent.error, "");
  ASSERT_TRUE(agent.end);
  EXPECT_EQ(agent.end->description(), "was ended by SIGKILL");
  EXPECT_EQ(agent.leave(), 0);
}

TEST(Agent, SendsAllLinesOfARankThatWritesMany) {
  AgentProcess agent({.command = {"sh", "-c", "yes line | head -n 400000"}});
  agent.arrive();
  agent.send(StartMessage());
  std::this_thread::sleep_for(std::chrono::milliseconds(30));  // launch is slower than the rank
  agent.read_to_the_end();
  EXPECT_EQ(agent.output.size(), 2000000U);
  EXPECT_EQ(agent.output.substr(agent.output.size() - 10), "line\nline\n");
  EXPECT_EQ(agent.leave(), 0);
}

// A script that writes lines without an end, and their numbers into the file $0.
constexpr const char* kWritesOn =
    "pad=$(printf '%01000d' 0); i=0\n"
    "while :; do i=$((i + 1)); echo \"$pad $i\"; echo \"$i\" >> \"$0\"; done";

// Waits until the agent of that script takes no more and the pipe to it is full, too. Returns the file's content.
std::string written_until_it_waits(const std::string& file) {
  std::string last, before;
  int same = 0;
  const auto until = std::chrono::steady_clock::now() + kMostWait;
  while (same < 5 && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    before = last;
    last = core::local_file_system().exists(file) ? core::local_file_system().read_file(file) : "";
    same = !last.empty() && last == before ? same + 1 : 0;
  }
  EXPECT_EQ(same, 5) << "the agent keeps more and more";
  EXPECT_TRUE(last.ends_with('\n'));
  return last;
}

// Launch reads nothing while its own output waits for a reader, such as a pager. Nothing is lost, also not the end.
TEST(Agent, KeepsAllThatItsRankHasWrittenForALaunchThatReadsLate) {
  const core::TempDir folder;
  const std::string written = folder.file("written");
  AgentProcess agent({.command = {"sh", "-c", kWritesOn, written}});
  agent.arrive();
  agent.send(StartMessage());
  std::string last = written_until_it_waits(written);
  ASSERT_GE(last.size(), 2U);
  last.erase(0, last.rfind('\n', last.size() - 2) + 1);
  agent.send(SignalMessage{SIGKILL});
  std::this_thread::sleep_for(std::chrono::milliseconds(700));  // longer than the agent reads what the rank has left
  agent.read_to_the_end();
  EXPECT_NE(agent.output.find("0 " + last), std::string::npos) << "line " << last << " of " << agent.output.size();
  ASSERT_TRUE(agent.end);
  EXPECT_EQ(agent.end->description(), "was ended by SIGKILL");
  EXPECT_EQ(agent.leave(), 0);
}

TEST(Agent, PassesTheSignalsOfLaunchAndOfMpirunOn) {
  AgentProcess agent({.command = shell_with("trap 'echo two' USR2; trap 'echo interrupted; exit 5' INT")});
  agent.arrive();
  agent.send(StartMessage());
  agent.read_until([&] { return agent.output == "ready\n"; });
  ::kill(agent.process(), SIGUSR2);
  agent.read_until([&] { return agent.output == "ready\ntwo\n"; });
  agent.send(SignalMessage{SIGUSR2});
  agent.read_until([&] { return agent.output == "ready\ntwo\ntwo\n"; });
  agent.send(SignalMessage{SIGINT});
  agent.read_to_the_end();
  EXPECT_EQ(agent.output, "ready\ntwo\ntwo\ninterrupted\n");
  ASSERT_TRUE(agent.end);
  EXPECT_EQ(agent.end->description(), "ended with code 5");
  EXPECT_EQ(agent.leave(), 0);
}

#if !defined(__SANITIZE_THREAD__)  // which takes no thread that is started in a child of fork()
TEST(Agent, PassesItsOwnStopOnOnce) {
  AgentProcess agent({.command = shell_with("n=0; trap 'n=$((n + 1)); echo stop $n' USR1; trap 'exit 6' USR2"),
                      .watches_signals = true});
  agent.arrive();
  agent.send(StartMessage());
  agent.read_until([&] { return agent.output == "ready\n"; });
  ::kill(agent.process(), SIGUSR1);
  agent.read_until([&] { return agent.output == "ready\nstop 1\n"; });
  std::this_thread::sleep_for(std::chrono::milliseconds(120));  // two looks of the agent
  agent.send(SignalMessage{SIGUSR2});
  agent.read_to_the_end();
  EXPECT_EQ(agent.output, "ready\nstop 1\n");
  ASSERT_TRUE(agent.end);
  EXPECT_EQ(agent.end->description(), "ended with code 6");
  EXPECT_EQ(agent.leave(), 0);
}
#endif

TEST(Agent, StartsNoRankOnceItIsStopped) {
  const core::TempDir folder;
  AgentProcess agent({.command = {"sh", "-c", "echo started > \"$0\"", folder.file("rank")}, .stopped_before = true});
  EXPECT_EQ(agent.leave(), 0);
  EXPECT_FALSE(core::local_file_system().exists(folder.file("rank")));
}

TEST(Agent, StartsNoRankWithoutLaunch) {
  const core::TempDir folder;
  AgentProcess agent({.command = {"sh", "-c", "echo started > \"$0\"", folder.file("rank")}});
  agent.arrive();
  EXPECT_EQ(agent.leave(), 0);
  EXPECT_FALSE(core::local_file_system().exists(folder.file("rank")));
}

TEST(Agent, SaysThatItsRankCannotBeStarted) {
  AgentProcess agent({.command = {"/nowhere/program"}});
  agent.arrive();
  agent.send(StartMessage());
  agent.read_to_the_end();
  ASSERT_TRUE(agent.end);
  EXPECT_EQ(agent.end->code(), 127);
  EXPECT_THAT(agent.end->text, HasSubstr("/nowhere/program"));
  EXPECT_EQ(agent.leave(), 0);
}

// The rank has time to save.
TEST(Agent, EndsItsRankWhenLaunchIsGone) {
  const core::TempDir folder;
  const std::string saved = folder.file("saved");
  AgentProcess agent({.command = shell_with("trap 'echo saved > \"$0\"; exit 0' TERM", saved)});
  agent.arrive();
  agent.send(StartMessage());
  agent.read_until([&] { return agent.output == "ready\n"; });
  EXPECT_EQ(agent.leave(), 0);
  ASSERT_TRUE(core::local_file_system().exists(saved));
  EXPECT_EQ(core::local_file_system().read_file(saved), "saved\n");
}

// There is no reader any more, however much launch has not read: the rank must not wait for one before it saves.
TEST(Agent, TakesWhatItsRankWritesWhenLaunchIsGone) {
  const core::TempDir folder;
  const std::string saved = folder.file("saved"), written = folder.file("written");
  const std::string trap = "trap 'echo \"$pad\"; echo saved > \"$1\"; exit 0' TERM\n";
  AgentProcess agent({.command = {"sh", "-c", trap + kWritesOn, written, saved}});
  agent.arrive();
  agent.send(StartMessage());
  written_until_it_waits(written);
  EXPECT_EQ(agent.leave(), 0);
  ASSERT_TRUE(core::local_file_system().exists(saved));
  EXPECT_EQ(core::local_file_system().read_file(saved), "saved\n");
}

// It is asked once, and has two seconds.
TEST(Agent, KillsARankThatDoesNotEndWithoutLaunch) {
  const core::TempDir folder;
  const std::string asked = folder.file("asked");
  AgentProcess agent({.command = shell_with("trap 'echo asked >> \"$0\"' TERM", asked)});
  agent.arrive();
  agent.send(StartMessage());
  agent.read_until([&] { return agent.output == "ready\n"; });
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(agent.leave(), 0);
  const auto taken = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(taken, std::chrono::milliseconds(1900));
  EXPECT_LT(taken, std::chrono::seconds(8));
  ASSERT_TRUE(core::local_file_system().exists(asked));
  EXPECT_EQ(core::local_file_system().read_file(asked), "asked\n");
}

TEST(Agent, StartsNoRankForAnotherMessage) {
  const core::TempDir folder;
  AgentProcess agent({.command = {"sh", "-c", "echo started > \"$0\"", folder.file("rank")}});
  agent.arrive();
  agent.send(SignalMessage{SIGUSR2});
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  EXPECT_FALSE(core::local_file_system().exists(folder.file("rank")));
  EXPECT_EQ(agent.leave(), 0);
  EXPECT_FALSE(core::local_file_system().exists(folder.file("rank")));
}

// Not as late as where a process holds them. The fastest of some, because the machine may be busy.
TEST(Agent, SaysHowItsRankEndedOnceItsStreamsAreClosed) {
  auto fastest = std::chrono::steady_clock::duration::max();
  for (int i = 0; i < 4; ++i) {
    AgentProcess agent({.command = {"sh", "-c", "echo last"}});
    agent.arrive();
    const auto begin = std::chrono::steady_clock::now();
    agent.send(StartMessage());
    agent.read_to_the_end();
    fastest = std::min(fastest, std::chrono::steady_clock::now() - begin);
    EXPECT_EQ(agent.output, "last\n");
    EXPECT_EQ(agent.leave(), 0);
  }
  EXPECT_LT(fastest, std::chrono::milliseconds(450));
}

// What no descendant of the rank has open is waited for half a second.
TEST(Agent, DoesNotWaitForAStreamThatAnotherProcessHolds) {
  AgentProcess held({.command = shell_with("trap 'printf end; exit 2' USR2; echo $$")});
  held.arrive();
  held.send(StartMessage());
  held.read_until([&] { return held.output.ends_with("ready\n"); });
  const core::Socket stream(::open(fmt::format("/proc/{}/fd/1", std::atoi(held.output.c_str())).c_str(), O_WRONLY));
  ASSERT_TRUE(stream.valid());
  held.send(SignalMessage{SIGUSR2});
  held.read_to_the_end();
  EXPECT_TRUE(held.output.ends_with("ready\nend\n")) << held.output;
  ASSERT_TRUE(held.end);
  EXPECT_EQ(held.end->description(), "ended with code 2");
  EXPECT_EQ(held.leave(), 0);
}

TEST(Agent, EndsWhatItsRankHasLeft) {
  AgentProcess agent({.command = {"sh", "-c", "sleep 1000 & echo $!"}});
  agent.arrive();
  agent.send(StartMessage());
  agent.read_to_the_end();
  const int left = std::atoi(agent.output.c_str());
  ASSERT_GT(left, 1);
  EXPECT_EQ(::kill(left, 0), -1);
  EXPECT_EQ(errno, ESRCH);
  EXPECT_EQ(agent.leave(), 0);
}

TEST(Agent, RefusesToRunOutsideOfALaunch) {
  const AgentListener listener("127.0.0.1", 2);
  const core::EnvironmentVariable address(kLaunchAddressVariable, std::nullopt);
  const core::EnvironmentVariable token(kLaunchTokenVariable, std::nullopt);
  const core::EnvironmentVariable rank("OMPI_COMM_WORLD_RANK", std::nullopt);
  const core::EnvironmentVariable ranks("OMPI_COMM_WORLD_SIZE", std::nullopt);
  const auto refusal = [](const std::vector<std::string>& command) {
    return core::message_of([&] { run_launch_agent(command, core::StopSource().token()); });
  };
  EXPECT_THAT(refusal({}), HasSubstr("there is no program to start"));
  EXPECT_THAT(refusal({"sh"}), HasSubstr("expected TRAINYARD_LAUNCH_ADDRESS in the environment"));
  for (const char* wrong : {"127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:x"}) {
    address.set(wrong);
    EXPECT_THAT(refusal({"sh"}),
                HasSubstr(std::string("TRAINYARD_LAUNCH_ADDRESS is no address and port: got ") + wrong));
  }
  address.set(listener.address());
  EXPECT_THAT(refusal({"sh"}), HasSubstr("expected TRAINYARD_LAUNCH_TOKEN in the environment"));
  token.set(listener.token());
  EXPECT_THAT(refusal({"sh"}), HasSubstr("expected OMPI_COMM_WORLD_RANK in the environment"));
  for (const char* wrong : {"x", "1x", ""}) {
    rank.set(wrong);
    EXPECT_THAT(refusal({"sh"}), HasSubstr("OMPI_COMM_WORLD_RANK is no number"));
  }
  rank.set("0");
  EXPECT_THAT(refusal({"sh"}), HasSubstr("expected OMPI_COMM_WORLD_SIZE in the environment"));
  // What an agent sets for its process.
  ::prctl(PR_SET_CHILD_SUBREAPER, 0);
  ::signal(SIGUSR2, SIG_DFL);
}

}  // namespace
}  // namespace trainyard::parallel::agent_test
