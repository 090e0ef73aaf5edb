#include "trainyard/parallel/collectives/all_reduce_candidates.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/parallel/collectives/all_reduce_spec.h"

namespace trainyard::parallel {
namespace {

using core::Error, core::ErrorCode;

struct OrderedAlgorithm {
  const char* name;
  const char* algorithm;
  int64_t chunk_bytes;
};
// Those of messages, in the order in which they are preferred: the first one is what runs without a measurement.
constexpr std::array<OrderedAlgorithm, 4> kOrdered = {{{"chain", "chain", kChunkBytes},
                                                       {"chain/64K", "chain", 64 << 10},
                                                       {"chain/1M", "chain", 1 << 20},
                                                       {"shuffle", "shuffle", kChunkBytes}}};

}  // namespace

const std::vector<std::string>& algorithms_in_rank_order() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all = {kSharedMemoryName};
    for (const OrderedAlgorithm& each : kOrdered) all.emplace_back(each.name);
    return all;
  }();
  return names;
}

namespace {

std::vector<ConfiguredRange> ordered_ranges(const std::string& spec) {
  std::vector<ConfiguredRange> ranges;
  for (const AllReduceRange& range : parse_all_reduce_spec(spec, algorithms_in_rank_order())) {
    const auto found = std::find_if(kOrdered.begin(), kOrdered.end(),
                                    [&](const OrderedAlgorithm& each) { return range.algorithm == each.name; });
    const bool has_shards = range.algorithm == "shuffle";
    if (found == kOrdered.end() || (range.shards != 1 && !has_shards)) {
      throw Error(ErrorCode::kInvalidArgument,
                  {.problem = "an all-reduce by size cannot have this algorithm", .actual = spec});
    }
    ranges.push_back({.algorithm = found->algorithm,
                      .limit_bytes = range.limit_bytes,
                      .shards = range.shards,
                      .chunk_bytes = found->chunk_bytes,
                      .in_rank_order = true});
  }
  return ranges;
}

}  // namespace

std::vector<ConfiguredRange> ranges_of(const std::string& name, AllReduceOrder order,
                                       const std::optional<at::ScalarType>& wire) {
  std::vector<ConfiguredRange> ranges;
  if (order == AllReduceOrder::kOfRanks) {
    ranges = ordered_ranges(name);
  } else {
    for (const AllReduceRange& range : parse_all_reduce_spec(name)) {
      ranges.push_back({.algorithm = range.algorithm, .limit_bytes = range.limit_bytes, .shards = range.shards});
    }
  }
  for (ConfiguredRange& range : ranges) range.wire = wire;
  return ranges;
}

bool fits_layout(const std::string& spec, AllReduceOrder order, const RankLayout& layout) {
  try {
    (void)choice_by_size(ranges_of(spec, order, {}))({.kind = CollectiveCall::Kind::kAllReduce, .layout = layout});
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::vector<std::string> candidates_in_rank_order(const RankLayout& layout) {
  std::vector<std::string> names;
  for (const OrderedAlgorithm& each : kOrdered) names.emplace_back(each.name);
  if (layout.ranks() > 1) names.push_back(fmt::format("shuffle#{}", layout.ranks()));
  std::erase_if(names, [&](const std::string& name) { return !fits_layout(name, AllReduceOrder::kOfRanks, layout); });
  return names;
}

std::vector<std::string> candidates_of_specs(const RankLayout& layout) {
  const size_t machines = layout.ranks_by_host().size();
  std::vector<std::string> names = {"ring", "xring", "collective", "collective#2", "rechd", "pscpu", "psgpu"};
  if (layout.ranks() > 1) names.push_back(fmt::format("shuffle#{}", layout.ranks()));
  if (machines > 1) {
    for (const char* two_levels : {"pscpu/pscpu", "pscpu/xring", "pscpu/rechd"}) names.emplace_back(two_levels);
    names.push_back(fmt::format("pscpu#{}", machines));
  }
  std::erase_if(names, [&](const std::string& name) { return !fits_layout(name, AllReduceOrder::kAny, layout); });
  return names;
}

}  // namespace trainyard::parallel
