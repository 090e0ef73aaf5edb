#include "trainyard/parallel/simulation/exchange_cost.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "trainyard/parallel/simulation/plan_timeline.h"

namespace trainyard::parallel {
namespace {

using Action = Step::Action;
using Way = ExchangeCost::Way;

constexpr at::ScalarType kType = at::kFloat;
constexpr size_t kMostPeers = 4;

double bytes_of(const CollectivePlan& plan, const Step& step) {
  const Place& place = step.action == Action::kSend ? step.from : step.to;
  const auto width = c10::elementSize(wire_type(plan, element_type(plan, place, kType)));
  return static_cast<double>(step.elements) * static_cast<double>(width);
}

// What passes a link in its two directions.
struct Load {
  double sent = 0, received = 0;
  double busy() const { return std::max(sent, received); }
  void add(const CollectivePlan& plan, const Step& step) {
    (step.action == Action::kSend ? sent : received) += bytes_of(plan, step);
  }
};

Load load_of(const CollectivePlan& plan) {
  Load load;
  for (const Lane& lane : plan.lanes) {
    for (const Step& step : lane.steps) {
      if (is_transfer(step)) load.add(plan, step);
    }
  }
  return load;
}

class Counter {
 public:
  Counter(const AlgorithmChoice& choose, int ranks, uint64_t number) : choose_(choose), ranks_(ranks) {
    request_ = {.kind = CollectiveCall::Kind::kAllReduce, .type = kType, .number = number};
    request_.layout.first_ranks.resize(static_cast<size_t>(ranks) + 1);
    std::iota(request_.layout.first_ranks.begin(), request_.layout.first_ranks.end(), 0);
  }

  ExchangeCost count(int64_t elements) {
    ExchangeCost cost{.common_bytes = std::numeric_limits<double>::infinity()};
    CollectivePlan busiest;
    for (const int rank : some_ranks(elements)) {
      CollectivePlan plan = plan_of(rank, elements);
      const double busy = load_of(plan).busy();
      cost.common_bytes = std::min(cost.common_bytes, busy);
      if (busy <= cost.busy_bytes && !busiest.lanes.empty()) continue;
      cost.busy_bytes = busy;
      cost.busiest = rank;
      busiest = std::move(plan);
    }
    const bool chained = std::any_of(busiest.lanes.begin(), busiest.lanes.end(), [](const Lane& l) { return l.early; });
    if (chained) {
      cost.pipelined = way_along_chain(busiest, cost);
    } else {
      add_ways_of_parts(busiest, cost);
    }
    return cost;
  }

 private:
  CollectivePlan plan_of(int rank, int64_t elements) {
    request_.layout.process = rank;
    request_.elements = elements;
    return choose_(request_).plan(request_);
  }

  std::set<int> some_ranks(int64_t elements) {
    std::set<int> ranks = {0, ranks_ / 2, ranks_ - 1}, peers;
    for (const int rank : ranks) {
      std::set<int> own;
      // Fewer elements have the same peers, unless there are too few for each of them.
      for (const Lane& lane : plan_of(rank, std::min<int64_t>(elements, 4 * ranks_)).lanes) {
        for (const Step& step : lane.steps) {
          if (is_transfer(step) && own.size() < kMostPeers) own.insert(step.peer);
        }
      }
      peers.merge(own);
    }
    ranks.merge(peers);
    return ranks;
  }

  // The chain passes a chunk through all processes and back while later ones follow: the time of one chunk is taken
  // from the plans of all processes, of the others from the busiest link. The agreement travels with it.
  Way way_along_chain(const CollectivePlan& busiest, const ExchangeCost& cost) {
    int64_t chunk = 0;
    for (const Lane& lane : busiest.lanes) {
      for (const Step& step : lane.steps) chunk = std::max(chunk, step.elements);
    }
    std::vector<CollectivePlan> plans;
    for (int rank = 0; rank < ranks_; ++rank) plans.push_back(plan_of(rank, chunk));
    const double messages = plan_seconds(plans, kType, {1, std::numeric_limits<double>::infinity()});
    const double bytes = plan_seconds(plans, kType, {0, 1});
    const double first = load_of(plans[static_cast<size_t>(cost.busiest)]).busy();
    return {messages, cost.busy_bytes + bytes - first};
  }

  // Transfers of a part that wait for the same steps are a phase: they are on their way together.
  void add_ways_of_parts(const CollectivePlan& plan, ExchangeCost& cost) const {
    const double agreement = 2.0 * (ranks_ - 1);
    Way pipelined;
    double most_extra = 0;
    for (const Lane& lane : plan.lanes) {
      Way whole{.messages = agreement};
      for (size_t part = 0; part < lane.parts.size(); ++part) {
        const bool last = part + 1 == lane.parts.size();
        const int64_t end = last ? static_cast<int64_t>(lane.steps.size()) : lane.parts[part + 1];
        const Way way = way_of_part(plan, lane, lane.parts[part], end, most_extra);
        whole.messages += way.messages;
        whole.bytes += way.bytes;
        pipelined.messages = std::max(pipelined.messages, way.messages);
      }
      cost.lanes.push_back(whole);
    }
    cost.pipelined = {agreement + pipelined.messages, cost.busy_bytes + most_extra};
  }

  static Way way_of_part(const CollectivePlan& plan, const Lane& lane, int64_t begin, int64_t end, double& most_extra) {
    Way way;
    Load phase, part;
    int64_t phase_begin = -1;
    const auto end_phase = [&] {
      if (phase_begin >= 0) ++way.messages;
      way.bytes += phase.busy();
      phase = {};
    };
    for (int64_t i = begin; i < end; ++i) {
      const Step& step = lane.steps[static_cast<size_t>(i)];
      if (!is_transfer(step)) continue;
      if (step.after[0].steps != phase_begin) {
        end_phase();
        phase_begin = step.after[0].steps;
      }
      phase.add(plan, step);
      part.add(plan, step);
    }
    end_phase();
    most_extra = std::max(most_extra, way.bytes - part.busy());
    return way;
  }

  const AlgorithmChoice& choose_;
  const int ranks_;
  CollectiveRequest request_;
};

// Returns what lies on the straight line through the values at half of `kMostCounted` and at all of it.
double continued(double half, double whole, int64_t elements) {
  const double beyond = static_cast<double>(elements - kMostCounted) / (0.5 * static_cast<double>(kMostCounted));
  return whole + beyond * (whole - half);
}
Way continued(const Way& half, const Way& whole, int64_t elements) {
  return {continued(half.messages, whole.messages, elements), continued(half.bytes, whole.bytes, elements)};
}

}  // namespace

double ExchangeCost::seconds(const LinkModel& link) const {
  double longest = link.seconds(pipelined.messages, pipelined.bytes);
  for (const Way& lane : lanes) longest = std::max(longest, link.seconds(lane.messages, lane.bytes));
  return longest;
}

ExchangeCost all_reduce_cost(const AlgorithmChoice& choose, int ranks, int64_t elements, uint64_t number) {
  if (ranks < 2 || elements == 0) return {};
  Counter counter(choose, ranks, number);
  if (elements <= kMostCounted) return counter.count(elements);
  const ExchangeCost half = counter.count(kMostCounted / 2);
  ExchangeCost cost = counter.count(kMostCounted);
  cost.busy_bytes = continued(half.busy_bytes, cost.busy_bytes, elements);
  cost.common_bytes = continued(half.common_bytes, cost.common_bytes, elements);
  cost.pipelined = continued(half.pipelined, cost.pipelined, elements);
  const double times = static_cast<double>(elements) / static_cast<double>(kMostCounted);
  for (size_t i = 0; i < cost.lanes.size(); ++i) {
    Way& lane = cost.lanes[i];
    // A lane that is not used at half the size grows with the number of parts.
    lane = i < half.lanes.size() ? continued(half.lanes[i], lane, elements)
                                 : Way{times * lane.messages, times * lane.bytes};
  }
  return cost;
}

ExchangeCost server_cost(int workers, int servers, double bytes) {
  const double own = bytes, at_server = bytes * workers / servers;
  return {.pipelined = {.messages = 1, .bytes = std::max(own, at_server)},
          .busiest = -1,
          .busy_bytes = std::max(own, at_server),
          .common_bytes = std::max(own, at_server)};
}

}  // namespace trainyard::parallel
