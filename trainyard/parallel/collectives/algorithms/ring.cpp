// "ring": the rings pass the ranks in their order, every second one in the opposite direction.
#include "trainyard/parallel/collectives/algorithms/ring.h"

#include <algorithm>

namespace trainyard::parallel {

std::vector<ExchangePart> RingAlgorithm::parts(const ExchangeMembers& members, const CollectiveRequest& request) const {
  // Segment i of ring s is piece i * rings + s of rings * members pieces; the last ones may be short or empty.
  const auto count = static_cast<int64_t>(members.all().size());
  const int64_t rings = request.shards, pieces = rings * count, size = (request.elements + pieces - 1) / pieces;
  const int64_t chunk = chunk_elements(request.type);
  std::vector<ExchangePart> parts;
  for (int64_t at = 0; at < size; at += chunk) {
    for (int64_t ring = 0; ring < rings; ++ring) {
      ExchangePart part{.ranges = {}, .variant = static_cast<int>(ring)};
      for (int64_t segment = 0; segment < count; ++segment) {
        const int64_t begin = (segment * rings + ring) * size;
        const int64_t end = std::min({begin + size, begin + at + chunk, request.elements});
        part.ranges.push_back({begin + at, std::max(int64_t{0}, end - begin - at)});
      }
      parts.push_back(std::move(part));
    }
  }
  return parts;
}

void RingAlgorithm::exchange(RankPlan& plan, const ExchangeMembers& members, const CollectiveRequest& request,
                             const ExchangePart& part) const {
  const std::vector<int> ranks = order(members, part.variant, request.shards);
  const auto count = static_cast<int>(ranks.size());
  const auto rank_at = [&](int position) { return ranks[static_cast<size_t>((position + count) % count)]; };
  const auto range_of = [&](int segment) { return part.ranges[static_cast<size_t>((segment + 2 * count) % count)]; };
  // Those whose rank is here, or the one before it: of thousands of ranks a few.
  std::vector<int> positions;
  for (int position = 0; position < count; ++position) {
    if (plan.is_here(rank_at(position)) || plan.is_here(rank_at(position - 1))) positions.push_back(position);
  }
  for (int tick = 0; tick < count - 1; ++tick) {
    for (const int position : positions) {
      const int own = rank_at(position);
      plan.reduce({rank_at(position - 1), own}, own, range_of(position - 2 - tick));
    }
    plan.next_phase();
  }
  for (const int position : positions) plan.finish(rank_at(position), range_of(position));
  plan.next_phase();
  for (int tick = 0; tick < count - 1; ++tick) {
    for (const int position : positions) {
      plan.spread(rank_at(position - 1), {rank_at(position)}, range_of(position - 1 - tick));
    }
    plan.next_phase();
  }
}

namespace {

class Ring final : public RingAlgorithm {
 public:
  std::vector<int> order(const ExchangeMembers& members, int ring, int64_t /*rings*/) const override {
    std::vector<int> ranks = members.all();
    if (ring % 2 == 1) std::reverse(ranks.begin(), ranks.end());
    return ranks;
  }
};

const core::Registration kRing(collective_algorithms(), "ring", std::make_shared<Ring>());

}  // namespace
}  // namespace trainyard::parallel
