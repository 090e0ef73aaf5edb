// "rechd": recursive halving and doubling (Thakur, Rabenseifner and Gropp, Optimization of Collective Communication
// Operations in MPICH, 2005). In round h, ranks at a distance of 2^h exchange halves of what they still combine: the
// first half goes to the one with the lower position. Then results travel the same way in the opposite order. Values
// are added as in build_recursive_hd_all_reduce() of tensorflow/python/distribute/v1/all_reduce.py, for any number of
// elements.
//
// Of n ranks, p are active, the largest power of two up to n. The first 2 (n - p) ranks form pairs, in which the second
// one gives its values to the first and receives the result at the end.
#include <bit>

#include "trainyard/parallel/collectives/algorithms/rank_algorithm.h"

namespace trainyard::parallel {
namespace {

class RecursiveHalving final : public RankAlgorithm {
 public:
  std::vector<ExchangePart> parts(const ExchangeMembers& members, const CollectiveRequest& request) const override {
    std::vector<ExchangePart> parts;
    const auto active = static_cast<int64_t>(std::bit_floor(members.all().size()));
    for (const ElementRange& piece : pieces_of({0, request.elements}, active * chunk_elements(request.type))) {
      parts.push_back({.ranges = {piece}});
    }
    return parts;
  }

  void exchange(RankPlan& plan, const ExchangeMembers& members, const CollectiveRequest& /*request*/,
                const ExchangePart& part) const override {
    const std::vector<int>& ranks = members.all();
    const size_t count = std::bit_floor(ranks.size()), pairs = ranks.size() - count;
    std::vector<int> active;
    for (size_t i = 0; i < ranks.size(); i += i < 2 * pairs ? 2 : 1) active.push_back(ranks[i]);
    for (size_t i = 0; i < pairs; ++i) plan.reduce({ranks[2 * i], ranks[2 * i + 1]}, ranks[2 * i], part.ranges[0]);
    plan.next_phase();
    halve(plan, active, part.ranges[0]);
    for (size_t i = 0; i < pairs; ++i) plan.spread(ranks[2 * i], {ranks[2 * i + 1]}, part.ranges[0]);
    plan.next_phase();
  }

 private:
  static void halve(RankPlan& plan, const std::vector<int>& ranks, const ElementRange& all) {
    // What each rank combines in a round: [round][position].
    std::vector<std::vector<ElementRange>> rounds = {std::vector<ElementRange>(ranks.size(), all)};
    for (size_t span = 1; span < ranks.size(); span *= 2) {
      std::vector<ElementRange> halves = rounds.back();
      for (size_t left = 0; left < ranks.size(); ++left) {
        if (left % (2 * span) >= span) continue;
        const size_t right = left + span;
        const int64_t second = halves[left].count / 2, first = halves[left].count - second;
        halves[left].count = first;
        halves[right] = {halves[right].begin + first, second};
        plan.reduce({ranks[left], ranks[right]}, ranks[left], halves[left]);
        plan.reduce({ranks[left], ranks[right]}, ranks[right], halves[right]);
      }
      plan.next_phase();
      rounds.push_back(std::move(halves));
    }
    for (size_t i = 0; i < ranks.size(); ++i) plan.finish(ranks[i], rounds.back()[i]);
    plan.next_phase();
    for (size_t span = ranks.size() / 2; span > 0; span /= 2) {
      const std::vector<ElementRange>& halves = rounds.back();
      for (size_t left = 0; left < ranks.size(); ++left) {
        if (left % (2 * span) >= span) continue;
        plan.spread(ranks[left], {ranks[left + span]}, halves[left]);
        plan.spread(ranks[left + span], {ranks[left]}, halves[left + span]);
      }
      plan.next_phase();
      rounds.pop_back();
    }
  }
};

const core::Registration kRecursiveHalving(collective_algorithms(), "rechd", std::make_shared<RecursiveHalving>());

}  // namespace
}  // namespace trainyard::parallel
