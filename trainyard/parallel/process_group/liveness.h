// Decides which rank keeps the others waiting: one that has died, that is frozen, or that runs without making progress.
//
// Each rank sends heartbeats: its operation and step, and how many meetings (collective calls) it has begun and done.
// All ranks have the same meetings in the same order, so among ranks without progress the others wait for the one that
// has begun the fewest. Ranks that run at their own pace have no meetings: each is judged by what it gets done.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/base/error.h"

namespace trainyard::parallel {

// The current activity of a rank.
struct Activity {
  std::string operation = "start";
  int64_t step = -1;            // below 0: the first step has not begun
  int64_t begun = 0, done = 0;  // meetings; a rank with begun > done waits for others
  int64_t elsewhere = 0;        // its threads that wait where others judge, such as for parameter servers

  bool waits() const { return begun > done; }
  bool operator==(const Activity&) const = default;
};

// Returns "step 17, all-reduce", or the operation alone before the first step.
[[nodiscard]] std::string described(const Activity& activity);

// How long ranks wait for each other: before the first step of the slowest of them, and from then on.
struct RankDeadlines {
  std::chrono::milliseconds start = std::chrono::minutes(10);
  std::chrono::milliseconds step = std::chrono::minutes(2);
};

// Returns the time between two heartbeats of a rank.
[[nodiscard]] std::chrono::milliseconds heartbeat_interval(const RankDeadlines& deadlines);

// Returns the error of a rank that has died. All ranks get the same error. `noun` is what it calls a rank.
core::Error rank_died(int rank, const Activity& last, const std::string& noun = "rank");
// Returns the error of a rank that has sent no heartbeat for `silence`.
core::Error rank_is_frozen(int rank, const Activity& last, std::chrono::milliseconds silence,
                           const std::string& noun = "rank");

// Returns the error of a rank that waits for the others while its own exchange has made no progress for `silence`.
core::Error exchange_is_stalled(int rank, const Activity& last, std::chrono::milliseconds silence);

// Whether ranks wait for each other in each step, or run at their own pace.
enum class RankPace : uint8_t { kTogether, kOwn };

// Not thread-safe.
class Liveness {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // `noun` is what errors call a rank.
  Liveness(int size, RankDeadlines deadlines, Time now, std::string noun = "rank", RankPace pace = RankPace::kTogether);

  // `work` is a count that changes while the rank makes progress. RankPace::kOwn needs it: the rank is to blame when
  // the count stays the same for a deadline in which the rank does not wait elsewhere, although no other one waits.
  void heard(int rank, const Activity& activity, Time now, uint64_t work = 0);
  // The rank has begun this step, as another message than a heartbeat says.
  void begun(int rank, int64_t step);
  // The rank's connection has closed, and it has given no reason. That is the cause of what follows, unless another
  // rank was silent before: a rank that waits for a silent one may end before that one's deadline is over.
  void closed(int rank, Time now);
  // The rank has left: it is not heard of any more, and keeps no others waiting.
  void left(int rank) { ranks_.at(static_cast<size_t>(rank)).left = true; }
  const Activity& last(int rank) const { return ranks_.at(static_cast<size_t>(rank)).activity; }
  // Returns why the ranks cannot continue, if so: kTimeout, which names the ranks that have never connected, or
  // kPeerFailed.
  [[nodiscard]] std::optional<core::Error> judge(Time now) const;

 private:
  struct Rank {
    bool came = false, left = false;
    bool heard_of() const { return came && !left; }
    Activity activity{};
    Time heard{}, waits_since{}, worked{};  // worked: got something done, or waited elsewhere
    uint64_t work = 0;
    std::optional<Time> closed{};
  };
  std::optional<core::Error> never_came(Time now) const;
  std::optional<core::Error> frozen(Time now) const;
  std::optional<core::Error> died(Time now) const;
  std::optional<core::Error> stuck(Time now) const;
  std::optional<core::Error> idle(Time now) const;  // RankPace::kOwn
  // Returns whether the rank was not heard of for several heartbeats.
  bool stale(const Rank& rank, Time now) const;
  // Returns the deadline of what the ranks do now.
  std::chrono::milliseconds deadline() const;

  const RankDeadlines deadlines_;
  const Time began_;
  const std::string noun_;
  const RankPace pace_;
  std::vector<Rank> ranks_;
};

}  // namespace trainyard::parallel
