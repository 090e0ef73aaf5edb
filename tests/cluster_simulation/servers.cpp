// A simulated training with parameter servers: draws what happens to it, and judges what its processes say. Invariants:
//
//   - Every worker and server ends: within the deadline behind the fault, and without a fault with the right result.
//   - Values that workers read are those of one process, to the bit; in kAsynchronous each push is one whole update
//     (served_processes.cpp looks).
//   - All processes that a fault leaves alive name the one that it has met.
//   - What the chief has saved is found by the next attempt, whole; at last the training is done.
#include "tests/cluster_simulation/servers.h"

#include <algorithm>
#include <deque>
#include <regex>
#include <utility>

#include <fmt/format.h>

namespace trainyard::cluster_simulation {
namespace {

using parallel::ServerMode, parallel::ServerReduction;

// Returns the names of the processes that an error says are at fault, as ServedJob::name_of() has them: several where
// none of them has come. The workers' process group calls a worker a rank.
std::vector<std::string> blamed(const core::Error& error) {
  static const std::regex kBlame(
      "(worker|rank|parameter server) (\\d+)( at [^ ]+)? (has died|does not answer|does not go on|has ended|waits as)"
      "|in vain for (parameter server) (\\d+)|nothing from (worker|rank) ([\\d, ]+)|(rank) (0) cannot be reached");
  static const std::regex kNumber("\\d+");
  std::smatch found;
  const std::string text = error.what();
  if (!std::regex_search(text, found, kBlame)) return {};
  for (const size_t group : {size_t{1}, size_t{5}, size_t{7}, size_t{9}}) {
    if (!found[group].matched) continue;
    const std::string kind = found[group] == "parameter server" ? "parameter server " : "worker ";
    const std::string numbers = found[group + 1];
    std::vector<std::string> names;
    for (std::sregex_iterator each(numbers.begin(), numbers.end(), kNumber), end; each != end; ++each) {
      names.push_back(kind + each->str());
    }
    return names;
  }
  return {};
}

class Simulation {
 public:
  explicit Simulation(const SeedOptions& options)
      : draws_(options.seed * 2 + 1),
        cluster_(draw_cluster()),
        world_({.seed = options.seed,
                .machines = cluster_.workers + cluster_.servers + 1,
                .switch_chance = pick<double>(draws_, {0, 0, 0.02, 0.2}),
                .spurious_chance = pick<double>(draws_, {0, 0.05}),
                .trace = options.trace}),
        network_(world_, draw_network(draws_)),
        disk_(draws_.next(), {.slowest = kMillisecond}),
        faults_(world_, network_, cluster_.workers + cluster_.servers + 1),
        job_(world_, disk_) {
    job_.cluster = cluster_;
    job_.content = draws_.next() >> 8;
    job_.optimizer = pick<std::string>(draws_, {"sgd", "tf_momentum"});
    job_.with_processes = cluster_.workers > 1 || draws_.chance(0.5);
    job_.steps = draws_.between(1, 5);
    job_.elements = pick<int64_t>(draws_, {10, 500, 3000});
    job_.save_every = draws_.between(1, 2);
    job_.longest_compute = pick<Nanos>(draws_, {0, 30 * kMillisecond, 150 * kMillisecond});
    job_.expect_states();
  }

  SeedReport run() {
    const std::string faults = make_attempts(job_, attempts_, [this](Attempt& attempt) {
      draw(attempt);
      run_attempt(attempt);
      judge(attempt);
      clean_up(attempt);
    });
    return report_of(world_, job_.problems,
                     fmt::format("{} workers, {} servers, {}, {}{}: {}", cluster_.workers, cluster_.servers,
                                 parallel::server_mode_name(cluster_.mode), job_.optimizer,
                                 job_.with_processes ? "" : ", without a process group", faults));
  }

 private:
  parallel::ClusterOptions draw_cluster() {
    return {.workers = static_cast<int>(draws_.between(1, 4)),
            .servers = static_cast<int>(draws_.between(1, 3)),
            .mode = pick(draws_, {ServerMode::kSynchronous, ServerMode::kSynchronous, ServerMode::kStaged,
                                  ServerMode::kAsynchronous}),
            .reduction = pick(draws_, {ServerReduction::kMean, ServerReduction::kSum})};
  }

  bool is_worker(int process) const { return process < cluster_.workers; }

  // What no attempt can draw: servers compute nothing by themselves; all processes here count their work in one number
  // (core/base/work_count.h), so that one that hangs seems to work where no other one waits for it; and kAsynchronous
  // takes the chief's learning rate.
  bool fits(Fault fault, int victim) const {
    if (fault != Fault::kHang && fault != Fault::kDisagree) return true;
    return is_worker(victim) && !job_.is_asynchronous() && cluster_.workers > 1;
  }

  void draw(Attempt& attempt) {
    const auto processes = static_cast<uint64_t>(job_.processes());
    attempt.ranks.resize(processes);
    attempt.victim = static_cast<int>(draws_.below(processes));
    attempt.other = (attempt.victim + 1 + static_cast<int>(draws_.below(processes - 1))) % static_cast<int>(processes);
    const bool last = attempt.number == kMostAttempts;
    const auto drawn = static_cast<Fault>(draws_.below(static_cast<uint64_t>(Fault::kCount)));
    attempt.fault = last                          ? pick(draws_, {Fault::kNone, Fault::kPause, Fault::kBriefCut})
                    : fits(drawn, attempt.victim) ? drawn
                                                  : Fault::kKill;
    attempt.fault_time = draws_.between(0, 500 * kMillisecond);
    attempt.fault_step = draws_.between(0, job_.steps - 1);
  }

  void run_attempt(Attempt& attempt) {
    job_.attempt = &attempt;
    attempt.begin = world_.now();
    world_.trace("attempt", attempt.number, "with", fault_name(attempt.fault), "of", job_.name_of(attempt.victim),
                 "other", attempt.other);
    processes_.assign(attempt.ranks.size(), nullptr);
    for (int process = 0; process < job_.processes(); ++process) {
      world_.at(world_.now() + draws_.between(0, 50 * kMillisecond), [this, process, &attempt] {
        processes_[static_cast<size_t>(process)] =
            &world_.start_process(fmt::format("{}.{}", job_.name_of(process), attempt.number), process,
                                  [this, process, &attempt] { run(attempt, process); });
      });
    }
    schedule_fault(attempt);
    faults_.jump_calendars(draws_);
    const auto runs = [&](int process) {
      const Process* const known = processes_[static_cast<size_t>(process)];
      return !attempt.lost(process) && (known == nullptr || !known->ended);
    };
    std::string waiting;
    const bool ended = world_.run(attempt.begin + kLongestAttempt, [&] {
      for (int process = 0; process < job_.processes(); ++process) {
        if (runs(process)) return false;
      }
      return true;
    });
    if (ended) return;
    for (int process = 0; process < job_.processes(); ++process) {
      if (runs(process)) waiting += (waiting.empty() ? "" : ", ") + job_.name_of(process);
    }
    job_.problem(fmt::format("{}: have not ended after {} s\n{}", waiting, kLongestAttempt / kSecond,
                             world_.describe_threads()));
  }

  void run(Attempt& attempt, int process) {
    is_worker(process) ? run_worker(job_, attempt, process) : run_server(job_, attempt, process - cluster_.workers);
  }

  void schedule_fault(Attempt& attempt) {
    if (attempt.fault == Fault::kNone || attempt.fault == Fault::kHang || attempt.fault == Fault::kDisagree) return;
    const Nanos brief = draws_.between(1, 300) * kMillisecond;
    world_.at(world_.now() + 51 * kMillisecond + attempt.fault_time, [this, &attempt, brief] {
      Process& victim = *processes_[static_cast<size_t>(attempt.victim)];
      if (job_.attempt != &attempt || victim.ended) return;
      faults_.strike(attempt, victim, brief);
      const bool lost = attempt.fault == Fault::kKill || attempt.fault == Fault::kMachine;
      if (lost && attempt.victim == 0) disk_.close_all();
      if (attempt.fault == Fault::kMachine && attempt.victim == 0) disk_.cut_power();
    });
  }

  void judge(Attempt& attempt) {
    for (int process = 0; process < job_.processes(); ++process) {
      const Attempt::Rank& result = attempt.rank(process);
      if (attempt.lost(process)) continue;
      if (attempt.harmless()) {
        if (result.error) {
          job_.problem(fmt::format("{} has failed without a fault: {}", job_.name_of(process), result.error->what()));
        }
        continue;
      }
      if (!result.error) {
        // In kStaged the last push is answered before its update.
        const bool answered = job_.cluster.mode == ServerMode::kStaged && attempt.fault_step == job_.steps - 1;
        if (attempt.fault == Fault::kDisagree && !(answered && is_worker(process))) {
          job_.problem(job_.name_of(process) + " has not noticed");
        }
        continue;
      }
      // As for the process group, a longer grace (1.5 s), and half a deadline for workers where there are several
      // servers.
      constexpr Nanos kMore = 7 * kSecond;
      if (const std::string late = lateness(attempt, result, kMore); !late.empty()) {
        job_.problem(fmt::format("{} {}", job_.name_of(process), late));
      }
      if (result.forced) {
        job_.problem(fmt::format("{} had to be ended by force: {}", job_.name_of(process), result.error->what()));
      }
      const std::string text = result.error->what();
      // A worker that ends before it attends at a server cannot tell that one why, nor is its connection known there.
      if (!is_worker(process) && text.find(": start: got n") != std::string::npos) continue;
      if (attempt.fault == Fault::kKill && text.find("does not answer") != std::string::npos) {
        job_.problem(fmt::format("{} takes a dead process for a silent one: {}", job_.name_of(process), text));
      }
      if (!excludes_victim(attempt.fault)) continue;
      // One that comes when the others have failed and ended finds no rank 0 to ask.
      if (attempt.victim != 0 && attempt.ranks[0].ended && text.find("rank 0 cannot be reached") != std::string::npos) {
        continue;
      }
      const std::vector<std::string> named = blamed(*result.error);
      const std::string expected = job_.name_of(attempt.victim);
      if (std::find(named.begin(), named.end(), expected) != named.end()) continue;
      job_.problem(fmt::format("{} does not name {}: {}", job_.name_of(process), expected, result.error->what()));
    }
  }

  // Ends what is left of an attempt.
  void clean_up(Attempt& attempt) {
    Process& victim = *processes_[static_cast<size_t>(attempt.victim)];
    if (!victim.ended && (attempt.fault == Fault::kFreeze || attempt.fault == Fault::kHang) && job_.problems.empty()) {
      world_.thaw(victim);
      constexpr Nanos kLongest = 12 * kSecond;
      if (!world_.run(world_.now() + kLongest, [&] { return victim.ended; })) {
        job_.problem(fmt::format("{} has not ended {} s after it continued\n{}", job_.name_of(attempt.victim),
                                 kLongest / kSecond, world_.describe_threads()));
      }
    }
    faults_.mend_all();
    for (Process* const process : processes_) world_.kill(*process);
    disk_.close_all();
    if (draws_.chance(0.3)) disk_.cut_power();
    world_.run(world_.now() + 100 * kMillisecond, [] { return false; });
  }

  RandomDraws draws_;
  const parallel::ClusterOptions cluster_;
  World world_;
  Network network_;
  SimulatedDisk disk_;
  Faults faults_;
  ServedJob job_;
  std::deque<Attempt> attempts_;
  std::vector<Process*> processes_;  // of the attempt
};

}  // namespace

SeedReport simulate_servers(const SeedOptions& options) {
  // What the simulated processes have left on their stacks is not taken down.
  return (new Simulation(options))->run();
}

}  // namespace trainyard::cluster_simulation
