#include "trainyard/train/monitors/mlflow_monitor.h"

#include <cmath>
#include <limits>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/temp_dir.h"

namespace trainyard::train::mlflow_monitor_test {
namespace {

using ::testing::AllOf, ::testing::HasSubstr, ::testing::MatchesRegex;

class Mlflow : public ::testing::Test {
 protected:
  MlflowOptions options(int64_t start_step = 0, const std::string& experiment = "it's flowers") {
    return {.store = temp_.file("mlruns"),
            .experiment = experiment,
            .run_name = "resnet20-1",
            .run_file = temp_.file("run/mlflow_run.txt"),
            .params = {{"batch_size", "32"}, {"init_learning_rate", "0.1"}},
            .start_step = start_step};
  }
  void SetUp() override { files_.make_directories(temp_.file("run")); }
  std::string read(const MlflowMonitor& monitor, const std::string& name) {
    return files_.read_file(core::join_path(monitor.run_folder(), name));
  }

  core::TempDir temp_;
  core::FileSystem& files_ = core::local_file_system();
};

TEST_F(Mlflow, WritesARunInItsForm) {
  MlflowMonitor monitor(options());
  EXPECT_THAT(read(monitor, "meta.yaml"),
              AllOf(HasSubstr("\nstatus: 1\n"), HasSubstr("\nend_time: null\n"), HasSubstr("run_name: 'resnet20-1'")));
  monitor.write({.global_step = 10, .wall_time = 1.5, .phase = "train", .values = {{"loss", 0.1}}});
  monitor.write(
      {.global_step = 20, .wall_time = 2, .phase = "eval", .values = {{"loss", std::nan("")}, {"Accuracy@1", 0.5}}});
  monitor.write({.global_step = 20,
                 .wall_time = 2,
                 .phase = "train",
                 .values = {{"loss", std::numeric_limits<double>::infinity()}}});
  EXPECT_EQ(read(monitor, "metrics/loss"), "1500 0.1 10\n2000 inf 20\n");
  EXPECT_EQ(read(monitor, "metrics/eval/loss"), "2000 nan 20\n");
  EXPECT_EQ(read(monitor, "metrics/eval/Accuracy_1"), "2000 0.5 20\n");
  EXPECT_EQ(read(monitor, "params/batch_size"), "32");
  EXPECT_EQ(read(monitor, "tags/mlflow.runName"), "resnet20-1");
  monitor.close();
  EXPECT_THAT(read(monitor, "meta.yaml"), HasSubstr("\nstatus: 3\n"));
  EXPECT_THAT(read(monitor, "../meta.yaml"), HasSubstr("\nname: 'it''s flowers'\n"));
  EXPECT_THAT(files_.read_file(temp_.file("mlruns/0/meta.yaml")), HasSubstr("\nname: 'Default'\n"));
  EXPECT_THAT(core::base_name(monitor.run_folder()), MatchesRegex("[0-9a-f]+"));
  EXPECT_EQ(core::base_name(monitor.run_folder()).size(), 32U);
}

TEST_F(Mlflow, WritesNumbersAsPythonReadsThem) {
  MlflowMonitor monitor(options());
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double value : {kInfinity, -kInfinity, std::nan(""), -std::nan(""), 1e300, -0.1}) {
    monitor.write({.global_step = 1, .wall_time = 1, .phase = "train", .values = {{"loss", value}}});
  }
  EXPECT_EQ(read(monitor, "metrics/loss"),
            "1000 inf 1\n1000 -inf 1\n1000 nan 1\n1000 nan 1\n1000 1e+300 1\n1000 -0.1 1\n");
}

// All that MLflow reads of a run and of its experiment, but for the times.
TEST_F(Mlflow, WritesEachPartOfARunAndOfItsExperiment) {
  MlflowMonitor monitor(options());
  const std::string folder = monitor.run_folder(), experiment = core::parent_path(folder);
  const std::string run_id = core::base_name(folder), experiment_id = core::base_name(experiment);
  EXPECT_THAT(files_.list(folder), ::testing::ElementsAre("artifacts", "meta.yaml", "metrics", "params", "tags"));
  EXPECT_EQ(files_.read_file(temp_.file("run/mlflow_run.txt")), folder + "\n");
  const auto without_times = [](const std::string& text) {
    return std::regex_replace(text, std::regex("_time: [0-9]{13}\n"), "_time: T\n");
  };
  const auto run_meta = [&](const std::string& end_time, const std::string& status) {
    return "artifact_uri: 'file://" + folder + "/artifacts'\nend_time: " + end_time +
           "\nentry_point_name: ''\nexperiment_id: '" + experiment_id + "'\nlifecycle_stage: active\nrun_id: '" +
           run_id + "'\nrun_name: 'resnet20-1'\nsource_name: ''\nsource_type: 4\nsource_version: ''\nstart_time: T\n" +
           "status: " + status + "\ntags: []\nuser_id: unknown\n";
  };
  EXPECT_EQ(without_times(read(monitor, "meta.yaml")), run_meta("null", "1"));
  EXPECT_EQ(without_times(read(monitor, "../meta.yaml")),
            "artifact_location: 'file://" + experiment + "'\ncreation_time: T\nexperiment_id: '" + experiment_id +
                "'\nlast_update_time: T\nlifecycle_stage: active\nname: 'it''s flowers'\n");
  EXPECT_EQ(experiment_id.size(), 18U) << experiment_id;
  for (const auto& [tag, value] : std::vector<std::pair<std::string, std::string>>{
           {"runName", "resnet20-1"}, {"source.name", "trainyard"}, {"source.type", "LOCAL"}}) {
    EXPECT_EQ(read(monitor, "tags/mlflow." + tag), value);
  }
  EXPECT_THAT(files_.list(core::join_path(folder, "params")),
              ::testing::ElementsAre("batch_size", "init_learning_rate"));
  EXPECT_EQ(read(monitor, "params/init_learning_rate"), "0.1");
  monitor.close();
  EXPECT_EQ(without_times(read(monitor, "meta.yaml")), run_meta("T", "3"));
}

TEST_F(Mlflow, ContinuesItsRun) {
  std::string folder;
  {
    MlflowMonitor monitor(options());
    folder = monitor.run_folder();
    for (int64_t step = 10; step <= 30; step += 10) {
      monitor.write({.global_step = step, .wall_time = 1, .phase = "train", .values = {{"loss", 1.0}}});
    }
  }
  MlflowMonitor again(options(20));
  EXPECT_EQ(again.run_folder(), folder);
  EXPECT_EQ(read(again, "metrics/loss"), "1000 1 10\n1000 1 20\n");
  // Another training of the same data is another run of the same experiment.
  MlflowOptions other = options();
  other.run_file = temp_.file("run/other.txt");
  const MlflowMonitor second(other);
  EXPECT_NE(second.run_folder(), folder);
  EXPECT_EQ(core::parent_path(second.run_folder()), core::parent_path(folder));
}

TEST_F(Mlflow, UsesAnExperimentThatMlflowHasMade) {
  files_.make_directories(temp_.file("mlruns/17"));
  files_.write_file_atomically(temp_.file("mlruns/17/meta.yaml"),
                               "artifact_location: x\nexperiment_id: '17'\nlifecycle_stage: active\nname: flowers\n");
  const MlflowMonitor monitor(options(0, "flowers"));
  EXPECT_EQ(core::base_name(core::parent_path(monitor.run_folder())), "17");
}

TEST_F(Mlflow, NamesStayInTheStore) {
  EXPECT_EQ(mlflow_name("eval/loss"), "eval/loss");
  EXPECT_EQ(mlflow_name("Accuracy@1"), "Accuracy_1");
  EXPECT_EQ(mlflow_name("../x"), "__/x");
  EXPECT_EQ(mlflow_name("/x"), "_/x");
  EXPECT_EQ(mlflow_name(""), "_");
}

// The values of a phase are in a folder of their own. When the run began is in its meta data alone.
TEST_F(Mlflow, ContinuesTheMetricsOfAPhaseAndKeepsTheBegin) {
  std::string folder;
  {
    MlflowMonitor monitor(options());
    folder = monitor.run_folder();
    for (int64_t step = 10; step <= 30; step += 10) {
      monitor.write({.global_step = step, .wall_time = 1, .phase = "eval", .values = {{"loss", 1.0}}});
    }
  }
  const std::string path = core::join_path(folder, "meta.yaml");
  std::string meta = files_.read_file(path);
  const size_t begin = meta.find("start_time: ") + 12, end = meta.find('\n', begin);
  meta.replace(begin, end - begin, "1234567");
  files_.write_file_atomically(path, meta);
  const MlflowMonitor again(options(20));
  EXPECT_EQ(read(again, "metrics/eval/loss"), "1000 1 10\n1000 1 20\n");
  EXPECT_EQ(read(again, "meta.yaml"), meta);
}

// A kill between the rows of an evaluation and its checkpoint: the run that continues writes these rows once more.
TEST_F(Mlflow, AnEvaluationThatIsRepeatedHasItsValuesOnce) {
  for (const bool again : {false, true}) {
    MlflowOptions with = options(again ? 20 : 0);
    with.evaluates_again = again;
    MlflowMonitor monitor(with);
    for (const int64_t step : {10, 20}) {
      if (again && step == 10) continue;
      const double loss = again ? 2 : 1;
      if (!again) monitor.write({.global_step = step, .wall_time = 1, .phase = "train", .values = {{"loss", loss}}});
      monitor.write({.global_step = step, .wall_time = 1, .phase = "eval", .values = {{"loss", loss}}});
    }
    monitor.close();
    EXPECT_EQ(read(monitor, "metrics/loss"), "1000 1 10\n1000 1 20\n") << "steps are not repeated";
    EXPECT_EQ(read(monitor, "metrics/eval/loss"), again ? "1000 1 10\n1000 2 20\n" : "1000 1 10\n1000 1 20\n");
  }
}

// MovingAverageSummary writes total_loss/moving_average, and in the store total_loss is a file.
TEST_F(Mlflow, ANameThatIsAValueAndAFolderBecomesTwo) {
  std::string folder;
  for (const int64_t step : {10, 20}) {
    MlflowMonitor monitor(options(step - 10));
    folder = monitor.run_folder();
    monitor.write({.global_step = step,
                   .wall_time = 1,
                   .phase = "train",
                   .values = {{"total_loss", 1.0}, {"total_loss/moving_average", 2.0}, {"a/b", 3.0}, {"a", 4.0}}});
    monitor.close();
  }
  const auto read_metric = [&](const std::string& name) {
    return files_.read_file(core::join_path(core::join_path(folder, "metrics"), name));
  };
  EXPECT_EQ(read_metric("total_loss"), "1000 1 10\n1000 1 20\n");
  EXPECT_EQ(read_metric("total_loss_moving_average"), "1000 2 10\n1000 2 20\n");
  EXPECT_EQ(read_metric("a/b"), "1000 3 10\n1000 3 20\n");
  EXPECT_EQ(read_metric("a_"), "1000 4 10\n1000 4 20\n");
}

TEST_F(Mlflow, CutsParametersThatAreLongerThanItTakes) {
  MlflowOptions with = options();
  with.params = {{"fits", std::string(6000, 'x')}, {"too_long", std::string(6001, 'y')}};
  const MlflowMonitor monitor(with);
  EXPECT_EQ(read(monitor, "params/fits"), std::string(6000, 'x'));
  EXPECT_EQ(read(monitor, "params/too_long"), std::string(6000, 'y'));
}

TEST_F(Mlflow, MakesAnotherExperimentForOneThatIsDeleted) {
  files_.make_directories(temp_.file("mlruns/17"));
  files_.write_file_atomically(temp_.file("mlruns/17/meta.yaml"),
                               "artifact_location: x\nexperiment_id: '17'\nlifecycle_stage: deleted\nname: flowers\n");
  const MlflowMonitor monitor(options(0, "flowers"));
  EXPECT_NE(core::base_name(core::parent_path(monitor.run_folder())), "17");
  EXPECT_THAT(read(monitor, "../meta.yaml"), AllOf(HasSubstr("\nname: 'flowers'\n"), HasSubstr("_stage: active\n")));
}

}  // namespace
}  // namespace trainyard::train::mlflow_monitor_test
