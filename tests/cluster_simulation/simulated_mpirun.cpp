// mpirun and its daemons on other machines, as launch needs them: they start agents, tell each other of ends, and end
// agents as Open MPI does.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "tests/cluster_simulation/launch.h"
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/sockets/socket.h"
#include "trainyard/parallel/launch/hosts.h"
#include "trainyard/parallel/launch/process.h"

namespace trainyard::cluster_simulation {
namespace {

using Words = std::vector<std::string>;
using Clock = std::chrono::steady_clock;

// The agents that a process has started, as mpirun and its daemons do.
class Agents {
 public:
  void start(const Words& words, int rank, size_t ranks, Words variables, bool to_own_streams) {
    variables.push_back(fmt::format("OMPI_COMM_WORLD_RANK={}", rank));
    variables.push_back(fmt::format("OMPI_COMM_WORLD_SIZE={}", ranks));
    all_.push_back(parallel::start_process({.arguments = words,
                                            .with = variables,
                                            .output = to_own_streams ? STDOUT_FILENO : -1,
                                            .error = to_own_streams ? STDERR_FILENO : -1}));
  }
  void look() {
    for (pid_t ended = 0; (ended = ::waitpid(-1, nullptr, WNOHANG)) > 0;) std::erase(all_, ended);
    if (term_at_ && !termed_ && Clock::now() >= *term_at_) {
      termed_ = true;
      signal(SIGTERM);
    }
    if (is_killing()) signal(SIGKILL);
  }
  // Sends SIGTERM, a second later or at once, and SIGKILL another second later. Open MPI 4.1.4 was seen to do so: at
  // once in its daemons when mpirun has gone.
  void end(bool at_once) {
    const auto time = Clock::now() + std::chrono::seconds(at_once ? 0 : 1);
    if (!term_at_ || time < *term_at_) term_at_ = time;
  }
  bool is_ending() const { return term_at_.has_value(); }
  bool is_killing() const { return term_at_ && Clock::now() >= *term_at_ + std::chrono::seconds(1); }
  bool all_ended() const { return all_.empty(); }

 private:
  void signal(int number) {
    for (const pid_t each : std::vector(all_)) ::kill(each, number);
  }
  std::vector<pid_t> all_;
  std::optional<Clock::time_point> term_at_;
  bool termed_ = false;
};

// What mpirun and its daemons say to each other, as kinds of frames.
enum Said : uint8_t { kMachine = 1, kDone, kEnd };
constexpr size_t kLongestSaid = 64;
constexpr int kLook = 20;  // milliseconds

struct DaemonTask {
  Words words, variables;
  std::vector<int> ranks;
  size_t all = 0;
  uint16_t port = 0;  // of mpirun
};

int run_daemon(LaunchJob& job, const DaemonTask& task) {
  const int machine = own_process().machine->number;
  core::FrameConnection line(core::connect_to(job.world.machine(0).name, task.port, std::chrono::milliseconds(3000)),
                             kLongestSaid);
  line.send(kMachine, std::to_string(machine));
  line.flush();
  Agents agents;
  for (const int rank : task.ranks) agents.start(task.words, rank, task.all, task.variables, false);
  bool open = true, done = false;
  while (true) {
    pollfd source{.fd = open ? line.descriptor() : -1, .events = POLLIN, .revents = 0};
    ::poll(&source, 1, kLook);
    std::vector<core::Frame> frames;
    if (open) open = line.flush() && line.receive(frames);
    const bool told = std::any_of(frames.begin(), frames.end(), [](const auto& each) { return each.kind == kEnd; });
    if (!open || told) agents.end(!open);
    agents.look();
    if (agents.all_ended() && !std::exchange(done, true)) line.send(kDone, "");
    if (agents.all_ended() && !open) return 0;
  }
}

// Notes that mpirun starts, with ranks on these machines.
void begin_start(LaunchJob& job, const std::vector<int>& machines) {
  job.started_at = job.world.now();
  if (++job.starts > 1) {
    if (job.starts > 1 + job.options.max_restarts) job.problem("mpirun is started too often");
    job.earlier = std::move(job.runs);  // what ranks write is still added to these
    job.runs.clear();
    for (const int machine : machines)
      job.runs.push_back({.plan = job.plan_of_restart(job.runs.size()), .machine = machine});
  }
  for (size_t rank = 0; rank < job.runs.size(); ++rank) {
    if (rank >= machines.size() || job.runs[rank].machine != machines[rank]) job.problem("mpirun is told other hosts");
  }
}

class Mpirun {
 public:
  Mpirun(LaunchJob& job, const Words& words) : job_(job) { read(words); }

  int run() {
    own_process().on_signal = [this](int signal) {
      if (signal != SIGUSR1) asked_to_end_ = true;
    };
    listening_ = core::listen_at("machine-0", 0);
    std::this_thread::sleep_for(std::chrono::nanoseconds(job_.time_to_begin));
    start();
    while (true) {
      turn();
      const bool daemons_ended =
          std::all_of(daemons_.begin(), daemons_.end(), [this](const Daemon& each) { return has_ended(each); });
      const bool over = local_.all_ended() && daemons_ended;
      if (over && (!local_.is_ending() || told_)) return local_.is_ending() ? 1 : 0;
    }
  }

 private:
  struct Daemon {
    int machine = 0;
    std::unique_ptr<core::FrameConnection> line;
    bool done = false, lost = false;
  };

  // A daemon whose login is under way is not waited for at the end.
  bool has_ended(const Daemon& each) const {
    return each.done || each.lost || (local_.is_ending() && each.line == nullptr);
  }

  void read(const Words& words) {
    const Words without_value{"--enable-recovery", "--oversubscribe"};
    size_t i = 1;
    for (; i < words.size() && words[i].starts_with("-"); ++i) {
      if (std::find(without_value.begin(), without_value.end(), words[i]) != without_value.end()) continue;
      const std::string& flag = words[i++];
      if (flag == "-n") ranks_ = std::stoul(words[i]);
      if (flag == "--host") hosts_ = parallel::parse_hosts(words[i]);
      if (flag != "-x") continue;
      const bool has_value = words[i].find('=') != std::string::npos;
      variables_.push_back(has_value ? words[i] : fmt::format("{}={}", words[i], std::getenv(words[i].c_str())));
    }
    words_.assign(words.begin() + static_cast<std::ptrdiff_t>(i), words.end());
    std::vector<int> machines;
    for (const parallel::HostSlots& host : hosts_) {
      int machine = 0;  // "localhost"
      std::sscanf(host.name.c_str(), "machine-%d", &machine);
      machines.insert(machines.end(), static_cast<size_t>(host.slots), machine);
    }
    begin_start(job_, machines);
  }

  void start() {
    const auto machines = static_cast<int>(job_.times_to_log_in.size());
    for (int machine = 0; machine < machines; ++machine) {
      DaemonTask task{.words = words_, .variables = variables_, .all = ranks_, .port = core::port_of(listening_)};
      for (size_t rank = 0; rank < ranks_; ++rank) {
        if (job_.runs[rank].machine == machine) task.ranks.push_back(static_cast<int>(rank));
      }
      if (machine == 0) {
        for (const int rank : task.ranks) local_.start(words_, rank, ranks_, variables_, true);
        continue;
      }
      daemons_.push_back({.machine = machine});
      job_.daemons[static_cast<size_t>(machine)] = nullptr;
      World& world = job_.world;
      const Nanos time = world.now() + job_.times_to_log_in[static_cast<size_t>(machine)];
      world.at(time, [&job = job_, &world, &mpirun = own_process(), machine, task = std::move(task)] {
        if (mpirun.ended || world.network->is_cut(0, machine)) return;
        Process& daemon = world.start_process("daemon", machine, [&job, task] {
          try {
            run_daemon(job, task);
          } catch (const core::Error&) {  // mpirun has gone
          }
        });
        set_environment(daemon, {"PATH=/bin"});
        job.daemons[static_cast<size_t>(machine)] = &daemon;
      });
    }
  }

  void turn() {
    std::vector<pollfd> sources{{.fd = listening_.descriptor(), .events = POLLIN, .revents = 0}};
    for (const Daemon& each : daemons_) {
      if (each.line) sources.push_back({.fd = each.line->descriptor(), .events = POLLIN, .revents = 0});
    }
    ::poll(sources.data(), sources.size(), kLook);
    while (auto socket = core::accept_from(listening_)) {
      fresh_.push_back(std::make_unique<core::FrameConnection>(std::move(*socket), kLongestSaid));
    }
    meet();
    for (Daemon& each : daemons_) listen_to(each);
    if (asked_to_end_) local_.end(false);
    if (local_.is_killing() && !std::exchange(told_, true)) {
      for (Daemon& each : daemons_) {
        if (each.line != nullptr) each.line->send(kEnd, "");
      }
    }
    local_.look();
  }

  // Finds out which daemons have connected. Others are strangers.
  void meet() {
    for (auto& line : fresh_) {
      std::vector<core::Frame> frames;
      try {
        if (!line->receive(frames) && frames.empty()) line.reset();
      } catch (const core::Error&) {
        line.reset();
      }
      if (frames.empty() || frames[0].kind != kMachine) continue;
      for (Daemon& each : daemons_) {
        if (std::to_string(each.machine) == frames[0].body) each.line = std::move(line);
      }
    }
    std::erase(fresh_, nullptr);
  }

  void listen_to(Daemon& daemon) {
    if (daemon.lost) return;
    if (daemon.line == nullptr) {
      const Process* const process = job_.daemons[static_cast<size_t>(daemon.machine)];
      const bool login_ends = process != nullptr && process->ended && !job_.network.is_cut(0, daemon.machine);
      if (login_ends) lose(daemon);
      return;
    }
    std::vector<core::Frame> frames;
    const bool open = daemon.line->flush() && daemon.line->receive(frames);
    for (const core::Frame& frame : frames) daemon.done = daemon.done || frame.kind == kDone;
    if (!open) lose(daemon);
  }

  void lose(Daemon& daemon) {
    daemon.lost = true;
    daemon.line.reset();
    if (daemon.done || local_.is_ending()) return;
    write_all(STDERR_FILENO, "ORTE has lost communication ");
    write_all(STDERR_FILENO, "with a remote daemon.\n");
    local_.end(false);
  }

  LaunchJob& job_;
  size_t ranks_ = 0;
  Words words_, variables_;
  std::vector<parallel::HostSlots> hosts_;
  core::Socket listening_;
  Agents local_;
  std::vector<Daemon> daemons_;
  std::vector<std::unique_ptr<core::FrameConnection>> fresh_;  // have not said who they are
  bool asked_to_end_ = false, told_ = false;
};

}  // namespace

int run_mpirun(LaunchJob& job, const Words& words) {
  return Mpirun(job, words).run();
}

}  // namespace trainyard::cluster_simulation
