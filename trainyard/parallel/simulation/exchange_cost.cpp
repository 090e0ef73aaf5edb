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

constexpr at::ScalarType kGradientType = at::kFloat;
constexpr size_t kMostPeers = 4;

double bytes_of(const CollectivePlan& plan, const Step& step) {
  const Place& place = step.action == Action::kSend ? step.from : step.to;
  const auto width = c10::elementSize(wire_type(plan, element_type(plan, place, kGradientType)));
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

// The parts of a tensor, which are the same in the plans of all ranks. A part takes as long as the rank that is busiest
// with it. That rank may be another one for each part, but where parts are alike what one of them takes, by its size,
// all of them take.
class Parts {
 public:
  void add(const CollectivePlan& plan) {
    if (lanes_.size() < plan.lanes.size()) lanes_.resize(plan.lanes.size());
    for (size_t l = 0; l < plan.lanes.size(); ++l) {
      const Lane& lane = plan.lanes[l];
      if (lanes_[l].size() < lane.parts.size()) lanes_[l].resize(lane.parts.size());
      for (size_t p = 0; p < lane.parts.size(); ++p) {
        const auto end = p + 1 < lane.parts.size() ? lane.parts[p + 1] : static_cast<int64_t>(lane.steps.size());
        add_part(plan, lane, lane.parts[p], end, lanes_[l][p]);
      }
    }
  }

  // `agreement`: messages before the first part.
  void add_ways(double agreement, ExchangeCost& cost) const {
    Way first;
    for (const std::vector<Part>& lane : lanes_) {
      Way whole{.messages = agreement};
      for (const Part& part : lane) {
        whole.messages += part.messages;
        whole.bytes += part.size * bytes_by_size_;
        first.messages = std::max(first.messages, part.messages);
        first.bytes = std::max(first.bytes, part.size * extra_by_size_);
      }
      if (!lane.empty()) cost.lanes.push_back(whole);
    }
    cost.pipelined = {agreement + first.messages, cost.busy_bytes + first.bytes};
  }

 private:
  struct Part {
    double messages = 0;  // one after another
    double size = 0;      // bytes of its longest message
  };

  // Transfers that wait for the same steps are a phase: they are on their way together.
  void add_part(const CollectivePlan& plan, const Lane& lane, int64_t begin, int64_t end, Part& part) {
    double messages = 0, bytes = 0, size = 0;
    Load phase, all;
    int64_t phase_begin = -1;
    const auto end_phase = [&] {
      messages += phase_begin >= 0 ? 1 : 0;
      bytes += phase.busy();
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
      all.add(plan, step);
      size = std::max(size, bytes_of(plan, step));
    }
    end_phase();
    part.messages = std::max(part.messages, messages);
    part.size = std::max(part.size, size);
    if (size == 0) return;
    bytes_by_size_ = std::max(bytes_by_size_, bytes / size);
    extra_by_size_ = std::max(extra_by_size_, (bytes - all.busy()) / size);
  }

  std::vector<std::vector<Part>> lanes_;
  // Counts in longest messages of a part: those that pass the busiest rank's link phase by phase, and how many more
  // these are than pass it in one direction.
  double bytes_by_size_ = 0, extra_by_size_ = 0;
};

class Counter {
 public:
  Counter(const AlgorithmChoice& choose, int ranks, uint64_t number) : choose_(choose), ranks_(ranks) {
    request_ = {.kind = CollectiveCall::Kind::kAllReduce, .type = kGradientType, .number = number};
    request_.layout.first_ranks.resize(static_cast<size_t>(ranks) + 1);
    std::iota(request_.layout.first_ranks.begin(), request_.layout.first_ranks.end(), 0);
  }

  ExchangeCost count(int64_t elements) {
    ExchangeCost cost{.common_bytes = std::numeric_limits<double>::infinity()};
    Parts parts;
    bool chained = false;
    int64_t longest = 0;  // step
    std::set<int> peers;
    const auto count_rank = [&](int rank) {
      const CollectivePlan plan = plan_of(rank, elements);
      const double busy = load_of(plan).busy();
      cost.common_bytes = std::min(cost.common_bytes, busy);
      if (busy > cost.busy_bytes) {
        cost.busy_bytes = busy;
        cost.busiest = rank;
      }
      std::set<int> own;
      for (const Lane& lane : plan.lanes) {
        chained = chained || lane.early;
        for (const Step& step : lane.steps) {
          longest = std::max(longest, step.elements);
          if (is_transfer(step) && own.size() < kMostPeers) own.insert(step.peer);
        }
      }
      peers.merge(own);
      parts.add(plan);
    };
    const std::set<int> first = {0, ranks_ / 2, ranks_ - 1};
    for (const int rank : first) count_rank(rank);
    for (const int rank : std::set<int>(peers)) {
      if (!first.contains(rank)) count_rank(rank);
    }
    if (chained) {
      cost.pipelined = way_along_chain(longest, cost);
    } else {
      parts.add_ways(2.0 * (ranks_ - 1), cost);
    }
    return cost;
  }

 private:
  CollectivePlan plan_of(int rank, int64_t elements) {
    request_.layout.process = rank;
    request_.elements = elements;
    return choose_(request_).plan(request_);
  }

  // The chain passes a chunk through all processes and back while later ones follow: the time of one chunk is taken
  // from the plans of all processes, of the others from the busiest link. The agreement travels with it.
  Way way_along_chain(int64_t chunk, const ExchangeCost& cost) {
    std::vector<CollectivePlan> plans;
    for (int rank = 0; rank < ranks_; ++rank) plans.push_back(plan_of(rank, chunk));
    const double messages = plan_seconds(plans, kGradientType, {1, std::numeric_limits<double>::infinity()});
    const double bytes = plan_seconds(plans, kGradientType, {0, 1});
    const double first = load_of(plans[static_cast<size_t>(cost.busiest)]).busy();
    return {messages, cost.busy_bytes + bytes - first};
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
