// A simulated training: draws what happens to it, and judges what its ranks say. Invariants:
//
//   - Every rank ends: within the deadline behind the first fault, and without a fault with the right result.
//   - What a collective has returned without an error is right to the bit (training_rank.cpp looks).
//   - All ranks that a fault leaves alive name the same rank, and where one rank is at fault, that one.
//   - What rank 0 has reported as saved is found by the next attempt, whole; at last the training is done.
#include "tests/cluster_simulation/training.h"

#include <algorithm>
#include <array>
#include <deque>
#include <regex>
#include <utility>

#include <fmt/format.h>
#include <sys/socket.h>

#include "trainyard/core/sockets/socket.h"
#include "trainyard/parallel/collectives/all_reduce_candidates.h"
#include "trainyard/parallel/collectives/plan/plan.h"
#include "trainyard/parallel/process_group/group_message.h"

namespace trainyard::cluster_simulation {
namespace {

// Returns the rank that an error says is at fault, at the end of a chain of reports; below 0: none.
int blamed(const core::Error& error) {
  static const std::regex kBlame(
      "rank (\\d+) (has died|does not answer|does not go on|waits as all others do|has closed its connection)"
      "|rank (0) cannot be reached|the exchange with rank (\\d+)|nothing from rank (\\d+)|rank (\\d+): it ended "
      "before");
  const std::string text = error.what();
  int rank = -1;
  for (auto found = std::sregex_iterator(text.begin(), text.end(), kBlame); found != std::sregex_iterator(); ++found) {
    for (const size_t group : {size_t{1}, size_t{3}, size_t{4}, size_t{5}, size_t{6}}) {
      if ((*found)[group].matched) rank = std::stoi((*found)[group].str());
    }
    if (rank >= 0) break;
  }
  return rank;
}

class Simulation {
 public:
  explicit Simulation(const SeedOptions& options)
      : draws_(options.seed * 2 + 1),
        ranks_(static_cast<int>(draws_.between(2, 5))),
        world_({.seed = options.seed,
                .machines = ranks_ + 1,  // and one of no rank
                .switch_chance = pick<double>(draws_, {0, 0, 0.02, 0.2}),
                .spurious_chance = pick<double>(draws_, {0, 0.05}),
                .trace = options.trace}),
        network_(world_, draw_network(draws_)),
        disk_(draws_.next(), {.short_chance = pick<double>(draws_, {0, 0.3}),
                              .interrupt_chance = pick<double>(draws_, {0, 0.03}),
                              .slowest = kMillisecond}),
        faults_(world_, network_, ranks_ + 1),
        job_(world_, network_, disk_) {
    draw_job();
  }

  SeedReport run() {
    const std::string faults = make_attempts(job_, attempts_, [this](Attempt& attempt) {
      draw(attempt);
      run_attempt(attempt);
      judge(attempt);
      clean_up(attempt);
    });
    return report_of(world_, job_.problems,
                     fmt::format("{} ranks of {} replicas, algorithm '{}'{}{}: {}", job_.ranks, job_.replicas,
                                 job_.algorithm, job_.launcher_shares ? ", with a token" : "",
                                 job_.saves_in_background ? ", saving in the background" : "", faults));
  }

 private:
  void draw_job() {
    job_.content = draws_.next() >> 8;
    job_.ranks = ranks_;
    job_.replicas = pick(draws_, {1, 1, 1, 2});
    job_.launcher_shares = draws_.chance(0.5);
    job_.saves_in_background = draws_.chance(0.5);
    job_.steps = draws_.between(1, 5);
    job_.elements = pick<int64_t>(draws_, {10, 500, 3000});
    job_.save_every = draws_.between(1, 2);
    job_.longest_compute = pick<Nanos>(draws_, {0, 30 * kMillisecond, 150 * kMillisecond});
    const std::string wanted =
        pick<std::string>(draws_, {"", "", "chain", "chain", "ring", "rechd", "shuffle", "shuffle#2", "xring",
                                   "xring#2", "pscpu", "pscpu/xring", "pscpu/rechd", "collective"});
    parallel::RankLayout layout{.first_ranks = {0}};
    for (int i = 0; i < ranks_; ++i) {
      layout.first_ranks.push_back(layout.first_ranks.back() + job_.replicas);
      layout.hosts.push_back(i);
    }
    const bool fits =
        wanted.empty() || wanted == "chain" || parallel::fits_layout(wanted, parallel::AllReduceOrder::kAny, layout);
    job_.algorithm = fits ? wanted : "";
  }

  void draw(Attempt& attempt) {
    attempt.ranks.resize(static_cast<size_t>(ranks_));
    const bool last = attempt.number == kMostAttempts;
    const auto drawn = static_cast<Fault>(draws_.below(static_cast<uint64_t>(Fault::kCount)));
    attempt.fault = last ? pick(draws_, {Fault::kNone, Fault::kPause, Fault::kBriefCut}) : drawn;
    attempt.victim = static_cast<int>(draws_.below(static_cast<uint64_t>(ranks_)));
    attempt.other = (attempt.victim + 1 + static_cast<int>(draws_.below(static_cast<uint64_t>(ranks_ - 1)))) % ranks_;
    attempt.fault_time = draws_.between(0, 500 * kMillisecond);
    attempt.fault_step = draws_.between(0, job_.steps - 1);
    attempt.stranger = draws_.chance(0.3);
  }

  Process& process_of(int rank) { return *processes_.at(static_cast<size_t>(rank)); }

  void run_attempt(Attempt& attempt) {
    job_.attempt = &attempt;
    attempt.begin = world_.now();
    world_.trace("attempt", attempt.number, "with", fault_name(attempt.fault), "of rank", attempt.victim, "other",
                 attempt.other);
    processes_.clear();
    for (int rank = 0; rank < ranks_; ++rank) {
      processes_.push_back(nullptr);
      // The launcher reaches one machine after the other.
      world_.at(world_.now() + draws_.between(0, 50 * kMillisecond), [this, rank, &attempt] {
        processes_[static_cast<size_t>(rank)] =
            &world_.start_process(fmt::format("rank {}.{}", rank, attempt.number), rank,
                                  [this, rank, &attempt] { run_rank(job_, attempt, rank); });
      });
    }
    if (stale_ != nullptr) {
      world_.at(world_.now() + draws_.between(0, 300 * kMillisecond), [this, stale = stale_] { world_.thaw(*stale); });
      stale_ = nullptr;
    }
    schedule_fault(attempt);
    faults_.jump_calendars(draws_);
    if (attempt.stranger) start_stranger(attempt);
    // A victim that its fault has not met yet ends as the others do, and is waited for.
    const auto survives = [&](int rank) { return !attempt.lost(rank); };
    const bool ended = world_.run(attempt.begin + kLongestAttempt, [&] {
      for (int rank = 0; rank < ranks_; ++rank) {
        const Process* const process = processes_[static_cast<size_t>(rank)];
        if (survives(rank) && (process == nullptr || !process->ended)) return false;
      }
      return true;
    });
    if (!ended) {
      std::string waiting;
      for (int rank = 0; rank < ranks_; ++rank) {
        const Process* const process = processes_[static_cast<size_t>(rank)];
        if (survives(rank) && (process == nullptr || !process->ended)) waiting += fmt::format(" {}", rank);
      }
      job_.problem(fmt::format("ranks{} have not ended after {} s\n{}", waiting, kLongestAttempt / kSecond,
                               world_.describe_threads()));
    }
  }

  void schedule_fault(Attempt& attempt) {
    if (attempt.fault == Fault::kNone || attempt.fault == Fault::kHang || attempt.fault == Fault::kDisagree) return;
    const Nanos brief = draws_.between(1, 300) * kMillisecond;
    world_.at(world_.now() + 51 * kMillisecond + attempt.fault_time, [this, &attempt, brief] {
      if (job_.attempt != &attempt || process_of(attempt.victim).ended) return;
      Process& victim = process_of(attempt.victim);
      faults_.strike(attempt, victim, brief);
      const bool lost = attempt.fault == Fault::kKill || attempt.fault == Fault::kMachine;
      if (lost && attempt.victim == 0) disk_.close_all();
      if (attempt.fault == Fault::kMachine && attempt.victim == 0) disk_.cut_power();
    });
  }

  // Sends what is no message, and what an earlier attempt's rank would say.
  void start_stranger(Attempt& attempt) {
    const bool hub = draws_.chance(0.5), stale = draws_.chance(0.6);
    const int rank = 1 + static_cast<int>(draws_.below(static_cast<uint64_t>(ranks_ - 1)));
    const Nanos time = draws_.between(0, 150 * kMillisecond);
    world_.at(world_.now() + time, [this, &attempt, hub, stale, rank] {
      uint16_t port = hub ? kHubPort : kExchangePort;
      if (hub && job_.launcher_shares) {
        if (attempt.place.empty()) return;
        port = static_cast<uint16_t>(std::stoi(attempt.place));
      } else if (hub && stale) {
        return;  // without a token nothing tells it from a rank
      }
      const std::string machine = world_.machine(hub ? 0 : rank).name;
      world_.start_process("a stranger", ranks_, [=, size = ranks_] {
        try {
          core::Socket socket = core::connect_to(machine, port, std::chrono::milliseconds(100));
          if (hub && stale) {
            core::FrameConnection connection(std::move(socket), 4096);
            connection.send(static_cast<uint8_t>(parallel::GroupMessage::kHello),
                            encode(parallel::Hello{.token = std::string(32, 'a'), .rank = rank, .size = size}));
            connection.flush();
            World::entered()->sleep_until(World::entered()->now() + kSecond);
            return;
          }
          std::string bytes(76, 'x');
          if (stale) {
            const std::array<int32_t, 2> from_to = {0, rank};
            bytes.assign("TYMT");
            bytes.append(reinterpret_cast<const char*>(from_to.data()), sizeof(from_to));
            bytes.append("attempt 0 of another");
            bytes.resize(76, '\0');
          }
          ::send(socket.descriptor(), bytes.data(), bytes.size(), 0);
          World::entered()->sleep_until(World::entered()->now() + kSecond);
        } catch (const core::Error&) {
          // No one listens.
        }
      });
    });
  }

  void judge(Attempt& attempt) {
    int first_blamed = -1, first_rank = -1;
    for (int rank = 0; rank < ranks_; ++rank) {
      const Attempt::Rank& result = attempt.ranks[static_cast<size_t>(rank)];
      if (attempt.lost(rank)) continue;
      if (attempt.harmless()) {
        if (result.error) {
          job_.problem(fmt::format("rank {} has failed without a fault: {}", rank, result.error->what()));
        }
        continue;
      }
      if (!result.error) {
        if (attempt.fault == Fault::kDisagree) job_.problem(fmt::format("rank {} has not noticed", rank));
        continue;
      }
      // All wait (0.5 s), last words (1 s), grace (0.5 s), reports of a cause (2 s).
      constexpr Nanos kMore = 5 * kSecond;
      if (const std::string late = lateness(attempt, result, kMore); !late.empty()) {
        job_.problem(fmt::format("rank {} {}", rank, late));
      }
      if (result.forced) job_.problem(fmt::format("rank {} had to be ended by force: {}", rank, result.error->what()));
      // Its connections close at once; nothing waits for a deadline.
      if (attempt.fault == Fault::kKill &&
          std::string(result.error->what()).find("does not answer") != std::string::npos) {
        job_.problem(fmt::format("rank {} takes a dead rank for a silent one: {}", rank, result.error->what()));
      }
      if (attempt.fault == Fault::kDisagree) continue;
      // A rank that the network keeps from rank 0 sees what the others cannot.
      if (sees_rank_0_alone(attempt, rank)) continue;
      // One that comes when the others have failed and ended finds no rank 0 to ask.
      if (attempt.victim != 0 && attempt.ranks[0].ended &&
          std::string(result.error->what()).find("rank 0 cannot be reached") != std::string::npos) {
        continue;
      }
      const int named = blamed(*result.error);
      if (first_rank < 0) {
        first_rank = rank;
        first_blamed = named;
      } else if (named != first_blamed) {
        job_.problem(fmt::format("ranks {} and {} name different causes:\n    {}\n    {}", first_rank, rank,
                                 attempt.ranks[static_cast<size_t>(first_rank)].error->what(), result.error->what()));
      }
      if (excludes_victim(attempt.fault) && named != attempt.victim) {
        job_.problem(fmt::format("rank {} does not name rank {}: {}", rank, attempt.victim, result.error->what()));
      }
    }
  }

  // The network between these two ranks fails, one of which is rank 0.
  bool sees_rank_0_alone(const Attempt& attempt, int rank) const {
    if (attempt.fault == Fault::kCut && attempt.victim == 0) return false;
    if (attempt.fault != Fault::kCutPair && attempt.fault != Fault::kReset) return false;
    return (attempt.victim == 0 && attempt.other == rank) || (attempt.other == 0 && attempt.victim == rank);
  }

  // Ends what is left of an attempt. A frozen process may be left to the next one.
  void clean_up(Attempt& attempt) {
    Process& victim = process_of(attempt.victim);
    if (!victim.ended && (attempt.fault == Fault::kFreeze || attempt.fault == Fault::kHang) && job_.problems.empty()) {
      const auto listens = network_.listeners().find({attempt.victim, kExchangePort});
      const bool holds_port = listens != network_.listeners().end() && !listens->second.expired();
      if (attempt.fault == Fault::kFreeze && job_.launcher_shares && !holds_port && draws_.chance(0.5)) {
        stale_ = &victim;
      } else {
        world_.thaw(victim);
        constexpr Nanos kLongest = 12 * kSecond;
        if (!world_.run(world_.now() + kLongest, [&] { return victim.ended; })) {
          job_.problem(fmt::format("rank {} has not ended {} s after it continued\n{}", attempt.victim,
                                   kLongest / kSecond, world_.describe_threads()));
        }
      }
    }
    faults_.mend_all();
    for (Process* process : processes_) {
      if (process != stale_) world_.kill(*process);
    }
    if (stale_ == nullptr || attempt.victim != 0) disk_.close_all();
    if (draws_.chance(0.3)) disk_.cut_power();
    const Nanos rest = world_.now() + 100 * kMillisecond;
    world_.run(rest, [&] { return false; });
  }

  RandomDraws draws_;
  const int ranks_;
  World world_;
  Network network_;
  SimulatedDisk disk_;
  Faults faults_;
  Job job_;
  std::deque<Attempt> attempts_;
  std::vector<Process*> processes_;  // of the attempt, by rank
  Process* stale_ = nullptr;         // frozen, of an earlier attempt
};

}  // namespace

SeedReport simulate_training(const SeedOptions& options) {
  // What the simulated processes have left on their stacks is not taken down.
  return (new Simulation(options))->run();
}

}  // namespace trainyard::cluster_simulation
