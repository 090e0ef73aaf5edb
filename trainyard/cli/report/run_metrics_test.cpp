#include "trainyard/cli/report/run_metrics.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "trainyard/cli/testing/run_folder.h"
#include "trainyard/core/testing/temp_dir.h"

namespace trainyard::cli::run_metrics_test {
namespace {

class ReadRunMetrics : public ::testing::Test {
 protected:
  RunMetrics read(const std::string& text) {
    core::local_file_system().write_file_atomically(path_, text);
    return read_run_metrics(path_);
  }

  core::TempDir temp_;
  const std::string path_ = temp_.file("metrics.jsonl");
};

TEST_F(ReadRunMetrics, RowsBecomeColumnsByPhase) {
  const RunMetrics metrics =
      read(metric_row(1, "train", {{"total_loss", 2.5}}) + metric_row(2, "eval", {{"loss", 1.5}}) +
           metric_row(3, "train", {{"learning_rate", 0.1}, {"total_loss", 2.25}}));
  ASSERT_EQ(metrics.phases.size(), 2U);
  const MetricTable& train = *metrics.find("train");
  EXPECT_EQ(train.step, (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(train.epoch, (std::vector<double>{0.01, 0.03}));
  EXPECT_EQ(train.time, (std::vector<double>{1.7e9 + 1, 1.7e9 + 3}));
  EXPECT_EQ(*train.find("total_loss"), (std::vector<double>{2.5, 2.25}));
  // A column that begins later has nothing in the rows before.
  EXPECT_TRUE(std::isnan(train.find("learning_rate")->at(0)));
  EXPECT_EQ(train.find("learning_rate")->at(1), 0.1);
  EXPECT_EQ(loss_column(train), "total_loss");
  EXPECT_EQ(metrics.find("eval")->step, std::vector<int64_t>{2});
  EXPECT_EQ(train.rows_in_file, 2U);
  EXPECT_EQ(metrics.damaged_lines, 0U);
  EXPECT_FALSE(metrics.cut);
}

TEST_F(ReadRunMetrics, AColumnThatEndsEarlierKeepsTheLengthOfAll) {
  const RunMetrics metrics = read(metric_row(1, "train", {{"a", 1}}) + metric_row(2, "train", {{"b", 2}}));
  for (const char* name : {"a", "b"}) EXPECT_EQ(metrics.find("train")->find(name)->size(), 2U) << name;
}

TEST_F(ReadRunMetrics, LinesThatAreNoRowsAreCountedAndLeftOut) {
  const RunMetrics metrics = read(
      "not json\n" + train_row(1, 2) + "[1,2]\n{\"global_step\":\"x\",\"phase\":\"train\"}\n{\"global_step\":2}\n" +
      "{\"global_step\":3,\"phase\":\"train\",\"total_loss\":{\"deep\":[1]}}\n" + train_row(4, 1));
  EXPECT_EQ(metrics.damaged_lines, 4U);
  EXPECT_EQ(metrics.find("train")->step, (std::vector<int64_t>{1, 3, 4}));
  EXPECT_TRUE(std::isnan(metrics.find("train")->find("total_loss")->at(1)));
}

TEST_F(ReadRunMetrics, ALastLineThatIsCutIsNoDamage) {
  const std::string row = train_row(2, 1);
  const RunMetrics metrics = read(train_row(1, 2) + row.substr(0, row.size() / 2));
  EXPECT_EQ(metrics.find("train")->step, std::vector<int64_t>{1});
  EXPECT_EQ(metrics.damaged_lines, 0U);
}

TEST_F(ReadRunMetrics, NonFiniteLossesAreCounted) {
  const RunMetrics metrics =
      read(metric_row(1, "train", {{"total_loss", 2}}) + metric_row(5, "train", {{"total_loss", "nan"}}) +
           metric_row(6, "train", {{"total_loss", "-inf"}, {"loss_scale", "inf"}}));
  EXPECT_EQ(metrics.non_finite_losses, 2U);
  EXPECT_EQ(metrics.first_non_finite, 5);
  EXPECT_TRUE(std::isnan(metrics.find("train")->find("total_loss")->at(2)));
}

TEST_F(ReadRunMetrics, NamesAndPhasesAndLinesHaveALimit) {
  nlohmann::ordered_json many;
  for (int i = 0; i < 200; ++i) many[fmt::format("name {}", i)] = i;
  many[std::string(300, 'x')] = 1;
  std::string text = metric_row(1, "train", many);
  for (int i = 0; i < 50; ++i) text += metric_row(1, fmt::format("phase {}", i), {{"a", 1}});
  text += "{\"global_step\":2,\"phase\":\"train\",\"note\":\"" + std::string(3 << 20, 'x') + "\"}\n" + train_row(3, 1);
  const RunMetrics metrics = read(text);
  EXPECT_EQ(metrics.phases.size(), 8U);
  EXPECT_EQ(metrics.find("train")->columns.size(), 64U);
  EXPECT_EQ(metrics.find("train")->step, (std::vector<int64_t>{1, 3})) << "the long line is skipped, the next one read";
  EXPECT_EQ(metrics.damaged_lines, 43U + 1U);
}

TEST_F(ReadRunMetrics, NamesAndPhasesHaveAtMostAHundredCharacters) {
  const std::string longest(100, 'x'), longer(101, 'x');
  const RunMetrics metrics =
      read(metric_row(1, longest, {{longest, 5}, {longer, 6}}) + metric_row(2, longer, {{"a", 1}}));
  ASSERT_EQ(metrics.phases.size(), 1U);
  EXPECT_EQ(metrics.phases[0].phase, longest);
  ASSERT_EQ(metrics.phases[0].columns.size(), 1U);
  EXPECT_EQ(metrics.phases[0].columns[0].first, longest);
  EXPECT_EQ(metrics.damaged_lines, 1U);
}

TEST_F(ReadRunMetrics, ARowHasAWholeStepAndANamedPhase) {
  for (const std::string line :
       {R"({"phase":"train","a":1})", R"({"global_step":2.5,"phase":"train","a":1})", R"({"global_step":2,"a":1})",
        R"({"global_step":2,"phase":7,"a":1})", R"({"global_step":2,"phase":["train"],"a":1})"}) {
    const RunMetrics metrics = read(line + "\n");
    EXPECT_TRUE(metrics.phases.empty()) << line;
    EXPECT_EQ(metrics.damaged_lines, 1U) << line;
  }
}

TEST_F(ReadRunMetrics, RowsAcrossBlocksAreWhole) {
  std::string text;
  constexpr int64_t kRows = 12000;  // 2.6 MB: two ends of blocks fall into rows
  for (int64_t step = 1; step <= kRows; ++step) text += train_row(step, static_cast<double>(step));
  ASSERT_GT(text.size(), size_t{2} << 20);
  const MetricTable table = *read(text).find("train");
  ASSERT_EQ(table.step.size(), static_cast<size_t>(kRows));
  for (size_t i = 0; i < table.step.size(); ++i) ASSERT_EQ(table.find("total_loss")->at(i), static_cast<double>(i + 1));
}

TEST_F(ReadRunMetrics, NoFileAndAPipeHaveNoRows) {
  EXPECT_TRUE(read_run_metrics(temp_.file("none")).phases.empty());
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_TRUE(read_run_metrics(path_).phases.empty()) << "and is not waited for";
}

MetricTable long_table(size_t rows) {
  MetricTable table{.phase = "train"};
  std::vector<double> losses, speeds;
  for (size_t i = 0; i < rows; ++i) {
    table.step.push_back(static_cast<int64_t>(i));
    table.epoch.push_back(0.5 * static_cast<double>(i));
    table.time.push_back(static_cast<double>(i));
    losses.push_back(i == 777 ? 99 : 2 + std::sin(static_cast<double>(i)));
    speeds.push_back(i == 4321 ? 1 : 100);
  }
  table.columns = {{"total_loss", losses}, {"images_per_second", speeds}};
  table.rows_in_file = rows;
  return table;
}

TEST(ThinOut, KeepsSpikesAndBothEndsInOrder) {
  MetricTable table = long_table(10'000);
  thin_out(table, 200);
  EXPECT_LE(table.step.size(), 201U);
  EXPECT_GE(table.step.size(), 100U);
  EXPECT_EQ(table.rows_in_file, 10'000U);
  EXPECT_EQ(table.step.front(), 0);
  EXPECT_EQ(table.step.back(), 9999);
  EXPECT_TRUE(std::is_sorted(table.step.begin(), table.step.end()));
  const std::vector<double>&losses = *table.find("total_loss"), &speeds = *table.find("images_per_second");
  EXPECT_EQ(*std::max_element(losses.begin(), losses.end()), 99);
  EXPECT_EQ(*std::min_element(speeds.begin(), speeds.end()), 1);
  // All columns are those of the same rows.
  for (size_t i = 0; i < table.step.size(); ++i) {
    EXPECT_EQ(table.epoch[i], 0.5 * static_cast<double>(table.step[i]));
    const bool spike = table.step[i] == 777;
    EXPECT_EQ(losses[i], spike ? 99 : 2 + std::sin(static_cast<double>(table.step[i])));
  }
}

TEST(ThinOut, LeavesAShortTableAndOneOfNaN) {
  MetricTable table = long_table(100);
  thin_out(table, 100);
  EXPECT_EQ(table.step.size(), 100U);
  for (auto& [name, values] : table.columns) std::fill(values.begin(), values.end(), NAN);
  thin_out(table, 10);
  EXPECT_GE(table.step.size(), 2U);
}

}  // namespace
}  // namespace trainyard::cli::run_metrics_test
