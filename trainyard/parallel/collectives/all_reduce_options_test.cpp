#include "trainyard/parallel/collectives/all_reduce_options.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/parallel/collectives/algorithms/algorithm_choice.h"
#include "trainyard/parallel/collectives/all_reduce_spec.h"
#include "trainyard/parallel/testing/all_reduce_cases.h"

namespace trainyard::parallel::all_reduce_options_test {
namespace {

using core::ErrorCode, core::message_of, ::testing::HasSubstr;

CollectiveRequest request_of(int64_t elements, at::ScalarType type, const RankLayout& layout) {
  return {.kind = CollectiveCall::Kind::kAllReduce, .elements = elements, .type = type, .layout = layout};
}

// Eight ranks of one machine: the first lanes of plans tell the algorithms apart by what rank 0 sends.
Traffic sent_by(const AllReduceOptions& options, int64_t elements, at::ScalarType type = at::kFloat) {
  const CollectiveRequest request = request_of(elements, type, layout_of_ranks(8));
  return traffic_of(options.choice()(request).plan(request), type);
}

TEST(AllReduceOptions, AnAlgorithmIsChosenByBytesAndLimitsAreInclusive) {
  const AllReduceOptions options{.spec = "pscpu:1k:rechd:2k:ring"};
  EXPECT_EQ(sent_by(options, 256), sent_by({.spec = "pscpu"}, 256));
  EXPECT_EQ(sent_by(options, 257), sent_by({.spec = "rechd"}, 257));
  EXPECT_EQ(sent_by(options, 512), sent_by({.spec = "rechd"}, 512));
  EXPECT_EQ(sent_by(options, 513), sent_by({.spec = "ring"}, 513));
  EXPECT_EQ(sent_by(options, 100'000'000), sent_by({.spec = "ring"}, 100'000'000));
  // Bytes of the tensor's type.
  EXPECT_EQ(sent_by(options, 512, at::kHalf), sent_by({.spec = "pscpu"}, 512, at::kHalf));
  EXPECT_EQ(sent_by(options, 129, at::kDouble), sent_by({.spec = "rechd"}, 129, at::kDouble));
  EXPECT_NE(sent_by({.spec = "pscpu"}, 256), sent_by({.spec = "rechd"}, 256));
  EXPECT_NE(sent_by({.spec = "ring"}, 513), sent_by({.spec = "rechd"}, 513));
}

TEST(AllReduceOptions, ShardsReachTheAlgorithm) {
  EXPECT_EQ(sent_by({.spec = "ring#3"}, 24'000).messages, 3 * sent_by({.spec = "ring"}, 24'000).messages);
}

TEST(AllReduceOptions, DefaultsAreTheDefaultAlgorithm) {
  EXPECT_TRUE(AllReduceOptions().is_default());
  EXPECT_FALSE(AllReduceOptions{.wire = at::kHalf}.is_default());
  EXPECT_FALSE(AllReduceOptions{.hierarchical_copy = true}.is_default());
  const CollectiveRequest request = request_of(1000, at::kFloat, layout_of_ranks(8));
  EXPECT_EQ(&AllReduceOptions().choice()(request), &choose_algorithm(request));
  // A wire type alone keeps the algorithm.
  EXPECT_EQ(sent_by({.wire = at::kHalf}, 1000).messages, sent_by({}, 1000).messages);
}

TEST(AllReduceOptions, OtherCollectivesHaveTheDefaultAlgorithm) {
  CollectiveRequest request = request_of(1000, at::kFloat, layout_of_ranks(8));
  for (const auto kind : {CollectiveCall::Kind::kBroadcast, CollectiveCall::Kind::kAllGather}) {
    request.kind = kind;
    EXPECT_EQ(&AllReduceOptions{.spec = "xring"}.choice()(request), &choose_algorithm(request));
  }
}

// What was not measured is chosen as without a spec.
TEST(AllReduceOptions, AutoIsTheDefaultUntilItIsMeasured) {
  const AllReduceOptions options{.spec = "auto"};
  options.validate();
  EXPECT_TRUE(options.is_auto());
  EXPECT_TRUE(options.is_default());
  EXPECT_FALSE(options.uses_nccl());
  const CollectiveRequest request{
      .kind = CollectiveCall::Kind::kAllReduce, .elements = 10, .layout = layout_of_ranks(3)};
  EXPECT_EQ(&options.choice()(request), &choose_algorithm(request));
  const AllReduceOptions compact{.spec = "auto", .wire = at::kHalf}, plain{.wire = at::kHalf};
  EXPECT_FALSE(compact.is_default());
  const CollectivePlan plan = compact.choice()(request).plan(request);
  EXPECT_EQ(plan.wire, at::kHalf);
  EXPECT_EQ(traffic_of(plan, at::kFloat), traffic_of(plain.choice()(request).plan(request), at::kFloat));
  EXPECT_THAT(message_of([] { AllReduceOptions{.spec = "auto", .hierarchical_copy = true}.validate(); },
                         ErrorCode::kInvalidArgument),
              HasSubstr("exclude each other"));
  EXPECT_THAT(message_of([] { AllReduceOptions{.spec = "auto:4K:ring"}.validate(); }, ErrorCode::kInvalidArgument),
              HasSubstr("invalid alg auto"));
}

TEST(AllReduceOptions, NamesOfGpusNameThoseOfCpus) {
  for (const std::string spec : {"nccl", "nccl/xring", "nccl/rechd", "nccl/pscpu", "pscpu:1k:nccl"}) {
    const AllReduceOptions options{.spec = spec};
    EXPECT_TRUE(options.uses_nccl());
    options.validate();
    const std::string message = message_of([&] { options.choice(); }, ErrorCode::kUnsupported);
    EXPECT_THAT(message, HasSubstr("all_reduce_spec (" + spec + ") is for GPUs"));
    EXPECT_THAT(message, HasSubstr("on CPUs one of xring, pscpu, psgpu, pscpu/pscpu, collective, ring, rechd, "
                                   "shuffle, pscpu/xring, pscpu/rechd"));
  }
  EXPECT_FALSE(AllReduceOptions{.spec = "xring"}.uses_nccl());
  EXPECT_FALSE(AllReduceOptions().uses_nccl());
}

TEST(AllReduceOptions, SaysWhatIsWrong) {
  const auto error_of = [](const AllReduceOptions& options) {
    return message_of([&] { options.validate(); }, ErrorCode::kInvalidArgument);
  };
  EXPECT_THAT(error_of({.spec = "pscpu:2k"}), HasSubstr("all_reduce_spec not well formed: pscpu:2k"));
  EXPECT_THAT(error_of({.spec = "ring", .hierarchical_copy = true}),
              HasSubstr("all_reduce_spec and hierarchical_copy exclude each other"));
  EXPECT_THAT(error_of({.wire = at::kFloat}), HasSubstr("numbers cannot travel in this type"));
  EXPECT_EQ(network_topology("gcp_v100"), NetworkTopology::kGcpV100);
  EXPECT_EQ(network_topology_name(NetworkTopology::kDgx1), "dgx1");
  EXPECT_THAT(message_of([] { network_topology("dgx2"); }, ErrorCode::kNotFound), HasSubstr("dgx1"));
}

// Each name that an all_reduce_spec may have is an algorithm or for GPUs.
TEST(AllReduceOptions, EveryNameOfASpecIsAnAlgorithm) {
  for (const std::string& name : all_reduce_algorithms()) {
    const AllReduceOptions options{.spec = name};
    EXPECT_EQ(collective_algorithms().has(name), !options.uses_nccl()) << name;
  }
}

}  // namespace
}  // namespace trainyard::parallel::all_reduce_options_test
