#include "trainyard/recipes/run_header.h"

#include <ostream>

#include <fmt/format.h>
#include <fmt/ostream.h>

#include "trainyard/core/build_info.h"

namespace trainyard::recipes {

std::vector<HeaderRow> run_header_rows(const core::FlagValues& values, const BenchmarkSettings& settings) {
  std::string devices;
  const bool horovod = settings.device.processes != nullptr;
  for (int i = 0; i < (horovod ? settings.device.ranks() : settings.replicas); ++i) {
    devices += fmt::format("{}'{}'", i == 0 ? "" : ", ",
                           horovod ? fmt::format("horovod/gpu:{}", i) : settings.device.device_name(i));
  }
  const bool evaluates = settings.mode == BenchmarkMode::kEvaluation;
  const int64_t per_device = evaluates ? settings.eval_batch_size : settings.batch_size;
  std::vector<HeaderRow> rows = {
      {"Trainyard:", std::string(core::build_info().version)},
      {"Model:", settings.model->name},
      {"Dataset:", settings.dataset + (settings.synthetic() ? " (synthetic)" : "")},
      {"Mode:", std::string(benchmark_mode_name(settings.mode))},
      {"SingleSess:", "False"},
      {"Batch size:", fmt::format("{} global", per_device * settings.replicas * settings.device.ranks())},
      {"", fmt::format("{} per device", per_device)},
      {"Num batches:", std::to_string(evaluates ? settings.plan.num_eval_batches : settings.plan.num_batches)},
      {"Num epochs:", fmt::format("{:.2f}", evaluates ? settings.plan.num_eval_epochs : settings.plan.num_epochs)},
      {"Devices:", "[" + devices + "]"},
      {"NUMA bind:", settings.threads.use_numa_affinity ? "True" : "False"},
      {"Data format:", values.text("data_format")},
      {"Optimizer:", values.text("optimizer")},
      {"Variables:", values.text("variable_update")}};
  if (values.text("variable_update") == "replicated") rows.emplace_back("AllReduce:", "None");
  if (horovod) {
    rows.emplace_back("Horovod on:", "gpu");
    const std::string overriding = values.text("gradient_reduction");
    rows.emplace_back("Reduce:", overriding == "auto" ? values.text("horovod_reduce") : overriding);
  }
  return rows;
}

void print_run_header(const std::vector<HeaderRow>& rows, std::ostream& out) {
  for (const auto& [name, value] : rows) fmt::print(out, "{:13}{}\n", name, value);
  out << "==========\n";
}

}  // namespace trainyard::recipes
