// metric.log and benchmark_run.log of each mode, and where evaluations write their summaries: names, units and steps as
// tf_cnn_benchmarks has them.
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/flags/flag_value.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/formats/logs/event_file.h"
#include "trainyard/frontends/tf_cnn/benchmark_cnn.h"
#include "trainyard/frontends/tf_cnn/flags.h"
#include "trainyard/frontends/tf_cnn/read_options.h"

namespace trainyard::frontends::log_files_test {
namespace {

using Json = nlohmann::json;
using Metric = std::tuple<std::string, std::string, int64_t>;  // name, unit, global_step

class LogFiles : public ::testing::Test {
 protected:
  static TfCnnOptions options(std::vector<std::string> more) {
    constexpr auto kDialect = Dialect::kTfCnnBenchmarks;
    std::vector<std::string> arguments = {"--model=lenet",          "--device=cpu",    "--batch_size=2",
                                          "--num_warmup_batches=2", "--num_batches=4", "--display_every=2",
                                          "--num_eval_batches=2",   "--num_gpus=2",    "--benchmark_test_id=seven",
                                          "--optimizer=momentum",   "--deterministic"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return read_options(core::parse_flags(tf_cnn_flags(kDialect), arguments), kDialect);
  }
  void run(const std::string& log, std::vector<std::string> more) {
    more.push_back("--benchmark_log_dir=" + temp_.file(log));
    more.push_back("--train_dir=" + temp_.file("run"));
    more.push_back("--eval_dir=" + temp_.file("eval"));
    std::ostringstream out;
    BenchmarkCnn(options(more)).run(out);
  }
  std::multiset<Metric> metrics(const std::string& log) const {
    std::multiset<Metric> found;
    std::istringstream lines(core::local_file_system().read_file(temp_.file(log + "/metric.log")));
    for (std::string line; std::getline(lines, line);) {
      const Json metric = Json::parse(line);
      EXPECT_TRUE(metric.at("value").is_number() && metric.at("timestamp").is_string()) << line;
      if (metric.at("name").get<std::string>().starts_with("latency_")) continue;  // ours
      found.emplace(metric.at("name"), metric.at("unit"), metric.at("global_step"));
    }
    return found;
  }
  Json run_facts(const std::string& log) const {
    return Json::parse(core::local_file_system().read_file(temp_.file(log + "/benchmark_run.log")));
  }
  // Returns what the header shows under a name.
  static std::string shown(const std::string& header, const std::string& name) {
    std::smatch found;
    return std::regex_search(header, found, std::regex("(?:^|\\n)" + name + " +(.*)\n")) ? found[1].str() : "";
  }
  // The log says what the header says.
  static void expect_agreement(const Json& facts, const std::string& header) {
    EXPECT_EQ(facts["model"], shown(header, "Model:"));
    EXPECT_EQ(facts["dataset"], shown(header, "Dataset:"));
    EXPECT_EQ(facts["mode"], shown(header, "Mode:"));
    EXPECT_EQ(fmt::format("{} global", facts["batch_size"].get<int64_t>()), shown(header, "Batch size:"));
    EXPECT_THAT(header, ::testing::HasSubstr(fmt::format("\n             {} per device\n",
                                                         facts["batch_size_per_device"].get<int64_t>())));
    EXPECT_EQ(std::to_string(facts["num_batches"].get<int64_t>()), shown(header, "Num batches:"));
    EXPECT_EQ(fmt::format("{:.2f}", facts["num_epochs"].get<double>()), shown(header, "Num epochs:"));
    EXPECT_EQ(core::quoted_list(facts["devices"].get<std::vector<std::string>>()), shown(header, "Devices:"));
    EXPECT_EQ(facts["optimizer"], shown(header, "Optimizer:"));
    EXPECT_EQ(facts["data_format"], shown(header, "Data format:"));
  }
  void expect_facts(const std::string& log, const std::string& mode) const {
    const Json facts = run_facts(log);
    std::set<std::string> names;
    for (const auto& [name, value] : facts.items()) names.insert(name);
    EXPECT_EQ(names,
              (std::set<std::string>{"model", "dataset", "mode", "single_sess", "devices", "batch_size",
                                     "batch_size_per_device", "num_batches", "num_epochs", "data_format", "optimizer",
                                     "rewrite_config", "configuration", "test_id", "machine", "versions", "run_date"}));
    EXPECT_EQ(facts["model"], "lenet5");
    EXPECT_EQ(facts["dataset"], "imagenet (synthetic)");
    EXPECT_EQ(facts["mode"], mode);
    EXPECT_EQ(facts["devices"], (Json{"/cpu:0", "/cpu:1"}));
    EXPECT_EQ(facts["batch_size"], 4);
    EXPECT_EQ(facts["batch_size_per_device"], 2);
    EXPECT_EQ(facts["num_batches"], 4);
    EXPECT_EQ(facts["optimizer"], "momentum");
    EXPECT_EQ(facts["test_id"], "seven");
  }

  core::TempDir temp_;
};

constexpr const char* kRate = "examples/s";

TEST_F(LogFiles, OfEachMode) {
  // Steps that are shown carry their number, from 1; the average carries how many there were.
  const std::multiset<Metric> speeds = {{"current_examples_per_sec", kRate, 1},
                                        {"current_examples_per_sec", kRate, 2},
                                        {"current_examples_per_sec", kRate, 4},
                                        {"average_examples_per_sec", kRate, 4}};
  run("training", {});
  EXPECT_EQ(metrics("training"), speeds);
  expect_facts("training", "training");

  // Evaluations carry the global step, which counts the warm-up: the checkpoint is at 6.
  run("evaluation", {"--eval"});
  EXPECT_EQ(metrics("evaluation"), (std::multiset<Metric>{{"eval_top_1_accuracy", "", 6},
                                                          {"eval_top_5_accuracy", "", 6},
                                                          {"eval_average_examples_per_sec", kRate, 6}}));
  expect_facts("evaluation", "evaluation");
}

TEST_F(LogFiles, OfATrainingWithEvaluations) {
  run("both", {"--eval_during_training_every_n_steps=2", "--print_training_accuracy"});
  std::multiset<Metric> expected = {{"average_examples_per_sec", kRate, 4}};
  for (const int64_t step : {1, 2, 4}) {
    expected.emplace("current_examples_per_sec", kRate, step);
    expected.emplace("top_1_accuracy", "", step);
    expected.emplace("top_5_accuracy", "", step);
  }
  for (const int64_t global_step : {4, 6}) {
    expected.emplace("eval_top_1_accuracy", "", global_step);
    expected.emplace("eval_top_5_accuracy", "", global_step);
    expected.emplace("eval_average_examples_per_sec", kRate, global_step);
  }
  EXPECT_EQ(metrics("both"), expected);
  expect_facts("both", "training + evaluation");
}

// Accuracies are shown there whether they are asked for or not.
TEST_F(LogFiles, OfForwardPasses) {
  std::ostringstream out;
  BenchmarkCnn(
      options({"--forward_only", "--benchmark_log_dir=" + temp_.file("log"), "--rewriter_config=sum_activation: OFF"}))
      .run(out);
  std::multiset<Metric> expected = {{"average_examples_per_sec", kRate, 4}};
  for (const int64_t step : {1, 2, 4}) {
    expected.emplace("current_examples_per_sec", kRate, step);
    expected.emplace("top_1_accuracy", "", step);
    expected.emplace("top_5_accuracy", "", step);
  }
  EXPECT_EQ(metrics("log"), expected);
  expect_facts("log", "forward only");
  EXPECT_EQ(run_facts("log")["rewrite_config"], "sum_activation: OFF");
  EXPECT_THAT(out.str(), ::testing::HasSubstr("Data format: NCHW\nRewriterConfig: sum_activation: OFF\nOptimizer:"));
}

// What the log shows of the batches of a device, at the global step, which counts the warm-up.
TEST_F(LogFiles, OfForwardPassesHaveTheLatencyOfTheirBatches) {
  std::ostringstream out;
  testing::internal::CaptureStderr();
  BenchmarkCnn(options({"--forward_only", "--benchmark_log_dir=" + temp_.file("log")})).run(out);
  const std::string printed = testing::internal::GetCapturedStderr();
  const std::regex line(
      "latency of a batch of 2: p50 ([0-9.]+) ms, p90 ([0-9.]+) ms, p99 ([0-9.]+) ms, max ([0-9.]+) ms");
  std::smatch found;
  ASSERT_TRUE(std::regex_search(printed, found, line)) << printed;
  std::vector<std::string> names;
  std::istringstream lines(core::local_file_system().read_file(temp_.file("log/metric.log")));
  for (std::string text; std::getline(lines, text);) {
    const Json metric = Json::parse(text);
    const auto name = metric.at("name").get<std::string>();
    if (!name.starts_with("latency_")) continue;
    names.push_back(name);
    ASSERT_LT(names.size(), found.size());
    EXPECT_NEAR(metric.at("value").get<double>(), std::stod(found[names.size()].str()), 0.0051) << name;
    EXPECT_EQ(metric.at("unit"), "ms") << name;
    EXPECT_EQ(metric.at("global_step"), 6) << name;
  }
  EXPECT_EQ(names, (std::vector<std::string>{"latency_p50", "latency_p90", "latency_p99", "latency_max"}));
}

// An evaluation with a batch size and a length of its own: what a training of the validation images would be, as the
// header of tf_cnn_benchmarks says, and in `trainyard eval` what it is.
TEST_F(LogFiles, RunFactsAgreeWithTheHeader) {
  run("training", {});
  for (const Dialect dialect : {Dialect::kTfCnnBenchmarks, Dialect::kTrainyard}) {
    for (const bool evaluates : {false, true}) {
      const bool own = dialect == Dialect::kTrainyard;
      SCOPED_TRACE(fmt::format("{} {}", own ? "own" : "tf", evaluates ? "eval" : "train"));
      const std::string log = fmt::format("log{}{}", own, evaluates);
      std::vector<std::string> arguments = {"--model=lenet",       "--device=cpu",
                                            "--batch_size=2",      "--num_gpus=2",
                                            "--num_batches=4",     "--num_eval_batches=3",
                                            "--eval_batch_size=5", "--num_warmup_batches=0",
                                            "--deterministic",     "--benchmark_log_dir=" + temp_.file(log)};
      if (evaluates) {
        arguments.insert(arguments.end(),
                         {"--eval", "--train_dir=" + temp_.file("run"), "--eval_dir=" + temp_.file("eval")});
      }
      if (own) arguments.emplace_back("--synthetic");
      if (own && !evaluates) arguments.emplace_back("--train_dir=");
      std::ostringstream out;
      BenchmarkCnn(read_options(core::parse_flags(tf_cnn_flags(dialect), arguments), dialect)).run(out);
      const Json facts = run_facts(log);
      if (!own) expect_agreement(facts, out.str());
      EXPECT_EQ(facts["model"], own ? "lenet" : "lenet5");
      EXPECT_EQ(facts["batch_size_per_device"], own && evaluates ? 5 : 2);
      EXPECT_EQ(facts["num_batches"], own && evaluates ? 3 : 4);
      const double examples = evaluates ? 50000 : 1281167;
      EXPECT_DOUBLE_EQ(facts["num_epochs"], (own && evaluates ? 3 * 10 : 4 * 4) / examples);
    }
  }
}

// testSummaryVerbosity of tf_cnn_benchmarks, and the images that it has from 3 on.
TEST_F(LogFiles, SummariesByVerbosity) {
  const auto kinds = [this](int verbosity) {
    const std::string directory = temp_.file(fmt::format("verbosity{}", verbosity));
    std::ostringstream out;
    BenchmarkCnn(options({"--train_dir=" + directory, "--save_summaries_steps=1",
                          fmt::format("--summary_verbosity={}", verbosity)}))
        .run(out);
    std::map<std::string, std::set<std::string>> found;
    for (const std::string& name : core::local_file_system().list(directory)) {
      if (!name.starts_with("events")) continue;
      const std::string path = core::join_path(directory, name);
      const auto file = core::local_file_system().open_read(path);
      formats::EventFileReader reader(*file);
      while (const auto event = reader.next()) {
        for (const formats::SummaryValue& value : event->values) {
          const bool image = std::holds_alternative<formats::EncodedImage>(value.value);
          const bool histogram = std::holds_alternative<formats::Histogram>(value.value);
          found[image ? "images" : histogram ? "histograms" : "scalars"].insert(value.tag);
        }
      }
    }
    return found;
  };
  EXPECT_TRUE(kinds(0).empty());
  const auto scalars = kinds(1), gradients = kinds(2), all = kinds(3), more = kinds(7);
  EXPECT_TRUE(scalars.at("scalars").contains("learning_rate"));
  EXPECT_EQ(scalars.size(), 1U);
  EXPECT_EQ(gradients.at("histograms"), (std::set<std::string>{"log_gradients"}));
  EXPECT_FALSE(gradients.contains("images"));
  EXPECT_EQ(all.at("images"), (std::set<std::string>{"input/image/0", "input/image/1"})) << "of a batch of two";
  EXPECT_GT(all.at("histograms").size(), 2U);
  EXPECT_EQ(more, all);
}

TEST_F(LogFiles, AnEvaluationWritesItsNumbersAtTheStepOfTheCheckpoint) {
  run("training", {});
  run("evaluation", {"--eval"});
  std::map<std::string, int64_t> steps;
  for (const std::string& name : core::local_file_system().list(temp_.file("eval"))) {
    const auto file = core::local_file_system().open_read(temp_.file("eval/" + name));
    formats::EventFileReader reader(*file);
    while (const auto event = reader.next()) {
      for (const formats::SummaryValue& value : event->values) steps[value.tag] = event->step;
    }
  }
  EXPECT_EQ(steps, (std::map<std::string, int64_t>{{"eval/loss", 6}, {"eval/Accuracy@1", 6}, {"eval/Accuracy@5", 6}}));
}

TEST_F(LogFiles, SummariesOfAnEvaluationHaveADefaultPlace) {
  EXPECT_EQ(options({"--eval", "--train_dir=run"}).eval_dir, "/tmp/tf_cnn_benchmarks/eval");
  const TfCnnOptions named = options({"--eval", "--train_dir=run", "--eval_dir=elsewhere"});
  EXPECT_EQ(named.eval_dir, "elsewhere");
  EXPECT_EQ(options({"--eval", "--train_dir=run", "--eval_dir="}).eval_dir, std::nullopt)
      << "none, and not the working directory";
}

}  // namespace
}  // namespace trainyard::frontends::log_files_test
