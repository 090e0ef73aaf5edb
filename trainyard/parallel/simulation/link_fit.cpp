#include <algorithm>
#include <limits>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/parallel/simulation/step_prediction.h"

namespace trainyard::parallel {
namespace {

using core::Error, core::ErrorCode;
using Way = ExchangeCost::Way;

// Returns the longest way of an exchange on this link.
Way longest_way(const ExchangeCost& cost, const LinkModel& link) {
  Way longest = cost.pipelined;
  const auto seconds = [&link](const Way& way) { return link.seconds(way.messages, way.bytes); };
  for (const Way& lane : cost.lanes) {
    if (seconds(lane) > seconds(longest)) longest = lane;
  }
  return longest;
}

struct Fit {
  double latency = 0, seconds_per_byte = 0;
};

// Returns the least squares of (latency * messages + seconds_per_byte * bytes) / seconds - 1. A latency below 0 becomes
// 0.
Fit least_squares(const std::vector<Way>& ways, const std::vector<MeasuredAllReduce>& measured) {
  double mm = 0, mb = 0, bb = 0, m1 = 0, b1 = 0;
  for (size_t i = 0; i < ways.size(); ++i) {
    const double m = ways[i].messages / measured[i].seconds, b = ways[i].bytes / measured[i].seconds;
    mm += m * m;
    mb += m * b;
    bb += b * b;
    m1 += m;
    b1 += b;
  }
  const double determinant = mm * bb - mb * mb;
  if (determinant > 1e-12 * mm * bb) {
    const Fit fit{(m1 * bb - b1 * mb) / determinant, (b1 * mm - m1 * mb) / determinant};
    if (fit.latency >= 0) return fit;
  }
  return {0, b1 / bb};
}

void validate(int ranks, const std::vector<MeasuredAllReduce>& measured) {
  std::set<int64_t> sizes;
  for (const MeasuredAllReduce& each : measured) {
    if (each.bytes < static_cast<int64_t>(sizeof(float)) || !(each.seconds > 0)) {
      throw Error(ErrorCode::kInvalidArgument, {.problem = "a measured all-reduce is impossible",
                                                .expected = "at least 4 bytes in more than 0 seconds",
                                                .actual = fmt::format("{} bytes in {} s", each.bytes, each.seconds)});
    }
    sizes.insert(each.bytes);
  }
  if (ranks < 2 || sizes.size() < 2) {
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = "too little was measured to know latency and bandwidth of a link",
                 .expected = "all-reduces of two sizes or more among two ranks or more",
                 .actual = fmt::format("{} sizes, {} ranks", sizes.size(), ranks),
                 .remedy = "measure with trainyard bench allreduce --sizes=4K,64K,1M,16M --json=FILE on two machines"});
  }
}

}  // namespace

LinkModel fit_link(const AlgorithmChoice& choose, int ranks, const std::vector<MeasuredAllReduce>& measured) {
  validate(ranks, measured);
  std::vector<ExchangeCost> costs;
  for (const MeasuredAllReduce& each : measured) {
    costs.push_back(all_reduce_cost(choose, ranks, each.bytes / static_cast<int64_t>(sizeof(float)), 0));
  }
  LinkModel link{.latency_seconds = 0, .bytes_per_second = 1};
  // Which way is the longest depends on the link, so a few turns.
  for (int turn = 0; turn < 8; ++turn) {
    std::vector<Way> ways;
    for (const ExchangeCost& cost : costs) ways.push_back(longest_way(cost, link));
    const Fit fit = least_squares(ways, measured);
    if (!(fit.seconds_per_byte > 0)) {
      throw Error(ErrorCode::kInvalidArgument, {.problem = "no bandwidth explains what was measured",
                                                .actual = "larger tensors were not slower",
                                                .remedy = "measure larger tensors, and more often"});
    }
    link = {.latency_seconds = fit.latency, .bytes_per_second = 1 / fit.seconds_per_byte};
  }
  return link;
}

}  // namespace trainyard::parallel
