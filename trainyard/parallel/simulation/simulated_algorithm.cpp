#include "trainyard/parallel/simulation/simulated_algorithm.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/error.h"
#include "trainyard/parallel/collectives/all_reduce_candidates.h"
#include "trainyard/parallel/collectives/all_reduce_options.h"
#include "trainyard/parallel/collectives/all_reduce_spec.h"

namespace trainyard::parallel {

AlgorithmChoice simulated_choice(const std::string& name, int workers) {
  if (name == "hierarchical_copy") return AllReduceOptions{.hierarchical_copy = true}.choice();
  if (name.starts_with("chain")) return choice_by_size(ranges_of(name, AllReduceOrder::kOfRanks));
  std::string spec = name;
  if (spec.ends_with("#n")) spec.replace(spec.size() - 1, 1, std::to_string(std::min<int64_t>(workers, kMostShards)));
  const AllReduceOptions options{.spec = spec};
  if (spec.empty() || options.is_auto()) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "only algorithms that are named can be predicted",
                       .expected = fmt::format("chain, hierarchical_copy, {}, or a spec of {}", kParameterServerName,
                                               fmt::join(all_reduce_algorithms(), ", ")),
                       .actual = fmt::format("'{}'", name)});
  }
  return options.choice();
}

}  // namespace trainyard::parallel
