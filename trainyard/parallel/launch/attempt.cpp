#include "trainyard/parallel/launch/attempt.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <memory>
#include <utility>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/sockets/socket.h"
#include "trainyard/core/threads/signal_watcher.h"
#include "trainyard/parallel/launch/agent_listener.h"
#include "trainyard/parallel/launch/launch_messages.h"
#include "trainyard/parallel/launch/lines.h"
#include "trainyard/parallel/launch/supervised_mpirun.h"

namespace trainyard::parallel {
namespace {

using LaunchClock = std::chrono::steady_clock;
using Deadline = std::optional<LaunchClock::time_point>;
constexpr int kLaunchLook = 50;                           // milliseconds between two looks at signals and the keeper
constexpr auto kKillTimeout = std::chrono::seconds(5);    // for agents to end a rank
constexpr auto kTimeToExplain = std::chrono::seconds(1);  // that mpirun's end is seen after those of its agents
constexpr auto kTimeToFinish = std::chrono::seconds(10);  // that mpirun has to end after all ranks

// SIGUSR2, until it is passed on.
volatile std::sig_atomic_t signal_to_forward = 0;
void remember_to_forward(int) {
  signal_to_forward = 1;
}

LaunchClock::time_point after(double seconds) {
  return LaunchClock::now() + std::chrono::duration_cast<LaunchClock::duration>(std::chrono::duration<double>(seconds));
}
bool is_over(const Deadline& deadline) {
  return deadline && LaunchClock::now() >= *deadline;
}

// The IPv4 address at the other end of a connection; empty where there is none.
std::string address_of_peer(int descriptor) {
  sockaddr_in peer{};
  socklen_t size = sizeof peer;
  const bool found = ::getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &size) == 0;
  std::array<char, INET_ADDRSTRLEN> text{};
  if (found && peer.sin_family == AF_INET) ::inet_ntop(AF_INET, &peer.sin_addr, text.data(), text.size());
  return text.data();
}

struct Rank {
  std::unique_ptr<core::FrameConnection> connection;
  std::unique_ptr<core::WritableFile> log;
  bool ended = false;
  Deadline lost_at;  // its agent has gone without a word; mpirun's end may explain that
  RankEnd result;
};

class Attempt {
 public:
  Attempt(const LaunchOptions& options, const RankCommand& command, const Network* network,
          const std::vector<HostSlots>& hosts, int number, Terminal& terminal, const core::StopToken& stop)
      : options_(options),
        terminal_(terminal),
        stop_(stop),
        door_(network == nullptr ? "127.0.0.1" : network->own_address, command.ranks),
        ranks_(static_cast<size_t>(command.ranks)),
        mpirun_(options, command, network, hosts, door_.address(), door_.token()),
        start_by_(after(options.start_timeout)) {
    open_logs(number);
  }

  // Agents that lose their connection end their ranks.
  ~Attempt() {
    for (Rank& rank : ranks_) rank.connection.reset();
  }
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  AttemptResult run() {
    while (!all_ended()) {
      turn();
      forward_signal();
      forward_stop();
      check_deadlines();
      look_at_mpirun();
    }
    close_everything();
    AttemptResult result{.first_failed = first_failed_, .stopped = stopped_};
    for (Rank& rank : ranks_) result.ranks.push_back(std::move(rank.result));
    return result;
  }

 private:
  void open_logs(int number) {
    if (options_.log_dir.empty()) return;
    core::FileSystem& files = core::local_file_system();
    files.make_directories(options_.log_dir);
    for (size_t i = 0; i < ranks_.size(); ++i) {
      ranks_[i].log = files.open_append(core::join_path(options_.log_dir, fmt::format("rank-{}.log", i)));
      ranks_[i].log->write(fmt::format("launch: start {} with {} ranks\n", number, ranks_.size()));
      ranks_[i].log->flush();
    }
  }

  // Waits for anything to happen, and deals with it.
  void turn() {
    const bool reading = !terminal_.is_behind();
    std::vector<pollfd> sources;
    const auto watch = [&sources](int descriptor, int events) {
      if (events != 0) sources.push_back({.fd = descriptor, .events = static_cast<short>(events), .revents = 0});
    };
    for (const int descriptor : door_.descriptors()) watch(descriptor, POLLIN);
    for (const int descriptor : mpirun_.descriptors()) watch(descriptor, reading ? POLLIN : 0);
    for (const TerminalStream* stream : {&terminal_.output, &terminal_.error}) {
      watch(stream->descriptor(), stream->has_unwritten() ? POLLOUT : 0);
    }
    for (const Rank& rank : ranks_) {
      if (rank.connection == nullptr) continue;
      watch(rank.connection->descriptor(), (reading ? POLLIN : 0) | (rank.connection->has_unsent() ? POLLOUT : 0));
    }
    ::poll(sources.data(), sources.size(), kLaunchLook);
    terminal_.output.write_some();
    terminal_.error.write_some();
    if (reading) terminal_.error.add(with_prefix("mpirun: ", mpirun_.read_lines()));
    for (size_t rank = 0; rank < ranks_.size(); ++rank) talk(rank, reading);
    welcome_agents();
  }

  void welcome_agents() {
    const auto refused = [this](const std::string& why) {
      terminal_.write_line("warning: refused a connection: " + why);
    };
    for (ArrivedAgent& agent : door_.take_in(refused)) {
      Rank& rank = ranks_[static_cast<size_t>(agent.rank)];
      rank.connection = std::make_unique<core::FrameConnection>(std::move(agent.connection));
      rank.result.host = std::move(agent.host);
      rank.result.address = address_of_peer(rank.connection->descriptor());
    }
    const bool all =
        std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& each) { return each.connection != nullptr; });
    if (!all || started_ || ending_) return;
    door_.close();  // no other agent is expected
    start_by_.reset();
    started_ = true;
    send_to_all(StartMessage());
  }

  void talk(size_t number, bool reading) {
    Rank& rank = ranks_[number];
    if (rank.connection == nullptr) return;
    bool open = rank.connection->flush();
    std::vector<core::Frame> frames;
    try {
      if (open && reading) open = rank.connection->receive(frames);
      for (const core::Frame& frame : frames) hear(number, decode_message(frame));
    } catch (const core::Error& error) {
      if (error.code() != core::ErrorCode::kCorruptData) throw;  // its log cannot be written
      terminal_.write_line(fmt::format("{}: {}", options_.name_of(number), error.what()));
      open = false;
    }
    if (open || rank.ended) return;
    rank.connection.reset();
    rank.lost_at = LaunchClock::now() + kTimeToExplain;
  }

  void hear(size_t number, const LaunchMessage& message) {
    if (const auto* output = std::get_if<OutputMessage>(&message)) {
      TerminalStream& stream = output->is_error ? terminal_.error : terminal_.output;
      stream.add(with_prefix(fmt::format("[{}] ", number), output->lines));
      if (ranks_[number].log == nullptr) return;
      ranks_[number].log->write(output->lines);
      ranks_[number].log->flush();
    } else if (const auto* end = std::get_if<EndMessage>(&message)) {
      note_end(number, end->end);
    }
  }

  void note_end(size_t number, const ProcessEnd& end) {
    Rank& rank = ranks_[number];
    if (rank.ended) return;
    rank.ended = true;
    rank.result.end = end;
    rank.result.ended_by_launch = ending_ && first_failed_.has_value();
    rank.connection.reset();
    const int code = end.code();
    if (code == 0 || code == core::kExitStoppedBySignal || ending_) return;
    terminal_.write_line(fmt::format("{} on {} {}", options_.name_of(number), rank.result.host, end.description()));
    if (first_failed_) return;
    first_failed_ = static_cast<int>(number);
    if (!all_ended()) end_all_at_ = after(options_.failure_timeout);
  }

  void send_to_all(const LaunchMessage& message) {
    const core::Frame frame = encode_message(message);
    for (Rank& rank : ranks_) {
      if (rank.connection != nullptr) rank.connection->send(frame.kind, frame.body);
    }
  }

  void forward_signal() {
    if (std::exchange(signal_to_forward, 0) != 0) send_to_all(SignalMessage{SIGUSR2});
  }

  void forward_stop() {
    if (stopped_ || !stop_.stop_requested()) return;
    stopped_ = true;
    if (!started_) return end_all("asked to stop before all ranks had started");
    send_to_all(SignalMessage{signal_of(stop_)});
    stop_by_ = after(options_.stop_timeout);
  }

  void check_deadlines() {
    if (is_over(start_by_)) {
      std::vector<size_t> missing;
      for (size_t i = 0; i < ranks_.size(); ++i) {
        if (ranks_[i].connection == nullptr) missing.push_back(i);
      }
      throw core::Error(core::ErrorCode::kTimeout,
                        {.problem = fmt::format("ranks have not started within {} s", options_.start_timeout),
                         .where = fmt::format("rank {}", fmt::join(missing, ", ")),
                         .remedy = "see what mpirun says above, or raise --start_timeout"});
    }
    for (size_t i = 0; i < ranks_.size(); ++i) {
      if (is_over(ranks_[i].lost_at) && !mpirun_.is_ending()) note_end(i, ProcessEnd());
    }
    if (is_over(end_all_at_)) end_all(fmt::format("the others did not end within {} s", options_.failure_timeout));
    if (is_over(stop_by_)) end_all(fmt::format("not all ranks have stopped within {} s", options_.stop_timeout));
    if (is_over(force_at_)) leave_all();
  }

  // Has the agents end their ranks at once.
  void end_all(const std::string& why) {
    if (std::exchange(ending_, true)) return;
    terminal_.write_line(why + ": ending them");
    end_all_at_ = stop_by_ = start_by_ = std::nullopt;
    if (!started_) return leave_all();
    send_to_all(SignalMessage{SIGKILL});
    if (!mpirun_is_gone_) force_at_ = LaunchClock::now() + kKillTimeout;  // else it is set, to less
  }

  // Gives up on agents: the keeper ends what is on this machine, a lost connection what is on others.
  void leave_all() {
    ending_ = true;
    mpirun_.ask_to_end();
    for (size_t i = 0; i < ranks_.size(); ++i) note_end(i, ProcessEnd());
  }

  void look_at_mpirun() {
    if (mpirun_is_gone_ || !mpirun_.has_ended() || all_ended()) return;
    if (!started_ && !stopped_) {
      terminal_.error.add(with_prefix("mpirun: ", mpirun_.read_lines()));
      terminal_.finish();
      throw core::Error(core::ErrorCode::kPeerFailed, {.problem = "mpirun ended before it had started all ranks",
                                                       .actual = fmt::format("code {}", mpirun_.code()),
                                                       .remedy = "see what it says above"});
    }
    // Ranks that it took along may have left their last words.
    mpirun_is_gone_ = true;
    force_at_ = LaunchClock::now() + kTimeToExplain;
  }

  bool all_ended() const {
    return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.ended; });
  }

  void close_everything() {
    const auto until = LaunchClock::now() + kTimeToFinish;
    door_.close();
    while (!mpirun_.has_ended() && LaunchClock::now() < until) turn();
    terminal_.error.add(with_prefix("mpirun: ", mpirun_.read_lines()));
    if (mpirun_is_gone_) terminal_.write_line(mpirun_.description() + " before its ranks had");
  }

  const LaunchOptions& options_;
  Terminal& terminal_;
  const core::StopToken stop_;
  AgentListener door_;
  std::vector<Rank> ranks_;
  SupervisedMpirun mpirun_;
  std::optional<int> first_failed_;
  bool started_ = false;         // all ranks were told to
  bool stopped_ = false;         // all ranks were asked to
  bool ending_ = false;          // launch ends the ranks
  bool mpirun_is_gone_ = false;  // while ranks ran
  Deadline start_by_, end_all_at_, stop_by_;
  Deadline force_at_;  // when launch waits for its agents no longer
};

}  // namespace

int worst_exit_code(const AttemptResult& result) {
  int worst = 0;
  for (const RankEnd& rank : result.ranks) {
    const int code = rank.end.code();
    if (rank.ended_by_launch || code == 0) continue;
    const bool replaces = worst == 0 || worst == core::kExitStoppedBySignal || code > worst;
    if (replaces && (code != core::kExitStoppedBySignal || worst == 0)) worst = code;
  }
  return worst;
}

std::optional<int> final_failure(const AttemptResult& result) {
  constexpr std::array kFinal{kWrongUse, kWrongData, 126, 127};  // shells: not executable, not found
  for (size_t i = 0; i < result.ranks.size(); ++i) {
    const RankEnd& rank = result.ranks[i];
    const bool ends_so_again = std::find(kFinal.begin(), kFinal.end(), rank.end.code()) != kFinal.end();
    if (ends_so_again && !rank.ended_by_launch) return static_cast<int>(i);
  }
  return std::nullopt;
}

AttemptResult run_attempt(const LaunchOptions& options, const RankCommand& command, const Network* network,
                          const std::vector<HostSlots>& hosts, int number, Terminal& terminal,
                          const core::StopToken& stop) {
  ::signal(SIGUSR2, remember_to_forward);
  return Attempt(options, command, network, hosts, number, terminal, stop).run();
}

}  // namespace trainyard::parallel
