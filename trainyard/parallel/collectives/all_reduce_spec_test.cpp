#include "trainyard/parallel/collectives/all_reduce_spec.h"

#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"

namespace trainyard::parallel::all_reduce_spec_test {
namespace {

using Ranges = std::vector<AllReduceRange>;

std::string problem_of(std::string_view spec) {
  return core::problem_of([&] { parse_all_reduce_spec(spec); });
}

TEST(AllReduceSpec, OneRange) {
  for (const std::string& algorithm : all_reduce_algorithms()) {
    EXPECT_EQ(parse_all_reduce_spec(algorithm), (Ranges{{algorithm, 1, {}}}));
  }
  EXPECT_EQ(parse_all_reduce_spec("psgpu#4"), (Ranges{{"psgpu", 4, {}}}));
}

TEST(AllReduceSpec, MayBeAPartOfALongerText) {
  const std::string text = "psgpu#42";
  EXPECT_EQ(parse_all_reduce_spec(std::string_view(text).substr(0, 7)), (Ranges{{"psgpu", 4, {}}}));
}

TEST(AllReduceSpec, RangesBySize) {
  EXPECT_EQ(parse_all_reduce_spec("pscpu:2k:xring"), (Ranges{{"pscpu", 1, 2048}, {"xring", 1, {}}}));
  EXPECT_EQ(parse_all_reduce_spec("nccl/xring#2:10:pscpu/pscpu:3M:collective#8"),
            (Ranges{{"nccl/xring", 2, 10}, {"pscpu/pscpu", 1, 3 << 20}, {"collective", 8, {}}}));
}

TEST(AllReduceSpec, SuffixesAreBinary) {
  const auto limit = [](const std::string& text) {
    return parse_all_reduce_spec("pscpu:" + text + ":xring")[0].limit_bytes;
  };
  EXPECT_EQ(limit("7"), 7);
  EXPECT_EQ(limit("1K"), 1024);
  EXPECT_EQ(limit("1k"), 1024);
  EXPECT_EQ(limit("5M"), 5'242'880);
  EXPECT_EQ(limit("2G"), 2'147'483'648);
  EXPECT_EQ(limit("3T"), 3'298'534'883'328);
}

TEST(AllReduceSpec, ErrorsInUpstreamsWords) {
  EXPECT_EQ(problem_of("pscpu:2k"), "all_reduce_spec not well formed: pscpu:2k");
  EXPECT_EQ(problem_of("pscpu:2k:xring:"), "all_reduce_spec not well formed: pscpu:2k:xring:");
  EXPECT_EQ(problem_of("pscpu:2q:xring"), "all_reduce_spec (pscpu:2q:xring) contains non-integer range 2q");
  EXPECT_EQ(problem_of("pscpu::xring"), "all_reduce_spec (pscpu::xring) contains non-integer range ");
  EXPECT_EQ(problem_of("pscpu:k:xring"), "all_reduce_spec (pscpu:k:xring) contains non-integer range k");
  EXPECT_EQ(problem_of("pscpu:-1:xring"), "all_reduce_spec (pscpu:-1:xring) contains non-integer range -1");
  EXPECT_EQ(problem_of("pscpu:9999999T:xring"),
            "all_reduce_spec (pscpu:9999999T:xring) contains non-integer range 9999999T");
  EXPECT_EQ(problem_of("pscpu#x"), "all_reduce_spec (pscpu#x) contains non-integer shards x");
  EXPECT_EQ(problem_of("pscpu#0"), "all_reduce_spec (pscpu#0) contains non-integer shards 0");
  EXPECT_EQ(problem_of("pscpu#2#3"), "all_reduce_spec (pscpu#2#3) contains non-integer shards 2#3");
  EXPECT_EQ(problem_of("ncll"), "all_reduce_spec (ncll) contains invalid alg ncll");
  EXPECT_EQ(problem_of(""), "all_reduce_spec () contains invalid alg ");
}

TEST(AllReduceSpec, LimitsMustGrow) {
  EXPECT_EQ(problem_of("pscpu:2k:xring:2k:psgpu"), "all_reduce_spec not well formed: pscpu:2k:xring:2k:psgpu");
  EXPECT_EQ(problem_of("pscpu:2k:xring:3k:psgpu"), "");
}

}  // namespace
}  // namespace trainyard::parallel::all_reduce_spec_test
