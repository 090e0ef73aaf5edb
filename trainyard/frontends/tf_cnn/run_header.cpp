#include "trainyard/frontends/tf_cnn/run_header.h"

#include <algorithm>
#include <ostream>

#include <fmt/format.h>
#include <fmt/ostream.h>

#include "trainyard/core/flags/flag_value.h"
#include "trainyard/frontends/tf_cnn/output/device_name.h"
#include "trainyard/parallel/collectives/all_reduce_spec.h"

namespace trainyard::frontends {
namespace {

// The version whose tf_cnn_benchmarks the flags alone are.
constexpr const char* kTensorFlow = "2.13";

// Returns what tf_cnn_benchmarks calls a model in its output, which is not always what --model calls it.
std::string benchmark_name(const std::string& model) {
  constexpr std::string_view kOfficial = "official_resnet", kVersion2 = "_v2";
  if (model == "lenet") return "lenet5";
  if (model == "nasnetlarge") return "nasnet";
  if (!model.starts_with(kOfficial)) return model;
  const bool second = model.ends_with(kVersion2);
  const std::string layers =
      model.substr(kOfficial.size(), model.size() - kOfficial.size() - (second ? kVersion2.size() : 0));
  return fmt::format("official_resnet_{}_v{}", layers, second ? 2 : 1);
}

std::vector<std::string> device_names(const PreparedRun& run) {
  std::vector<std::string> names;
  const bool horovod = run.options.device.variable_update == "horovod";
  const char* const kind = run.device.accelerators.empty() ? "cpu" : "gpu";
  if (run.single_session()) {
    // The form is tf_cnn_benchmarks', without a slash in front.
    for (int i = 0; i < run.total_replicas(); ++i) {
      names.push_back(fmt::format("job:worker/replica:0/task{}/{}:{}", i / run.replicas, kind, i % run.replicas));
    }
    return names;
  }
  for (int i = 0; i < (horovod ? run.device.ranks() : run.replicas); ++i) {
    const ClusterOptions& cluster = run.options.device.cluster;
    names.push_back(horovod ? fmt::format("horovod/{}:{}", kind, i)
                    : cluster.is_worker()
                        ? fmt::format("/job:worker/replica:0/task:{}/{}:{}", cluster.task_index, kind, i)
                        : device_name(run.device, i));
  }
  return names;
}

// How gradients of several devices or processes are joined.
void add_exchange_rows(const PreparedRun& run, std::vector<HeaderRow>& rows) {
  const DeviceOptions& device = run.options.device;
  const bool is_auto = device.all_reduce_spec == parallel::kAutoAllReduceSpec;
  if (device.variable_update == "replicated" || device.variable_update == "collective_all_reduce" ||
      run.single_session() || is_auto) {
    std::string spec = is_auto ? run.device.automatic_all_reduce_spec : device.all_reduce_spec;
    if (spec.empty()) spec = "None";
    rows.emplace_back("AllReduce:", is_auto ? fmt::format("auto ({})", spec) : spec);
  }
  if (!device.cluster.job_name.empty()) {
    rows.emplace_back("Sync:", device.cluster.cross_replica_sync ? "True" : "False");
  }
  if (device.staged_vars) rows.emplace_back("Staged vars:", "True");
  if (device.variable_update != "horovod") return;
  if (!device.horovod_device.empty()) rows.emplace_back("Horovod on:", device.horovod_device);
  const std::string overriding = run.options.update.gradient_reduction;
  const std::string reduction = overriding == "auto" ? device.horovod_reduce : overriding;
  // tf_cnn_benchmarks has no such row and sums, so that what the run does otherwise is said.
  if (reduction != "sum") rows.emplace_back("Reduce:", reduction);
}

}  // namespace

HeaderFacts header_facts(const PreparedRun& run) {
  const bool evaluates = run.mode() == RunMode::kEvaluation, tf = !run.own_dialect();
  HeaderFacts facts{.model = tf ? benchmark_name(run.model->name) : run.model->name,
                    .dataset = run.dataset_label,
                    .devices = device_names(run),
                    .batch_size_per_device = evaluates ? run.eval_batch_size : run.batch_size};
  train::BatchesAndEpochs length{run.plan.num_batches, run.plan.num_epochs};
  if (evaluates) length = {run.plan.num_eval_batches, run.plan.num_eval_epochs};
  if (evaluates && tf) {
    // It says what a training of the validation images would be, whatever the flags of evaluation.
    facts.batch_size_per_device = run.batch_size;
    length = train::batches_and_epochs(run.options.steps.num_batches, run.options.steps.num_epochs,
                                       run.batch_size * run.total_replicas(), run.validation_examples);
  }
  facts.batch_size = facts.batch_size_per_device * run.total_replicas();
  if (!tf && !evaluates) facts.batch_size = run.examples_per_step();
  if (!tf && evaluates && !run.shares_evaluation()) facts.batch_size = facts.batch_size_per_device * run.replicas;
  facts.num_batches = length.batches;
  facts.num_epochs = length.epochs;
  return facts;
}

std::vector<HeaderRow> run_header_rows(const PreparedRun& run) {
  const HeaderFacts facts = header_facts(run);
  std::vector<HeaderRow> rows = {{"TensorFlow:", kTensorFlow},
                                 {"Model:", facts.model},
                                 {"Dataset:", facts.dataset},
                                 {"Mode:", std::string(run_mode_name(run.mode()))},
                                 {"SingleSess:", run.single_session() ? "True" : "False"},
                                 {"Batch size:", fmt::format("{} global", facts.batch_size)},
                                 {"", fmt::format("{} per device", facts.batch_size_per_device)},
                                 {"Num batches:", std::to_string(facts.num_batches)},
                                 {"Num epochs:", fmt::format("{:.2f}", facts.num_epochs)},
                                 {"Devices:", core::quoted_list(facts.devices)},
                                 {"NUMA bind:", run.threads.use_numa_affinity ? "True" : "False"},
                                 {"Data format:", run.options.data_format},
                                 {"Optimizer:", run.options.update.optimizer},
                                 {"Variables:", run.options.device.variable_update}};
  if (const std::string& config = run.options.device.switches.rewriter_config; !config.empty()) {
    const auto data_format =
        std::find_if(rows.begin(), rows.end(), [](auto& row) { return row.first == "Data format:"; });
    rows.insert(data_format + 1, {"RewriterConfig: ", config});
  }
  if (run.options.steps.batch_group_size > 1) {
    // The spelling is tf_cnn_benchmarks'.
    rows.insert(rows.begin() + 7,
                {"", fmt::format("{} batches per prepocessing group", run.options.steps.batch_group_size)});
  }
  add_exchange_rows(run, rows);
  return rows;
}

void print_run_header(const std::vector<HeaderRow>& rows, std::ostream& out) {
  for (const auto& [name, value] : rows) fmt::print(out, "{:13}{}\n", name, value);
  out << "==========\n";
}

}  // namespace trainyard::frontends
