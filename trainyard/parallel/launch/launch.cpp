#include "trainyard/parallel/launch/launch.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <optional>
#include <sstream>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/threads/signal_watcher.h"
#include "trainyard/parallel/launch/attempt.h"
#include "trainyard/parallel/launch/hosts.h"
#include "trainyard/parallel/launch/launch_folders.h"
#include "trainyard/parallel/launch/launch_messages.h"
#include "trainyard/parallel/launch/mpirun_command.h"
#include "trainyard/parallel/launch/terminal.h"

namespace trainyard::parallel {
namespace {

// Ranks that ran so long before they failed were well: the next restart need not wait long.
constexpr auto kSteadyRun = std::chrono::minutes(10);

core::Error wrong_launch(std::string problem, std::string actual, std::string remedy) {
  return {core::ErrorCode::kInvalidArgument,
          {.problem = std::move(problem), .actual = std::move(actual), .remedy = std::move(remedy)}};
}

bool is_on_path(const std::string& program) {
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (::access((folder + "/" + program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

std::optional<Network> network_of(const LaunchOptions& options) {
  return options.network.empty() ? std::nullopt : std::optional(find_network(options.network));
}

// The hosts by name, when the launch may have to continue without one of them.
std::vector<HostSlots> named_hosts(const LaunchOptions& options) {
  if (options.commands.size() == 1) return {};
  if (!options.hosts.empty()) return parse_hosts(options.hosts);
  if (options.host_file.empty()) return {};
  return parse_host_file(options.host_file, core::local_file_system().read_file(options.host_file));
}

// Puts a word in quotes where a shell would take it apart.
std::string shell_word(const std::string& word) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:,+%@^";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

// Puts the handler of the signal back that a launch passes on.
class KeepHandler {
 public:
  KeepHandler() { ::sigaction(SIGUSR2, nullptr, &before_); }
  ~KeepHandler() { ::sigaction(SIGUSR2, &before_, nullptr); }
  KeepHandler(const KeepHandler&) = delete;
  KeepHandler& operator=(const KeepHandler&) = delete;

 private:
  struct sigaction before_ {};
};

// Removes what launches that were killed together with their keepers have left.
void clean_up_after_others(Terminal& terminal) {
  std::error_code none;  // mpirun's start says it
  for (const std::string& base : {std::filesystem::temp_directory_path(none).string(), std::string("/dev/shm")}) {
    for (const std::string& folder : remove_abandoned_folders(base)) {
      terminal.write_line(fmt::format("removed {}, which a launch that was killed has left", folder));
    }
  }
}

// Returns false when a stop is asked for meanwhile.
bool wait_for_restart(double seconds, const core::StopToken& stop) {
  constexpr auto kLookForStop = std::chrono::milliseconds(50);
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < until && !stop.stop_requested()) std::this_thread::sleep_for(kLookForStop);
  return !stop.stop_requested();
}

// Runs an attempt. Returns nothing when mpirun did not start the ranks of a restart: a host may need time to boot.
std::optional<AttemptResult> run_restartable(const LaunchOptions& options, size_t command, const Network* network,
                                             const std::vector<HostSlots>& hosts, int restarts, Terminal& terminal,
                                             const core::StopToken& stop) {
  try {
    return run_attempt(options, options.commands[command], network, hosts, restarts + 1, terminal, stop);
  } catch (const core::Error& error) {
    const bool not_started = error.code() == core::ErrorCode::kPeerFailed || error.code() == core::ErrorCode::kTimeout;
    // Ranks that never ran have a wrong host or flag of mpirun rather than a host that boots.
    if (!not_started || restarts == 0 || restarts >= options.max_restarts) throw;
    terminal.write_line(error.what());
    return std::nullopt;
  }
}

// The ranks that a restart with fewer continues without: the first that failed, and where it was lost with its host all
// that were lost there.
std::vector<RankEnd> ranks_left_out(const AttemptResult& result, bool has_hosts) {
  const RankEnd& first = result.ranks[static_cast<size_t>(*result.first_failed)];
  if (!has_hosts || first.end.kind != ProcessEnd::Kind::kLost) return {first};
  std::vector<RankEnd> left_out;
  std::copy_if(result.ranks.begin(), result.ranks.end(), std::back_inserter(left_out), [&first](const RankEnd& each) {
    return each.end.kind == ProcessEnd::Kind::kLost && each.host == first.host && each.address == first.address;
  });
  return left_out;
}

// The host of rank 0; empty where none is named.
std::string first_host(const std::vector<HostSlots>& hosts) {
  return hosts.empty() ? "" : in_order_of_ranks(hosts).front().name;
}

// Returns the hosts without the slots of those ranks. Warns when that moves rank 0, which reads and writes the run.
std::vector<HostSlots> without_ranks(std::vector<HostSlots> hosts, const std::vector<RankEnd>& ranks,
                                     Terminal& terminal) {
  const std::string before = first_host(hosts);
  for (const RankEnd& rank : ranks) hosts = without_slot_of(std::move(hosts), rank.host, rank.address);
  const std::string now = first_host(hosts);
  if (now == before || now.empty()) return hosts;
  terminal.write_line(
      fmt::format("warning: rank 0 is on {} now, not on {}: it goes on with what was saved only where --train_dir is "
                  "there, too",
                  now, before));
  return hosts;
}

// The first command after `current` that so many ranks can run; the number of commands when there is none.
size_t next_command(const LaunchOptions& options, size_t current, int ranks) {
  size_t next = current + 1;
  while (next < options.commands.size() && options.commands[next].ranks > ranks) ++next;
  return next;
}

}  // namespace

double restart_delay(int failures) {
  constexpr double kFirst = 1, kLongest = 60;
  return std::min(std::ldexp(kFirst, std::clamp(failures - 1, 0, 30)), kLongest);
}

void LaunchOptions::validate() const {
  if (commands.empty() || commands[0].arguments.empty()) {
    throw wrong_launch("there is nothing to launch", "",
                       "write the command behind --: trainyard launch -n 2 -- train ...");
  }
  for (size_t i = 0; i < commands.size(); ++i) {
    const int most = i == 0 ? kMostRanks : commands[i - 1].ranks - 1;
    if (commands[i].ranks < 1 || commands[i].ranks > most) {
      throw wrong_launch("this is no number of ranks", std::to_string(commands[i].ranks),
                         fmt::format("use 1 to {}", most));
    }
  }
  for (const RankCommand& command : commands) {
    if (command.of_rank.empty() || std::ssize(command.of_rank) == command.ranks) continue;
    throw wrong_launch("further arguments are for another number of ranks", std::to_string(command.of_rank.size()),
                       "pass as many as there are ranks, or none");
  }
  if (!hosts.empty() && !host_file.empty()) {
    throw wrong_launch("--hosts and --hostfile are both given", "", "leave one of them out");
  }
  if (!hosts.empty()) parse_hosts(hosts);
  if (network.empty() && !(hosts.empty() && host_file.empty())) {
    throw wrong_launch("ranks on other hosts cannot reach a port on the loopback address", "no --network",
                       "name the network that the hosts share, such as --network=10.0.0.0/24");
  }
  if (commands.size() > 1 && max_restarts == 0) {
    throw wrong_launch("--min_ranks has no meaning without restarts", "", "pass --max_restarts, too");
  }
}

std::string LaunchOptions::name_of(size_t rank) const {
  return rank < names.size() ? fmt::format("{} (rank {})", names[rank], rank) : fmt::format("rank {}", rank);
}

int launch(const LaunchOptions& options, const core::StopToken& stop) {
  options.validate();
  if (!is_on_path("mpirun")) {
    throw core::Error(core::ErrorCode::kUnsupported,
                      {.problem = "trainyard launch needs mpirun, which PATH does not have",
                       .remedy = "install Open MPI (Debian: openmpi-bin)"});
  }
  const std::optional<Network> network = network_of(options);
  std::vector<HostSlots> hosts = named_hosts(options);
  const KeepHandler keep;
  Terminal terminal;
  if (network && !network->is_loopback) {
    terminal.write_line(
        fmt::format("warning: launch and mpirun listen on {}, Open MPI's daemons and ranks on all addresses of "
                    "their hosts: whoever reaches them can speak to them",
                    network->own_address));
  }
  if (loopback_preload_path().empty()) {
    terminal.write_line(
        "warning: mpirun listens on all addresses of this host: libtrainyard_loopback.so is not beside the library");
  }
  clean_up_after_others(terminal);
  size_t next = 0;   // of options.commands
  int failures = 0;  // one soon after the other
  for (int restarts = 0;; ++restarts) {
    const auto began = std::chrono::steady_clock::now();
    const std::optional<AttemptResult> attempted =
        run_restartable(options, next, network ? &*network : nullptr, next == 0 ? std::vector<HostSlots>() : hosts,
                        restarts, terminal, stop);
    const AttemptResult result = attempted.value_or(AttemptResult());
    const int code = attempted ? worst_exit_code(result) : 1;
    const bool failed = code != 0 && code != core::kExitStoppedBySignal && !result.stopped;
    const std::optional<int> lasting = final_failure(result);
    if (failed && lasting && options.max_restarts > 0) {
      terminal.write_line(fmt::format("{} {}: it would fail in the same way again, so there is no restart",
                                      options.name_of(static_cast<size_t>(*lasting)),
                                      result.ranks[static_cast<size_t>(*lasting)].end.description()));
    }
    const bool again = failed && !lasting && restarts < options.max_restarts;
    const bool fewer = options.commands.size() > 1 && result.first_failed.has_value();
    const std::vector<RankEnd> left_out = fewer ? ranks_left_out(result, !hosts.empty()) : std::vector<RankEnd>();
    const size_t smaller =
        fewer ? next_command(options, next, options.commands[next].ranks - static_cast<int>(left_out.size())) : next;
    if (again && smaller == options.commands.size()) {
      terminal.write_line(fmt::format("fewer than {} ranks are left", options.commands.back().ranks));
    } else if (again) {
      hosts = without_ranks(std::move(hosts), left_out, terminal);
      next = smaller;
      const bool soon = std::chrono::steady_clock::now() - began < kSteadyRun;
      failures = soon ? failures + 1 : 1;
      const double delay = restart_delay(failures);
      terminal.write_line(fmt::format("starting again with {} ranks, restart {} of {}, in {:g} s",
                                      options.commands[next].ranks, restarts + 1, options.max_restarts, delay));
      terminal.finish();
      if (wait_for_restart(delay, stop)) continue;
      terminal.write_line("asked to stop before the restart");
      terminal.finish();
      return core::kExitStoppedBySignal;
    }
    terminal.finish();
    // Nothing is lost when ranks were stopped before they had begun.
    return result.stopped && code == 1 && !result.first_failed ? core::kExitStoppedBySignal : code;
  }
}

std::string launch_command_lines(const LaunchOptions& options) {
  options.validate();
  const std::optional<Network> network = network_of(options);
  const std::string folder = std::filesystem::path(temporary_folder()) / "trainyard-launch-XXXXXX";
  std::string lines;
  for (const RankCommand& command : options.commands) {
    std::vector<std::string> words = mpirun_command(options, command, network ? &*network : nullptr, {},
                                                    {.session = folder, .memory = "/dev/shm/trainyard-launch-XXXXXX"});
    std::transform(words.begin(), words.end(), words.begin(), shell_word);
    lines += fmt::format("{}\n", fmt::join(words, " "));
  }
  return lines;
}

}  // namespace trainyard::parallel
