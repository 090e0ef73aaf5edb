// What exchanging a bucket of gradients costs on links of an alpha-beta model: messages one after another, and bytes
// that pass the same link one after another. Both are counted in the plan of the algorithm (collectives/plan), the one
// that training executes; there is no formula of an algorithm here.
#pragma once

#include <cstdint>
#include <vector>

#include "trainyard/parallel/collectives/plan/algorithm.h"
#include "trainyard/parallel/simulation/link_model.h"

namespace trainyard::parallel {

struct ExchangeCost {
  struct Way {
    double messages = 0, bytes = 0;
  };
  // An exchange that is alone takes the longest of these: the first part, followed by all others as quickly as the
  // busiest link carries them; and the parts of each lane one after another.
  Way pipelined{};
  std::vector<Way> lanes{};
  int busiest = 0;          // a rank with the busiest link
  double busy_bytes = 0;    // that pass this link in the direction that carries more
  double common_bytes = 0;  // that pass the least busy link that was looked at

  // Returns the seconds of the exchange when nothing else uses the links.
  double seconds(const LinkModel& link) const;
};

// Returns the cost of an all-reduce of `elements` floats among `ranks` processes of one replica each, with a machine
// each. `number`: which of the all-reduces of a step it is, for algorithms that take turns between places. Includes the
// messages in which the processes agree on the call. Throws what making the plan throws, where the ranks do not allow
// the algorithm.
//
// Counts the plans of a few ranks, those at the ends and in the middle and their peers, of which one is the busiest in
// every algorithm that there is. A plan of more than kMostCounted elements is not made: its counts are those of two
// smaller ones, continued in a straight line.
ExchangeCost all_reduce_cost(const AlgorithmChoice& choose, int ranks, int64_t elements, uint64_t number);
constexpr int64_t kMostCounted = int64_t{4} << 20;

// Returns the cost of sending `bytes` of gradients from each of `workers` to `servers`, evenly divided, or of sending
// values back: each server's link carries its share of all workers' bytes.
ExchangeCost server_cost(int workers, int servers, double bytes);

}  // namespace trainyard::parallel
