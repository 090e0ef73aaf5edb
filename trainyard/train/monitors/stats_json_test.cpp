#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/train/monitors/monitors.h"

namespace trainyard::train::stats_json_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Scalars scalars_at(int64_t step, const std::string& phase, std::vector<std::pair<std::string, double>> values) {
  return {.global_step = step, .phase = phase, .values = std::move(values)};
}

// Two epochs of ten steps.
void write_two_epochs(StatsJsonMonitor& monitor) {
  monitor.write(scalars_at(5, "train", {{"loss", 3}}));
  monitor.write(scalars_at(10, "train", {{"loss", 2.25}}));
  monitor.write(scalars_at(10, "val", {{"accuracy", 0.5}}));
  monitor.end_epoch(1, 10);
  monitor.write(scalars_at(20, "train", {{"loss", std::nan("")}}));
  monitor.end_epoch(2, 20);
}

constexpr const char* kTwoEpochs =
    "[\n{\"epoch_num\":1,\"global_step\":10,\"loss\":2.25,\"val/accuracy\":0.5},\n"
    "{\"epoch_num\":2,\"global_step\":20,\"loss\":\"nan\"}\n]\n";

TEST(StatsJson, IsAListWithAnObjectForEachEpoch) {
  const core::TempDir directory;
  const std::string path = directory.file("run/stats.json");
  core::FileSystem& files = core::local_file_system();
  EXPECT_EQ(read_stats_end(path), std::nullopt);
  StatsJsonMonitor monitor(path);
  write_two_epochs(monitor);
  EXPECT_EQ(files.read_file(path), kTwoEpochs);
  monitor.write(scalars_at(20, "test", {{"accuracy", 0.75}}));  // of an evaluation at the end
  EXPECT_EQ(nlohmann::json::parse(files.read_file(path))[1]["test/accuracy"], 0.75);
  EXPECT_EQ(read_stats_end(path)->epoch_num, 2);
  EXPECT_EQ(read_stats_end(path)->global_step, 20);
  EXPECT_EQ(read_stats_end(path, files, 19)->epoch_num, 1);
  EXPECT_EQ(read_stats_end(path, files, 10)->epoch_num, 1);
  EXPECT_EQ(read_stats_end(path, files, 9), std::nullopt);
  EXPECT_THAT(core::message_of([&] {
                monitor.write(scalars_at(30, "train", {{"epoch_num", 1}}));
              }),
              HasSubstr("taken"));
}

TEST(StatsJson, ARunGoesOnBehindTheStepWhereItResumes) {
  const core::TempDir directory;
  const std::string path = directory.file("stats.json");
  {
    StatsJsonMonitor first(path);
    write_two_epochs(first);
  }
  StatsJsonMonitor resumed(path, core::local_file_system(), 10);
  resumed.write(scalars_at(20, "train", {{"loss", 1}}));
  resumed.end_epoch(2, 20);
  EXPECT_EQ(core::local_file_system().read_file(path),
            "[\n{\"epoch_num\":1,\"global_step\":10,\"loss\":2.25,\"val/accuracy\":0.5},\n"
            "{\"epoch_num\":2,\"global_step\":20,\"loss\":1.0}\n]\n");
}

// At every byte: what is complete counts, and a monitor goes on behind it with a file that is a list again.
TEST(StatsJson, AFileThatWasCutAnywhereCountsAsFarAsItGoes) {
  const std::string whole(kTwoEpochs);
  const size_t first_end = whole.find("},") + 1, second_end = whole.rfind('}') + 1;
  for (size_t length = 0; length <= whole.size(); ++length) {
    const core::TempDir directory;
    const std::string path = directory.file("stats.json");
    core::local_file_system().write_file_atomically(path, whole.substr(0, length));
    const int64_t epochs = length >= second_end ? 2 : length >= first_end ? 1 : 0;
    const auto end = read_stats_end(path);
    EXPECT_EQ(end ? end->epoch_num : 0, epochs) << length;
    EXPECT_EQ(end ? end->global_step : 0, 10 * epochs) << length;
    StatsJsonMonitor(path).end_epoch(epochs + 1, 10 * (epochs + 1));
    EXPECT_EQ(nlohmann::json::parse(core::local_file_system().read_file(path)).size(), static_cast<size_t>(epochs + 1));
  }
}

TEST(StatsJson, ReadsTensorpacksFilesAndRefusesWhatTellsNoEpoch) {
  const core::TempDir directory;
  const std::string path = directory.file("stats.json");
  const auto end_of = [&](const std::string& content) {
    core::local_file_system().write_file_atomically(path, content);
    return read_stats_end(path);
  };
  // As Python's json.dump writes a list, with names that hold what could mislead a reader.
  const auto end = end_of(R"([{"cost": 1.5, "epoch_num": 1, "global_step": 7}, )"
                          R"({"a\"}{b": 0, "nested": {"x": 1}, "epoch_num": 3, "global_step": 21}])");
  EXPECT_EQ(end->epoch_num, 3);
  EXPECT_EQ(end->global_step, 21);
  EXPECT_THAT(
      core::message_of([&] { end_of(R"([{"cost": 1.5, "epoch_num": "two"}])"); }, core::ErrorCode::kCorruptData),
      HasSubstr("no whole number as epoch_num"));
}

TEST(ScalarPrinter, PrintsWhatTheWhiteListHasAndTheBlackListHasNot) {
  const auto printed = [](ScalarPrinterOptions options) {
    std::vector<std::string> lines;
    options.print = [&](std::string_view line) { lines.emplace_back(line); };
    ScalarPrinter printer(options);
    printer.write(scalars_at(5, "train", {{"loss", 3}, {"learning_rate", 0.1}}));
    printer.write(scalars_at(10, "train", {{"loss", 2.123456789}}));
    printer.write(scalars_at(10, "val", {{"loss", 4}}));
    EXPECT_THAT(lines, ElementsAre()) << "before the epoch ends";
    printer.end_epoch(1, 10);
    printer.end_epoch(2, 20);
    printer.write(scalars_at(20, "val", {{"loss", 5}}));
    printer.close();
    return lines;
  };
  EXPECT_THAT(printed({}), ElementsAre("learning_rate: 0.1", "loss: 2.1235", "val/loss: 4", "val/loss: 5"));
  EXPECT_THAT(printed({.white_list = {"*loss"}}), ElementsAre("loss: 2.1235", "val/loss: 4", "val/loss: 5"));
  EXPECT_THAT(printed({.black_list = {"val/*", "learn*"}}), ElementsAre("loss: 2.1235"));
  EXPECT_THAT(printed({.white_list = {}}), ElementsAre());
}

}  // namespace
}  // namespace trainyard::train::stats_json_test
