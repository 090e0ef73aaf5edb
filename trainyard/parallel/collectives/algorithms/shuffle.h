// The all-reduce at places: the tensor is cut into shards, all ranks send a shard to its place, which adds the values
// in the order of the ranks and sends the result to all. As build_shuffle_all_reduce() of
// tensorflow/python/distribute/v1/all_reduce.py: all shards have elements / places elements, the last one also the
// rest.
#pragma once

#include <vector>

#include "trainyard/parallel/collectives/algorithms/rank_algorithm.h"

namespace trainyard::parallel {

// The base of algorithms that differ in their places.
class ShuffleAlgorithm : public RankAlgorithm {
 public:
  std::vector<ExchangePart> parts(const ExchangeMembers& members, const CollectiveRequest& request) const override;
  void exchange(RankPlan& plan, const ExchangeMembers& members, const CollectiveRequest& request,
                const ExchangePart& part) const override;

  // Returns the members that reduce a shard each. Throws kInvalidArgument when there are fewer than request.shards.
  virtual std::vector<int> places(const ExchangeMembers& members, const CollectiveRequest& request) const = 0;
};

// Throws kInvalidArgument unless there is a place for each of `shards` shards.
void require_places(size_t places, int64_t shards);

// Returns the group of `size` places that reduces tensor number `number`: the places are distributed over groups, which
// take turns. Where the places do not fill the last group, the first ones are used again, as tf_cnn_benchmarks'
// group_device_names() does. Throws as require_places().
std::vector<int> group_of_places(const std::vector<int>& places, int64_t size, uint64_t number);

}  // namespace trainyard::parallel
