#include "trainyard/train/profile/layer_report.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/base/error.h"
#include "trainyard/core/testing/golden.h"
#include "trainyard/train/testing/tiny_model.h"

namespace trainyard::train::layer_report_test {
namespace {

using Json = nlohmann::json;
using Phase = nn::NodeRun::Phase;

RecordClock::time_point at_us(int64_t microseconds) {
  return RecordClock::time_point(std::chrono::microseconds(microseconds));
}

struct Run {
  std::vector<int> nodes;
  Phase phase;
  std::string kernel;
  int64_t begin_us, end_us;
  std::optional<int64_t> bytes = std::nullopt, flops = std::nullopt;
};

// A step of the tiny model (0 input, 1 conv, 2 bn, 3 relu, 4 pool, 5 fc) with fixed times; all but the input takes
// `factor` as long.
void add_step(StepRecorder& recorder, int64_t factor) {
  recorder.begin_step(static_cast<int64_t>(recorder.steps().size()));
  const auto part = [&](ThreadRecord& thread, StepPart which, int64_t begin, int64_t end) {
    thread.parts.push_back({which, at_us(begin * factor), at_us(end * factor)});
  };
  part(recorder.trainer(), StepPart::kInput, 0, 10);
  part(recorder.replica(0), StepPart::kForward, 10, 420);
  part(recorder.replica(0), StepPart::kLoss, 420, 450);
  part(recorder.replica(0), StepPart::kBackward, 450, 900);
  part(recorder.replica(0), StepPart::kReduce, 900, 905);
  part(recorder.replica(0), StepPart::kUpdate, 905, 945);
  part(recorder.trainer(), StepPart::kStep, 0, 1000);
  const Run runs[] = {{{}, Phase::kForward, "pack weights", 10, 20},
                      {{1, 2}, Phase::kForward, "conv 3x3", 20, 120, 1'000'000, 4'000'000},
                      {{2, 3}, Phase::kForward, "norm + relu", 120, 220, 2'000'000},
                      {{4}, Phase::kForward, "mean", 220, 300},
                      {{5}, Phase::kForward, "gemm", 300, 400},
                      {{5}, Phase::kBackward, "gemm", 450, 650},
                      {{4}, Phase::kBackward, "spread", 650, 700},
                      {{1, 2, 3}, Phase::kBackward, "conv 3x3", 700, 900}};
  for (const Run& run : runs) {
    recorder.node_observer(0).ran({.nodes = run.nodes,
                                   .phase = run.phase,
                                   .kernel = run.kernel,
                                   .begin = at_us(run.begin_us * factor),
                                   .end = at_us(run.end_us * factor),
                                   .bytes = run.bytes,
                                   .flops = run.flops});
  }
}

LayerReport sample_report(const std::vector<int64_t>& factors) {
  static const nn::Graph graph = tiny_graph();
  StepRecorder recorder(1);
  for (const int64_t factor : factors) add_step(recorder, factor);
  return layer_report(recorder.steps(), graph, "cpu", {.batch = 16});
}

TEST(LayerReport, JoinsNodesThatRunTogether) {
  const LayerReport report = sample_report({1});
  ASSERT_EQ(report.rows.size(), 3u);
  EXPECT_EQ(report.rows[0].nodes, (std::vector<int>{1, 2, 3})) << "conv with bn, bn with relu";
  EXPECT_EQ(report.rows[0].names, (std::vector<std::string>{"conv", "bn", "relu"}));
  EXPECT_EQ(report.rows[0].kernels, (std::vector<std::string>{"conv 3x3", "norm + relu"}));
  EXPECT_NEAR(report.rows[0].forward.seconds, 200e-6, 1e-12);
  EXPECT_NEAR(report.rows[0].backward.seconds, 200e-6, 1e-12);
  EXPECT_EQ(report.rows[1].nodes, std::vector<int>{4});
  EXPECT_EQ(report.rows[2].nodes, std::vector<int>{5});
}

TEST(LayerReport, PrefersWhatTheExecutorReports) {
  const LayerReport report = sample_report({1});
  EXPECT_EQ(report.rows[0].forward.bytes, 3'000'000) << "both runs report bytes";
  EXPECT_EQ(report.rows[0].forward.flops, 4'000'000) << "one reports flops: the other has none";
  // conv 8 x 3x3 of 3 channels on 5x5, images want no gradient; fc 8 -> 6.
  EXPECT_EQ(report.rows[0].backward.flops, 16LL * 2 * 8 * 25 * 27);
  EXPECT_EQ(report.rows[2].forward.flops, 16LL * 2 * 6 * 8);
  EXPECT_EQ(report.rows[2].backward.flops, 2 * 16LL * 2 * 6 * 8);
  EXPECT_EQ(report.rows[1].forward.bytes, 16LL * 4 * (8 * 25 + 8));
}

TEST(LayerReport, TakesMediansOverSteps) {
  const LayerReport odd = sample_report({1, 9, 2}), even = sample_report({1, 9, 2, 4});
  EXPECT_NEAR(odd.step_seconds, 2e-3, 1e-12);
  EXPECT_NEAR(odd.rows[0].forward.seconds, 400e-6, 1e-12);
  EXPECT_NEAR(even.step_seconds, 3e-3, 1e-12) << "the mean of the two in the middle";
  EXPECT_EQ(even.steps, 4);
  EXPECT_NEAR(even.images_per_second(), 16 / 3e-3, 1e-6);
}

TEST(LayerReport, AccountsForTheWholeStep) {
  const LayerReport report = sample_report({1});
  double sum = 0;
  for (const LayerRow& row : report.rows) sum += row.seconds();
  for (const auto& [what, seconds] : report.outside) sum += seconds;
  EXPECT_NEAR(sum, report.step_seconds, 1e-12);
  EXPECT_EQ(report.outside[2].first, "between layers");
  EXPECT_NEAR(report.outside[2].second, (860 - 830) * 1e-6, 1e-12) << "packing weights is no layer's";
  EXPECT_NEAR(report.outside[5].second, 55e-6, 1e-12);
}

TEST(LayerReport, PrintsTables) {
  const LayerReport report = sample_report({1});
  EXPECT_TRUE(core::matches_golden(layer_time_table(report) + "\n" + operator_time_table(report, 2),
                                   "trainyard/train/testdata/layer_report.txt"));
}

// What stands in a folder of its own keeps its name whole.
TEST(LayerReport, ALayersNamesLeaveOutTheFolderThatTheyShare) {
  LayerReport report = sample_report({1});
  report.rows[0].names = {"layer1.0.conv1", "layer1.0.bn1", "head.relu"};
  EXPECT_NE(layer_time_table(report).find("layer1.0.conv1 + bn1 + head.relu  "), std::string::npos)
      << layer_time_table(report);
}

TEST(LayerReport, LongNamesOfKernelsAreCutToTheirPlace) {
  LayerReport report = sample_report({1});
  const std::string fits(40, 'k'), too_long(41, 'm');
  report.rows[0].kernels = {fits, too_long};
  EXPECT_NE(layer_time_table(report).find(fits + ", " + std::string(37, 'm') + "...\n"), std::string::npos)
      << layer_time_table(report);
}

TEST(LayerReport, WritesJson) {
  const Json json = Json::parse(layer_time_json(sample_report({1})));
  EXPECT_EQ(json["model"], "tiny");
  EXPECT_EQ(json["batch_size"], 16);
  EXPECT_EQ(json["image_size"], (Json{5, 5}));
  ASSERT_EQ(json["layers"].size(), 3u);
  const Json& fc = json["layers"][2];
  EXPECT_EQ(fc["nodes"], Json({"fc"}));
  EXPECT_EQ(fc["kinds"], Json({"linear"}));
  EXPECT_EQ(fc["forward"]["flops"], 16 * 2 * 6 * 8);
  EXPECT_NEAR(fc["share"].get<double>(), 0.3, 1e-9);
  EXPECT_NEAR(fc["gflops_per_second"].get<double>(), 3 * 16 * 2 * 6 * 8 / 300e-6 * 1e-9, 1e-9);
  // Longest first: the fused convolution, linear, the pool.
  EXPECT_EQ(json["operators"][0]["kind"], "convolution + batch_norm + activation");
  EXPECT_EQ(json["operators"][1]["kind"], "linear");
  EXPECT_NEAR(json["outside_seconds"]["update"].get<double>(), 40e-6, 1e-12);
}

TEST(LayerReport, RefusesNothing) {
  EXPECT_THROW(sample_report({}), core::Error);
}

// Rows and columns of its images differ, and of its two replicas the first one is recorded.
TEST(LayerReport, CountsTheImagesOfAllReplicasAndTellsTheirSize) {
  nn::GraphBuilder b({.image = {3, 4, 6}, .name = "wide"});
  auto x = b.convolution("conv", b.input(), {.out_channels = 8, .kernel = 3, .padding = nn::Padding::all(1)});
  x = b.global_average_pool("pool", b.activation("relu", b.batch_norm("bn", x)));
  const nn::Graph graph = b.build(b.linear("fc", x, {.out_features = 6}));
  StepRecorder recorder(2);
  add_step(recorder, 1);
  const LayerReport report = layer_report(recorder.steps(), graph, "cpu", {.batch = 16});
  EXPECT_EQ(report.batch_size, 32);
  EXPECT_EQ(report.image_size, nn::Size2d(4, 6));
  EXPECT_EQ(Json::parse(layer_time_json(report))["image_size"], (Json{4, 6}));
}

TEST(LayerReport, TellsItsConditionsAndAddsLayersOfAKind) {
  LayerReport report = sample_report({1});
  report.conditions = {"bfloat16", "forward only"};
  report.rows.push_back(LayerRow(report.rows[2]));
  const LayerTime forward = report.rows[2].forward, backward = report.rows[2].backward;
  ASSERT_NE(forward.bytes, forward.flops);
  EXPECT_TRUE(layer_time_table(report).starts_with(
      "tiny, 16 images a step, executor cpu, bfloat16, forward only: 1.000 ms a step, 16000.0 images/s (median of 1)"))
      << layer_time_table(report);
  const Json json = Json::parse(layer_time_json(report));
  EXPECT_EQ(json["conditions"], (Json{"bfloat16", "forward only"}));
  EXPECT_EQ(json["executor"], "cpu");
  EXPECT_EQ(json["steps"], 1);
  EXPECT_EQ(json["layers"][2]["forward"]["bytes"], forward.bytes);
  EXPECT_EQ(json["layers"][2]["backward"]["bytes"], backward.bytes);
  EXPECT_NEAR(json["layers"][2]["gbytes_per_second"].get<double>(),
              1e-9 * static_cast<double>(forward.bytes + backward.bytes) / 300e-6, 1e-12);
  const Json& linear = json["operators"][0];
  EXPECT_EQ(linear["kind"], "linear") << "the longest with two layers";
  EXPECT_EQ(linear["layers"], 2);
  EXPECT_EQ(linear["forward"]["flops"], 2 * forward.flops);
  EXPECT_EQ(linear["backward"]["bytes"], 2 * backward.bytes);
  EXPECT_NEAR(linear["backward"]["seconds"].get<double>(), 400e-6, 1e-12);
}

}  // namespace
}  // namespace trainyard::train::layer_report_test
