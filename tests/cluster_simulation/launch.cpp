// A simulated `trainyard launch`: draws its ranks and what happens to it. Promises, which launch_judge.cpp looks at:
//
//   - Launch ends within its deadlines behind a fault, and with the code that it documents.
//   - It names the rank that failed first, and how that ended.
//   - Each line that a rank has written is printed whole, once, and in its order. With a fault lines may be missing at
//     the end, and none is cut, doubled or of another rank.
//   - When launch has ended, whatever has ended it, all that it has started ends with it, on all machines.
//   - A stop reaches all ranks; strangers change nothing.
#include "tests/cluster_simulation/launch.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "tests/cluster_simulation/attempt.h"
#include "tests/cluster_simulation/launch_judge.h"
#include "tests/cluster_simulation/scenario.h"
#include "tests/cluster_simulation/stream.h"
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "trainyard/core/sockets/socket.h"

namespace trainyard::cluster_simulation {
namespace {

constexpr int kMostMachines = 3, kMostRanks = 5;
constexpr int kOutputEnd = 10, kErrorEnd = 11;  // descriptors of the terminal

class Simulation {
 public:
  explicit Simulation(const SeedOptions& options)
      : draws_(options.seed * 2 + 1),
        machines_(static_cast<int>(draws_.between(1, kMostMachines))),
        world_({.seed = options.seed,
                .machines = machines_ + 1,  // and one of no rank
                .switch_chance = pick<double>(draws_, {0, 0, 0.02, 0.2}),
                .trace = options.trace}),
        network_(world_, draw_network(draws_)),
        job_(world_, network_),
        judge_(job_, facts_) {
    world_.find_program = [this](const std::vector<std::string>& words) { return find_launch_program(job_, words); };
    draw_fault();
    draw_options();
    draw_ranks();
    reader_takes_ = pick<size_t>(draws_, {64, 4096, 65'536});
    reader_rests_ = pick<Nanos>(draws_, {0, 0, 2 * kMillisecond});
  }

  SeedReport run() {
    start();
    at(facts_.fault_at, [this] { strike(); });
    at(time_to_stop(), [this] { stop(SIGTERM); });
    if (draws_.chance(0.3)) {
      for (int i = static_cast<int>(draws_.between(1, 3)); i > 0; --i) start_launch_stranger(job_, draws_, machines_);
    }
    run_until_end();
    if (job_.problems.empty()) run_until_gone();
    return report_of(
        world_, job_.problems,
        fmt::format("{} ranks on {} machines{}{}{}: {}", job_.options.commands[0].ranks, machines_,
                    job_.options.network.empty() ? ", without a network" : "",
                    job_.options.max_restarts > 0 ? ", a restart" : "",
                    job_.options.commands.size() > 1 ? " with fewer" : "", launch_fault_name(facts_.fault)));
  }

 private:
  void at(Nanos time, std::function<void()> event) { world_.at(facts_.begin + time, std::move(event)); }

  void draw_fault() {
    facts_.fault = static_cast<LaunchFault>(draws_.below(static_cast<uint64_t>(LaunchFault::kCount)));
    const bool of_machine = facts_.fault == LaunchFault::kMachine || facts_.fault == LaunchFault::kCut ||
                            facts_.fault == LaunchFault::kBriefCut || facts_.fault == LaunchFault::kReset;
    if (of_machine && machines_ == 1) facts_.fault = LaunchFault::kKillAgent;
    facts_.fault_at = draws_.between(0, draws_.chance(0.2) ? 300 * kMillisecond : 3 * kSecond);
    facts_.victim_machine = static_cast<int>(draws_.below(static_cast<uint64_t>(machines_)));
    if (facts_.fault == LaunchFault::kReset && facts_.victim_machine == 0) facts_.victim_machine = 1;
  }

  void draw_options() {
    const bool is_local = machines_ == 1 && draws_.chance(0.7);
    parallel::LaunchOptions& options = job_.options;
    const int ranks = static_cast<int>(draws_.between(machines_, kMostRanks));
    for (int rank = 0; rank < ranks; ++rank) job_.runs.push_back({.machine = rank * machines_ / ranks});
    for (int machine = 0; machine < machines_; ++machine) {
      const auto slots = std::count_if(job_.runs.begin(), job_.runs.end(),
                                       [machine](const RankRun& each) { return each.machine == machine; });
      options.hosts += fmt::format("{}{}:{}", machine == 0 ? "" : ",", world_.machine(machine).name, slots);
      job_.daemons.push_back(nullptr);
      job_.times_to_log_in.push_back(draws_.between(5, 200) * kMillisecond);
    }
    if (is_local) options.hosts.clear();
    if (!is_local) options.network = "10.0.0.0/24";
    const bool has_program = facts_.fault != LaunchFault::kNoProgram;
    options.commands = {{.ranks = ranks, .arguments = {has_program ? "rank" : "nowhere"}}};
    options.trainyard = "trainyard";
    const bool can_restart = facts_.fault == LaunchFault::kFailure || facts_.fault == LaunchFault::kKillRank ||
                             facts_.fault == LaunchFault::kKillAgent;
    if (can_restart && draws_.chance(0.5)) {
      options.max_restarts = 1;
      if (ranks > 1 && draws_.chance(0.5)) options.commands.push_back({.ranks = ranks - 1, .arguments = {"rank"}});
    }
    job_.plan_of_restart = [this](size_t rank) {
      RankPlan plan;
      draw_writes(plan, rank);
      return plan;
    };
    const bool is_slow = facts_.fault == LaunchFault::kSlowReader;
    options.start_timeout = is_slow ? 12 : 4;
    options.failure_timeout = 0.1 * static_cast<double>(draws_.between(5, 30)) + (is_slow ? 10 : 0);
    options.stop_timeout = 0.1 * static_cast<double>(draws_.between(5, 30)) + (is_slow ? 10 : 0);
    facts_.victim = static_cast<int>(draws_.below(job_.runs.size()));
    if (facts_.fault == LaunchFault::kSlowStart) {
      const Nanos late = draws_.between(3500, 6000) * kMillisecond;
      (machines_ > 1 ? job_.times_to_log_in.back() : job_.time_to_begin) = late;
    }
  }

  // Whether launch is certain to end ranks that never end.
  bool ends_all() const {
    switch (facts_.fault) {
      case LaunchFault::kNone:
      case LaunchFault::kPauseAgent:
      case LaunchFault::kPauseLaunch:
      case LaunchFault::kBriefCut:
      case LaunchFault::kUserSignal:
      case LaunchFault::kSlowStart:
      case LaunchFault::kSlowReader:
        return false;
      default:
        return true;
    }
  }

  void draw_ranks() {
    for (size_t rank = 0; rank < job_.runs.size(); ++rank) {
      RankPlan& plan = job_.runs[rank].plan;
      using OnStop = RankPlan::OnStop;
      plan.on_stop = pick(draws_, {OnStop::kSaves, OnStop::kSaves, OnStop::kEnds, OnStop::kIgnores});
      plan.time_to_save = draws_.between(0, draws_.chance(0.1) ? 1800 : 400) * kMillisecond;
      plan.leaves_child = draws_.chance(0.3);
      draw_writes(plan, rank);
      const bool fails =
          facts_.fault == LaunchFault::kFailure && (static_cast<int>(rank) == facts_.victim || draws_.chance(0.5));
      if (fails) {
        plan.end = pick(draws_, {RankPlan::End::kCode, RankPlan::End::kSignal});
        plan.value = plan.end == RankPlan::End::kCode ? pick(draws_, {1, 2, 3, 65, 255})
                                                      : pick(draws_, {SIGSEGV, SIGABRT, SIGKILL});
      } else if (ends_all() && draws_.chance(0.6)) {
        plan.end = RankPlan::End::kEndless;
      }
    }
  }

  void draw_writes(RankPlan& plan, size_t rank) {
    const bool is_heavy = draws_.chance(0.15);
    is_heavy_ = is_heavy_ || is_heavy;
    const int64_t lines = draws_.between(0, is_heavy ? 60 : 20);
    const Nanos pause = is_heavy ? 0 : draws_.between(0, 200) * kMillisecond;
    for (int64_t i = 0; i < lines; ++i) {
      const bool is_error = draws_.chance(0.4);
      const int64_t length = is_heavy ? draws_.between(1000, 60'000) : draws_.chance(0.1) ? 0 : draws_.between(0, 300);
      std::string text = fmt::format("rank {} stream {} line {} {}", rank, is_error ? 2 : 1, i,
                                     std::string(static_cast<size_t>(length), static_cast<char>('a' + i % 26)));
      if (i + 1 < lines || draws_.chance(0.7)) text += '\n';
      // In parts: lines of the other stream come between them.
      while (!text.empty()) {
        const size_t part = draws_.chance(0.3) ? 1 + draws_.below(text.size()) : text.size();
        plan.writes.push_back({.pause = draws_.between(0, pause), .is_error = is_error, .text = text.substr(0, part)});
        text.erase(0, part);
      }
    }
  }

  // How long a user waits before he asks launch to stop.
  Nanos time_to_stop() const {
    const bool waits_for_silence = facts_.fault == LaunchFault::kMachine || facts_.fault == LaunchFault::kCut;
    return (waits_for_silence ? 120 : 30) * kSecond;
  }

  void start() {
    facts_.begin = world_.now();
    std::array<std::shared_ptr<PipeEnd>, 2> writes;
    terminal_ = &world_.start_process("terminal", 0, [this] { read_output(); });
    job_.launch =
        &world_.start_process("launch", 0, [this] { world_.end_own_process((run_launch(job_) & 0xff) << 8); });
    set_environment(*job_.launch, {"PATH=/bin"});
    const auto give = [](Process& process, int number, std::shared_ptr<Descriptor> descriptor) {
      descriptor->hold();
      process.descriptors[number] = std::move(descriptor);
    };
    give(*job_.launch, STDIN_FILENO, std::make_shared<NullDevice>());
    for (int stream = 0; stream < 2; ++stream) {
      const auto [reads, writes_end] = make_pipe(world_);
      give(*terminal_, stream == 0 ? kOutputEnd : kErrorEnd, reads);
      give(*job_.launch, 1 + stream, writes_end);
    }
  }

  void read_output() {
    std::array<pollfd, 2> ends{pollfd{.fd = kOutputEnd, .events = POLLIN, .revents = 0},
                               pollfd{.fd = kErrorEnd, .events = POLLIN, .revents = 0}};
    std::vector<char> bytes(size_t{1} << 16);
    while (ends[0].fd >= 0 || ends[1].fd >= 0) {
      world_.sleep_until(std::max(world_.now() + reader_rests_, reader_pauses_until_));
      if (::poll(ends.data(), ends.size(), -1) <= 0) continue;
      for (size_t i = 0; i < ends.size(); ++i) {
        if (ends[i].fd < 0 || ends[i].revents == 0) continue;
        const ssize_t count = ::read(ends[i].fd, bytes.data(), is_heavy_ ? bytes.size() : reader_takes_);
        if (count == 0) ends[i].fd = -1;
        if (count <= 0) continue;
        const std::string text(bytes.data(), static_cast<size_t>(count));
        facts_.printed.at(i) += text;
        if (i == 1 && !text.starts_with("[")) world_.trace("reads:", text);
      }
    }
  }

  // Lets the fault happen as soon as what it meets has begun.
  void strike() {
    if (job_.launch->ended || !strikes_now()) return;
    facts_.fault_at = world_.now();
    world_.trace("fault:", launch_fault_name(facts_.fault));
    const RankRun& run = job_.runs[static_cast<size_t>(facts_.victim)];
    const Nanos brief = draws_.between(100, 3000) * kMillisecond;
    facts_.happened = true;
    for (const RankRun& each : job_.runs) facts_.had_begun.push_back(each.process != nullptr);
    switch (facts_.fault) {
      case LaunchFault::kKillRank:
        return world_.send_signal(*run.process, SIGKILL);
      case LaunchFault::kKillAgent:
        return world_.kill(*run.agent);
      case LaunchFault::kFreezeAgent:
        return world_.freeze(*run.agent);
      case LaunchFault::kPauseAgent:
        return pause(*run.agent, brief);
      case LaunchFault::kFreezeLaunch:
        world_.freeze(*job_.launch);
        return world_.at(world_.now() + kFrozenLaunch, [this] { world_.kill(*job_.launch); });
      case LaunchFault::kPauseLaunch:
        return pause(*job_.launch, brief);
      case LaunchFault::kMachine:
        return lose_power(facts_.victim_machine);
      case LaunchFault::kCut:
        return cut(facts_.victim_machine, true);
      case LaunchFault::kBriefCut:
        cut(facts_.victim_machine, true);
        facts_.fault_ends = world_.now() + brief;
        return world_.at(facts_.fault_ends, [this] { cut(facts_.victim_machine, false); });
      case LaunchFault::kReset:
        return network_.reset(0, facts_.victim_machine);
      case LaunchFault::kKillLaunch:
        return world_.kill(*job_.launch);
      case LaunchFault::kKillKeeper:
        return world_.kill(*job_.keeper);
      case LaunchFault::kKillMpirun:
        return world_.kill(*job_.mpirun);
      case LaunchFault::kStop:
        return stop(pick(draws_, {SIGTERM, SIGINT, SIGUSR1}));
      case LaunchFault::kSecondStop:
        stop(SIGTERM);
        return world_.at(world_.now() + draws_.between(1, 500) * kMillisecond, [this] {
          facts_.fault_at = world_.now();
          world_.send_signal(*job_.launch, SIGTERM);
        });
      case LaunchFault::kUserSignal:
        note_who_runs();
        return world_.send_signal(*job_.launch, SIGUSR2);
      case LaunchFault::kSlowReader:
        reader_pauses_until_ = facts_.fault_ends = world_.now() + brief;
        return;
      case LaunchFault::kNoReader:
        return world_.kill(*terminal_);
      default:
        facts_.happened = false;
        return;
    }
  }

  // Returns false, and tries again later, while what the fault meets has not begun.
  bool strikes_now() {
    const RankRun& run = job_.runs[static_cast<size_t>(facts_.victim)];
    const Process* wanted = job_.launch;
    if (facts_.fault == LaunchFault::kKillRank) wanted = run.process;
    if (facts_.fault == LaunchFault::kKillAgent || facts_.fault == LaunchFault::kFreezeAgent ||
        facts_.fault == LaunchFault::kPauseAgent) {
      wanted = run.agent;
    }
    if (facts_.fault == LaunchFault::kKillKeeper) wanted = job_.keeper;
    if (facts_.fault == LaunchFault::kKillMpirun) wanted = job_.mpirun;
    if (job_.starts > 1) return false;
    if (wanted == nullptr) world_.at(world_.now() + 20 * kMillisecond, [this] { strike(); });
    return wanted != nullptr && !wanted->ended;
  }

  void pause(Process& process, Nanos time) {
    world_.freeze(process);
    facts_.fault_ends = world_.now() + time;
    world_.at(facts_.fault_ends, [this, &process] { world_.thaw(process); });
  }

  void cut(int machine, bool is_cut) {
    for (int other = 0; other <= machines_; ++other) {
      if (is_cut) network_.cut(machine, other);
      if (is_cut) network_.cut(other, machine);
      if (!is_cut) network_.mend(machine, other);
      if (!is_cut) network_.mend(other, machine);
    }
  }

  void lose_power(int machine) {
    cut(machine, true);
    for (size_t i = 0; i < world_.processes().size(); ++i) {
      Process& process = *world_.processes()[i];
      if (process.machine->number == machine) world_.kill(process);
    }
  }

  void stop(int signal) {
    if (job_.launch->ended || facts_.stop_at != kNever) return;
    facts_.stop_signal = signal;
    facts_.stop_at = world_.now();
    note_who_runs();
    world_.send_signal(*job_.launch, signal);
  }

  void note_who_runs() {
    for (const RankRun& run : job_.runs) facts_.ran_at_stop.push_back(run.process != nullptr && !run.process->ended);
    facts_.noted_at = world_.now();
  }

  void run_until_end() {
    constexpr Nanos kLook = 100 * kMillisecond;
    Nanos before = -1;
    while (!job_.launch->ended) {
      const bool nothing_happens = std::exchange(before, world_.now()) == world_.now();
      if (nothing_happens || world_.now() > judge_.latest_end()) {
        return job_.problem(fmt::format("launch has not ended after {:.1f} s, {:.1f} s behind the fault\n{}",
                                        seconds_since(facts_.begin), seconds_since(facts_.fault_at),
                                        world_.describe_threads()));
      }
      world_.run(world_.now() + kLook, [this] { return job_.launch->ended; });
    }
  }

  void run_until_gone() {
    world_.run(judge_.all_gone_by(), [] { return false; });
    world_.run(judge_.all_silent_gone_by(), [this] { return judge_.left_over().empty(); });
    judge_.judge_what_is_left();
    world_.run(reader_pauses_until_ + 10 * kSecond, [this] { return terminal_->ended; });
    judge_.judge();
  }

  double seconds_since(Nanos time) const { return static_cast<double>(world_.now() - time) / kSecond; }

  RandomDraws draws_;
  const int machines_;
  World world_;
  Network network_;
  LaunchJob job_;
  LaunchFacts facts_;
  LaunchJudge judge_;
  Process* terminal_ = nullptr;
  bool is_heavy_ = false;  // ranks write more than a slow reader could take
  size_t reader_takes_ = 0;
  Nanos reader_rests_ = 0, reader_pauses_until_ = 0;
};

}  // namespace

SeedReport simulate_launch(const SeedOptions& options) {
  // What the simulated processes have left on their stacks is not taken down.
  return (new Simulation(options))->run();
}

}  // namespace trainyard::cluster_simulation
