#include "tests/cluster_simulation/attempt.h"

#include <algorithm>
#include <array>
#include <thread>
#include <utility>

namespace trainyard::cluster_simulation {

const char* fault_name(Fault fault) {
  constexpr std::array<const char*, static_cast<size_t>(Fault::kCount)> kNames = {
      "no fault", "a kill",      "a loss of power",   "a freeze", "a pause",     "a hang",
      "a cut",    "a brief cut", "a cut between two", "a reset",  "another call"};
  return kNames.at(static_cast<size_t>(fault));
}

bool is_harmless(Fault fault) {
  return fault == Fault::kNone || fault == Fault::kPause || fault == Fault::kBriefCut;
}

bool excludes_victim(Fault fault) {
  switch (fault) {
    case Fault::kKill:
    case Fault::kMachine:
    case Fault::kFreeze:
    case Fault::kHang:
    case Fault::kCut:
      return true;
    default:
      return false;
  }
}

bool Attempt::succeeded() const {
  return std::all_of(ranks.begin(), ranks.end(), [](const Rank& each) { return each.ended && !each.error; });
}

std::function<void(const core::Error&)> last_resort(Attempt& attempt, int rank) {
  return [&attempt, rank](const core::Error& error) {
    Attempt::Rank& own = attempt.rank(rank);
    own.error = error;
    own.reported = error;
    own.forced = true;
    World::entered()->end_own_process();
  };
}

void hang_if_drawn(Attempt& attempt, int process, int64_t step) {
  if (attempt.fault != Fault::kHang || attempt.victim != process || step < attempt.fault_step) return;
  attempt.happened = true;
  attempt.fault_at = World::entered()->now();
  while (true) std::this_thread::sleep_for(std::chrono::hours(1));
}

SeedReport report_of(const World& world, const std::vector<std::string>& problems, std::string summary) {
  return {.problems = problems,
          .summary = std::move(summary),
          .trace_hash = world.trace_hash(),
          .switches = world.switches(),
          .simulated_nanos = world.now()};
}

NetworkOptions draw_network(RandomDraws& draws) {
  NetworkOptions options;
  options.longest = pick<Nanos>(draws, {200 * kMicrosecond, 2 * kMillisecond});
  options.slow_chance = pick<double>(draws, {0, 0.01});
  options.window = pick<size_t>(draws, {4096, 16'384, 262'144});
  options.split_chance = pick<double>(draws, {0, 0.1, 0.5});
  options.interrupt_chance = pick<double>(draws, {0, 0.02});
  return options;
}

void Faults::strike(Attempt& attempt, Process& victim, Nanos brief) {
  attempt.happened = true;
  attempt.fault_at = world_.now();
  world_.trace("fault:", fault_name(attempt.fault));
  switch (attempt.fault) {
    case Fault::kMachine:
      cut_off(attempt.victim);
      [[fallthrough]];
    case Fault::kKill:
      return world_.kill(victim);
    case Fault::kFreeze:
      return world_.freeze(victim);
    case Fault::kPause:
      world_.freeze(victim);
      return world_.at(world_.now() + brief, [this, &victim] { world_.thaw(victim); });
    case Fault::kCut:
      return cut_off(attempt.victim);
    case Fault::kBriefCut:
      cut_off(attempt.victim);
      return world_.at(world_.now() + brief, [this, &attempt] { mend(attempt.victim); });
    case Fault::kCutPair:
      network_.cut(attempt.victim, attempt.other);
      return network_.cut(attempt.other, attempt.victim);
    case Fault::kReset:
      return network_.reset(attempt.victim, attempt.other);
    default:
      return;
  }
}

void Faults::cut_off(int machine) {
  for (int other = 0; other < machines_; ++other) {
    network_.cut(machine, other);
    network_.cut(other, machine);
  }
}

void Faults::mend(int machine) {
  for (int other = 0; other < machines_; ++other) {
    network_.mend(machine, other);
    network_.mend(other, machine);
  }
}

void Faults::mend_all() {
  for (int machine = 0; machine < machines_; ++machine) mend(machine);
}

void Faults::jump_calendars(RandomDraws& draws) {
  for (int i = 0; i < 2; ++i) {
    const int machine = static_cast<int>(draws.below(static_cast<uint64_t>(machines_ - 1)));
    const Nanos jump = draws.between(-100'000, 100'000) * kSecond;
    world_.at(world_.now() + draws.between(0, 600 * kMillisecond), [this, machine, jump] {
      world_.trace("the calendar's clock jumps on machine", machine);
      world_.machine(machine).calendar_offset += jump;
    });
  }
}

std::string lateness(const Attempt& attempt, const Attempt::Rank& result, Nanos more) {
  const bool starting = std::any_of(attempt.ranks.begin(), attempt.ranks.end(),
                                    [](const Attempt::Rank& each) { return each.begun_step < 0; });
  const Nanos longest = nanos(starting ? kStartDeadline : kStepDeadline) + more;
  if (result.ended_at - attempt.fault_at <= longest) return "";
  return fmt::format("has ended {:.3f} s behind the fault, expected {:.3f} at most: {}",
                     static_cast<double>(result.ended_at - attempt.fault_at) / kSecond,
                     static_cast<double>(longest) / kSecond, result.error->what());
}

}  // namespace trainyard::cluster_simulation
