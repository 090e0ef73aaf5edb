// Which numbers of a run are recorded, in which steps, and how the images of its batches are shown.
#include "trainyard/frontends/tf_cnn/run_files.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/frontends/tf_cnn/benchmark_cnn.h"

namespace trainyard::frontends::run_files_test {
namespace {

PreparedRun run_of(Dialect dialect, int64_t verbosity = 1) {
  PreparedRun run;
  run.options.dialect = dialect;
  run.options.saving.train_dir = "run";
  run.options.display.summary_verbosity = verbosity;
  run.options.display.display_every = 4;
  run.plan.num_batches = 10;
  return run;
}

TEST(RecordsMetrics, WithATrainDirectoryWhereTheFlagsSaySo) {
  EXPECT_TRUE(records_metrics(run_of(Dialect::kTrainyard)));
  EXPECT_FALSE(records_metrics(run_of(Dialect::kTrainyard, 0)));
  PreparedRun run = run_of(Dialect::kTrainyard);
  run.options.saving.train_dir = "";
  EXPECT_FALSE(records_metrics(run));
  run = run_of(Dialect::kTrainyard);
  run.options.display.save_summaries_steps = 0;
  EXPECT_TRUE(records_metrics(run)) << "evaluations";
  run.options.dialect = Dialect::kTfCnnBenchmarks;
  EXPECT_FALSE(records_metrics(run));
  run.options.display.save_summaries_steps = 1;
  EXPECT_TRUE(records_metrics(run));
  EXPECT_FALSE(records_metrics(run_of(Dialect::kTfCnnBenchmarks)));
}

TEST(RecordedSteps, AreTheDisplayedOnesOrThoseOfTheFlag) {
  PreparedRun run = run_of(Dialect::kTrainyard);
  train::SummaryOptions displayed;
  EXPECT_TRUE(set_recorded_steps(run, displayed));
  EXPECT_EQ(displayed.every_steps, 0);
  ASSERT_TRUE(displayed.due);
  for (const int64_t step : {1, 4, 8, 10}) EXPECT_TRUE(displayed.due(step)) << step;
  for (const int64_t step : {2, 5, 9}) EXPECT_FALSE(displayed.due(step)) << step;

  run.options.display.save_summaries_steps = 3;
  train::SummaryOptions asked;
  EXPECT_TRUE(set_recorded_steps(run, asked));
  EXPECT_EQ(asked.every_steps, 3);
  ASSERT_TRUE(asked.due);
  EXPECT_TRUE(asked.due(3));
  EXPECT_FALSE(asked.due(4));

  run.options.display.save_summaries_steps = 0;
  train::SummaryOptions none;
  EXPECT_FALSE(set_recorded_steps(run, none));
  EXPECT_FALSE(none.due);

  run = run_of(Dialect::kTfCnnBenchmarks);
  run.options.display.save_summaries_steps = 3;
  train::SummaryOptions benchmark;
  EXPECT_TRUE(set_recorded_steps(run, benchmark));
  EXPECT_EQ(benchmark.every_steps, 3);
  EXPECT_FALSE(benchmark.due) << "counted in each run";
}

TEST(RecordedSteps, HaveHistogramsAndImagesByVerbosity) {
  const auto summary = [](int64_t verbosity) {
    const PreparedRun run = run_of(Dialect::kTrainyard, verbosity);
    train::SummaryOptions options;
    set_recorded_steps(run, options);
    return options;
  };
  EXPECT_EQ(summary(1).histograms, train::SummaryHistograms::kNone);
  EXPECT_EQ(summary(2).histograms, train::SummaryHistograms::kLogGradients);
  EXPECT_TRUE(summary(2).pictures.empty());
  for (const int64_t verbosity : {3, 4}) {
    EXPECT_EQ(summary(verbosity).histograms, train::SummaryHistograms::kAll);
    ASSERT_EQ(summary(verbosity).pictures.size(), 1U);
    EXPECT_EQ(summary(verbosity).pictures[0].first, "input");
  }
}

// Returns what a summary shows of a batch.
at::Tensor shown(const PreparedRun& run, const at::Tensor& images) {
  train::SummaryOptions summary;
  EXPECT_TRUE(set_recorded_steps(run, summary));
  EXPECT_EQ(summary.pictures.size(), 1U);
  if (summary.pictures.empty()) return {};
  train::StepView view;
  view.replicas.resize(1);
  view.replicas[0].batch.tensors.set("images", images);
  return summary.pictures[0].second(view);
}

// Four images of 2 x 5 pixels of one colour.
at::Tensor plain(float red, float green, float blue) {
  return at::tensor({red, green, blue}, at::kFloat).reshape({1, 3, 1, 1}).expand({4, 3, 2, 5});
}

TEST(ShownImages, HaveTheColoursThatTheyHadBeforeNormalization) {
  PreparedRun run = run_of(Dialect::kTrainyard, 3);
  run.input.data_dir = "photos";
  run.input.transform.normalization = {.scale = {0.5F, 0.25F, 2}, .shift = {-1, -2, 3}};
  const at::Tensor images = shown(run, plain(0.5F * 51 - 1, 0.25F * 102 - 2, 2 * 204 + 3));
  EXPECT_EQ(images.sizes().vec(), (std::vector<int64_t>{3, 3, 2, 5})) << "the first three of the batch";
  EXPECT_TRUE(images.allclose(plain(0.2F, 0.4F, 0.8F).slice(0, 0, 3), 1e-5, 1e-5));
  run.input.data_dir = "";
  EXPECT_TRUE(shown(run, plain(51, 102, 204)).allclose(plain(0.2F, 0.4F, 0.8F).slice(0, 0, 3), 1e-5, 1e-5))
      << "synthetic images are not normalized";
}

TEST(ShownImages, AreThoseOfThreeColours) {
  const PreparedRun run = run_of(Dialect::kTrainyard, 3);
  EXPECT_FALSE(shown(run, at::full({2, 1, 4, 4}, 0.0F)).defined());
  EXPECT_FALSE(shown(run, at::full({2, 48}, 0.0F)).defined());
  EXPECT_FALSE(shown(run, at::full({0, 3, 4, 4}, 0.0F)).defined());
}

class OwnImages : public BenchmarkDataset {
 public:
  std::string name() const override { return "own"; }
  int64_t num_classes() const override { return 2; }
  int64_t num_examples_per_epoch(data::Subset) const override { return 2; }
  std::shared_ptr<data::BatchSource> make_source(const WantedBatches&) const override { return nullptr; }
};

// As tf.summary.image does.
TEST(ShownImages, OfTheCallersOwnDataAreScaledToTheirLargestNumber) {
  PreparedRun run = run_of(Dialect::kTrainyard, 3);
  run.own.dataset = std::make_shared<OwnImages>();
  const auto two_numbers = [&run](float first, float other) {
    at::Tensor images = at::full({1, 3, 2, 5}, other);
    images[0][1][1][2].fill_(first);
    const at::Tensor result = shown(run, images);
    return std::pair{result[0][1][1][2].item<float>(), result[0][2][0][4].item<float>()};
  };
  EXPECT_EQ(two_numbers(4, 0), (std::pair{1.0F, 0.0F}));
  EXPECT_EQ(two_numbers(4, 1), (std::pair{1.0F, 0.25F}));
  EXPECT_EQ(two_numbers(4, -2), (std::pair{1.0F, 0.25F})) << "0 is grey";
  EXPECT_EQ(two_numbers(4, -8), (std::pair{0.75F, 0.0F}));
}

TEST(Monitors, AreOfTheDialect) {
  const core::TempDir temp;
  PreparedRun run = run_of(Dialect::kTrainyard);
  run.options.saving.train_dir = temp.path();
  EXPECT_EQ(make_monitors(run, 0, false).size(), 3U) << "metrics.jsonl, metrics.csv, TensorBoard";
  run.options.dialect = Dialect::kTfCnnBenchmarks;
  run.options.display.save_summaries_steps = 1;
  EXPECT_EQ(make_monitors(run, 0, false).size(), 1U);
  run.options.display.summary_verbosity = 0;
  EXPECT_TRUE(make_monitors(run, 0, false).empty());
  run.options.display.trackers = {"mlflow"};
  EXPECT_EQ(core::problem_of([&] { static_cast<void>(make_monitors(run, 0, false)); }),
            "--trackers has no numbers to write: the run records none");
}

// Its store is in the folder that has the run's, unless a flag names another.
TEST(Monitors, OfMlflowHaveTheNamesOfTheRun) {
  const core::TempDir temp;
  core::FileSystem& files = core::local_file_system();
  const std::string run_file = temp.file("runs/first/mlflow_run.txt");
  files.make_directories(temp.file("runs/first"));
  PreparedRun run = run_of(Dialect::kTrainyard);
  run.options.saving.train_dir = temp.file("runs/first/");
  run.dataset_label = "photos";
  run.options.flags.given = {{"batch_size", "8"}};
  run.options.display.trackers = {"mlflow"};
  for (const std::string store : {"runs/mlruns", "elsewhere"}) {
    if (files.exists(run_file)) {
      files.remove_file(run_file);
      run.options.display.mlflow_dir = temp.file(store);
    }
    EXPECT_EQ(make_monitors(run, 0, false).size(), 4U);
    ASSERT_TRUE(files.exists(run_file));
    std::string folder = files.read_file(run_file);
    while (folder.ends_with('\n')) folder.pop_back();
    EXPECT_THAT(folder, ::testing::StartsWith(temp.file(store) + "/"));
    EXPECT_EQ(files.read_file(core::join_path(folder, "tags/mlflow.runName")), "first");
    EXPECT_EQ(files.read_file(core::join_path(folder, "params/batch_size")), "8");
    EXPECT_THAT(files.read_file(core::join_path(core::parent_path(folder), "meta.yaml")),
                ::testing::HasSubstr("\nname: 'photos'\n"));
  }
}

}  // namespace
}  // namespace trainyard::frontends::run_files_test
