// Simulates clusters, a seed at a time, and looks whether they keep their promises: docs/design/simulated_cluster.md.
//
// usage: trainyard_cluster_simulation [--scenario=training|servers|checkpoints|launch|all] [--seeds=N] [--first=SEED]
//        trainyard_cluster_simulation --scenario=training --seed=7 [--trace]     replays one, and prints what happened
//        trainyard_cluster_simulation --check-planted=FILE [--seeds=N]   finds each mistake of the list within N seeds
//
// Each seed runs in a process of its own, so all begin alike, and one that crashes or never ends is a failing seed.
// Exits with 1 when a seed has failed.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/cluster_simulation/planted.h"
#include "tests/cluster_simulation/scenario.h"
#include <ATen/Parallel.h>
#include <ATen/ops/ones.h>
#include <fmt/format.h>
#include <omp.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trainyard/core/base/log.h"

namespace trainyard::cluster_simulation {

void prepare_c_library();  // c_library_threads.cpp

namespace {

// For a seed: of the processor, and of the machine's time, which only a process that waits for ever needs.
constexpr unsigned kLongestProcessorSeconds = 60, kLongestSeconds = 600;

struct Scenario {
  std::string name;
  SeedReport (*simulate)(const SeedOptions&);
};

const std::vector<Scenario>& scenarios() {
  static const std::vector<Scenario> all = {{"training", simulate_training},
                                            {"servers", simulate_servers},
                                            {"checkpoints", simulate_checkpoints},
                                            {"launch", simulate_launch}};
  return all;
}

// What a seed's process says to the one that started it.
struct Outcome {
  std::string problem;  // empty: none
  std::string summary;
  uint64_t trace_hash = 0, switches = 0;
  int64_t simulated_nanos = 0;
};

Outcome run_here(const Scenario& scenario, uint64_t seed, bool trace) {
  const SeedReport report = scenario.simulate({.seed = seed, .trace = trace});
  Outcome outcome{.problem = "",
                  .summary = report.summary,
                  .trace_hash = report.trace_hash,
                  .switches = report.switches,
                  .simulated_nanos = report.simulated_nanos};
  for (const std::string& problem : report.problems)
    outcome.problem += (outcome.problem.empty() ? "" : "\n  ") + problem;
  return outcome;
}

std::string read_all(int descriptor) {
  std::string text;
  char buffer[4096];
  ssize_t count = 0;
  while ((count = ::read(descriptor, buffer, sizeof(buffer))) > 0) text.append(buffer, static_cast<size_t>(count));
  return text;
}

// Ends this process by a signal when it takes too long. Another process's load must not end it: seeds run beside
// builds.
void limit_time() {
  const itimerval processor{.it_interval = {}, .it_value = {.tv_sec = kLongestProcessorSeconds, .tv_usec = 0}};
  ::setitimer(ITIMER_PROF, &processor, nullptr);
  ::alarm(kLongestSeconds);
}

// Says why a seed's process ended before its report.
std::string end_of(int status) {
  if (!WIFSIGNALED(status)) return fmt::format("it has ended with code {}", WEXITSTATUS(status));
  switch (WTERMSIG(status)) {
    case SIGPROF:
      return fmt::format("it has not ended within {} s of a processor", kLongestProcessorSeconds);
    case SIGALRM:
      return fmt::format("it has not ended within {} s of the machine's time", kLongestSeconds);
    default:
      return fmt::format("it has crashed ({})", ::strsignal(WTERMSIG(status)));
  }
}

Outcome run_apart(const Scenario& scenario, uint64_t seed, bool trace = false) {
  int ends[2] = {-1, -1};
  if (::pipe(ends) != 0) throw std::runtime_error("no pipe");
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("no process");
  if (child == 0) {
    ::close(ends[0]);
    limit_time();
    at::set_num_threads(
        1);  // LibTorch makes its thread pool again in a forked process, which no simulated thread may do
    const Outcome outcome = run_here(scenario, seed, trace);
    std::fflush(stdout);
    const std::string text = fmt::format("{} {} {}\n{}\n{}", outcome.trace_hash, outcome.switches,
                                         outcome.simulated_nanos, outcome.summary, outcome.problem);
    const ssize_t written = ::write(ends[1], text.data(), text.size());
    ::_exit(written == static_cast<ssize_t>(text.size()) ? 0 : 3);
  }
  ::close(ends[1]);
  std::istringstream text(read_all(ends[0]));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  Outcome outcome;
  if (WIFSIGNALED(status) || WEXITSTATUS(status) != 0) {
    outcome.problem = end_of(status);
    return outcome;
  }
  text >> outcome.trace_hash >> outcome.switches >> outcome.simulated_nanos;
  text.ignore();
  std::getline(text, outcome.summary);
  std::getline(text, outcome.problem, '\0');
  return outcome;
}

struct Flags {
  std::string scenario = "all", planted_list, plant;
  uint64_t first = 1, seeds = 200;
  std::optional<uint64_t> seed;
  bool trace = false, twice = false;
};

std::optional<std::string> value_of(const std::string& argument, const std::string& flag) {
  if (argument.rfind("--" + flag + "=", 0) != 0) return std::nullopt;
  return argument.substr(flag.size() + 3);
}

Flags read_flags(int count, char** arguments) {
  Flags flags;
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
    if (argument == "--trace") {
      flags.trace = true;
    } else if (argument == "--twice") {
      flags.twice = true;
    } else if (const auto scenario = value_of(argument, "scenario")) {
      flags.scenario = *scenario;
    } else if (const auto list = value_of(argument, "check-planted")) {
      flags.planted_list = *list;
    } else if (const auto name = value_of(argument, "plant")) {
      flags.plant = *name;
    } else if (const auto seed = value_of(argument, "seed")) {
      flags.seed = std::stoull(*seed);
    } else if (const auto seeds = value_of(argument, "seeds")) {
      flags.seeds = std::stoull(*seeds);
    } else if (const auto first = value_of(argument, "first")) {
      flags.first = std::stoull(*first);
    } else {
      throw std::invalid_argument("unknown argument " + argument);
    }
  }
  return flags;
}

void print_failure(const Scenario& scenario, uint64_t seed, const Outcome& outcome) {
  std::printf("%s, seed %llu FAILED: %s\n  %s\n  replay: --scenario=%s --seed=%llu --trace\n", scenario.name.c_str(),
              static_cast<unsigned long long>(seed), outcome.summary.c_str(), outcome.problem.c_str(),
              scenario.name.c_str(), static_cast<unsigned long long>(seed));
}

// Returns the number of seeds that have failed.
uint64_t run_seeds(const Scenario& scenario, const Flags& flags) {
  const auto begin = std::chrono::steady_clock::now();
  uint64_t failed = 0, switches = 0;
  double simulated = 0;
  for (uint64_t seed = flags.first; seed < flags.first + flags.seeds; ++seed) {
    Outcome outcome = run_apart(scenario, seed, flags.trace);
    if (flags.twice && outcome.problem.empty() && run_apart(scenario, seed).trace_hash != outcome.trace_hash) {
      outcome.problem = "another run of the same seed has another course";
    }
    switches += outcome.switches;
    simulated += static_cast<double>(outcome.simulated_nanos) * 1e-9;
    if (flags.seed) {
      std::printf("%s, seed %llu: %s; course %016llx\n", scenario.name.c_str(), static_cast<unsigned long long>(seed),
                  outcome.summary.c_str(), static_cast<unsigned long long>(outcome.trace_hash));
    }
    if (outcome.problem.empty()) continue;
    ++failed;
    print_failure(scenario, seed, outcome);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (flags.seed) return failed;
  std::printf(
      "%s: %llu seeds from %llu, %llu failed; %.1f seeds a second, %.0f simulated s, %.2g switches of threads\n",
      scenario.name.c_str(), static_cast<unsigned long long>(flags.seeds), static_cast<unsigned long long>(flags.first),
      static_cast<unsigned long long>(failed), static_cast<double>(flags.seeds) / seconds, simulated,
      static_cast<double>(switches));
  return failed;
}

// Lines of "scenario TAB name". Returns how many of these mistakes are not found.
int check_planted(const Flags& flags) {
  std::ifstream list(flags.planted_list);
  std::string line;
  int missed = 0, all = 0;
  while (std::getline(list, line)) {
    const size_t tab = line.find('\t');
    if (tab == std::string::npos) continue;
    const std::string wanted = line.substr(0, tab), name = line.substr(tab + 1);
    plant(name);
    ++all;
    bool found = false;
    for (const Scenario& scenario : scenarios()) {
      if (scenario.name != wanted) continue;
      uint64_t seed = flags.first;
      Outcome outcome;
      for (; seed < flags.first + flags.seeds && !found; ++seed) {
        outcome = run_apart(scenario, seed);
        found = !outcome.problem.empty();
      }
      const std::string first_line = outcome.problem.substr(0, outcome.problem.find('\n'));
      std::printf("%s: %s\n", name.c_str(),
                  found ? fmt::format("found by seed {}: {}", seed - 1, first_line).c_str() : "NOT FOUND");
      std::fflush(stdout);
    }
    if (!found) ++missed;
  }
  std::printf("%d of %d planted mistakes are found within %llu seeds\n", all - missed, all,
              static_cast<unsigned long long>(flags.seeds));
  return missed > 0 || all == 0 ? 1 : 0;
}

// The process that all seeds are forked from has its functions bound and its memory in large pages: else each seed
// binds them again, and forking copies ten thousand entries of small pages. The C library reads both when a program
// starts.
void start_again_prepared(char** arguments) {
  if (std::getenv("LD_BIND_NOW") != nullptr) return;
  ::setenv("LD_BIND_NOW", "1", 1);
  ::setenv("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1", 1);
  ::execv("/proc/self/exe", arguments);
}

// What is done once in a process is done before the first seed, so that all seeds begin alike: a training
// without faults makes what libraries make at their first use.
void prepare() {
  core::log::set_level(core::log::Level::kError);
  at::set_num_threads(1);
  omp_set_num_threads(1);
  (void)at::ones({4});
  prepare_c_library();
  constexpr uint64_t kSeedWithoutFaults = 7;
  (void)simulate_training({.seed = kSeedWithoutFaults});
}

}  // namespace
}  // namespace trainyard::cluster_simulation

int main(int count, char** arguments) {
  using namespace trainyard::cluster_simulation;  // NOLINT
  start_again_prepared(arguments);
  try {
    Flags flags = read_flags(count, arguments);
    prepare();
    plant(flags.plant);
    if (!flags.planted_list.empty()) return check_planted(flags);
    if (flags.seed) {
      flags.first = *flags.seed;
      flags.seeds = 1;
    }
    uint64_t failed = 0;
    bool known = false;
    for (const Scenario& scenario : scenarios()) {
      if (flags.scenario != "all" && flags.scenario != scenario.name) continue;
      known = true;
      failed += run_seeds(scenario, flags);
    }
    if (!known) throw std::invalid_argument("unknown scenario " + flags.scenario);
    return failed > 0 ? 1 : 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "trainyard_cluster_simulation: %s\n", error.what());
    return 2;
  }
}
