#include "trainyard/recipes/benchmark_log_file.h"

#include "trainyard/core/flags/flag_value.h"

namespace trainyard::recipes {

std::unique_ptr<train::BenchmarkLog> open_benchmark_log(const core::FlagValues& values,
                                                        const BenchmarkSettings& settings, int64_t batch_size) {
  const std::string directory = values.text("benchmark_log_dir");
  if (directory.empty()) return nullptr;
  auto log = std::make_unique<train::BenchmarkLog>(directory);
  train::BenchmarkRun run;
  run.model = settings.model->name;
  run.dataset = settings.dataset;
  run.mode = benchmark_mode_name(settings.mode);
  for (int i = 0; i < settings.replicas; ++i) run.devices.push_back(settings.device.device_name(i));
  for (const auto& gpu : settings.device.accelerators) run.gpus.push_back(gpu->name());
  run.batch_size = batch_size;
  run.batch_size_per_device = settings.batch_size;
  run.num_batches = settings.plan.num_batches;
  run.num_epochs = settings.plan.num_epochs;
  run.data_format = values.text("data_format");
  run.optimizer = values.text("optimizer");
  for (const core::FlagSpec& flag : values.table().all()) {
    if (values.given(flag.name)) {
      run.configuration.emplace_back(flag.name, core::format_flag_value(values.value(flag.name)));
    }
  }
  run.test_id = values.text("benchmark_test_id");
  log->write_run(run);
  return log;
}

}  // namespace trainyard::recipes
