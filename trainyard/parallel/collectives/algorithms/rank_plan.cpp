#include "trainyard/parallel/collectives/algorithms/rank_plan.h"

#include <algorithm>
#include <utility>

#include "trainyard/parallel/collectives/plan/rank_reduction.h"

namespace trainyard::parallel {
namespace {

using Action = Step::Action;

// Parts on their way at a time: the messages of one travel while the values of another are added.
constexpr size_t kPartsAtOnce = 4;

}  // namespace

std::vector<ElementRange> pieces_of(const ElementRange& range, int64_t size) {
  std::vector<ElementRange> pieces;
  for (int64_t at = 0; at < range.count; at += size) {
    pieces.push_back({range.begin + at, std::min(size, range.count - at)});
  }
  return pieces;
}

RankPlan::RankPlan(const CollectiveRequest& request) : layout_(request.layout), type_(request.type) {
  for (int r = 0; r < layout_.local(); ++r) {
    plan_.scratch.push_back({.elements = request.elements, .sums = true, .in_place = true, .replica = r});
  }
}

void RankPlan::begin_part(const std::vector<ElementRange>& ranges) {
  next_phase();
  lane_ = parts_++ % kPartsAtOnce;
  if (lane_ == plan_.lanes.size()) {
    plan_.lanes.push_back({.stream = static_cast<int>(lane_), .window = 1});
    plan_.scratch.push_back({.elements = 0, .sums = true});
  }
  Lane& lane = plan_.lanes[lane_];
  lane.parts.push_back(static_cast<int64_t>(lane.steps.size()));
  if (partial_type(type_) == type_) return;  // values are partial sums where they are
  for (const ElementRange& range : ranges) {
    for (int rank = layout_.first(); range.count > 0 && rank < layout_.end(); ++rank) {
      local_steps_.push_back({.action = Action::kReduce,
                              .elements = range.count,
                              .values = result_of(rank, range.begin),
                              .to = sums_of(rank, range.begin)});
    }
  }
  next_phase();
}

Place RankPlan::temporary(int64_t count) {
  const int index = layout_.local() + static_cast<int>(lane_);
  const Place place = Place::scratch(index, temporary_elements_);
  temporary_elements_ += count;
  int64_t& elements = plan_.scratch[static_cast<size_t>(index)].elements;
  elements = std::max(elements, temporary_elements_);
  return place;
}

void RankPlan::send(int to_process, const ElementRange& range, const Place& from) {
  sends_.push_back({.action = Action::kSend, .peer = to_process, .elements = range.count, .from = from});
}

void RankPlan::receive(int from_process, const ElementRange& range, const Place& to) {
  receives_.push_back({.action = Action::kReceive, .peer = from_process, .elements = range.count, .to = to});
}

void RankPlan::reduce(const std::vector<int>& ranks, int to, const ElementRange& range) {
  if (range.count == 0 || ranks.size() < 2) return;
  if (!is_here(to)) {
    for (const int rank : ranks) {
      if (is_here(rank)) send(layout_.process_of(to), range, sums_of(rank, range.begin));
    }
    return;
  }
  const Place own = sums_of(to, range.begin);
  std::vector<Place> values;
  for (const int rank : ranks) {
    if (is_here(rank)) {
      values.push_back(sums_of(rank, range.begin));
    } else {
      values.push_back(temporary(range.count));
      receive(layout_.process_of(rank), range, values.back());
    }
  }
  // The sum takes the place of the own values as soon as these are in it.
  const auto own_turn = static_cast<size_t>(std::find(ranks.begin(), ranks.end(), to) - ranks.begin());
  Place sum = values[0];
  Place partial;
  for (size_t i = 1; i < values.size(); ++i) {
    Place into = own;
    if (i < own_turn) {
      if (partial.memory == Place::Memory::kNone) partial = temporary(range.count);
      into = partial;
    }
    local_steps_.push_back(
        {.action = Action::kReduce, .elements = range.count, .from = sum, .values = values[i], .to = into});
    sum = into;
  }
}

void RankPlan::finish(int rank, const ElementRange& range) {
  if (range.count == 0 || !is_here(rank)) return;
  local_steps_.push_back({.action = Action::kFinish,
                          .elements = range.count,
                          .from = sums_of(rank, range.begin),
                          .to = result_of(rank, range.begin)});
}

void RankPlan::spread(int from, const std::vector<int>& ranks, const ElementRange& range) {
  if (range.count == 0) return;
  int copied_from = is_here(from) ? from : -1;  // the rank here that has the result
  std::vector<bool> reached;                    // by process; of the one that sends
  if (is_here(from)) reached.resize(static_cast<size_t>(layout_.processes()));
  for (const int rank : ranks) {
    if (rank == from) continue;
    if (!is_here(rank)) {
      if (reached.empty()) continue;
      const int process = layout_.process_of(rank);
      if (!reached[static_cast<size_t>(process)]) send(process, range, result_of(from, range.begin));
      reached[static_cast<size_t>(process)] = true;
    } else if (copied_from < 0) {
      receive(layout_.process_of(from), range, result_of(rank, range.begin));
      copied_from = rank;
    } else {
      local_steps_.push_back({.action = Action::kCopy,
                              .elements = range.count,
                              .from = result_of(copied_from, range.begin),
                              .to = result_of(rank, range.begin)});
    }
  }
}

void RankPlan::next_phase() {
  temporary_elements_ = 0;
  if (plan_.lanes.empty()) return;
  Lane& lane = plan_.lanes[lane_];
  // Reductions and copies wait by themselves for the steps before them.
  const After phase_before{static_cast<int>(lane_), static_cast<int64_t>(lane.steps.size())};
  lane.window = std::max(lane.window, static_cast<int>(sends_.size() + receives_.size()));
  for (auto* steps : {&receives_, &sends_}) {
    for (Step& step : *steps) step.after[0] = phase_before;
  }
  // A message that is sent may be done only when its receiver has copied it, and receivers poll their first message:
  // two ranks that send to each other must both begin with receiving.
  for (auto* steps : {&receives_, &sends_, &local_steps_}) {
    lane.steps.insert(lane.steps.end(), steps->begin(), steps->end());
    steps->clear();
  }
}

CollectivePlan RankPlan::take() {
  next_phase();
  return std::exchange(plan_, {});
}

}  // namespace trainyard::parallel
