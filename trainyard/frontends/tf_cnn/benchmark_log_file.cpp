#include "trainyard/frontends/tf_cnn/benchmark_log_file.h"

#include "trainyard/frontends/tf_cnn/run_header.h"
#include "trainyard/nn/execution/accelerator.h"

namespace trainyard::frontends {

std::unique_ptr<BenchmarkLog> open_benchmark_log(const PreparedRun& run) {
  const DisplayOptions& display = run.options.display;
  if (display.benchmark_log_dir.empty()) return nullptr;
  auto log = std::make_unique<BenchmarkLog>(display.benchmark_log_dir);
  BenchmarkRun facts;
  const HeaderFacts header = header_facts(run);
  facts.model = header.model;
  facts.dataset = header.dataset;
  facts.mode = run_mode_name(run.mode());
  facts.single_sess = run.single_session();
  facts.devices = header.devices;
  for (const auto& gpu : run.device.accelerators) facts.gpus.push_back(gpu->name());
  facts.batch_size = header.batch_size;
  facts.batch_size_per_device = header.batch_size_per_device;
  facts.num_batches = header.num_batches;
  facts.num_epochs = header.num_epochs;
  facts.data_format = run.options.data_format;
  facts.optimizer = run.options.update.optimizer;
  facts.rewrite_config = run.options.device.switches.rewriter_config;
  facts.configuration = run.options.flags.given;
  facts.test_id = display.benchmark_test_id;
  log->write_run(facts);
  return log;
}

}  // namespace trainyard::frontends
