#include "trainyard/parallel/collectives/plan/plan.h"

#include <algorithm>

#include "trainyard/parallel/collectives/plan/rank_reduction.h"

namespace trainyard::parallel {

int RankLayout::process_of(int rank) const {
  return static_cast<int>(std::upper_bound(first_ranks.begin(), first_ranks.end(), rank) - first_ranks.begin()) - 1;
}

std::vector<std::vector<int>> RankLayout::ranks_by_host() const {
  std::vector<std::vector<int>> all;
  std::vector<int> numbers;  // of the machines in `all`
  for (int p = 0; p < processes(); ++p) {
    const int host = hosts.empty() ? p : hosts[static_cast<size_t>(p)];
    const auto found = hosts.empty() ? numbers.end() : std::find(numbers.begin(), numbers.end(), host);
    const auto index = static_cast<size_t>(found - numbers.begin());
    if (found == numbers.end()) {
      numbers.push_back(host);
      all.emplace_back();
    }
    for (int rank = first_ranks[static_cast<size_t>(p)]; rank < first_ranks[static_cast<size_t>(p) + 1]; ++rank) {
      all[index].push_back(rank);
    }
  }
  return all;
}

bool is_transfer(const Step& step) {
  return step.action == Step::Action::kSend || step.action == Step::Action::kReceive;
}

int64_t chunk_elements(at::ScalarType type) {
  return kChunkBytes / static_cast<int64_t>(c10::elementSize(partial_type(type)));
}

int64_t CollectiveRequest::elements_of_chunk() const {
  return std::max<int64_t>(chunk_bytes / static_cast<int64_t>(c10::elementSize(partial_type(type))), 1);
}

at::ScalarType element_type(const CollectivePlan& plan, const Place& place, at::ScalarType type) {
  const bool sums = place.memory == Place::Memory::kScratch && plan.scratch[static_cast<size_t>(place.index)].sums;
  return sums ? partial_type(type) : type;
}

size_t element_bytes(const CollectivePlan& plan, const Place& place, at::ScalarType type) {
  return c10::elementSize(element_type(plan, place, type));
}

at::ScalarType wire_type(const CollectivePlan& plan, at::ScalarType type) {
  const bool wide = type == at::kFloat || type == at::kDouble;
  return wide && plan.wire != at::ScalarType::Undefined ? plan.wire : type;
}

Traffic traffic_of(const CollectivePlan& plan, at::ScalarType type) {
  Traffic sent;
  for (const Lane& lane : plan.lanes) {
    for (const Step& step : lane.steps) {
      if (step.action != Step::Action::kSend) continue;
      ++sent.messages;
      sent.bytes +=
          step.elements * static_cast<int64_t>(c10::elementSize(wire_type(plan, element_type(plan, step.from, type))));
    }
  }
  return sent;
}

}  // namespace trainyard::parallel
