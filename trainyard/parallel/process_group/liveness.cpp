#include "trainyard/parallel/process_group/liveness.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace trainyard::parallel {

using core::Error;
using core::ErrorCode;
using std::chrono::milliseconds;

namespace {

constexpr milliseconds kLongestBeat{200}, kShortestBeat{10};
constexpr int kBeatsUntilStale = 5;
constexpr milliseconds kMoreForAll{3000};  // where all wait: by then each has said what it has begun

double in_seconds(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

Error failed(std::string_view noun, int rank, std::string_view how, const Activity& last, std::string actual) {
  return {ErrorCode::kPeerFailed,
          {.problem = fmt::format("{} {} {}", noun, rank, how),
           .where = described(last),
           .actual = std::move(actual),
           .remedy = fmt::format("look at what {} {} said last", noun, rank)}};
}

}  // namespace

std::string described(const Activity& activity) {
  return activity.step < 0 ? activity.operation : fmt::format("step {}, {}", activity.step, activity.operation);
}

milliseconds heartbeat_interval(const RankDeadlines& deadlines) {
  return std::clamp(std::min(deadlines.start, deadlines.step) / 10, kShortestBeat, kLongestBeat);
}

Error rank_died(int rank, const Activity& last, const std::string& noun) {
  return failed(noun, rank, "has died", last, "its connection has closed");
}

Error rank_is_frozen(int rank, const Activity& last, milliseconds silence, const std::string& noun) {
  return failed(noun, rank, "does not answer", last, fmt::format("no heart beat for {:.3g} s", in_seconds(silence)));
}

Error exchange_is_stalled(int rank, const Activity& last, milliseconds silence) {
  return failed("rank", rank, "does not go on", last,
                fmt::format("its exchange has stood still for {:.3g} s", in_seconds(silence)));
}

Liveness::Liveness(int size, RankDeadlines deadlines, Time now, std::string noun, RankPace pace)
    : deadlines_(deadlines), began_(now), noun_(std::move(noun)), pace_(pace), ranks_(static_cast<size_t>(size)) {}

void Liveness::heard(int rank, const Activity& activity, Time now, uint64_t work) {
  Rank& known = ranks_.at(static_cast<size_t>(rank));
  const bool same_wait = known.came && known.activity.begun == activity.begun && known.activity.done == activity.done;
  if (!same_wait) known.waits_since = now;
  if (!known.came || known.work != work || activity.elsewhere > 0) known.worked = now;
  known.work = work;
  known.came = true;
  known.activity = activity;
  known.heard = now;
}

void Liveness::begun(int rank, int64_t step) {
  Activity& activity = ranks_.at(static_cast<size_t>(rank)).activity;
  if (step <= activity.step) return;
  activity.operation = "compute";
  activity.step = step;
}

void Liveness::closed(int rank, Time now) {
  ranks_.at(static_cast<size_t>(rank)).closed = now;
}

bool Liveness::stale(const Rank& rank, Time now) const {
  return now - rank.heard > kBeatsUntilStale * heartbeat_interval(deadlines_);
}

milliseconds Liveness::deadline() const {
  const bool starting =
      std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return !rank.left && rank.activity.step < 0; });
  return starting ? deadlines_.start : deadlines_.step;
}

std::optional<Error> Liveness::judge(Time now) const {
  if (auto error = never_came(now)) return error;
  if (auto error = frozen(now)) return error;
  if (auto error = died(now)) return error;
  return pace_ == RankPace::kOwn ? idle(now) : stuck(now);
}

std::optional<Error> Liveness::never_came(Time now) const {
  if (now - began_ <= deadlines_.start) return std::nullopt;
  std::vector<size_t> missing;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    if (!ranks_[r].came) missing.push_back(r);
  }
  if (missing.empty()) return std::nullopt;
  return Error(ErrorCode::kTimeout, {.problem = fmt::format("{} of {} {}s have not come in {:.3g} s", missing.size(),
                                                            ranks_.size(), noun_, in_seconds(deadlines_.start)),
                                     .where = "start",
                                     .actual = fmt::format("nothing from {} {}", noun_, fmt::join(missing, ", ")),
                                     .remedy = "look whether they run, and what they said last"});
}

std::optional<Error> Liveness::frozen(Time now) const {
  const Rank* silent = nullptr;
  for (const Rank& rank : ranks_) {
    if (rank.heard_of() && (silent == nullptr || rank.heard < silent->heard)) silent = &rank;
  }
  if (silent == nullptr || now - silent->heard <= deadline()) return std::nullopt;
  return rank_is_frozen(static_cast<int>(silent - ranks_.data()), silent->activity, deadline(), noun_);
}

std::optional<Error> Liveness::died(Time now) const {
  const Rank* first = nullptr;
  for (const Rank& rank : ranks_) {
    if (rank.closed && !rank.left && (first == nullptr || *rank.closed < *first->closed)) first = &rank;
  }
  if (first == nullptr) return std::nullopt;
  // The silent one is heard again, or it is frozen.
  const auto is_silent = [&](const Rank& rank) { return rank.heard_of() && !rank.closed && stale(rank, now); };
  if (std::any_of(ranks_.begin(), ranks_.end(), is_silent)) return std::nullopt;
  return rank_died(static_cast<int>(first - ranks_.data()), first->activity, noun_);
}

std::optional<Error> Liveness::stuck(Time now) const {
  const milliseconds longest = deadline();
  const auto waits_too_long = [&](const Rank& rank) {
    return rank.heard_of() && rank.activity.waits() && now - rank.waits_since > longest;
  };
  const auto waiting = std::find_if(ranks_.begin(), ranks_.end(), waits_too_long);
  if (waiting == ranks_.end()) return std::nullopt;
  // What a silent rank has begun since is not known: it is heard again, or it is frozen.
  if (std::any_of(ranks_.begin(), ranks_.end(), [&](const Rank& rank) { return !rank.left && stale(rank, now); })) {
    return std::nullopt;
  }
  const auto place = [](const Rank& rank) { return std::tuple(rank.left, rank.activity.waits(), rank.activity.begun); };
  const auto behind =
      std::min_element(ranks_.begin(), ranks_.end(), [&](const Rank& a, const Rank& b) { return place(a) < place(b); });
  // Whom it waits for is found out there.
  if (behind->activity.elsewhere > 0) return std::nullopt;
  const auto rank = static_cast<int>(behind - ranks_.begin());
  if (!behind->activity.waits() || behind->activity.begun < waiting->activity.begun) {
    return failed(
        noun_, rank, "does not go on", behind->activity,
        fmt::format("the others have waited {:.3g} s for it in {}", in_seconds(longest), waiting->activity.operation));
  }
  // All of them wait, and no rank is known that they wait for: one may have begun since its last heartbeat.
  if (now - waiting->waits_since <= longest + std::min(longest / 2, kMoreForAll)) return std::nullopt;
  return failed(noun_, rank, "waits as all others do", behind->activity, "what they exchange does not arrive");
}

std::optional<Error> Liveness::idle(Time now) const {
  for (const Rank& rank : ranks_) {
    // What a silent rank has done since is not known: it is heard again, or it is frozen.
    if (!rank.heard_of() || rank.closed || stale(rank, now)) continue;
    const milliseconds longest = rank.activity.step < 0 ? deadlines_.start : deadlines_.step;
    if (now - rank.worked <= longest) continue;
    return failed(noun_, static_cast<int>(&rank - ranks_.data()), "does not go on", rank.activity,
                  fmt::format("it has got nothing done for {:.3g} s", in_seconds(longest)));
  }
  return std::nullopt;
}

}  // namespace trainyard::parallel
