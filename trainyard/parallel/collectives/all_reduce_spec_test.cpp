#include "trainyard/parallel/collectives/all_reduce_spec.h"

#include <map>
#include <string>

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
  EXPECT_EQ(parse_all_reduce_spec("ring#1024"), (Ranges{{"ring", kMostShards, {}}}));
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

TEST(AllReduceSpec, IsWrittenAsItIsRead) {
  for (const char* spec :
       {"ring", "psgpu#4", "pscpu:2K:xring", "pscpu:1000:xring#2:3M:collective#8:1T:ring:5120T:rechd"}) {
    EXPECT_EQ(all_reduce_spec_text(parse_all_reduce_spec(spec)), spec);
  }
  EXPECT_EQ(all_reduce_spec_text(parse_all_reduce_spec("pscpu:2048k:xring:0003M:ring")), "pscpu:2M:xring:3M:ring");
  EXPECT_EQ(all_reduce_spec_text(parse_all_reduce_spec("pscpu:0:xring")), "pscpu:0:xring");
}

TEST(AllReduceSpec, MayHaveAlgorithmsOfOtherNames) {
  EXPECT_EQ(parse_all_reduce_spec("chain/64K:1K:one#2", {"chain/64K", "one"}),
            (Ranges{{"chain/64K", 1, 1024}, {"one", 2, {}}}));
  EXPECT_NE(core::problem_of([] { parse_all_reduce_spec("ring", {"one"}); }), "");
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
  for (const std::string spec : {"pscpu:2k", "pscpu:2k:xring:"}) {
    EXPECT_EQ(problem_of(spec), "all_reduce_spec not well formed: " + spec);
  }
  const std::map<std::string, std::string> wrong = {{"pscpu:2q:xring", "non-integer range 2q"},
                                                    {"pscpu::xring", "non-integer range "},
                                                    {"pscpu:k:xring", "non-integer range k"},
                                                    {"pscpu:-1:xring", "non-integer range -1"},
                                                    {"pscpu:9999999T:xring", "non-integer range 9999999T"},
                                                    {"pscpu#x", "non-integer shards x"},
                                                    {"pscpu#0", "non-integer shards 0"},
                                                    {"pscpu#2#3", "non-integer shards 2#3"},
                                                    {"ring#1025", "too many shards 1025"},
                                                    {"ncll", "invalid alg ncll"},
                                                    {"", "invalid alg "}};
  for (const auto& [spec, what] : wrong) {
    EXPECT_EQ(problem_of(spec), "all_reduce_spec (" + spec + ") contains " + what);
  }
}

TEST(AllReduceSpec, LimitsMustGrow) {
  EXPECT_EQ(problem_of("pscpu:2k:xring:2k:psgpu"), "all_reduce_spec not well formed: pscpu:2k:xring:2k:psgpu");
  EXPECT_EQ(problem_of("pscpu:2k:xring:3k:psgpu"), "");
}

}  // namespace
}  // namespace trainyard::parallel::all_reduce_spec_test
