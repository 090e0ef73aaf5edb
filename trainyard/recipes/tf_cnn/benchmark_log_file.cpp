#include "trainyard/recipes/tf_cnn/benchmark_log_file.h"

#include "trainyard/recipes/tf_cnn/output/device_name.h"

namespace trainyard::recipes {

std::unique_ptr<BenchmarkLog> open_benchmark_log(const PreparedRun& run, int64_t batch_size) {
  const DisplayOptions& display = run.options.display;
  if (display.benchmark_log_dir.empty()) return nullptr;
  auto log = std::make_unique<BenchmarkLog>(display.benchmark_log_dir);
  BenchmarkRun facts;
  facts.model = run.model->name;
  facts.dataset = run.input.dataset;
  facts.mode = run_mode_name(run.mode());
  for (int i = 0; i < run.replicas; ++i) facts.devices.push_back(device_name(run.device, i));
  for (const auto& gpu : run.device.accelerators) facts.gpus.push_back(gpu->name());
  facts.batch_size = batch_size;
  facts.batch_size_per_device = run.batch_size;
  facts.num_batches = run.plan.num_batches;
  facts.num_epochs = run.plan.num_epochs;
  facts.data_format = run.options.data_format;
  facts.optimizer = run.options.update.optimizer;
  facts.rewrite_config = run.options.device.switches.rewriter_config;
  facts.configuration = run.options.flags.given;
  facts.test_id = display.benchmark_test_id;
  log->write_run(facts);
  return log;
}

}  // namespace trainyard::recipes
