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

// Returns the seconds of a byte: the least squares of latency * messages + seconds_per_byte * bytes - seconds, in which
// the largest tensors count most. Where that had a latency below 0 it is none.
double fit_seconds_per_byte(const std::vector<Way>& ways, const std::vector<MeasuredAllReduce>& measured) {
  double mm = 0, mb = 0, bb = 0, mt = 0, bt = 0;
  for (size_t i = 0; i < ways.size(); ++i) {
    const double m = ways[i].messages, b = ways[i].bytes, t = measured[i].seconds;
    mm += m * m;
    mb += m * b;
    bb += b * b;
    mt += m * t;
    bt += b * t;
  }
  const double determinant = mm * bb - mb * mb;
  if (determinant > 1e-12 * mm * bb && mt * bb - bt * mb >= 0) return (bt * mm - mt * mb) / determinant;
  return bt / bb;
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
  const auto by_bytes = [](const MeasuredAllReduce& a, const MeasuredAllReduce& b) { return a.bytes < b.bytes; };
  const auto smallest =
      static_cast<size_t>(std::min_element(measured.begin(), measured.end(), by_bytes) - measured.begin());
  LinkModel link{.latency_seconds = 0, .bytes_per_second = 1};
  // Which way is the longest depends on the link, so a few turns.
  for (int turn = 0; turn < 8; ++turn) {
    std::vector<Way> ways;
    for (const ExchangeCost& cost : costs) ways.push_back(longest_way(cost, link));
    const double seconds_per_byte = fit_seconds_per_byte(ways, measured);
    if (!(seconds_per_byte > 0)) {
      throw Error(ErrorCode::kInvalidArgument, {.problem = "no bandwidth explains what was measured",
                                                .actual = "larger tensors were not slower",
                                                .remedy = "measure larger tensors, and more often"});
    }
    // A link may let a few bytes pass at once, more quickly than its bandwidth says: then no latency is left.
    const double rest = measured[smallest].seconds - seconds_per_byte * ways[smallest].bytes;
    link = {.latency_seconds = std::max(0.0, rest / ways[smallest].messages), .bytes_per_second = 1 / seconds_per_byte};
  }
  return link;
}

}  // namespace trainyard::parallel
