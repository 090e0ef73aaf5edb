#include "tests/cluster_simulation/launch_judge.h"

#include <algorithm>
#include <csignal>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include <fmt/format.h>
#include <sys/wait.h>

#include "trainyard/core/threads/signal_watcher.h"
#include "trainyard/parallel/launch/process.h"

namespace trainyard::cluster_simulation {
namespace {

constexpr int kKilled = 128 + SIGKILL;

int worst(const std::vector<int>& codes) {
  int worst = 0;
  for (const int code : codes) {
    if (is_failing(code)) worst = is_failing(worst) ? std::max(worst, code) : code;
    if (code == core::kExitStoppedBySignal && worst == 0) worst = code;
  }
  return worst;
}

std::string sample(const std::string& text) {
  constexpr size_t kMost = 100;
  return text.size() <= kMost ? text : text.substr(0, kMost) + fmt::format("... ({} bytes)", text.size());
}

}  // namespace

std::string LaunchJudge::describe(const RankRun& run) const {
  if (facts_.fault == LaunchFault::kNoProgram) return "could not be started";
  return parallel::process_end(run.process->wait_status).description();
}

void LaunchJudge::judge_what_is_left() {
  for (const Process* const process : left_over()) {
    job_.problem(fmt::format("{} on {} lives {:.1f} s after launch has ended", process->name, process->machine->name,
                             static_cast<double>(job_.world.now() - job_.launch->ended_at) / kSecond));
  }
  const bool keeps_folders = facts_.happened && facts_.fault == LaunchFault::kKillKeeper && !ended_by_itself();
  const bool without_power = facts_.happened && facts_.fault == LaunchFault::kMachine && facts_.victim_machine == 0;
  if (keeps_folders || without_power) return;
  for (const std::string& file : job_.world.machine(0).files) job_.problem(file + " is left behind");
}

void LaunchJudge::judge() {
  judge_output();
  judge_restart();
  judge_ends();
  judge_code();
  judge_signals();
  judge_time_to_save();
  judge_failure_timeout();
}

void LaunchJudge::judge_output() {
  std::vector<std::array<std::string, 2>> got(std::max(job_.runs.size(), job_.earlier.size()));
  for (size_t stream = 0; stream < 2; ++stream) {
    std::istringstream lines(facts_.printed.at(stream));
    for (std::string line; std::getline(lines, line);) {
      const bool is_torn = lines.eof();  // without a newline
      if (is_torn && !ended_by_itself()) continue;
      if (is_torn) job_.problem("launch has printed a part of a line: " + sample(line));
      size_t rank = 0, end = 0;
      if (line.starts_with("[") && (end = line.find("] ")) != std::string::npos) {
        rank = std::stoul(line.substr(1, end - 1));
        if (rank < got.size()) got[rank].at(stream) += line.substr(end + 2) + "\n";
        if (rank < got.size()) continue;
      }
      static const std::vector<std::string> kOwn{"launch: ", "mpirun: ", "trainyard: ", "  "};
      const bool is_own =
          std::any_of(kOwn.begin(), kOwn.end(), [&](const auto& each) { return line.starts_with(each); });
      if (stream == 0 || !is_own) job_.problem("launch has printed what no rank has written: " + sample(line));
    }
  }
  for (size_t rank = 0; rank < job_.runs.size(); ++rank) {
    const RankRun& run = job_.runs[rank];
    const bool complete = ended_by_itself() && job_.error.empty() && run.process != nullptr && can_report(run);
    for (size_t stream = 0; stream < 2; ++stream) {
      std::string wanted = expected_output(run, stream);
      std::string had = got[rank].at(stream);
      if (has_restarted() && complete && had.ends_with(wanted)) {
        // What is in front of it is of the start before.
        had.resize(had.size() - wanted.size());
        const RankRun& before = job_.earlier[rank];
        wanted = expected_output(before, stream);
        if (!before.agent->was_killed ? had == wanted : wanted.starts_with(had)) continue;
      }
      if (complete ? had == wanted : wanted.starts_with(had)) continue;
      size_t same = 0;
      while (same < had.size() && same < wanted.size() && had[same] == wanted[same]) ++same;
      job_.problem(fmt::format(
          "rank {}, stream {}: {} bytes were printed of {}, other ones from byte {}: '{}', not '{}'", rank, stream + 1,
          had.size(), wanted.size(), same, sample(had.substr(same)), sample(wanted.substr(same))));
    }
  }
}

// A line that has no end gets one.
std::string LaunchJudge::expected_output(const RankRun& run, size_t stream) const {
  const std::string& written = run.written.at(stream);
  return written.empty() || written.ends_with('\n') ? written : written + '\n';
}

// All ranks start again, unless the first failure would come again; without the rank that failed where that was asked
// for.
void LaunchJudge::judge_restart() {
  if (job_.options.max_restarts == 0 || !ended_by_itself() || facts_.stop_at != kNever) return;
  const std::vector<RankRun>& first = has_restarted() ? job_.earlier : job_.runs;
  const RankRun* failed = nullptr;
  bool lasts = false;
  for (const RankRun& run : first) {
    if (!is_failure(run)) continue;
    const int code = parallel::process_end(run.process->wait_status).code();
    const bool lasts_too = code == parallel::kWrongUse || code == parallel::kWrongData;
    if (failed == nullptr || run.process->ended_at < failed->process->ended_at) failed = &run;
    lasts = lasts || lasts_too;
  }
  if (failed == nullptr) return;
  if (!lasts && !has_restarted()) job_.problem("there is no restart after a failure");
  const int code = parallel::process_end(failed->process->wait_status).code();
  if (has_restarted() && (code == parallel::kWrongUse || code == parallel::kWrongData)) {
    job_.problem("there is a restart after a failure that would come again");
  }
  if (!has_restarted()) return;
  const size_t fewer = job_.options.commands.size() > 1 ? 1 : 0;
  if (job_.runs.size() + fewer != first.size()) job_.problem("the restart has another number of ranks");
  static const std::regex kNamed("launch: rank (\\d+) on ");
  std::smatch named;
  if (fewer == 0 || !std::regex_search(facts_.printed[1], named, kNamed)) return;
  std::map<int, int> slots;  // by machine
  for (const RankRun& run : first) ++slots[run.machine];
  --slots[first.at(std::stoul(named[1])).machine];
  for (const RankRun& run : job_.runs) --slots[run.machine];
  for (const auto& [machine, left] : slots) {
    if (left != 0) job_.problem(fmt::format("the restart has {} ranks too few on machine {}", left, machine));
  }
}

std::vector<LaunchJudge::SaidEnd> LaunchJudge::said_ends() const {
  static const std::regex kEnd(
      "launch: rank (\\d+) on ([^ ]*) (ended with code|was ended by|was lost|could not be)(.*)");
  std::vector<SaidEnd> all;
  const size_t restart = facts_.printed[1].find("launch: starting again");
  std::istringstream lines(facts_.printed[1].substr(restart == std::string::npos ? 0 : restart));
  std::smatch found;
  for (std::string line; std::getline(lines, line);) {
    if (!std::regex_match(line, found, kEnd)) continue;
    all.push_back({.rank = std::stoul(found[1]), .how = found[3].str() + found[4].str()});
  }
  return all;
}

void LaunchJudge::judge_ends() {
  const std::vector<SaidEnd> ends = said_ends();
  std::set<size_t> seen;
  for (const SaidEnd& said : ends) {
    if (said.rank >= job_.runs.size() || !seen.insert(said.rank).second) {
      job_.problem(fmt::format("the end of rank {} is told twice, or there is none such", said.rank));
      return;
    }
    const RankRun& run = job_.runs[said.rank];
    if (said.how.starts_with("was lost") && !can_report(run)) continue;
    const bool has_program = facts_.fault != LaunchFault::kNoProgram;
    if (has_program && (run.process == nullptr || !run.process->ended)) {
      job_.problem(fmt::format("rank {} '{}', but has not ended", said.rank, said.how));
    } else if (!said.how.starts_with(describe(run))) {
      job_.problem(fmt::format("rank {} '{}', but it {}", said.rank, said.how, describe(run)));
    }
  }
  if (!ended_by_itself() || !job_.error.empty() || ends.empty()) return;
  // The rank that is named first is the one that failed first, where reports could not overtake each other.
  const RankRun& first = job_.runs[ends[0].rank];
  if (first.process == nullptr || facts_.fault == LaunchFault::kPauseLaunch) return;
  Nanos margin = kSecond;
  if (facts_.fault == LaunchFault::kSlowReader) margin += 10 * kSecond;
  if (facts_.fault_ends > facts_.fault_at) margin += facts_.fault_ends - facts_.fault_at;
  for (const RankRun& run : job_.runs) {
    if (!is_failure(run) || !can_report(run) || !can_report(first)) continue;
    if (run.process->ended_at + margin >= first.process->ended_at) continue;
    job_.problem(fmt::format("rank {} is named first, but {} {:.1f} s earlier", ends[0].rank, describe(run),
                             static_cast<double>(first.process->ended_at - run.process->ended_at) / kSecond));
  }
}

// `failed_first`: a rank has failed, at this time.
std::vector<int> LaunchJudge::possible_codes(const RankRun& run, bool failed_first, Nanos first_failure) const {
  constexpr int kLost = 1, kNotStarted = 127;
  if (facts_.fault == LaunchFault::kNoProgram) return {kNotStarted};
  if (run.process == nullptr || !run.process->ended) return {kLost, kExcluded};
  std::vector<int> codes{parallel::process_end(run.process->wait_status).code()};
  if (run.process->killed_by.starts_with("agent")) codes = {failed_first ? kExcluded : kKilled};
  if (!can_report(run)) codes.insert(codes.end(), {kLost, kExcluded});
  const Nanos all_end = first_failure + nanos(job_.options.failure_timeout);
  if (failed_first && run.process->ended_at > all_end - kSecond) codes.push_back(kExcluded);
  return codes;
}

void LaunchJudge::judge_code() {
  if (!ended_by_itself()) return;
  const int code = WEXITSTATUS(job_.launch->wait_status);
  if (!job_.error.empty()) {
    const bool all_began =
        std::all_of(job_.runs.begin(), job_.runs.end(), [](const RankRun& each) { return each.process; });
    const bool is_late = job_.error.find("ranks have not started within") != std::string::npos;
    const bool is_mpirun = job_.error.find("mpirun ended before it had started all ranks") != std::string::npos;
    const bool is_reader = facts_.fault == LaunchFault::kNoReader;
    const bool is_start = (is_late || is_mpirun) && !all_began && may_fail_to_start();
    if (code != 1 || (!is_start && !is_reader)) {
      job_.problem(fmt::format("launch has failed with code {}: {}", code, job_.error));
    }
    if (is_late && job_.world.now() < facts_.begin + nanos(job_.options.start_timeout)) {
      job_.problem("launch has not waited for the start");
    }
    return;
  }
  const bool failed_first = !said_ends().empty();
  Nanos first_failure = kNever - kByForce;
  for (const RankRun& run : job_.runs) {
    if (is_failure(run)) first_failure = std::min(first_failure, run.process->ended_at);
  }
  if (facts_.happened && failed_first && first_failure > facts_.fault_at) first_failure = facts_.fault_at;
  std::set<int> possible{0};
  std::vector<std::vector<int>> all{{}};
  for (const RankRun& run : job_.runs) {
    std::vector<std::vector<int>> longer;
    for (const auto& codes : all) {
      for (const int one : possible_codes(run, failed_first, first_failure)) {
        longer.push_back(codes);
        longer.back().push_back(one);
      }
    }
    std::sort(longer.begin(), longer.end());
    longer.erase(std::unique(longer.begin(), longer.end()), longer.end());
    all = std::move(longer);
  }
  possible.clear();
  for (const auto& codes : all) possible.insert(worst(codes));
  // Nothing is lost where ranks were stopped before they had begun.
  const bool stopped = facts_.stop_at != kNever && !failed_first;
  if (stopped && possible.contains(1)) possible.insert(core::kExitStoppedBySignal);
  if (possible.contains(code)) return;
  std::string text;
  for (const int each : possible) text += fmt::format(" {}", each);
  job_.problem(fmt::format("launch has ended with code {}, expected one of{}", code, text));
}

void LaunchJudge::judge_signals() {
  const int number = facts_.fault == LaunchFault::kUserSignal ? SIGUSR2 : facts_.stop_signal;
  if (facts_.ran_at_stop.empty() || !ended_by_itself()) return;
  for (size_t rank = 0; rank < job_.runs.size(); ++rank) {
    const RankRun& run = job_.runs[rank];
    if (!facts_.ran_at_stop[rank] || !can_report(run)) continue;
    const auto& got = run.process->signals;
    if (std::find(got.begin(), got.end(), number) != got.end()) continue;
    if (run.process->ended && run.process->ended_at < facts_.noted_at + kSecond) continue;
    job_.problem(fmt::format("rank {} has not got {}", rank, core::signal_name(number)));
  }
}

// Returns whether the fault can keep an agent from launch before all have come.
bool LaunchJudge::may_fail_to_start() const {
  switch (facts_.fault) {
    case LaunchFault::kSlowStart:
      return true;
    case LaunchFault::kKillAgent:
    case LaunchFault::kFreezeAgent:
    case LaunchFault::kPauseAgent:
    case LaunchFault::kMachine:
    case LaunchFault::kCut:
    case LaunchFault::kBriefCut:
    case LaunchFault::kReset:
    case LaunchFault::kKillKeeper:
    case LaunchFault::kKillMpirun:
      return facts_.happened;
    default:
      return false;
  }
}

// The others of a rank that has failed have the failure's deadline, and no more.
void LaunchJudge::judge_failure_timeout() {
  if (!ended_by_itself() || (facts_.fault != LaunchFault::kFailure && facts_.fault != LaunchFault::kKillRank)) return;
  Nanos first = kNever;
  for (const RankRun& run : job_.runs) {
    if (is_failure(run)) first = std::min(first, run.process->ended_at);
  }
  if (has_restarted() || first == kNever || facts_.stop_at < first + kByForce) return;
  constexpr Nanos kOnItsWay = 1200 * kMillisecond;  // an end, behind the last lines, and an order to end
  const Nanos timeout = nanos(job_.options.failure_timeout);
  for (size_t rank = 0; rank < job_.runs.size(); ++rank) {
    const RankRun& run = job_.runs[rank];
    if (run.process == nullptr || !run.process->ended) continue;
    const Nanos time = run.process->ended_at - first;
    const bool is_early = run.process->killed_by.starts_with("agent") && time < timeout;
    if (!is_early && time <= timeout + kOnItsWay) continue;
    job_.problem(fmt::format("rank {} has ended {:.2f} s behind the first failure, whose deadline is {:.2f} s", rank,
                             static_cast<double>(time) / kSecond, job_.options.failure_timeout));
  }
}

// Agents that lose launch give their ranks two seconds.
void LaunchJudge::judge_time_to_save() {
  constexpr Nanos kCertain = 1500 * kMillisecond;
  if (ended_by_itself() || is_silent()) return;
  for (size_t rank = 0; rank < job_.runs.size(); ++rank) {
    const RankRun& run = job_.runs[rank];
    const bool ran = run.process != nullptr && run.process->ended && run.process->ended_at > job_.launch->ended_at;
    const bool saves = run.plan.on_stop == RankPlan::OnStop::kSaves && run.plan.time_to_save < kCertain;
    if (ran && saves && !run.process->killed_by.empty()) {
      job_.problem(fmt::format("rank {} was killed by {} before it had saved", rank, run.process->killed_by));
    }
  }
}

}  // namespace trainyard::cluster_simulation
