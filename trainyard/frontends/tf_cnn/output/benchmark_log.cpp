#include "trainyard/frontends/tf_cnn/output/benchmark_log.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trainyard/frontends/tf_cnn/output/evaluation_lines.h"
#include "trainyard/train/callbacks/run_record_json.h"
#include "trainyard/train/callbacks/summary_time.h"

namespace trainyard::frontends {
namespace {

using OrderedJson = nlohmann::ordered_json;
constexpr auto kReplaceInvalid = OrderedJson::error_handler_t::replace;

}  // namespace

BenchmarkLog::BenchmarkLog(std::string directory, core::FileSystem& files, std::function<double()> wall_clock)
    : directory_(std::move(directory)),
      files_(files),
      wall_clock_(wall_clock ? std::move(wall_clock) : train::system_wall_clock),
      metrics_(core::join_path(directory_, "metric.log"), files) {}

void BenchmarkLog::write_run(const BenchmarkRun& run) {
  OrderedJson configuration = OrderedJson::object();
  for (const auto& [name, value] : run.configuration) configuration[name] = value;
  const OrderedJson json{{"model", run.model},
                         {"dataset", run.dataset},
                         {"mode", run.mode},
                         {"single_sess", run.single_sess},
                         {"devices", run.devices},
                         {"batch_size", run.batch_size},
                         {"batch_size_per_device", run.batch_size_per_device},
                         {"num_batches", run.num_batches},
                         {"num_epochs", run.num_epochs},
                         {"data_format", run.data_format},
                         {"optimizer", run.optimizer},
                         {"rewrite_config", run.rewrite_config},
                         {"configuration", configuration},
                         {"test_id", run.test_id},
                         {"machine", train::machine_json(run.gpus)},
                         {"versions", train::versions_json()},
                         {"run_date", train::utc_date(wall_clock_())}};
  files_.write_file_atomically(core::join_path(directory_, "benchmark_run.log"),
                               json.dump(-1, ' ', false, kReplaceInvalid) + "\n");
}

void BenchmarkLog::write_metric(const std::string& name, double value, const std::string& unit, int64_t global_step) {
  const OrderedJson json{{"name", name},
                         {"value", value},
                         {"unit", unit},
                         {"global_step", global_step},
                         {"timestamp", train::utc_date(wall_clock_())}};
  metrics_.append(json.dump(-1, ' ', false, kReplaceInvalid));
}

void BenchmarkLog::write(const StepReport& report) {
  write_metric("current_examples_per_sec", report.speed.mean, "examples/s", report.local_step);
  if (!report.accuracies) return;
  write_metric("top_1_accuracy", report.accuracies->top_1, "", report.local_step);
  if (report.accuracies->shows_top_5) write_metric("top_5_accuracy", report.accuracies->top_5, "", report.local_step);
}

void BenchmarkLog::write_total(double images_per_second, int64_t num_steps) {
  write_metric("average_examples_per_sec", images_per_second, "examples/s", num_steps);
}

void BenchmarkLog::write(const train::Evaluation& evaluation, int64_t global_step) {
  for (const auto& [name, value] : main_numbers(evaluation)) write_metric("eval_" + name, value, "", global_step);
  write_metric("eval_average_examples_per_sec", train::examples_per_second(evaluation), "examples/s", global_step);
}

}  // namespace trainyard::frontends
