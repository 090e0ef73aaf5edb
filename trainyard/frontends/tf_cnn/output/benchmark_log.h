// benchmark_run.log and metric.log, as tf_cnn_benchmarks' --benchmark_log_dir writes them (docs/formats/metrics.md).
//
//   BenchmarkLog log(directory);
//   log.write_run({.model = "resnet20", .dataset = "cifar10", ...});
//   step_log_options.on_line = [&](const StepReport& report) { log.write(report); };
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "trainyard/core/files/file_system.h"
#include "trainyard/frontends/tf_cnn/output/step_log.h"
#include "trainyard/train/callbacks/evaluation_callback.h"
#include "trainyard/train/monitors/line_file.h"

namespace trainyard::frontends {

// The content of benchmark_run.log; machine, versions and date are added when it is written.
struct BenchmarkRun {
  std::string model;
  std::string dataset;
  std::string mode;  // "training", "evaluation", "training + evaluation", "forward only"
  bool single_sess = false;
  std::vector<std::string> devices;
  int64_t batch_size = 0;  // over all devices of all processes
  int64_t batch_size_per_device = 0;
  int64_t num_batches = 0;
  double num_epochs = 0;
  std::string data_format;
  std::string optimizer;
  std::string rewrite_config;
  std::vector<std::pair<std::string, std::string>> configuration;  // flags that were given
  std::string test_id;
  std::vector<std::string> gpus;  // names
};

class BenchmarkLog {
 public:
  // Makes the directory. `wall_clock` returns seconds since the Unix epoch. Throws kIo, kNoSpace.
  explicit BenchmarkLog(std::string directory, core::FileSystem& files = core::local_file_system(),
                        std::function<double()> wall_clock = {});

  // Replaces benchmark_run.log.
  void write_run(const BenchmarkRun& run);

  // Each appends a line to metric.log, which grows over runs.
  void write_metric(const std::string& name, double value, const std::string& unit, int64_t global_step);
  // Writes current_examples_per_sec, and top_1_accuracy and top_5_accuracy if there are any, at the step of the line.
  void write(const StepReport& report);
  // Writes average_examples_per_sec, at the number of averaged steps.
  void write_total(double images_per_second, int64_t num_steps);
  // eval_top_1_accuracy, eval_top_5_accuracy, eval_average_examples_per_sec
  void write(const train::Evaluation& evaluation, int64_t global_step);
  // Closes the files. The content is known to be written only when it has returned.
  void close() { metrics_.close(); }

 private:
  std::string directory_;
  core::FileSystem& files_;
  std::function<double()> wall_clock_;
  train::LineFile metrics_;
};

}  // namespace trainyard::frontends
