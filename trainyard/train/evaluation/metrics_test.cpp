#include "trainyard/train/evaluation/metrics.h"

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/random/random.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/parallel/collectives/threads/thread_communicator.h"

namespace trainyard::train::metrics_test {
namespace {

using ::testing::ElementsAre, ::testing::HasSubstr, ::testing::Pair;

constexpr int64_t kClasses = 4;

MetricBatch batch_of(const at::Tensor& output, const at::Tensor& labels) {
  return {.outputs = {{"output", output}}, .labels = labels};
}

// 37 samples: logits [37, 4], labels in [0, 4).
struct MetricSamples {
  at::Tensor logits = at::empty({37, kClasses}), labels = at::empty({37}, at::kLong);
  MetricSamples() {
    core::RandomStream stream(5, "metrics");
    for (int64_t i = 0; i < logits.numel(); ++i) logits.mutable_data_ptr<float>()[i] = stream.normal();
    for (int64_t i = 0; i < 37; ++i)
      labels.mutable_data_ptr<int64_t>()[i] = static_cast<int64_t>(stream.below(kClasses));
  }
  MetricBatch part(int64_t begin, int64_t end) const {
    return batch_of(logits.slice(0, begin, end), labels.slice(0, begin, end));
  }
  double logit(int64_t sample, int64_t c) const { return logits.const_data_ptr<float>()[sample * kClasses + c]; }
  int64_t label(int64_t sample) const { return labels.const_data_ptr<int64_t>()[sample]; }
};

// The number of classes with a larger logit than the label's.
int64_t rank_of_label(const MetricSamples& samples, int64_t i) {
  int64_t larger = 0;
  for (int64_t c = 0; c < kClasses; ++c) larger += samples.logit(i, c) > samples.logit(i, samples.label(i)) ? 1 : 0;
  return larger;
}

using Results = std::vector<std::pair<std::string, double>>;

Results results_in_batches(Metric& metric, const MetricSamples& samples) {
  metric.update(batch_of(at::zeros({3, kClasses}), at::zeros({3}, at::kLong)));
  metric.begin();  // what came before does not count
  for (const int64_t begin : {0, 10, 20, 30}) metric.update(samples.part(begin, std::min<int64_t>(begin + 10, 37)));
  return metric.results();
}

TEST(Metrics, TopKAndLossByDefinition) {
  const MetricSamples samples;
  double loss = 0;
  int64_t first = 0, among_two = 0;
  for (int64_t i = 0; i < 37; ++i) {
    double sum = 0;
    for (int64_t c = 0; c < kClasses; ++c) sum += std::exp(samples.logit(i, c));
    loss += std::log(sum) - samples.logit(i, samples.label(i));
    first += rank_of_label(samples, i) < 1 ? 1 : 0;
    among_two += rank_of_label(samples, i) < 2 ? 1 : 0;
  }
  TopKAccuracy one, two(2);
  EXPECT_THAT(results_in_batches(one, samples), ElementsAre(Pair("top_1_accuracy", static_cast<double>(first) / 37)));
  EXPECT_THAT(results_in_batches(two, samples),
              ElementsAre(Pair("top_2_accuracy", static_cast<double>(among_two) / 37)));
  MeanLoss mean;
  EXPECT_NEAR(results_in_batches(mean, samples)[0].second, loss / 37, 1e-6);
  MeanLoss own([](const at::Tensor&, const at::Tensor& labels) { return labels.to(at::kFloat).mean(); }, "mean_label");
  const Results label = results_in_batches(own, samples);
  EXPECT_EQ(label[0].first, "mean_label");
  EXPECT_NEAR(label[0].second, samples.labels.to(at::kDouble).mean().item<double>(), 1e-6);
}

TEST(Metrics, ClassesByDefinition) {
  const MetricSamples samples;
  std::vector<std::vector<int64_t>> counts(kClasses, std::vector<int64_t>(kClasses + 1));
  for (int64_t i = 0; i < 37; ++i) {
    int64_t best = 0;
    for (int64_t c = 1; c < kClasses; ++c) best = samples.logit(i, c) > samples.logit(i, best) ? c : best;
    ++counts[static_cast<size_t>(samples.label(i))][static_cast<size_t>(best)];
  }
  ConfusionMatrix matrix(kClasses);
  EXPECT_TRUE(results_in_batches(matrix, samples).empty());
  PerClassAccuracy accuracy(kClasses, {"ant", "bee", "cat", "dog"});
  const Results results = results_in_batches(accuracy, samples);
  double mean = 0;
  for (int64_t row = 0; row < kClasses; ++row) {
    double total = 0;
    for (int64_t column = 0; column <= kClasses; ++column) {
      const int64_t expected = counts[static_cast<size_t>(row)][static_cast<size_t>(column)];
      EXPECT_EQ(matrix.matrix()[row][column].item<int64_t>(), expected);
      total += static_cast<double>(expected);
    }
    const double right = static_cast<double>(counts[static_cast<size_t>(row)][static_cast<size_t>(row)]) / total;
    EXPECT_DOUBLE_EQ(results[static_cast<size_t>(row)].second, right);
    mean += right / kClasses;
  }
  EXPECT_EQ(results[1].first, "class_accuracy/bee");
  EXPECT_EQ(results[4].first, "mean_class_accuracy");
  EXPECT_NEAR(results[4].second, mean, 1e-12);
}

TEST(Metrics, AClassWithoutSamplesAndOutputsThatAreNotFinite) {
  const float nan = std::nanf("");
  const MetricBatch batch =
      batch_of(at::tensor({0.0F, 1.0F, 0.0F, 0.0F, nan, 9.0F}).reshape({2, 3}), at::tensor({1L, 2L}));
  ConfusionMatrix matrix(3);
  matrix.update(batch);
  EXPECT_EQ(matrix.text()->first, "confusion_matrix");
  EXPECT_EQ(matrix.text()->second,
            "| label | 0 | 1 | 2 | not finite |\n|---|---|---|---|---|\n"
            "| 0 | 0 | 0 | 0 | 0 |\n| 1 | 0 | 1 | 0 | 0 |\n| 2 | 0 | 0 | 0 | 1 |\n");
  PerClassAccuracy accuracy(3);
  accuracy.update(batch);
  const Results results = accuracy.results();
  EXPECT_TRUE(std::isnan(results[0].second)) << "nothing is known of it";
  EXPECT_EQ(results[1].second, 1);
  EXPECT_EQ(results[2].second, 0);
  EXPECT_EQ(results[3].second, 0.5) << "of the two classes that are there";
}

double precision_of(const at::Tensor& output, const at::Tensor& labels) {
  BinaryAveragePrecision metric;
  metric.update(batch_of(output, labels));
  return metric.results()[0].second;
}

TEST(Metrics, AveragePrecisionAsScikitLearn) {
  // The example of sklearn.metrics.average_precision_score's documentation: 0.83.
  const at::Tensor scores = at::tensor({0.1F, 0.4F, 0.35F, 0.8F}), labels = at::tensor({0L, 0L, 1L, 1L});
  EXPECT_NEAR(precision_of(scores, labels), 0.5 * 1 + 0.5 * 2.0 / 3, 1e-12);
  EXPECT_NEAR(precision_of(scores.unsqueeze(1), labels), 0.5 * 1 + 0.5 * 2.0 / 3, 1e-12);
  // Two logits: the score is their difference.
  EXPECT_NEAR(precision_of(at::tensor({5.0F, 5.1F, 0.0F, 0.4F, 7.0F, 7.35F, 0.2F, 1.0F}).reshape({4, 2}), labels),
              0.5 * 1 + 0.5 * 2.0 / 3, 1e-12);
  // Equal scores are one threshold: precision there is the part of positives.
  EXPECT_DOUBLE_EQ(precision_of(at::zeros({4}), at::tensor({0L, 1L, 0L, 0L})), 0.25);
  EXPECT_TRUE(std::isnan(precision_of(at::zeros({2}), at::zeros({2}, at::kLong)))) << "no positives";
  // A score that is NaN comes last.
  EXPECT_DOUBLE_EQ(precision_of(at::tensor({std::nanf(""), 0.5F}), at::tensor({0L, 1L})), 1);
}

TEST(Metrics, MeansOfNamedOutputs) {
  MeanOutput metric("kl");
  metric.update({.outputs = {{"kl", at::tensor({1.0F, 2.0F, 6.0F})}}, .labels = at::zeros({3}, at::kLong)});
  metric.update({.outputs = {{"kl", at::tensor(11.0F)}}, .labels = at::zeros({1}, at::kLong)});
  EXPECT_THAT(metric.results(), ElementsAre(Pair("kl", 5)));
  EXPECT_THAT(core::message_of([&] { metric.update(batch_of(at::zeros({1}), at::zeros({1}, at::kLong))); },
                               core::ErrorCode::kNotFound),
              HasSubstr("kl"));
}

// Three ranks with 20, 17 and no samples give, each of them, the very numbers of one that has all.
TEST(Metrics, OfSeveralRanksAreThoseOfAllTheirSamples) {
  const MetricSamples samples;
  const auto two_columns = [](MetricBatch batch) {
    batch.outputs.set("output", batch.output().slice(1, 0, 2));
    batch.labels = batch.labels.remainder(2);
    return batch;
  };
  struct Case {
    std::function<std::unique_ptr<Metric>()> make;
    std::function<MetricBatch(MetricBatch)> seen = [](MetricBatch batch) { return batch; };
  };
  const std::vector<Case> cases = {{[] { return std::make_unique<TopKAccuracy>(2); }},
                                   {[] { return std::make_unique<PerClassAccuracy>(kClasses); }},
                                   {[] { return std::make_unique<MeanOutput>("output"); }},
                                   {[] { return std::make_unique<BinaryAveragePrecision>(); }, two_columns}};
  for (const Case& tried : cases) {
    const auto whole = tried.make();
    whole->update(tried.seen(samples.part(0, 20)));
    whole->update(tried.seen(samples.part(20, 37)));
    const Results expected = whole->results();
    const auto ranks = parallel::make_thread_communicators(3);
    std::vector<Results> results(3);
    {
      std::vector<core::Thread> threads;
      for (int rank = 0; rank < 3; ++rank) {
        threads.emplace_back(core::ThreadOptions{.name = "rank"}, [&, rank] {
          const auto metric = tried.make();
          if (rank == 0) metric->update(tried.seen(samples.part(0, 20)));
          if (rank == 1) metric->update(tried.seen(samples.part(20, 37)));
          metric->reduce(*ranks[static_cast<size_t>(rank)], at::kCPU);
          results[static_cast<size_t>(rank)] = metric->results();
        });
      }
      for (core::Thread& thread : threads) thread.join();
    }
    for (const Results& of_rank : results) EXPECT_EQ(of_rank, expected);
  }
}

TEST(Metrics, RefuseWhatTheyCannotMeasure) {
  EXPECT_NE(core::message_of([] { TopKAccuracy(0); }), "no error");
  EXPECT_NE(core::message_of([] { ConfusionMatrix(0); }), "no error");
  EXPECT_NE(core::message_of([] { ConfusionMatrix(3, {"a"}); }), "no error");
  ConfusionMatrix matrix(3);
  EXPECT_THAT(core::message_of([&] {
                matrix.update(batch_of(at::zeros({2, 4}), at::zeros({2}, at::kLong)));
              }),
              HasSubstr("expected outputs [N, 3], labels [N], got outputs [2, 4], labels [2]"));
  BinaryAveragePrecision precision;
  EXPECT_THAT(core::message_of([&] {
                precision.update(batch_of(at::zeros({2, 3}), at::zeros({2}, at::kLong)));
              }),
              HasSubstr("average precision cannot be measured here"));
  EXPECT_NE(core::message_of([&] { precision.update(batch_of(at::zeros({1}), at::tensor({2L}))); }), "no error");
}

}  // namespace
}  // namespace trainyard::train::metrics_test
