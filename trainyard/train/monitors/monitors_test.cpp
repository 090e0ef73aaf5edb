#include "trainyard/train/monitors/monitors.h"

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/fault_injector.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/formats/logs/event_file.h"

namespace trainyard::train::monitors_test {
namespace {

using ::testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Scalars train_values(int64_t step, double loss) {
  return {.global_step = step,
          .epoch = static_cast<double>(step) / 8,
          .wall_time = 1700000000.25,
          .phase = "train",
          .values = {{"learning_rate", 0.1}, {"total_loss", loss}}};
}
Scalars eval_values(int64_t step) {
  return {.global_step = step,
          .epoch = 1,
          .wall_time = 1700000001.5,
          .phase = "eval",
          .values = {{"top_1_accuracy", 0.75}, {"top_5_accuracy", 1.0}}};
}

TEST(JsonLinesMonitor, WritesOneObjectALineAndGoesOnAfterARestart) {
  const core::TempDir directory;
  const std::string path = directory.file("run/metrics.jsonl");
  core::FileSystem& files = core::local_file_system();
  {
    JsonLinesMonitor monitor(path);
    monitor.write(train_values(4, 2.25));
    // Visible before anything is closed.
    EXPECT_EQ(files.read_file(path),
              "{\"global_step\":4,\"epoch\":0.5,\"wall_time\":1700000000.25,\"phase\":\"train\",\"learning_rate\":0.1,"
              "\"total_loss\":2.25}\n");
    monitor.write(eval_values(8));
  }
  // A crash in the middle of a line.
  {
    const auto torn = files.open_append(path);
    torn->write("{\"global_step\":12,\"ep");
    torn->close();
  }
  JsonLinesMonitor monitor(path);
  monitor.write(train_values(12, std::nan("")));
  monitor.write(train_values(16, -kInfinity));
  monitor.close();
  std::istringstream lines(files.read_file(path));
  std::vector<nlohmann::json> objects;
  for (std::string line; std::getline(lines, line);) objects.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(objects.size(), 4U);
  EXPECT_EQ(objects[1]["top_1_accuracy"], 0.75);
  EXPECT_EQ(objects[1]["phase"], "eval");
  EXPECT_EQ(objects[2]["total_loss"], "nan");
  EXPECT_EQ(objects[3]["total_loss"], "-inf");
  EXPECT_EQ(objects[3]["global_step"], 16);
}

TEST(JsonLinesMonitor, KeepsEveryBitOfAValue) {
  const double value = 0.1 + 0.2;
  Scalars scalars = train_values(1, value);
  EXPECT_EQ(nlohmann::json::parse(json_line(scalars))["total_loss"].get<double>(), value);
}

TEST(JsonLinesMonitor, RefusesNamesThatAreTaken) {
  Scalars scalars = train_values(1, 1);
  scalars.values.emplace_back("phase", 1);
  EXPECT_THROW(json_line(scalars), core::Error);
}

TEST(CsvMonitor, KeepsItsHeaderAndExtendsItForNewNames) {
  const core::TempDir directory;
  const std::string path = directory.file("metrics.csv");
  core::FileSystem& files = core::local_file_system();
  {
    CsvMonitor monitor(path);
    monitor.write(train_values(4, 2.25));
    EXPECT_EQ(files.read_file(path),
              "global_step,epoch,wall_time,phase,learning_rate,total_loss\n4,0.5,1700000000.250,train,0.1,2.25\n");
    monitor.write(eval_values(8));
    monitor.write(train_values(12, -std::nan("")));  // what processors make of 0 / 0 has a sign
    monitor.close();
  }
  {
    CsvMonitor resumed(path);
    Scalars odd = train_values(16, 1);
    odd.values = {{"a \"quoted\", name", 7}};
    resumed.write(odd);
    resumed.write(train_values(20, 0.5));
    resumed.close();
  }
  EXPECT_EQ(
      files.read_file(path),
      "global_step,epoch,wall_time,phase,learning_rate,total_loss,top_1_accuracy,top_5_accuracy,\"a \"\"quoted\"\","
      " name\"\n"
      "4,0.5,1700000000.250,train,0.1,2.25,,,\n"
      "8,1,1700000001.500,eval,,,0.75,1,\n"
      "12,1.5,1700000000.250,train,0.1,nan,,,\n"
      "16,2,1700000000.250,train,,,,,7\n"
      "20,2.5,1700000000.250,train,0.1,0.5,,,\n");
  const std::vector<std::string> header = split_csv_line("global_step,\"a \"\"quoted\"\", name\",");
  EXPECT_EQ(header, (std::vector<std::string>{"global_step", "a \"quoted\", name", ""}));
}

TEST(CsvMonitor, TakesOutALineThatACrashCutOff) {
  const core::TempDir directory;
  const std::string path = directory.file("metrics.csv");
  CsvMonitor(path).write(train_values(4, 2.25));
  const auto torn = core::local_file_system().open_append(path);
  torn->write("8,1.0,17000");
  torn->close();
  CsvMonitor(path).write(train_values(8, 1));
  EXPECT_EQ(core::local_file_system().read_file(path),
            "global_step,epoch,wall_time,phase,learning_rate,total_loss\n4,0.5,1700000000.250,train,0.1,2.25\n"
            "8,1,1700000000.250,train,0.1,1\n");
}

TEST(CsvMonitor, RefusesOtherFilesAndNamesThatBreakTheTable) {
  const core::TempDir directory;
  core::local_file_system().write_file_atomically(directory.file("other.csv"), "name,age\nx,7\n");
  EXPECT_THROW(CsvMonitor(directory.file("other.csv")), core::Error);
  EXPECT_EQ(core::local_file_system().read_file(directory.file("other.csv")), "name,age\nx,7\n");
  CsvMonitor monitor(directory.file("metrics.csv"));
  Scalars scalars = train_values(1, 1);
  scalars.values = {{"two\nlines", 1}};
  EXPECT_THROW(monitor.write(scalars), core::Error);
  scalars.values = {{"epoch", 1}};
  EXPECT_THROW(monitor.write(scalars), core::Error);
  scalars.values = {{"fine", 1}};
  monitor.write(scalars);
}

// Links would let whoever may write into the folder have any file of the user changed; a pipe would wait for a reader.
TEST(Monitors, FilesOfOthersAreLeftAsTheyAre) {
  const core::TempDir directory;
  core::FileSystem& files = core::local_file_system();
  const std::string precious = directory.file("precious"), link = directory.file("link");
  const std::string pipe = directory.file("pipe");
  ASSERT_EQ(::symlink("precious", link.c_str()), 0);
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const auto refusal = [](const std::string& path, int kind) {
    return core::error_of([&] {
      if (kind == 0) JsonLinesMonitor(path).close();
      if (kind == 1) JsonLinesMonitor(path, core::local_file_system(), 0).close();
      if (kind == 2) CsvMonitor(path).close();
      if (kind == 3) StatsJsonMonitor monitor(path);
    });
  };
  for (int kind = 0; kind < 4; ++kind) {
    // Without a last line break, too, which a line that a crash has cut off does not have.
    for (const std::string text : {"name,age\nx,7\n", "notes", "{\"step\": 1, \"loss\": 0.5}\n{\"step\": 2}", "\n\n"}) {
      if (kind == 3 && text == "\n\n") continue;
      files.write_file_atomically(precious, text);
      const auto foreign = refusal(precious, kind);
      ASSERT_TRUE(foreign) << kind << text;
      EXPECT_EQ(foreign->code(), core::ErrorCode::kCorruptData) << foreign->what();
      const auto linked = refusal(link, kind);
      ASSERT_TRUE(linked) << kind << text;
      EXPECT_THAT(linked->what(), HasSubstr("a symbolic link is not written through: " + link));
      EXPECT_EQ(files.read_file(precious), text) << kind;
    }
    const auto piped = refusal(pipe, kind);
    ASSERT_TRUE(piped) << kind;
    EXPECT_THAT(piped->what(), HasSubstr("a pipe or device is not written like a file: " + pipe));
  }
}

// Each of the four entries that our rows begin with, and its type, tells that a file is ours.
TEST(JsonLinesMonitor, KnowsItsOwnRowsByTheirFirstEntries) {
  const core::TempDir directory;
  const std::string path = directory.file("metrics.jsonl");
  const auto refuses = [&path](const std::string& line) {
    core::local_file_system().write_file_atomically(path, line + "\n");
    return core::code_of([&] { JsonLinesMonitor(path).close(); }) == core::ErrorCode::kCorruptData;
  };
  EXPECT_FALSE(refuses(R"({"global_step":1,"epoch":0.5,"wall_time":2,"phase":"train"})"));
  EXPECT_FALSE(refuses(R"({"global_step":1,"epoch":1,"wall_time":2.5,"phase":"eval","loss":"nan"})"));
  for (const char* line :
       {R"({"global_step":1.5,"epoch":0.5,"wall_time":2,"phase":"train"})",
        R"({"global_step":1,"epoch":"0.5","wall_time":2,"phase":"train"})",
        R"({"global_step":1,"epoch":0.5,"wall_time":"2","phase":"train"})",
        R"({"global_step":1,"epoch":0.5,"wall_time":2,"phase":3})", R"({"epoch":0.5,"wall_time":2,"phase":"train"})",
        R"({"global_step":1,"wall_time":2,"phase":"train"})", R"({"global_step":1,"epoch":0.5,"phase":"train"})",
        R"({"global_step":1,"epoch":0.5,"wall_time":2})", R"([1, 0.5, 2, "train"])"}) {
    EXPECT_TRUE(refuses(line)) << line;
  }
}

// What a crash in the first line leaves is no file of others.
TEST(Monitors, AFirstLineThatACrashCutOffIsOurs) {
  const core::TempDir directory;
  core::FileSystem& files = core::local_file_system();
  const std::string csv = directory.file("metrics.csv"), json = directory.file("metrics.jsonl");
  for (const std::string& text :
       {std::string(), std::string("{\"glob"), std::string("{\"global_step\":1,\"ep"), std::string(300, '\0')}) {
    files.write_file_atomically(json, text);
    JsonLinesMonitor(json).write(train_values(1, 1));
    EXPECT_EQ(files.read_file(json), json_line(train_values(1, 1)) + "\n");
  }
  for (const std::string& text : {std::string(), std::string("global_step,epo"),
                                  std::string("global_step,epoch,wall_time,phase,lear"), std::string(300, '\0')}) {
    files.write_file_atomically(csv, text);
    CsvMonitor(csv).write(train_values(1, 1));
    EXPECT_EQ(files.read_file(csv),
              "global_step,epoch,wall_time,phase,learning_rate,total_loss\n1,0.125,1700000000.250,train,0.1,1\n");
  }
}

// A run that was killed had got further than its checkpoint; the run that goes on does those steps again.
TEST(Monitors, RowsAfterTheStepWhereARunGoesOnAreTakenOut) {
  const core::TempDir directory;
  core::FileSystem& files = core::local_file_system();
  const std::string csv = directory.file("metrics.csv"), json = directory.file("metrics.jsonl");
  {
    CsvMonitor table(csv);
    JsonLinesMonitor lines(json);
    for (const int64_t step : {4, 8, 12}) {
      table.write(train_values(step, 1));
      lines.write(train_values(step, 1));
    }
    table.write(eval_values(12));
    lines.write(eval_values(12));
    const auto other = files.open_append(json);
    other->write("a note of somebody\n[1, 2]\n");
    other->close();
  }
  CsvMonitor table(csv, files, 8);
  JsonLinesMonitor lines(json, files, 8);
  table.write(train_values(12, 0.5));
  lines.write(train_values(12, 0.5));
  EXPECT_EQ(files.read_file(csv),
            "global_step,epoch,wall_time,phase,learning_rate,total_loss,top_1_accuracy,top_5_accuracy\n"
            "4,0.5,1700000000.250,train,0.1,1,,\n"
            "8,1,1700000000.250,train,0.1,1,,\n"
            "12,1.5,1700000000.250,train,0.1,0.5,,\n");
  EXPECT_EQ(files.read_file(json), json_line(train_values(4, 1)) + "\n" + json_line(train_values(8, 1)) +
                                       "\na note of somebody\n[1, 2]\n" + json_line(train_values(12, 0.5)) + "\n");
}

// The evaluation at the step of the checkpoint was cut off, repeated by a run that was killed, and is repeated again.
TEST(Monitors, RowsOfAnEvaluationThatIsMadeAgainAreTakenOut) {
  const core::TempDir directory;
  core::FileSystem& files = core::local_file_system();
  const std::string csv = directory.file("metrics.csv"), json = directory.file("metrics.jsonl");
  for (const int64_t step : {4, 8}) {
    for (const Scalars& row : {train_values(step, 1), eval_values(step)}) {
      CsvMonitor(csv).write(row);
      JsonLinesMonitor(json).write(row);
    }
  }
  CsvMonitor(csv, files, 8, /*evaluates_again=*/true).close();
  JsonLinesMonitor(json, files, 8, /*evaluates_again=*/true).close();
  const std::string table = files.read_file(csv);
  EXPECT_EQ(table.find("\n8,1,1700000001.500,eval"), std::string::npos) << table;
  for (const char* kept : {"\n4,0.5,1700000000.250,train", "\n4,1,1700000001.500,eval", "\n8,1,1700000000.250,train"}) {
    EXPECT_NE(table.find(kept), std::string::npos) << table;
  }
  EXPECT_EQ(files.read_file(json), json_line(train_values(4, 1)) + "\n" + json_line(eval_values(4)) + "\n" +
                                       json_line(train_values(8, 1)) + "\n");
}

// A run from the start takes out all that a run without a checkpoint has left, and a step beyond the last row nothing.
TEST(Monitors, ARunFromTheStartBeginsAnewAndACompleteOneKeepsAll) {
  const core::TempDir directory;
  core::FileSystem& files = core::local_file_system();
  const std::string csv = directory.file("metrics.csv"), json = directory.file("metrics.jsonl");
  for (const bool keeps : {true, false}) {
    CsvMonitor(csv).write(train_values(1, 1));
    JsonLinesMonitor(json).write(train_values(1, 1));
    const std::string table = files.read_file(csv), lines = files.read_file(json);
    CsvMonitor(csv, files, keeps ? 1 : 0).close();
    JsonLinesMonitor(json, files, keeps ? 1 : 0).close();
    EXPECT_EQ(files.read_file(csv), keeps ? table : "global_step,epoch,wall_time,phase,learning_rate,total_loss\n");
    EXPECT_EQ(files.read_file(json), keeps ? lines : "");
  }
}

// Every system call of a run of monitors fails once; the rows that were there before stay.
TEST(Monitors, AFailedWriteIsToldAndOldLinesStay) {
  for (int n = 1;; ++n) {
    const core::TempDir directory;
    const std::string csv = directory.file("metrics.csv"), json = directory.file("metrics.jsonl");
    CsvMonitor(csv).write(train_values(1, 1));
    JsonLinesMonitor(json).write(train_values(1, 1));
    core::FaultInjector faults;
    faults.fail_nth(n, core::Fault::kNoSpace);
    const auto files = make_file_system(faults);
    bool told = false;
    try {
      JsonLinesMonitor lines(json, *files);
      lines.write(train_values(2, 2));
      lines.close();
      CsvMonitor table(csv, *files);
      table.write(eval_values(2));  // new columns: the file is written again
      table.close();
    } catch (const core::Error& error) {
      told = true;
      EXPECT_THAT(error.what(), HasSubstr(directory.path()));
    }
    EXPECT_THAT(core::local_file_system().read_file(json), HasSubstr("\"global_step\":1,"));
    EXPECT_THAT(core::local_file_system().read_file(csv), HasSubstr("\n1,0.125,"));
    if (!faults.reached()) {
      EXPECT_FALSE(told);
      EXPECT_GT(n, 20);
      break;
    }
  }
}

// The next session of the same monitor is a file of its own, as a run that goes on makes one.
TEST(TensorBoardMonitor, GoesOnInANewFileAfterItWasClosed) {
  const core::TempDir directory;
  TensorBoardMonitor monitor(directory.path(), 0);
  monitor.write(train_values(1, 2.25));
  monitor.close();
  monitor.flush();
  monitor.close();
  EXPECT_EQ(core::local_file_system().list(directory.path()).size(), 1U);
  monitor.write(train_values(2, 2));
  monitor.close();
  EXPECT_EQ(core::local_file_system().list(directory.path()).size(), 2U);
}

TEST(TensorBoardMonitor, WritesUpstreamsTags) {
  const core::TempDir directory;
  {
    TensorBoardMonitor unused(directory.path(), 0);
    unused.flush();
    unused.close();
  }
  EXPECT_TRUE(core::local_file_system().list(directory.path()).empty());
  TensorBoardMonitor monitor(directory.path(), 3);
  monitor.write(train_values(4, 2.25));
  monitor.write(eval_values(8));
  monitor.close();
  const std::vector<std::string> names = core::local_file_system().list(directory.path());
  ASSERT_EQ(names.size(), 1U);
  const auto file = core::local_file_system().open_read(directory.file(names[0]));
  formats::EventFileReader reader(*file);
  std::vector<std::tuple<int64_t, std::string, float>> values;
  int sessions = 0;
  while (const auto event = reader.next()) {
    if (event->session_start) {
      ++sessions;
      EXPECT_EQ(event->step, 4);  // what an earlier run said of step 3 stays
    }
    for (const auto& value : event->values) {
      values.emplace_back(event->step, value.tag, std::get<float>(value.value));
      EXPECT_GT(event->wall_time, 1.6e9);
    }
  }
  EXPECT_EQ(sessions, 1);
  EXPECT_EQ(values, (std::vector<std::tuple<int64_t, std::string, float>>{{4, "learning_rate", 0.1F},
                                                                          {4, "total_loss", 2.25F},
                                                                          {8, "eval/Accuracy@1", 0.75F},
                                                                          {8, "eval/Accuracy@5", 1.0F}}));
}

// A line break would be the begin of another row, in a cell as in the header.
TEST(CsvMonitor, RefusesLineBreaks) {
  const core::TempDir directory;
  const std::string path = directory.file("metrics.csv");
  CsvMonitor monitor(path);
  monitor.write(train_values(4, 2.25));
  const std::string before = core::local_file_system().read_file(path);
  for (const std::string bad : {"two\nlines", "two\rlines"}) {
    Scalars of_phase = train_values(8, 1), of_name = train_values(8, 1);
    of_phase.phase = bad;
    of_name.values = {{bad, 1}};
    for (const Scalars* scalars : {&of_phase, &of_name}) {
      EXPECT_EQ(core::message_of([&] { monitor.write(*scalars); }),
                "a metric's name or phase has a line break: two?lines");
    }
  }
  EXPECT_EQ(core::local_file_system().read_file(path), before);
}

// The row that follows has no cell for a column that the header lacks.
TEST(CsvMonitor, ANameThatIsRefusedAddsNoColumns) {
  const core::TempDir directory;
  const std::string path = directory.file("metrics.csv");
  CsvMonitor monitor(path);
  monitor.write(train_values(4, 2.25));
  const std::string before = core::local_file_system().read_file(path);
  Scalars refused = train_values(8, 1);
  refused.values = {{"fresh", 7}, {"phase", 1}};
  EXPECT_THAT(core::message_of([&] { monitor.write(refused); }), HasSubstr("a metric's name is taken: phase"));
  EXPECT_EQ(core::local_file_system().read_file(path), before);
  monitor.write(train_values(8, 1));
  EXPECT_EQ(core::local_file_system().read_file(path), before + "8,1,1700000000.250,train,0.1,1\n");
}

TEST(MonitorSet, RefusesAHistoryOfAnotherForm) {
  const auto refusal = [](const at::Tensor& values) {
    core::MemoryState state;
    state.tensor("loss", values);
    return core::message_of([&] { MonitorSet().load(state); }, core::ErrorCode::kCorruptData);
  };
  EXPECT_THAT(refusal(at::zeros({4, 3}, at::kDouble)),
              HasSubstr("another form: loss: expected [count, 2] float64, got [4, 3] Double"));
  EXPECT_THAT(refusal(at::zeros({4, 2}, at::kFloat)), HasSubstr("got [4, 2] Float"));
  EXPECT_THAT(refusal(at::zeros({2}, at::kDouble)), HasSubstr("got [2] Double"));
  EXPECT_EQ(refusal(at::zeros({4, 2}, at::kDouble)), "no error");
}

// The first line, of which a long one is cut.
TEST(Monitors, TellWhatAFileOfOthersBeginsWith) {
  const core::TempDir directory;
  core::FileSystem& files = core::local_file_system();
  const std::string path = directory.file("other");
  const auto refusal = [&](const std::string& text) {
    files.write_file_atomically(path, text);
    return core::message_of([&] { CsvMonitor(path).close(); }, core::ErrorCode::kCorruptData);
  };
  EXPECT_EQ(refusal("name,age\nx,7\n"),
            "not a file of metrics: " + path +
                ": expected a first line global_step,epoch,wall_time,phase,..., got name,age; move it away");
  EXPECT_THAT(refusal(std::string(100, 'x') + "\n"), HasSubstr("got " + std::string(80, 'x') + "; move it away"));
}

TEST(MonitorSet, SavesTheHistoriesThatAreKeptAndLoadsThemAlone) {
  const auto put = [](MonitorSet& to, int64_t step, const std::string& name, double value) {
    to.write({.global_step = step, .phase = "val", .values = {{name, value}}});
  };
  MonitorSet monitors;
  for (const char* name : {"val/a", "val/loss", "val/z"}) monitors.keep(name);  // two of them have no value
  put(monitors, 4, "loss", 2.25);
  put(monitors, 8, "loss", 1.5);
  put(monitors, 8, "other", 3);
  core::MemoryState state;
  monitors.save(state);
  EXPECT_EQ(state.names(), std::vector<std::string>{"val/loss"});
  MonitorSet loaded;
  put(loaded, 3, "loss", 7);
  put(loaded, 3, "accuracy", 0.5);
  loaded.load(state);
  EXPECT_EQ(loaded.history("val/loss"), (MonitorSet::History{{4, 2.25}, {8, 1.5}}));
  EXPECT_EQ(loaded.latest("val/loss"), 1.5);
  EXPECT_EQ(loaded.latest("val/accuracy"), std::nullopt) << "it is of another run";
  core::MemoryState again;
  loaded.save(again);
  EXPECT_EQ(again.names(), state.names()) << "what was loaded is kept";
}

}  // namespace
}  // namespace trainyard::train::monitors_test
