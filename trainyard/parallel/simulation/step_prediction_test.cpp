// Steps of N workers: closed forms by hand.
#include "trainyard/parallel/simulation/step_prediction.h"

#include <functional>
#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/parallel/collectives/algorithms/algorithm_choice.h"
#include "trainyard/parallel/testing/all_reduce_cases.h"

namespace trainyard::parallel::step_prediction_test {
namespace {

using core::ErrorCode, ::testing::HasSubstr;

constexpr double kInfinite = std::numeric_limits<double>::infinity();

AlgorithmChoice ring() {
  return all_reduce_options("ring").choice();
}

StepPrediction predict(const ComputeProfile& profile, const AlgorithmChoice& choose, int workers,
                       const LinkModel& link) {
  return predict_all_reduce_step(profile, all_reduce_costs(profile, choose, workers), workers, link);
}

// 3 s before the backward, 4 s of backward, 1 s after it; two buckets of 4,096 floats after 2 and 4 s.
ComputeProfile two_buckets() {
  return {.model = "two",
          .batch_size = 10,
          .before_seconds = 3,
          .backward_seconds = 4,
          .after_seconds = 1,
          .buckets = {{4096, 2}, {4096, 4}}};
}

TEST(StepPrediction, OneWorkerComputesOnly) {
  const StepPrediction one = predict(two_buckets(), ring(), 1, {.latency_seconds = 1, .bytes_per_second = 1});
  EXPECT_DOUBLE_EQ(one.step_seconds, 8);
  EXPECT_DOUBLE_EQ(one.efficiency, 1);
  EXPECT_DOUBLE_EQ(one.images_per_second, 10 / 8.0);
  EXPECT_DOUBLE_EQ(one.exposed_seconds, 0);
}

TEST(StepPrediction, WithoutLatencyAnInfiniteBandwidthHidesAll) {
  for (const int workers : {2, 3, 64}) {
    const StepPrediction step = predict(two_buckets(), ring(), workers, {0, kInfinite});
    EXPECT_DOUBLE_EQ(step.step_seconds, 8);
    EXPECT_DOUBLE_EQ(step.efficiency, 1);
    EXPECT_DOUBLE_EQ(step.images_per_second, workers * 10 / 8.0);
  }
}

// 4 ranks of a ring: 2 * 3 / 4 of the bytes.
TEST(StepPrediction, WithoutComputeAStepIsItsAllReduces) {
  ComputeProfile profile = two_buckets();
  profile.before_seconds = profile.backward_seconds = profile.after_seconds = 0;
  for (ProfiledBucket& bucket : profile.buckets) bucket.ready_seconds = 0;
  EXPECT_DOUBLE_EQ(predict(profile, ring(), 4, {0, 100}).step_seconds, 1.5 * 2 * 4096 * 4 / 100);
  // Latencies of buckets overlap: 6 messages of the agreement and 6 of the ring.
  EXPECT_DOUBLE_EQ(predict(profile, ring(), 4, {1, kInfinite}).step_seconds, 12);
}

TEST(StepPrediction, ABucketThatIsReadyEarlyIsHiddenByTheRestOfTheBackward) {
  // 24,576 bytes a bucket pass the link in 1.5 s: the first one while the backward runs, the second one after it.
  const LinkModel link{0, 1.5 * 4096 * 4 / 1.5};
  const StepPrediction step = predict(two_buckets(), ring(), 4, link);
  EXPECT_DOUBLE_EQ(step.exposed_seconds, 1.5);
  EXPECT_DOUBLE_EQ(step.step_seconds, 9.5);
  EXPECT_DOUBLE_EQ(step.efficiency, 8 / 9.5);
  // Half the bandwidth: 3 s each, from 2 s on, so that the second one waits for the first one until 5 s.
  EXPECT_DOUBLE_EQ(predict(two_buckets(), ring(), 4, {0, link.bytes_per_second / 2}).exposed_seconds, 4);
}

// Buckets that are added up at different ranks do not wait for each other there, but for the links of the others.
TEST(StepPrediction, PlacesThatTakeTurnsWorkAtTheSameTime) {
  ComputeProfile profile = two_buckets();
  profile.before_seconds = profile.backward_seconds = profile.after_seconds = 0;
  for (ProfiledBucket& bucket : profile.buckets) bucket.ready_seconds = 0;
  const LinkModel link{0, 4096 * 4};  // a bucket a second
  // One place: three times both buckets, and its first piece once more (phases of one small piece follow each other).
  EXPECT_DOUBLE_EQ(predict(profile, all_reduce_options("shuffle").choice(), 4, link).step_seconds, 6 + 3);
  // Two places: rank 1 carries the first bucket for a second, and then its own.
  EXPECT_DOUBLE_EQ(predict(profile, all_reduce_options("pscpu").choice(), 4, link).step_seconds, 1 + 3 + 3);
}

TEST(StepPrediction, ServersReceiveAllGradientsAndSendAllValues) {
  ComputeProfile profile = two_buckets();
  const LinkModel link{0, 4096 * 4};  // a bucket a second
  // 8 workers, 2 servers: 8 s for both buckets in, after the backward, as many out, and half of the update.
  const StepPrediction step = predict_server_step(profile, 8, 2, link);
  EXPECT_DOUBLE_EQ(step.step_seconds, 7 + 8 + 8 + 0.5);
  EXPECT_DOUBLE_EQ(step.exposed_seconds, 8 + 8);
  // A server for each worker: bound by the worker's own link.
  EXPECT_DOUBLE_EQ(predict_server_step(profile, 8, 8, link).step_seconds, 7 + 2 + 2 + 0.125);
  // Gradients, the answer, the question for values, values.
  EXPECT_DOUBLE_EQ(predict_server_step(profile, 8, 8, {1, kInfinite}).step_seconds, 7 + 4 + 0.125);
}

TEST(StepPrediction, BucketsAreReadyWhenTheirLastLayerIs) {
  nn::ParameterSet set({.device = at::kMeta});
  for (const char* name : {"first.w", "second.w", "third.w"}) set.declare({.name = name, .shape = {1024}});
  set.allocate();
  const std::vector<LayerBackward> layers = {{{"third.w"}, 1}, {{"second.w"}, 2}, {{"first.w"}, 1}};
  const std::vector<ProfiledBucket> single = profiled_buckets(set, layers, 8, 4096);
  ASSERT_EQ(single.size(), 3U);
  EXPECT_DOUBLE_EQ(single[0].ready_seconds, 2);
  EXPECT_DOUBLE_EQ(single[1].ready_seconds, 6);
  EXPECT_DOUBLE_EQ(single[2].ready_seconds, 8);
  const std::vector<ProfiledBucket> joined = profiled_buckets(set, layers, 8, 8192);
  ASSERT_EQ(joined.size(), 2U);
  EXPECT_EQ(joined[0].elements, 2048);
  EXPECT_DOUBLE_EQ(joined[0].ready_seconds, 6);
  EXPECT_THAT(core::message_of(
                  [&] {
                    (void)profiled_buckets(set, {{{"third.w"}, 1}}, 8, 4096);
                  },
                  ErrorCode::kInvalidArgument),
              HasSubstr("second.w"));
  const std::vector<LayerBackward> timeless = {{{"third.w"}, 0}, {{"second.w"}, 0}, {{"first.w"}, 0}};
  EXPECT_EQ(core::problem_of([&] { (void)profiled_buckets(set, timeless, 8, 4096); }),
            "the layers' backward takes no time");
}

TEST(StepPrediction, ImpossibleProfilesAndLinksAreErrors) {
  const auto error_of = [](const ComputeProfile& profile, const LinkModel& link) {
    return core::message_of([&] { (void)predict(profile, ring(), 2, link); }, ErrorCode::kInvalidArgument);
  };
  const LinkModel good{1, 1};
  ComputeProfile profile = two_buckets();
  EXPECT_THAT(error_of(profile, {1, 0}), HasSubstr("bandwidth"));
  EXPECT_THAT(error_of(profile, {-1, 1}), HasSubstr("latency"));
  profile.buckets[0].ready_seconds = 4.5;
  EXPECT_THAT(error_of(profile, good), HasSubstr("after the end of the backward"));
  profile.buckets[0].ready_seconds = 3;
  profile.buckets[1].ready_seconds = 2;
  EXPECT_THAT(error_of(profile, good), HasSubstr("bucket 2 of 2"));
  profile = two_buckets();
  profile.backward_seconds = -1;
  EXPECT_THAT(error_of(profile, good), HasSubstr("less than no time"));
  EXPECT_THAT(
      core::message_of([&] { (void)predict_server_step(two_buckets(), 2, 0, good); }, ErrorCode::kInvalidArgument),
      HasSubstr("without a server"));
}

std::vector<MeasuredAllReduce> times_on(const LinkModel& link, const AlgorithmChoice& choose, int ranks) {
  std::vector<MeasuredAllReduce> measured;
  for (const int64_t bytes : {4 << 10, 64 << 10, 1 << 20, 16 << 20}) {
    measured.push_back({bytes, all_reduce_cost(choose, ranks, bytes / 4, 0).seconds(link)});
  }
  return measured;
}

TEST(LinkFit, FindsTheLinkOfItsOwnTimes) {
  const LinkModel link{.latency_seconds = 80e-6, .bytes_per_second = 12.5e6};
  for (const AlgorithmChoice& choose : {ring(), AlgorithmChoice(choose_algorithm)}) {
    const LinkModel found = fit_link(choose, 2, times_on(link, choose, 2));
    EXPECT_NEAR(found.latency_seconds / link.latency_seconds, 1, 1e-3);
    EXPECT_NEAR(found.bytes_per_second / link.bytes_per_second, 1, 1e-3);
  }
}

// The queue of a token bucket lets 64 KiB pass at once: what is small takes no time, and says nothing of the bandwidth.
TEST(LinkFit, SmallTensorsThatPassAtOnceDoNotChangeTheBandwidth) {
  const LinkModel link{.latency_seconds = 0, .bytes_per_second = 12.5e6};
  std::vector<MeasuredAllReduce> measured = times_on(link, ring(), 2);
  measured[0].seconds = 50e-6;  // 4 KiB at 82 MB/s
  const LinkModel found = fit_link(ring(), 2, measured);
  EXPECT_EQ(found.latency_seconds, 0);
  EXPECT_NEAR(found.bytes_per_second / link.bytes_per_second, 1, 1e-3);
}

TEST(LinkFit, NeedsTwoSizesWithPossibleTimes) {
  const auto error_of = [](int ranks, const std::vector<MeasuredAllReduce>& measured) {
    return core::message_of([&] { (void)fit_link(ring(), ranks, measured); }, ErrorCode::kInvalidArgument);
  };
  EXPECT_THAT(error_of(2, {{4096, 1e-3}, {4096, 2e-3}}), HasSubstr("1 sizes"));
  EXPECT_THAT(error_of(1, {{4096, 1e-3}, {8192, 2e-3}}), HasSubstr("1 ranks"));
  EXPECT_THAT(error_of(2, {{4096, 1e-3}, {8192, 0}}),
              core::Says("impossible", "at least 4 bytes in more than 0 seconds, got 8192 bytes in 0 s"));
  EXPECT_THAT(error_of(2, {{3, 0.5}, {8192, 0.5}}),
              core::Says("impossible", "at least 4 bytes in more than 0 seconds, got 3 bytes in 0.5 s"));
  EXPECT_EQ(error_of(2, {{4, 1e-3}, {8192, 1e-2}}), "no error") << "a tensor of one number";
}

TEST(LinkFit, LargerTensorsThatAreNotSlowerTellNoBandwidth) {
  EXPECT_THAT(core::message_of([] {
                (void)fit_link(ring(), 2, {{4096, 2e-3}, {1 << 20, 1e-3}});
              }),
              core::Says("no bandwidth explains what was measured", "larger tensors were not slower"));
}

TEST(StepPrediction, NeedsWorkersImagesAndGradients) {
  const LinkModel link{1, 1};
  const auto problem = [&](const ComputeProfile& profile, int workers) {
    return core::problem_of([&] { (void)predict_server_step(profile, workers, 1, link); });
  };
  EXPECT_EQ(problem(two_buckets(), 1), "");
  EXPECT_EQ(problem(two_buckets(), 0), "a step without workers");
  EXPECT_EQ(core::problem_of([] { (void)all_reduce_costs(two_buckets(), ring(), 0); }), "a step without workers");
  ComputeProfile profile = two_buckets();
  profile.batch_size = 0;
  EXPECT_EQ(problem(profile, 1), "a step of no images");
  profile = two_buckets();
  profile.buckets[1].elements = 0;
  EXPECT_EQ(problem(profile, 1), "a bucket of no gradients");
}

TEST(StepPrediction, SaysWhatIsImpossibleOfAProfile) {
  const auto refusal = [](const std::function<void(ComputeProfile&)>& change) {
    ComputeProfile profile = two_buckets();
    change(profile);
    return core::message_of([&] { profile.validate(); });
  };
  EXPECT_EQ(refusal([](ComputeProfile&) {}), "no error");
  EXPECT_EQ(two_buckets().elements(), 8192);
  EXPECT_EQ(refusal([](ComputeProfile& profile) { profile.batch_size = 1; }), "no error");
  EXPECT_THAT(refusal([](ComputeProfile& profile) { profile.batch_size = 0; }),
              core::Says("a step of no images: batch size 0"));
  for (double ComputeProfile::*const part :
       {&ComputeProfile::before_seconds, &ComputeProfile::backward_seconds, &ComputeProfile::after_seconds}) {
    EXPECT_THAT(refusal([part](ComputeProfile& profile) { profile.*part = -0.5; }),
                core::Says("a part of a step takes less than no time: -0.5 s"));
  }
  EXPECT_THAT(refusal([](ComputeProfile& profile) { profile.buckets[1].elements = 0; }),
              core::Says("a bucket of no gradients: bucket 2 of 2"));
  EXPECT_THAT(refusal([](ComputeProfile& profile) { profile.buckets[0].ready_seconds = -1; }),
              core::Says("a bucket is ready before the one in front of it: bucket 1 of 2"));
  EXPECT_THAT(refusal([](ComputeProfile& profile) { profile.buckets[1].ready_seconds = 4.5; }),
              core::Says("a bucket is ready after the end of the backward: bucket 2 of 2"));
}

TEST(StepPrediction, OfNoTimeAtAllIsEfficient) {
  const StepPrediction step = predict({}, ring(), 2, {.latency_seconds = 1, .bytes_per_second = 1});
  EXPECT_EQ(step.step_seconds, 0);
  EXPECT_EQ(step.efficiency, 1);
  EXPECT_EQ(step.images_per_second, 0);
}

}  // namespace
}  // namespace trainyard::parallel::step_prediction_test
