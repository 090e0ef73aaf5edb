#include "trainyard/train/session/start_facts.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/build_info.h"
#include "trainyard/core/flags/flag_value.h"
#include "trainyard/core/system/cpu_isa.h"

namespace trainyard::train {
namespace {

// docs/howto/processes_and_checkpoints.md lists them.
constexpr std::array<std::string_view, 39> kMayDiffer = {
    // Where things lie. What is in them is compared where it matters.
    "config", "data_dir", "data_index_dir", "decoded_cache_dir", "distill_from", "dump_config", "weights",
    // Where rank 0 is met.
    "listen_address",
    // What rank 0 alone writes.
    "benchmark_log_dir", "eval_dir", "graph_file", "partitioned_graph_file_prefix", "plot_schedule", "tfprof_file",
    "trace_file", "train_dir",
    // What a process shows.
    "kmp_settings", "log_level", "progress",
    // How fast it is: threads, caches, batches made ahead.
    "datasets_num_private_threads", "datasets_prefetch_buffer_size", "datasets_use_caching", "decoded_cache_mib",
    "kmp_affinity", "kmp_blocktime", "multi_device_iterator_max_buffer_size", "num_inter_threads", "num_intra_threads",
    "record_cache_mib", "use_numa_affinity",
    // Which of the processes it is, and what it proves that by.
    "task_index", "tls_cert", "tls_key",
    // Which GPU is its own.
    "allow_growth", "gpu_indices", "gpu_memory_frac_for_testing", "gpu_thread_mode", "per_gpu_thread_count",
    "use_unified_memory"};

std::string_view instruction_set() {
  if (!core::cpu_has_avx512()) return "AVX2";
  return core::cpu_has_avx512_bf16() ? "AVX-512 with BF16" : "AVX-512";
}

}  // namespace

bool may_differ_by_rank(std::string_view flag) {
  return std::find(kMayDiffer.begin(), kMayDiffer.end(), flag) != kMayDiffer.end();
}

void add_flag_facts(const std::vector<std::pair<std::string, core::FlagValue>>& flags, StartFacts& facts) {
  for (const auto& [name, value] : flags) {
    if (!may_differ_by_rank(name)) facts.push_back({"--" + name, core::format_flag_value(value)});
  }
}

void add_program_facts(StartFacts& facts) {
  const core::BuildInfo& build = core::build_info();
  facts.push_back({"the version of the program", fmt::format("{} ({})", build.version, build.git_revision)});
  facts.push_back({"the instruction set of the build", std::string(build.instruction_set)});
  facts.push_back({"the instruction set of the processor (--max_cpu_isa limits it)", std::string(instruction_set())});
}

void add_class_facts(const std::vector<std::string>& names, StartFacts& facts) {
  for (size_t i = 0; i < names.size(); ++i) facts.push_back({fmt::format("class {} of the data", i), names[i]});
}

void add_graph_facts(const nn::Graph& graph, StartFacts& facts) {
  for (const nn::Node& node : graph.nodes) {
    facts.push_back({fmt::format("layer {} of the model", node.name),
                     fmt::format("{} {} of {} to {}", node.kind(), node.description(), fmt::join(node.inputs, ", "),
                                 nn::to_string(node.shape))});
    for (const nn::ParameterSpec& spec : node.parameters) {
      facts.push_back({"parameter " + spec.name, nn::to_string(spec.shape)});
    }
    for (const nn::BufferSpec& spec : node.buffers) facts.push_back({"buffer " + spec.name, nn::to_string(spec.shape)});
  }
  for (const nn::GraphOutput& output : graph.outputs) {
    facts.push_back({fmt::format("output {} of the model", output.name),
                     fmt::format("node {}, loss weight {}", output.node, output.loss_weight)});
  }
}

}  // namespace trainyard::train
