// "shuffle": the places are spread evenly over all ranks.
#include "trainyard/parallel/collectives/algorithms/shuffle.h"

#include <algorithm>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"

namespace trainyard::parallel {

std::vector<ExchangePart> ShuffleAlgorithm::parts(const ExchangeMembers& members,
                                                  const CollectiveRequest& request) const {
  const auto shards = static_cast<int64_t>(places(members, request).size());
  const int64_t size = request.elements / shards, last = request.elements - (shards - 1) * size;
  const int64_t chunk = request.elements_of_chunk();
  std::vector<ExchangePart> parts;
  // The shards take turns, so that their places work at the same time: few parts are on their way at once.
  for (int64_t at = 0; at < last; at += chunk) {
    for (int64_t shard = 0; shard < shards; ++shard) {
      const int64_t left = (shard + 1 == shards ? last : size) - at;
      if (left <= 0) continue;
      parts.push_back({.ranges = {{shard * size + at, std::min(left, chunk)}}, .variant = static_cast<int>(shard)});
    }
  }
  return parts;
}

void ShuffleAlgorithm::exchange(RankPlan& plan, const ExchangeMembers& members, const CollectiveRequest& request,
                                const ExchangePart& part) const {
  const int place = places(members, request)[static_cast<size_t>(part.variant)];
  const std::vector<int>& ranks = members.all();
  plan.reduce(ranks, place, part.ranges[0]);
  plan.finish(place, part.ranges[0]);
  plan.next_phase();
  plan.spread(place, ranks, part.ranges[0]);
  plan.next_phase();
}

void require_places(size_t places, int64_t shards) {
  if (shards <= static_cast<int64_t>(places)) return;
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = fmt::format("only {} devices, but group_size={}", places, shards),
                     .remedy = fmt::format("write at most #{} shards in all_reduce_spec", places)});
}

std::vector<int> group_of_places(const std::vector<int>& places, int64_t size, uint64_t number) {
  require_places(places.size(), size);
  const auto count = static_cast<int64_t>(places.size()), groups = (count + size - 1) / size;
  std::vector<int> group;
  for (auto i = static_cast<int64_t>(number % static_cast<uint64_t>(groups)); i < groups * size; i += groups) {
    group.push_back(places[static_cast<size_t>(i % count)]);
  }
  return group;
}

namespace {

class Shuffle final : public ShuffleAlgorithm {
 public:
  std::vector<int> places(const ExchangeMembers& members, const CollectiveRequest& request) const override {
    const std::vector<int>& ranks = members.all();
    require_places(ranks.size(), request.shards);
    std::vector<int> places;
    for (int64_t shard = 0; shard < request.shards; ++shard) {
      places.push_back(ranks[static_cast<size_t>(shard) * ranks.size() / static_cast<size_t>(request.shards)]);
    }
    return places;
  }
};

const core::Registration kShuffle(collective_algorithms(), "shuffle", std::make_shared<Shuffle>());

}  // namespace
}  // namespace trainyard::parallel
