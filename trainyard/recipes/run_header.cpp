#include "trainyard/recipes/run_header.h"

#include <ostream>

#include <fmt/format.h>
#include <fmt/ostream.h>

#include "trainyard/core/base/build_info.h"

namespace trainyard::recipes {
namespace {

// The version whose tf_cnn_benchmarks the flags alone are.
constexpr const char* kTensorFlow = "2.13";

}  // namespace

std::vector<HeaderRow> run_header_rows(const core::FlagValues& values, const BenchmarkSettings& settings) {
  std::string devices;
  const bool horovod = settings.device.processes != nullptr;
  for (int i = 0; i < (horovod ? settings.device.ranks() : settings.replicas); ++i) {
    devices += fmt::format("{}'{}'", i == 0 ? "" : ", ",
                           horovod ? fmt::format("horovod/gpu:{}", i) : settings.device.device_name(i));
  }
  const bool evaluates = settings.mode == BenchmarkMode::kEvaluation;
  const bool tf = settings.dialect == Dialect::kTfCnnBenchmarks;
  int64_t per_device = evaluates ? settings.eval_batch_size : settings.batch_size;
  train::BatchesAndEpochs length{settings.plan.num_batches, settings.plan.num_epochs};
  if (evaluates) length = {settings.plan.num_eval_batches, settings.plan.num_eval_epochs};
  if (evaluates && tf) {
    // It says what a training of the validation images would be, whatever the flags of evaluation.
    per_device = settings.batch_size;
    length = train::batches_and_epochs(values.optional_integer("num_batches"), values.optional_real("num_epochs"),
                                       settings.batch_size * settings.replicas, settings.validation_examples);
  }
  std::vector<HeaderRow> rows = {
      {tf ? "TensorFlow:" : "Trainyard:", tf ? kTensorFlow : std::string(core::build_info().version)},
      {"Model:", tf && settings.model->name == "lenet" ? "lenet5" : settings.model->name},
      {"Dataset:", settings.dataset_label},
      {"Mode:", std::string(benchmark_mode_name(settings.mode))},
      {"SingleSess:", "False"},
      {"Batch size:", fmt::format("{} global", per_device * settings.replicas * settings.device.ranks())},
      {"", fmt::format("{} per device", per_device)},
      {"Num batches:", std::to_string(length.batches)},
      {"Num epochs:", fmt::format("{:.2f}", length.epochs)},
      {"Devices:", "[" + devices + "]"},
      {"NUMA bind:", settings.threads.use_numa_affinity ? "True" : "False"},
      {"Data format:", values.text("data_format")},
      {"Optimizer:", values.text("optimizer")},
      {"Variables:", values.text("variable_update")}};
  if (tf && values.integer("batch_group_size") > 1) {
    // The spelling is tf_cnn_benchmarks'.
    rows.insert(rows.begin() + 7,
                {"", fmt::format("{} batches per prepocessing group", values.integer("batch_group_size"))});
  }
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
