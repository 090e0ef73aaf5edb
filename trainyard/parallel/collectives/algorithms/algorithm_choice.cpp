#include "trainyard/parallel/collectives/algorithms/algorithm_choice.h"

#include <array>

#include "trainyard/core/base/error.h"

namespace trainyard::parallel {

core::Registry<std::shared_ptr<const CollectiveAlgorithm>>& collective_algorithms() {
  static auto* registry = new core::Registry<std::shared_ptr<const CollectiveAlgorithm>>("collective algorithm");
  return *registry;
}

const CollectiveAlgorithm& choose_algorithm(const CollectiveRequest& request) {
  // The first one that can do it is taken.
  static const std::array<std::shared_ptr<const CollectiveAlgorithm>, 2> by_preference = {
      collective_algorithms().get("slices"), collective_algorithms().get("chain")};
  for (const auto& algorithm : by_preference) {
    if (algorithm->can(request)) return *algorithm;
  }
  throw core::Error(core::ErrorCode::kInternal, "no algorithm can do this collective");
}

}  // namespace trainyard::parallel
