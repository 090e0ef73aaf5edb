// Writes the plan of one process from what all ranks of an algorithm do, in phases: in a phase, some ranks combine
// values of others with their own, or copy results of others. Between ranks of one process that is a step on their
// memory, between processes it is a message. So an algorithm does not know which ranks share a process, and its sums
// have the same bits however ranks are distributed over processes.
//
//   RankPlan plan(request);
//   plan.begin_part({range});                 // for each part of the tensor
//   plan.reduce({1, 0}, 0, range);            // rank 0: its values become those of rank 1 plus its own
//   plan.finish(0, range);
//   plan.next_phase();
//   plan.spread(0, {1}, range);
//   return plan.take();
//
// All processes make the same calls in the same order. What the calls of a phase read, no other call of that phase
// changes, except that finish() follows the reduce() of its range.
#pragma once

#include <cstdint>
#include <vector>

#include "trainyard/parallel/collectives/plan/plan.h"

namespace trainyard::parallel {

// Elements of a tensor. A range of no elements is passed over.
struct ElementRange {
  int64_t begin = 0, count = 0;
};

// Cuts a range into pieces of `size` elements, the last one of which may be shorter.
std::vector<ElementRange> pieces_of(const ElementRange& range, int64_t size);

class RankPlan {
 public:
  explicit RankPlan(const CollectiveRequest& request);

  // Begins a part of the tensor. Parts are exchanged concurrently, a few at a time. `ranges`: all elements of the part.
  void begin_part(const std::vector<ElementRange>& ranges);

  // Combines the values of `ranks` in this order, ((v0 + v1) + v2) + ..., into those of rank `to`, which is one of
  // them.
  void reduce(const std::vector<int>& ranks, int to, const ElementRange& range);
  // Turns the values of a rank, which are those of all ranks combined, into the result of that rank.
  void finish(int rank, const ElementRange& range);
  // Copies the result of a rank to other ranks: one message to each other process.
  void spread(int from, const std::vector<int>& ranks, const ElementRange& range);

  // Later calls find what the calls up to here have done.
  void next_phase();
  // Returns the plan. The builder is empty afterwards.
  CollectivePlan take();

  // Returns true when the rank is one of this process. Calls that name no such rank add nothing to its plan, so an
  // algorithm may leave them out.
  bool is_here(int rank) const { return rank >= layout_.first() && rank < layout_.end(); }

 private:
  Place sums_of(int rank, int64_t begin) const { return Place::scratch(rank - layout_.first(), begin); }
  Place result_of(int rank, int64_t begin) const { return Place::replica(rank - layout_.first(), begin); }
  // Returns memory for `count` partial sums, until the end of the phase.
  Place temporary(int64_t count);
  void send(int to_process, const ElementRange& range, const Place& from);
  void receive(int from_process, const ElementRange& range, const Place& to);

  const RankLayout layout_;
  const at::ScalarType type_;
  CollectivePlan plan_;
  size_t parts_ = 0, lane_ = 0;
  int64_t temporary_elements_ = 0;                    // in use
  std::vector<Step> sends_, receives_, local_steps_;  // of the current phase
};

}  // namespace trainyard::parallel
