#include "trainyard/train/session/start_facts.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/build_info.h"
#include "trainyard/core/flags/flag_value.h"
#include "trainyard/core/random/random.h"
#include "trainyard/core/system/cpu_isa.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/optim/scaling/loss_scale_rule.h"

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

std::string loss_scale_text(const std::optional<optim::LossScalerOptions>& scale) {
  if (!scale) return "none";
  if (!scale->automatic) return fmt::format("{}", scale->first_scale());
  const optim::LossScaleSteps steps = scale->steps();
  return fmt::format("from {} on, times {} after {} steps, times {} after {} overflows, at least {}",
                     scale->first_scale(), steps.raise_factor, steps.raise_after, steps.lower_factor, steps.lower_after,
                     steps.floor);
}

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

void add_trainer_facts(const TowerTrainer& trainer, int64_t steps, StartFacts& facts) {
  const TowerTrainerOptions& options = trainer.options();
  const auto add = [&facts](const std::string& item, const auto& value) {
    facts.push_back({item, fmt::format("{}", value)});
  };
  // A rank takes the batches behind those of as many replicas on each rank before it.
  add("devices of a process", options.devices.replicas);
  add("batches of a replica and step (micro_steps)", options.micro_steps);
  add("how variables are updated", options.exchange.variable_update);
  add("the floats of activations", at::toString(options.devices.dtype));
  add("what is done with numbers that are not finite (0 stop, 1 skip, 2 ignore)", static_cast<int>(options.on_nan));
  add("the radius of sharpness-aware minimization", options.sharpness_aware ? options.sharpness_aware->rho : 0.0);
  add("the loss scale", loss_scale_text(options.devices.loss_scale));
  for (const std::string& name : trainer.hyperparameters().names()) {
    add("hyperparameter " + name, trainer.hyperparameters().get(name));
  }
  for (const CostOptions& cost : options.all_costs()) {
    const std::string name = options.hyperparameter_name(cost, "learning_rate");
    constexpr int64_t kSamples = 8;  // not the first step alone, at which all warm-ups are alike
    int64_t before = -1;
    for (int64_t i = 1; i <= kSamples; ++i) {
      // steps * i / kSamples, which may be more than an integer holds.
      const int64_t step = steps / kSamples * i + steps % kSamples * i / kSamples - 1;
      if (step <= before) continue;
      before = step;
      add(fmt::format("{} of step {}", name, step), cost.learning_rate(step));
    }
  }
}

void add_teacher_facts(const Teacher& teacher, StartFacts& facts) {
  StartFacts of_graph;
  add_graph_facts(teacher.graph, of_graph);
  for (parallel::StartFact& fact : of_graph) facts.push_back({"the teacher: " + fact.item, std::move(fact.value)});
  uint64_t digest = core::stable_hash("");
  const auto add = [&digest](const at::Tensor& values) {
    const at::Tensor plain = values.contiguous();
    digest = core::stable_hash({static_cast<const char*>(plain.const_data_ptr()), plain.nbytes()}, digest);
  };
  add(teacher.weights->values());
  for (size_t i = 0; i < teacher.weights->buffer_count(); ++i) add(teacher.weights->buffer(static_cast<int>(i)));
  facts.push_back({"the values of the teacher", fmt::format("{:016x}", digest)});
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
