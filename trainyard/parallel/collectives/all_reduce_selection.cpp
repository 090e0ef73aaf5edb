#include "trainyard/parallel/collectives/all_reduce_selection.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "trainyard/parallel/collectives/all_reduce_spec.h"

namespace trainyard::parallel {
namespace {

// Another algorithm must be this much faster than a preferred one, so that chance does not choose.
constexpr double kClearlyFaster = 0.9;
constexpr int64_t kLeastDecisive = 64 << 10;  // bytes

// Times by size, of some algorithms.
using TimesBySize = std::map<int64_t, std::vector<const AllReduceTime*>>;

TimesBySize times_of(const std::vector<AllReduceTime>& times, const std::vector<std::string>& algorithms) {
  TimesBySize by_size;
  for (const std::string& algorithm : algorithms) {
    for (const AllReduceTime& time : times) {
      if (time.algorithm == algorithm) by_size[time.bytes].push_back(&time);
    }
  }
  return by_size;
}

const AllReduceTime* fastest_of(const std::vector<const AllReduceTime*>& times) {
  const auto found = std::min_element(times.begin(), times.end(),
                                      [](const auto* a, const auto* b) { return a->seconds < b->seconds; });
  return found == times.end() ? nullptr : *found;
}

// Returns the sum over all sizes of how many times as long as the fastest the best of these algorithms took. What was
// given up counts as kGiveUpRatio.
double slowness(const std::vector<AllReduceTime>& times, const std::vector<std::string>& algorithms) {
  std::map<int64_t, double> fastest;
  for (const AllReduceTime& time : times) {
    const auto [entry, is_new] = fastest.emplace(time.bytes, time.seconds);
    if (!is_new) entry->second = std::min(entry->second, time.seconds);
  }
  const TimesBySize own = times_of(times, algorithms);
  double sum = 0;
  for (const auto& [bytes, seconds] : fastest) {
    const auto found = own.find(bytes);
    sum += found == own.end() ? kGiveUpRatio : fastest_of(found->second)->seconds / seconds;
  }
  return sum;
}

// Returns the algorithm of each size as ranges. A limit is in the middle of two sizes, by their ratio.
std::string spec_of(const std::vector<AllReduceTime>& times, const std::vector<std::string>& algorithms) {
  std::vector<AllReduceRange> ranges;
  int64_t before = 0;
  std::string chosen;
  for (const auto& [bytes, candidates] : times_of(times, algorithms)) {
    const AllReduceTime* best = candidates.front();
    for (const AllReduceTime* each : candidates) {
      if (each->seconds < kClearlyFaster * best->seconds) best = each;
    }
    if (best->algorithm != chosen) {
      int64_t limit = before;
      while (limit > 0 && limit < bytes / (limit / before)) limit *= 2;
      if (!ranges.empty()) ranges.back().limit_bytes = limit;
      const size_t shards = best->algorithm.find('#');
      ranges.push_back({.algorithm = best->algorithm.substr(0, shards),
                        .shards = shards == std::string::npos ? 1 : std::stoll(best->algorithm.substr(shards + 1))});
      chosen = best->algorithm;
    }
    before = bytes;
  }
  return all_reduce_spec_text(ranges);
}

std::string name_of(const AllReduceRange& range) {
  return range.shards == 1 ? range.algorithm : fmt::format("{}#{}", range.algorithm, range.shards);
}

}  // namespace

std::optional<AllReduceChoice> choose_by_times(const MeasuredAllReduces& measured, AllReduceOrder order) {
  if (measured.times.empty() || measured.times.back().bytes < kLeastDecisive) return std::nullopt;
  if (order == AllReduceOrder::kAny) {
    const bool by_default =
        slowness(measured.times, measured.in_rank_order) <= slowness(measured.times, measured.other);
    return AllReduceChoice{by_default ? kDefaultName : spec_of(measured.times, measured.other), measured.times};
  }
  std::vector<std::string> messages = measured.in_rank_order;
  if (std::erase(messages, kSharedMemoryName) > 0) {
    const double memory = slowness(measured.times, {kSharedMemoryName});
    if (kClearlyFaster * memory <= slowness(measured.times, messages)) {
      return AllReduceChoice{kSharedMemoryName, measured.times};
    }
  }
  return AllReduceChoice{spec_of(measured.times, messages), measured.times};
}

std::vector<SlowAllReduce> slow_sizes(const std::string& spec, AllReduceOrder order,
                                      const std::vector<AllReduceTime>& times, double ratio) {
  std::vector<AllReduceRange> ranges;
  if (spec != kDefaultName) {
    ranges = order == AllReduceOrder::kAny ? parse_all_reduce_spec(spec)
                                           : parse_all_reduce_spec(spec, algorithms_in_rank_order());
  }
  std::map<int64_t, std::vector<const AllReduceTime*>> by_size;
  for (const AllReduceTime& time : times) by_size[time.bytes].push_back(&time);
  std::vector<SlowAllReduce> slow;
  for (const auto& [bytes, all] : by_size) {
    const auto range = std::find_if(ranges.begin(), ranges.end(), [bytes = bytes](const AllReduceRange& each) {
      return !each.limit_bytes || bytes <= *each.limit_bytes;
    });
    std::vector<const AllReduceTime*> chosen = all;
    std::erase_if(chosen, [&](const AllReduceTime* each) {
      if (range != ranges.end()) return each->algorithm != name_of(*range);
      const std::vector<std::string>& names = algorithms_in_rank_order();
      return std::find(names.begin(), names.end(), each->algorithm.substr(0, each->algorithm.find('#'))) == names.end();
    });
    const AllReduceTime* const own = fastest_of(chosen);
    const AllReduceTime* const best = fastest_of(all);
    if (own == nullptr || own->seconds <= ratio * best->seconds) continue;
    slow.push_back({.bytes = bytes,
                    .chosen = own->algorithm,
                    .fastest = best->algorithm,
                    .chosen_seconds = own->seconds,
                    .fastest_seconds = best->seconds});
  }
  return slow;
}

}  // namespace trainyard::parallel
