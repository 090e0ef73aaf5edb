// A chain of processes. Partial sums travel from the first process to the last: each adds its own replicas' values in
// their order to what comes from the process before, so that the order of each sum is that of the global ranks,
// ((g0 + g1) + g2) + g3, and does not depend on how they are spread over processes. Results travel back while later
// chunks still come. A process sends at most twice the bytes of the vector, as in a ring.
#include <algorithm>
#include <utility>

#include "trainyard/parallel/collectives/plan/algorithm.h"
#include "trainyard/parallel/collectives/plan/rank_reduction.h"

namespace trainyard::parallel {
namespace {

using Action = Step::Action;
using Kind = CollectiveCall::Kind;

enum Stream { kForward, kBackward };
enum LaneIndex { kFromBefore, kWork, kToBehind, kFromBehind, kSpread, kToBefore, kLanes };

// The lanes of a process of the chain, in the order in which they get their turns.
class ChainPlan {
 public:
  explicit ChainPlan(const CollectiveRequest& request)
      : layout_(request.layout), before_(layout_.process - 1), behind_(layout_.process + 1) {
    plan_.lanes.resize(kLanes);
    for (const LaneIndex lane : {kFromBehind, kToBefore}) plan_.lanes[lane].stream = kBackward;
    // What goes back takes the place of values that others still need if they disagree.
    for (const LaneIndex lane : {kFromBefore, kWork, kToBehind}) plan_.lanes[lane].early = true;
  }

  bool is_first() const { return before_ < 0; }
  bool is_last() const { return behind_ == layout_.processes(); }
  int window() const { return plan_.lanes[kFromBefore].window; }
  int add_scratch(const CollectivePlan::Scratch& scratch) {
    plan_.scratch.push_back(scratch);
    return static_cast<int>(plan_.scratch.size()) - 1;
  }

  void receive_from_before(int64_t elements, const Place& to, const After& after = {}) {
    add(kFromBefore, {.action = Action::kReceive, .peer = before_, .elements = elements, .to = to, .after = {after}});
  }
  void receive_from_behind(int64_t elements, const Place& to, const After& after = {}) {
    add(kFromBehind, {.action = Action::kReceive, .peer = behind_, .elements = elements, .to = to, .after = {after}});
  }
  void send_behind(int64_t elements, const Place& from, const After& after = {}, const After& too = {}) {
    add(kToBehind,
        {.action = Action::kSend, .peer = behind_, .elements = elements, .from = from, .after = {after, too}});
  }
  void send_before(int64_t elements, const Place& from, const After& after = {}, const After& too = {}) {
    add(kToBefore,
        {.action = Action::kSend, .peer = before_, .elements = elements, .from = from, .after = {after, too}});
  }
  void add(LaneIndex lane, const Step& step) { plan_.lanes[lane].steps.push_back(step); }
  CollectivePlan take() { return std::move(plan_); }

 private:
  const RankLayout& layout_;
  const int before_, behind_;
  CollectivePlan plan_;
};

// Calls `each(number, begin, elements)` for each chunk of `size` elements, the last one of which may be shorter.
template <typename Each>
void for_chunks(int64_t elements, int64_t size, const Each& each) {
  for (int64_t i = 0, begin = 0; begin < elements; ++i, begin += size) {
    each(i, begin, std::min(size, elements - begin));
  }
}

CollectivePlan all_reduce(const CollectiveRequest& request) {
  ChainPlan chain(request);
  const int64_t size = request.elements_of_chunk(), window = chain.window();
  const bool first = chain.is_first(), last = chain.is_last();
  const int arrivals =
      chain.add_scratch({.elements = first ? 0 : std::min(request.elements, window * size), .sums = true});
  const int partials = chain.add_scratch({.elements = last ? 0 : request.elements, .sums = true, .in_place = true});
  for_chunks(request.elements, size, [&](int64_t i, int64_t begin, int64_t count) {
    const Place arrival = Place::scratch(arrivals, i % window * size), own = Place::replica(0, begin);
    const Place partial = Place::scratch(partials, begin);
    if (!first) chain.receive_from_before(count, arrival, {kWork, i + 1 - window});
    chain.add(kWork, {.action = Action::kReduce,
                      .elements = count,
                      .from = first ? Place() : arrival,
                      .values = Place::all_replicas(begin),
                      .to = last ? Place::all_replicas(begin) : partial,
                      .after = {After{kFromBefore, first ? 0 : i + 1}}});
    if (!last) {
      chain.send_behind(count, partial, {kWork, i + 1});
      // A result takes the place of the partial sum, which must have left.
      chain.receive_from_behind(count, own, {kToBehind, i + 1});
      if (request.layout.local() > 1) {
        chain.add(
            kSpread,
            {.elements = count, .from = own, .to = Place::all_replicas(begin), .after = {After{kFromBehind, i + 1}}});
      }
    }
    if (!first) chain.send_before(count, own, {last ? kWork : kFromBehind, i + 1});
  });
  return chain.take();
}

CollectivePlan broadcast(const CollectiveRequest& request) {
  ChainPlan chain(request);
  const RankLayout& layout = request.layout;
  const int from = layout.process_of(request.root);
  const bool here = layout.process == from, behind = layout.process > from;
  for_chunks(request.elements, chunk_elements(request.type), [&](int64_t i, int64_t begin, int64_t count) {
    const Place own = Place::replica(here ? request.root - layout.first() : 0, begin);
    const After come = here ? After{} : After{behind ? kFromBefore : kFromBehind, i + 1};
    if (behind) chain.receive_from_before(count, own);
    if (layout.process < from) chain.receive_from_behind(count, own);
    if (layout.process >= from && !chain.is_last()) chain.send_behind(count, own, come);
    if (layout.process <= from && !chain.is_first()) chain.send_before(count, own, come);
    if (layout.local() > 1) {
      chain.add(kSpread, {.elements = count, .from = own, .to = Place::all_replicas(begin), .after = {come}});
    }
  });
  return chain.take();
}

CollectivePlan all_gather(const CollectiveRequest& request) {
  ChainPlan chain(request);
  const RankLayout& layout = request.layout;
  const int64_t each = request.elements, size = chunk_elements(request.type);
  const int64_t own = layout.first() * each, end = layout.end() * each, all = layout.ranks() * each;
  if (each > 0) {
    for (int r = 0; r < layout.local(); ++r) {
      chain.add(kWork, {.elements = each, .from = Place::replica(r, 0), .to = Place::gathered(own + r * each)});
    }
  }
  const After own_is_there{kWork, layout.local()};
  // Returns what says that the first `elements` of a stream have come.
  const auto come = [&](LaneIndex lane, int64_t elements) { return After{lane, (elements + size - 1) / size}; };
  if (!chain.is_first()) {
    for_chunks(own, size, [&](int64_t, int64_t begin, int64_t count) {
      chain.receive_from_before(count, Place::gathered(begin));
    });
    for_chunks(all - own, size, [&](int64_t, int64_t begin, int64_t count) {
      const int64_t from_behind = std::max(int64_t{0}, own + begin + count - end);
      chain.send_before(count, Place::gathered(own + begin), own_is_there, come(kFromBehind, from_behind));
    });
  }
  if (!chain.is_last()) {
    for_chunks(end, size, [&](int64_t, int64_t begin, int64_t count) {
      chain.send_behind(count, Place::gathered(begin), come(kFromBefore, std::min(begin + count, own)),
                        begin + count > own ? own_is_there : After{});
    });
    for_chunks(all - end, size, [&](int64_t, int64_t begin, int64_t count) {
      chain.receive_from_behind(count, Place::gathered(end + begin));
    });
  }
  return chain.take();
}

class Chain final : public CollectiveAlgorithm {
 public:
  bool can(const CollectiveRequest& request) const override { return request.workers == 1; }
  CollectivePlan plan(const CollectiveRequest& request) const override {
    switch (request.kind) {
      case Kind::kAllReduce:
        return all_reduce(request);
      case Kind::kBroadcast:
        return broadcast(request);
      case Kind::kAllGather:
        return all_gather(request);
      case Kind::kBarrier:
        break;
    }
    return {};  // what the processes have said to each other before is all that it needs
  }
};

const core::Registration kChain(collective_algorithms(), "chain", std::make_shared<Chain>());

}  // namespace
}  // namespace trainyard::parallel
