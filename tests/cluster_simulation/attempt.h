// One attempt of a simulated training: its processes, from when they are started to when all of them have ended, and
// the fault that meets one of them.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "tests/cluster_simulation/network.h"
#include "tests/cluster_simulation/scenario.h"
#include "tests/cluster_simulation/world.h"
#include <fmt/format.h>

#include "trainyard/core/base/error.h"

namespace trainyard::cluster_simulation {

inline constexpr std::chrono::milliseconds kStartDeadline{3000}, kStepDeadline{1000}, kGrace{500};
inline constexpr uint16_t kHubPort = 29'500;
inline constexpr Nanos kLongestAttempt = 120 * kSecond;
inline constexpr int kMostAttempts = 3;

inline Nanos nanos(std::chrono::milliseconds time) {
  return time.count() * kMillisecond;
}

enum class Fault {
  kNone,
  kKill,      // a process is killed
  kMachine,   // a machine loses power: its peers hear nothing
  kFreeze,    // a process stops, and continues when the others have ended
  kPause,     // a process stops for less than a deadline
  kHang,      // a process computes for ever; its other threads live
  kCut,       // a process's machine hears from no other one, and is not heard
  kBriefCut,  // the same, for less than a deadline
  kCutPair,   // two machines do not hear each other
  kReset,     // the connections between two machines are reset
  kDisagree,  // a process calls something else than the others
  kCount
};
const char* fault_name(Fault fault);
// Returns whether all processes must succeed nevertheless.
bool is_harmless(Fault fault);
// Returns whether the victim is not asked whom it blames: it is dead, or cut off from the others.
bool excludes_victim(Fault fault);

// Processes have the numbers of their machines. Those of a training are its ranks; of a training with servers, its
// workers and behind them its servers.
struct Attempt {
  int number = 0;
  Fault fault = Fault::kNone;
  int victim = 0, other = 1;  // processes
  Nanos fault_time = 0;       // after the attempt's begin
  int64_t fault_step = 0;     // of kHang and kDisagree
  bool happened = false;      // the fault has met its victim at work
  Nanos begin = 0, fault_at = 0;
  bool stranger = false;           // a process of no training calls rank 0 and the exchange
  std::string place;               // what rank 0 has shared through the launcher
  std::optional<int64_t> updates;  // kAsynchronous: how many the servers begin with, once the chief knows

  struct Rank {
    bool ended = false;
    std::optional<core::Error> error;
    std::optional<core::Error> reported;  // what the process group said, when the rank ended
    Nanos ended_at = 0;
    bool forced = false;  // ended by the last resort
    int64_t begun_step = -1;
  };
  std::vector<Rank> ranks;

  Rank& rank(int number_of_it) { return ranks.at(static_cast<size_t>(number_of_it)); }
  bool lost(int process) const { return happened && excludes_victim(fault) && process == victim; }
  bool harmless() const { return is_harmless(fault) || !happened; }
  bool succeeded() const;
};

// Ends the process in which a thread cannot be woken (ProcessGroupOptions::last_resort).
std::function<void(const core::Error&)> last_resort(Attempt& attempt, int rank);
// Computes for ever if this is the attempt's fault.
void hang_if_drawn(Attempt& attempt, int process, int64_t step);

// Makes attempts until one has succeeded, there were kMostAttempts, or something is wrong. Returns their faults.
template <typename Job>
std::string make_attempts(Job& job, std::deque<Attempt>& attempts, const std::function<void(Attempt&)>& make) {
  std::string faults;
  while (job.problems.empty()) {
    Attempt& attempt = attempts.emplace_back();
    attempt.number = static_cast<int>(attempts.size());
    make(attempt);
    faults += fmt::format("{}{}{}", faults.empty() ? "" : ", ", fault_name(attempt.fault),
                          attempt.fault == Fault::kNone ? "" : " of " + job.name_of(attempt.victim));
    if (attempt.succeeded()) break;
    if (attempt.number == kMostAttempts) job.problem("the training is not done at last");
  }
  return faults;
}
SeedReport report_of(const World& world, const std::vector<std::string>& problems, std::string summary);

template <typename Value>
Value pick(RandomDraws& draws, std::initializer_list<Value> values) {
  return *(values.begin() + draws.below(values.size()));
}
NetworkOptions draw_network(RandomDraws& draws);

// Lets faults happen to the first `machines` of a world.
class Faults {
 public:
  Faults(World& world, Network& network, int machines) : world_(world), network_(network), machines_(machines) {}

  // Lets the attempt's fault meet its victim now. `brief`: how long one lasts that passes.
  void strike(Attempt& attempt, Process& victim, Nanos brief);
  void mend_all();
  // Lets the calendars of two machines jump within the next 600 ms.
  void jump_calendars(RandomDraws& draws);

 private:
  void cut_off(int machine);
  void mend(int machine);

  World& world_;
  Network& network_;
  const int machines_;
};

// Returns what is wrong with the time at which a process has ended behind the fault: empty, nothing. `more`: added to
// the deadline.
std::string lateness(const Attempt& attempt, const Attempt::Rank& result, Nanos more);

}  // namespace trainyard::cluster_simulation
