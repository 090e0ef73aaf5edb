#include "trainyard/parallel/launch/agent.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/sockets/socket.h"
#include "trainyard/core/system/host_name.h"
#include "trainyard/parallel/launch/hosts.h"
#include "trainyard/parallel/launch/keep_alive.h"
#include "trainyard/parallel/launch/launch.h"
#include "trainyard/parallel/launch/launch_messages.h"
#include "trainyard/parallel/launch/lines.h"
#include "trainyard/parallel/launch/process.h"

namespace trainyard::parallel {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kLookAtRank = std::chrono::milliseconds(50);  // how often the agent looks whether the rank has ended
constexpr auto kConnectTime = std::chrono::seconds(10);
constexpr auto kTimeToSave = std::chrono::seconds(2);           // from SIGTERM to SIGKILL when launch is gone
constexpr auto kDrainTimeout = std::chrono::milliseconds(500);  // to read what the rank's pipes still hold
constexpr size_t kMostUnsent = 1 << 19;                         // bytes; a rank that writes faster waits

// SIGUSR2, which mpirun forwards, until it is passed on.
volatile std::sig_atomic_t user_signal = 0;
void remember_signal(int) {
  user_signal = 1;
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  if (value != nullptr) return value;
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = "this command is for `trainyard launch` itself, which starts it by mpirun",
                     .expected = std::string(name) + " in the environment",
                     .remedy = "see trainyard launch --help"});
}

int number_in(const char* name) {
  const std::string text = variable(name);
  int value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  if (read.ec == std::errc() && read.ptr == text.data() + text.size()) return value;
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = std::string(name) + " is no number", .actual = text});
}

core::Socket connect_to_launch() {
  const std::string address = variable(kLaunchAddressVariable);
  const size_t colon = address.rfind(':');
  uint16_t port = 0;
  if (colon != std::string::npos) std::from_chars(address.data() + colon + 1, address.data() + address.size(), port);
  if (port == 0) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = std::string(kLaunchAddressVariable) + " is no address and port", .actual = address});
  }
  core::Socket socket = core::connect_to(address.substr(0, colon), port, kConnectTime);
  keep_alive(socket.descriptor());  // the host of launch may lose its power: the rank must end then
  return socket;
}

// What the rank writes into one of its standard streams.
struct AgentStream {
  core::Socket reads;
  LineSplitter lines;
  bool is_error = false;
};

class Agent {
 public:
  explicit Agent(const core::StopToken& stop) : stop_(stop), launch_(connect_to_launch(), kLongestMessage) {
    const HelloMessage hello{.token = variable(kLaunchTokenVariable),
                             .rank = number_in("OMPI_COMM_WORLD_RANK"),
                             .ranks = number_in("OMPI_COMM_WORLD_SIZE"),
                             .host = core::host_name()};
    send(hello);
  }

  void run(const std::vector<std::string>& command) {
    while (!started_) {
      if (!connected_ || stop_.stop_requested()) return;
      turn();
    }
    ProcessEnd end;
    try {
      start(command);
    } catch (const core::Error& error) {
      end = {.kind = ProcessEnd::Kind::kNotStarted, .text = std::string(error.what()).substr(0, kLongestAgentHello)};
      send_exit_status(end);
      return;
    }
    while (!ended(end)) {
      turn();
      pass_signals_on();
      end_without_launch();
    }
    // Processes that the rank has started and left: only the agent ends them on other hosts.
    end_descendants();
    draining_ = true;
    const auto until = Clock::now() + kDrainTimeout;
    while (is_open() && Clock::now() < until) turn();
    for (AgentStream& stream : streams_) close(stream);
    send_exit_status(end);
  }

 private:
  void start(const std::vector<std::string>& command) {
    std::array<core::Socket, 2> writes;
    for (size_t i = 0; i < streams_.size(); ++i) {
      std::array<int, 2> ends{};
      if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw core::system_error(errno, "make a pipe to", command[0]);
      streams_[i].reads = core::Socket(ends[0]);
      streams_[i].is_error = i == 1;
      writes[i] = core::Socket(ends[1]);
      ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
    }
    std::vector<std::string> with{fmt::format("{}=1", kRankOfLaunchVariable)};
    if (const char* network = std::getenv(kLaunchNetworkVariable)) {
      with.push_back(fmt::format("{}={}", kListenAddressVariable, find_network(network).own_address));
    }
    rank_ = start_process({.arguments = command,
                           .without = {kLaunchAddressVariable, kLaunchTokenVariable, kLaunchNetworkVariable},
                           .with = with,
                           .output = writes[0].descriptor(),
                           .error = writes[1].descriptor(),
                           .new_session = true,
                           .signal_at_our_end = SIGKILL});
  }

  // Waits for anything to happen, and deals with it.
  void turn() {
    std::array<pollfd, 3> sources{};
    sources[0] = {.fd = connected_ ? launch_.descriptor() : -1, .events = POLLIN, .revents = 0};
    if (launch_.has_unsent()) sources[0].events |= POLLOUT;
    // Without launch there is no reader, but the rank must not wait for one. The last words of a rank that has ended
    // are taken however much launch has not read.
    const bool takes = draining_ || !connected_ || launch_.unsent_bytes() < kMostUnsent;
    for (size_t i = 0; i < streams_.size(); ++i) {
      sources[1 + i] = {.fd = takes ? streams_[i].reads.descriptor() : -1, .events = POLLIN, .revents = 0};
    }
    ::poll(sources.data(), sources.size(), static_cast<int>(kLookAtRank.count()));
    for (size_t i = 0; i < streams_.size(); ++i) {
      if (sources[1 + i].revents != 0) read(streams_[i]);
    }
    if (connected_) talk();
  }

  void talk() {
    std::vector<core::Frame> frames;
    connected_ = launch_.flush() && launch_.receive(frames) && !peer_is_silent(launch_.descriptor());
    for (const core::Frame& frame : frames) {
      const LaunchMessage message = decode_message(frame);
      if (std::holds_alternative<StartMessage>(message)) started_ = true;
      if (const auto* asked = std::get_if<SignalMessage>(&message)) signal_rank(asked->signal);
    }
  }

  void read(AgentStream& stream) {
    std::array<char, 1 << 16> bytes;
    const ssize_t count = ::read(stream.reads.descriptor(), bytes.data(), bytes.size());
    if (count > 0) return send_lines(stream, stream.lines.take({bytes.data(), static_cast<size_t>(count)}));
    if (count == 0 || (errno != EAGAIN && errno != EINTR)) close(stream);
  }

  void close(AgentStream& stream) {
    if (stream.reads.valid()) send_lines(stream, stream.lines.finish());
    stream.reads = core::Socket();
  }

  bool is_open() const { return streams_[0].reads.valid() || streams_[1].reads.valid(); }

  void send_lines(const AgentStream& stream, std::string lines) {
    if (!lines.empty()) send(OutputMessage{.is_error = stream.is_error, .lines = std::move(lines)});
  }

  void send(const LaunchMessage& message) {
    if (!connected_) return;
    const core::Frame frame = encode_message(message);
    launch_.send(frame.kind, frame.body);
  }

  void signal_rank(int signal) {
    if (rank_ > 0) ::kill(rank_, signal);
  }

  void pass_signals_on() {
    if (std::exchange(user_signal, 0) != 0) signal_rank(SIGUSR2);
    if (stop_.stop_requested() && !std::exchange(stop_passed_on_, true)) {
      signal_rank(signal_of(stop_));
    }
  }

  void end_without_launch() {
    if (connected_) return;
    if (!kill_at_) {
      signal_rank(SIGTERM);
      kill_at_ = Clock::now() + kTimeToSave;
    } else if (Clock::now() >= *kill_at_) {
      signal_rank(SIGKILL);
    }
  }

  // Returns true when the rank has ended; its number may be another process' after that.
  bool ended(ProcessEnd& end) {
    int status = 0;
    const pid_t found = ::waitpid(rank_, &status, WNOHANG);
    if (found == 0) return false;
    if (found == rank_) end = process_end(status);
    return true;
  }

  // Closing at once could lose what launch has not read yet, and the rank would count as lost. Launch closes when it
  // has read the end, which may take long where its own output waits for a reader, such as a pager.
  void send_exit_status(const ProcessEnd& end) {
    rank_ = 0;
    send(EndMessage{end});
    while (connected_) turn();
  }

  const core::StopToken stop_;
  core::FrameConnection launch_;
  bool connected_ = true, started_ = false, stop_passed_on_ = false, draining_ = false;
  std::optional<Clock::time_point> kill_at_;
  pid_t rank_ = 0;
  std::array<AgentStream, 2> streams_;
};

}  // namespace

void run_launch_agent(const std::vector<std::string>& command, const core::StopToken& stop) {
  if (command.empty()) throw core::Error(core::ErrorCode::kInvalidArgument, "there is no program to start");
  ::signal(SIGUSR2, remember_signal);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  Agent(stop).run(command);
}

}  // namespace trainyard::parallel
