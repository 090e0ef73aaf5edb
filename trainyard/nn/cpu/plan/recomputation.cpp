#include "trainyard/nn/cpu/plan/recomputation.h"

#include <algorithm>
#include <cstddef>
#include <limits>

namespace trainyard::nn::cpu {
namespace {

using Steps = std::vector<std::unique_ptr<PlanStep>>;

size_t at(ValueId id) {
  return static_cast<size_t>(id);
}

// The values that backwards read, and those that they read only in the first place.
struct Readers {
  std::vector<bool> kept, pinned;
};

Readers readers_of(const Steps& steps, size_t values) {
  Readers readers{std::vector<bool>(values), std::vector<bool>(values)};
  for (const auto& step : steps) {
    for (ValueId id : step->kept()) readers.kept[at(id)] = true;
    if (!step->pins_inputs()) continue;
    for (ValueId id : step->inputs()) readers.kept[at(id)] = readers.pinned[at(id)] = true;
  }
  return readers;
}

// Outputs that cost at most `most`. None of kNegligible is worth keeping an input for.
std::vector<bool> cheap_ones(const Steps& steps, const std::vector<int64_t>& bytes, RecomputeCost most) {
  std::vector<bool> discarded(bytes.size());
  Readers readers = readers_of(steps, bytes.size());
  for (const auto& step : steps) {
    const ValueId output = step->output();
    if (step->recompute_cost() > most || readers.pinned[at(output)]) continue;
    int64_t newly_kept = 0;
    for (ValueId id : step->inputs()) {
      if (!discarded[at(id)] && !readers.kept[at(id)]) newly_kept += bytes[at(id)];
    }
    if (newly_kept > (most == RecomputeCost::kNegligible ? 0 : bytes[at(output)])) continue;
    discarded[at(output)] = true;
    for (ValueId id : step->inputs()) readers.kept[at(id)] = readers.kept[at(id)] || !discarded[at(id)];
  }
  return discarded;
}

// Returns, by step, the only value made so far that later steps read; -1 where there are several.
std::vector<ValueId> bottlenecks(const Steps& steps, size_t values) {
  std::vector<int> last_reader(values, -1);
  for (const auto& step : steps) {
    for (ValueId id : step->inputs()) last_reader[at(id)] = step->index;
  }
  std::vector<ValueId> result(steps.size(), -1), alive;
  for (const auto& step : steps) {
    alive.push_back(step->output());
    std::erase_if(alive, [&](ValueId id) { return last_reader[at(id)] <= step->index; });
    if (alive.size() == 1) result[static_cast<size_t>(step->index)] = alive.front();
  }
  return result;
}

struct Cuts {
  std::vector<size_t> steps;  // a cut is behind each
  int64_t kept = 0, largest_segment = 0;
};

// Cuts at each bottleneck where the segment behind the last cut has reached `limit` bytes.
Cuts cut_at(int64_t limit, const std::vector<ValueId>& bottlenecks, const std::vector<int64_t>& step_bytes,
            const std::vector<int64_t>& bytes) {
  Cuts cuts;
  int64_t segment = 0;
  for (size_t i = 0; i < step_bytes.size(); ++i) {
    segment += step_bytes[i];
    cuts.largest_segment = std::max(cuts.largest_segment, segment);
    if (segment < limit || bottlenecks[i] < 0) continue;
    cuts.steps.push_back(i);
    cuts.kept += bytes[at(bottlenecks[i])];
    segment = 0;
  }
  return cuts;
}

std::vector<bool> all_but_cuts(const Steps& steps, const std::vector<int64_t>& bytes) {
  constexpr int kTries = 64;  // limits: fractions of all that is kept
  const Readers readers = readers_of(steps, bytes.size());
  const std::vector<ValueId> possible = bottlenecks(steps, bytes.size());
  std::vector<int64_t> step_bytes;
  int64_t all = 0;
  for (const auto& step : steps) {
    step_bytes.push_back(readers.kept[at(step->output())] ? bytes[at(step->output())] : 0);
    all += step_bytes.back();
  }
  Cuts best{.kept = std::numeric_limits<int64_t>::max() / 2};
  for (int i = 1; i <= kTries; ++i) {
    Cuts cuts = cut_at(all * i / kTries, possible, step_bytes, bytes);
    if (cuts.kept + cuts.largest_segment < best.kept + best.largest_segment) best = std::move(cuts);
  }
  std::vector<bool> discarded(bytes.size());
  if (best.steps.empty()) return discarded;
  for (const auto& step : steps) {
    const bool behind = static_cast<size_t>(step->index) > best.steps.back();
    discarded[at(step->output())] =
        !behind && step->recompute_cost() != RecomputeCost::kNever && !readers.pinned[at(step->output())];
  }
  for (size_t cut : best.steps) discarded[at(possible[cut])] = false;
  return discarded;
}

}  // namespace

std::vector<bool> values_to_discard(const Steps& steps, const std::vector<int64_t>& bytes,
                                    Recomputation recomputation) {
  switch (recomputation) {
    case Recomputation::kNone:
      return cheap_ones(steps, bytes, RecomputeCost::kNegligible);
    case Recomputation::kElementwise:
      return cheap_ones(steps, bytes, RecomputeCost::kCheap);
    case Recomputation::kBlocks:
      return all_but_cuts(steps, bytes);
  }
  return std::vector<bool>(bytes.size());
}

}  // namespace trainyard::nn::cpu
