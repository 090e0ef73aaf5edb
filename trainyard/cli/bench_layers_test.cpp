#include "trainyard/cli/bench_layers.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"

namespace trainyard::cli::bench_layers_test {
namespace {

LayerBenchOptions small_bench() {
  return {.benched = {.model = "lenet", .dataset = "imagenet", .device = {.gpu = false}, .intra_op_threads = 1},
          .batch_size = 4,
          .warmup_steps = 1,
          .steps = 3};
}

TEST(BenchLayers, TimesEveryLayerOfATraining) {
  const train::LayerReport report = bench_layers(small_bench());
  EXPECT_EQ(report.model, "lenet");
  EXPECT_EQ(report.steps, 3);
  EXPECT_EQ(report.batch_size, 4);
  double sum = 0;
  for (const auto& [what, seconds] : report.outside) sum += seconds;
  int convolutions = 0;
  for (const train::LayerRow& row : report.rows) {
    EXPECT_GT(row.forward.seconds, 0) << row.names[0];
    sum += row.seconds();
    if (row.kinds[0] != "convolution") continue;
    ++convolutions;
    EXPECT_GT(row.backward.seconds, 0) << row.names[0];
    EXPECT_EQ(row.backward.flops, (convolutions == 1 ? 1 : 2) * row.forward.flops) << row.names[0];
    EXPECT_GT(row.forward.bytes, 0) << row.names[0];
  }
  EXPECT_GE(convolutions, 2);
  // Medians of parts do not add up to the median of their sum, least of all beside other programs.
  EXPECT_GT(sum, 0.2 * report.step_seconds);
  EXPECT_LT(sum, 2 * report.step_seconds);
}

TEST(BenchLayers, TimesInferenceAlone) {
  LayerBenchOptions options = small_bench();
  options.forward_only = true;
  const train::LayerReport report = bench_layers(options);
  double sum = 0;
  for (const train::LayerRow& row : report.rows) {
    EXPECT_EQ(row.backward.seconds + row.backward.flops, 0);
    sum += row.seconds();
  }
  EXPECT_GT(sum, 0);
}

TEST(BenchLayers, FoldsNormsIntoFrozenConvolutions) {
  LayerBenchOptions options = small_bench();
  options.benched.model = "resnet20";
  options.benched.dataset = "cifar10";
  options.benched.device.executor = "cpu";
  options.frozen = true;
  EXPECT_THROW(bench_layers(options), core::Error);  // training
  options.forward_only = true;
  // Returns the number of layers that begin with a batch norm.
  const auto norms = [&] {
    const std::vector<train::LayerRow> rows = bench_layers(options).rows;
    return std::count_if(rows.begin(), rows.end(), [](const auto& row) { return row.kinds[0] == "batch_norm"; });
  };
  EXPECT_EQ(norms(), 0);
  options.frozen = false;
  EXPECT_GT(norms(), 0);
}

TEST(BenchLayers, ComputesInBfloat16WithHalfTheTraffic) {
  LayerBenchOptions options = small_bench();
  const train::LayerReport wide = bench_layers(options);
  options.benched.device.use_bf16 = true;
  const train::LayerReport narrow = bench_layers(options);
  ASSERT_EQ(wide.rows.size(), narrow.rows.size());
  for (size_t i = 0; i < wide.rows.size(); ++i) {
    EXPECT_EQ(wide.rows[i].forward.flops, narrow.rows[i].forward.flops);
    if (wide.rows[i].kinds[0] == "max_pool") {
      EXPECT_EQ(wide.rows[i].forward.bytes, 2 * narrow.rows[i].forward.bytes);
    }
  }
}

TEST(BenchLayers, TimesADetectorWithItsLoss) {
  LayerBenchOptions options = small_bench();
  options.benched = {.model = "ssd300", .image_size = 264, .device = {.gpu = false}};
  options.batch_size = 1;
  options.steps = 1;
  const train::LayerReport report = bench_layers(options);
  ASSERT_FALSE(report.rows.empty());
  int boxes = 0;
  for (const train::LayerRow& row : report.rows) {
    if (row.kinds[0] != "box_rows") continue;
    ++boxes;
    EXPECT_GT(row.forward.seconds, 0);
    EXPECT_GT(row.backward.seconds, 0);
  }
  EXPECT_EQ(boxes, 1);
}

TEST(BenchLayers, SaysWhatIsWrong) {
  LayerBenchOptions options = small_bench();
  options.benched.device.executor = "referense";
  EXPECT_THROW(bench_layers(options), core::Error);
  options = small_bench();
  options.benched.model = "lenett";
  EXPECT_THROW(bench_layers(options), core::Error);
  options = small_bench();
  options.benched.device.use_fp16 = true;
  EXPECT_THROW(bench_layers(options), core::Error) << "on the CPU";
  options = small_bench();
  options.steps = 0;
  EXPECT_THROW(bench_layers(options), core::Error);
}

}  // namespace
}  // namespace trainyard::cli::bench_layers_test
