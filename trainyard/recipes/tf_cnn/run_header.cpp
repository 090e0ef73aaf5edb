#include "trainyard/recipes/tf_cnn/run_header.h"

#include <algorithm>
#include <ostream>

#include <fmt/format.h>
#include <fmt/ostream.h>

#include "trainyard/core/base/build_info.h"
#include "trainyard/recipes/tf_cnn/output/device_name.h"

namespace trainyard::recipes {
namespace {

// The version whose tf_cnn_benchmarks the flags alone are.
constexpr const char* kTensorFlow = "2.13";

}  // namespace

std::vector<HeaderRow> run_header_rows(const PreparedRun& run) {
  std::string devices;
  const bool horovod = run.options.device.variable_update == "horovod";
  const char* const horovod_device = run.device.accelerators.empty() ? "cpu" : "gpu";
  for (int i = 0; i < (horovod ? run.device.ranks() : run.replicas); ++i) {
    devices += fmt::format("{}'{}'", i == 0 ? "" : ", ",
                           horovod ? fmt::format("horovod/{}:{}", horovod_device, i) : device_name(run.device, i));
  }
  const bool evaluates = run.mode() == RunMode::kEvaluation;
  const bool tf = !run.own_dialect();
  int64_t per_device = evaluates ? run.eval_batch_size : run.batch_size;
  train::BatchesAndEpochs length{run.plan.num_batches, run.plan.num_epochs};
  if (evaluates) length = {run.plan.num_eval_batches, run.plan.num_eval_epochs};
  if (evaluates && tf) {
    // It says what a training of the validation images would be, whatever the flags of evaluation.
    per_device = run.batch_size;
    length = train::batches_and_epochs(run.options.steps.num_batches, run.options.steps.num_epochs,
                                       run.batch_size * run.replicas, run.validation_examples);
  }
  std::vector<HeaderRow> rows = {
      {tf ? "TensorFlow:" : "Trainyard:", tf ? kTensorFlow : std::string(core::build_info().version)},
      {"Model:", tf && run.model->name == "lenet" ? "lenet5" : run.model->name},
      {"Dataset:", run.dataset_label},
      {"Mode:", std::string(run_mode_name(run.mode()))},
      {"SingleSess:", "False"},
      {"Batch size:", fmt::format("{} global", per_device * run.replicas * run.device.ranks())},
      {"", fmt::format("{} per device", per_device)},
      {"Num batches:", std::to_string(length.batches)},
      {"Num epochs:", fmt::format("{:.2f}", length.epochs)},
      {"Devices:", "[" + devices + "]"},
      {"NUMA bind:", run.threads.use_numa_affinity ? "True" : "False"},
      {"Data format:", run.options.data_format},
      {"Optimizer:", run.options.update.optimizer},
      {"Variables:", run.options.device.variable_update}};
  if (const auto* image = &run.input.transform;
      !tf && (image->height != run.model->image_size || image->width != run.model->image_size)) {
    rows.insert(rows.begin() + 3, {"Image size:", models::image_size_text({image->height, image->width})});
  }
  if (const std::string& config = run.options.device.switches.rewriter_config; !config.empty()) {
    const auto data_format =
        std::find_if(rows.begin(), rows.end(), [](auto& row) { return row.first == "Data format:"; });
    rows.insert(data_format + 1, {"RewriterConfig: ", config});
  }
  if (tf && run.options.steps.batch_group_size > 1) {
    // The spelling is tf_cnn_benchmarks'.
    rows.insert(rows.begin() + 7,
                {"", fmt::format("{} batches per prepocessing group", run.options.steps.batch_group_size)});
  }
  if (run.options.device.variable_update == "replicated") rows.emplace_back("AllReduce:", "None");
  if (run.options.device.staged_vars) rows.emplace_back("Staged vars:", "True");
  if (horovod) {
    rows.emplace_back("Horovod on:", horovod_device);
    const std::string overriding = run.options.update.gradient_reduction;
    rows.emplace_back("Reduce:", overriding == "auto" ? run.options.device.horovod_reduce : overriding);
  }
  return rows;
}

void print_run_header(const std::vector<HeaderRow>& rows, std::ostream& out) {
  for (const auto& [name, value] : rows) fmt::print(out, "{:13}{}\n", name, value);
  out << "==========\n";
}

}  // namespace trainyard::recipes
