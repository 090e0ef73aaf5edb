#include "trainyard/train/evaluation/mean_average_precision.h"

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/parallel/collectives/threads/thread_communicator.h"

namespace trainyard::train::mean_average_precision_test {
namespace {

// The values of tools/golden/class_balance.py, of scikit-learn 1.9.1.
at::Tensor scores() {
  return at::tensor({0.9, 0.1, 0.5, 0.8, 0.7, 0.5, 0.7, 0.6, 0.2, 0.6, 0.6, 0.9, 0.5, 0.2, 0.1, 0.4, 0.9, 0.3},
                    at::kDouble)
      .reshape({6, 3});
}
at::Tensor labels() {
  return at::tensor({1, 0, 1, 0, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 1, 1, 0}, at::kLong).reshape({6, 3}).to(at::kFloat);
}
MetricBatch rows(int64_t begin, int64_t end) {
  return {.outputs = {{"logits", scores().slice(0, begin, end)}}, .labels = labels().slice(0, begin, end)};
}

TEST(MeanAveragePrecision, IsThatOfScikitLearn) {
  MeanAveragePrecision metric;
  metric.begin();
  EXPECT_TRUE(std::isnan(metric.results()[0].second));
  metric.update(rows(0, 4));
  metric.update(rows(4, 6));
  ASSERT_EQ(metric.results().size(), 1U);
  EXPECT_EQ(metric.results()[0].first, "mean_average_precision");
  EXPECT_NEAR(metric.results()[0].second, 0.6574074074074073, 1e-15);
  EXPECT_NEAR(metric.by_class()[0], 0.7222222222222222, 1e-15);
  EXPECT_NEAR(metric.by_class()[1], 0.9166666666666665, 1e-15);
  EXPECT_NEAR(metric.by_class()[2], 0.3333333333333333, 1e-15);
  // Logits have the order of their sigmoids.
  metric.begin();
  metric.update({.outputs = {{"logits", scores().mul(8).sub(4).to(at::kFloat)}}, .labels = labels()});
  EXPECT_NEAR(metric.results()[0].second, 0.6574074074074073, 1e-15);
}

TEST(MeanAveragePrecision, CountsAClassWithoutPositivesAsZero) {
  MeanAveragePrecision metric;
  metric.update({.outputs = {{"logits", at::cat({scores(), scores().narrow(1, 0, 1)}, 1)}},
                 .labels = at::cat({labels(), at::zeros({6, 1})}, 1)});
  EXPECT_NEAR(metric.results()[0].second, 0.4930555555555555, 1e-15);
}

TEST(MeanAveragePrecision, PutsNanLast) {
  MeanAveragePrecision metric;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  metric.update({.outputs = {{"logits", at::tensor({nan, -9.0}, at::kDouble).reshape({2, 1})}},
                 .labels = at::tensor({1.0, 0.0}, at::kDouble).reshape({2, 1})});
  EXPECT_EQ(metric.results()[0].second, 0.5);
}

TEST(MeanAveragePrecision, RefusesAnotherForm) {
  MeanAveragePrecision metric;
  metric.update(rows(0, 2));
  EXPECT_EQ(core::code_of([&] {
              metric.update({.outputs = {{"logits", scores()}}, .labels = at::zeros({6}, at::kLong)});
            }),
            core::ErrorCode::kInvalidArgument);
  EXPECT_EQ(core::code_of([&] {
              metric.update({.outputs = {{"logits", scores().narrow(1, 0, 2)}}, .labels = labels().narrow(1, 0, 2)});
            }),
            core::ErrorCode::kInvalidArgument);
  EXPECT_THROW(metric.add_samples_text("x"), core::Error);
}

TEST(MeanAveragePrecision, IsThatOfAllSamplesTexts) {
  MeanAveragePrecision first, second, empty;
  first.update(rows(0, 1));
  second.update(rows(1, 6));
  MeanAveragePrecision all;
  for (const MeanAveragePrecision* part : {&second, &empty, &first}) all.add_samples_text(part->samples_text());
  EXPECT_NEAR(all.results()[0].second, 0.6574074074074073, 1e-15);
}

// Ranks with one, no, two and three samples have, each of them, the value of scikit-learn for all six.
TEST(MeanAveragePrecision, OfSeveralRanksIsThatOfAllTheirSamples) {
  const std::vector<std::pair<int64_t, int64_t>> parts = {{0, 1}, {1, 1}, {1, 3}, {3, 6}};
  const auto ranks = parallel::make_thread_communicators(static_cast<int>(parts.size()));
  std::vector<MeanAveragePrecision> metrics(parts.size());
  {
    std::vector<core::Thread> threads;
    for (size_t rank = 0; rank < parts.size(); ++rank) {
      threads.emplace_back(core::ThreadOptions{.name = "rank"}, [&, rank] {
        const auto [begin, end] = parts[rank];
        if (begin < end) metrics[rank].update(rows(begin, end));
        metrics[rank].reduce(*ranks[rank], at::kCPU);
      });
    }
    for (core::Thread& thread : threads) thread.join();
  }
  for (const MeanAveragePrecision& metric : metrics) {
    EXPECT_NEAR(metric.results()[0].second, 0.6574074074074073, 1e-15);
    ASSERT_EQ(metric.by_class().size(), 3U);
    EXPECT_NEAR(metric.by_class()[1], 0.9166666666666665, 1e-15);
  }
}

// Where no rank has seen a sample there is no value, and no rank waits.
TEST(MeanAveragePrecision, OfRanksWithoutSamplesIsNone) {
  const auto ranks = parallel::make_thread_communicators(2);
  std::vector<MeanAveragePrecision> metrics(2);
  {
    core::Thread other(core::ThreadOptions{.name = "rank"}, [&] { metrics[1].reduce(*ranks[1], at::kCPU); });
    metrics[0].reduce(*ranks[0], at::kCPU);
    other.join();
  }
  for (const MeanAveragePrecision& metric : metrics) EXPECT_TRUE(std::isnan(metric.results()[0].second));
}

}  // namespace
}  // namespace trainyard::train::mean_average_precision_test
