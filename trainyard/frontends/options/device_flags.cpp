#include "trainyard/frontends/options/device_flags.h"

#include <charconv>

#include "trainyard/core/base/error.h"
#include "trainyard/core/flags/flag_value.h"

namespace trainyard::frontends {
namespace {

std::optional<bool> given_gpu(const core::FlagValues& values, const char* flag) {
  if (!values.given(flag)) return std::nullopt;
  return values.text(flag) == "gpu" || values.text(flag) == "GPU";
}

// Reads "1,0".
std::vector<int> read_gpu_indices(const std::string& indices) {
  std::vector<int> numbers;
  if (indices.empty()) return numbers;
  for (const std::string& part : core::split_list(indices)) {
    int number = -1;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), number);
    if (error != std::errc() || end != part.data() + part.size() || number < 0) {
      throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "--gpu_indices is no list of GPUs",
                                                            .expected = "numbers from 0, comma separated",
                                                            .actual = indices});
    }
    numbers.push_back(number);
  }
  return numbers;
}

}  // namespace

DeviceOptions read_device_options(const core::FlagValues& values) {
  DeviceOptions options;
  options.gpu = given_gpu(values, "device");
  options.replicas = values.integer("num_gpus");
  options.gpu_indices = read_gpu_indices(values.text("gpu_indices"));
  options.parameters_on_gpu = given_gpu(values, "local_parameter_device");
  options.gpu_memory_fraction = values.real("gpu_memory_frac_for_testing");
  options.allow_growth = values.optional_boolean("allow_growth");
  options.use_unified_memory = values.optional_boolean("use_unified_memory");
  options.tf32 = values.boolean("tf32");
  for (const char* flag : {"gpu_thread_mode", "per_gpu_thread_count"}) {
    if (values.changed(flag)) options.gpu_thread_flags.emplace_back(flag);
  }
  options.use_bf16 = values.boolean("use_bf16");
  options.use_fp16 = values.boolean("use_fp16");
  options.fp16_vars = values.boolean("fp16_vars");
  options.fp16_loss_scale = values.optional_real("fp16_loss_scale");
  options.fp16_automatic_loss_scale = values.boolean("fp16_enable_auto_loss_scale");
  options.loss_scale_rule = values.text("loss_scale_rule");
  // What dump_config writes asks for nothing, but a default of one rule may be asked for with another.
  const char* const raise_after = "fp16_inc_loss_scale_every_n";
  const bool asked = values.source(raise_after) == core::FlagSource::kCommandLine && values.changed("loss_scale_rule");
  if (values.changed(raise_after) || asked) {
    options.fp16_raise_loss_scale_after = values.integer("fp16_inc_loss_scale_every_n");
  }
  options.loss_scale_raise_factor = values.optional_real("loss_scale_raise_factor");
  options.loss_scale_lower_factor = values.optional_real("loss_scale_lower_factor");
  options.loss_scale_lower_after = values.optional_integer("loss_scale_lower_after");
  if (values.changed("loss_scale_most_skips")) {
    options.loss_scale_most_skips = values.integer("loss_scale_most_skips");
  }
  options.xla = values.boolean("xla");
  options.xla_compile = values.boolean("xla_compile");
  options.executor = values.text("executor");
  options.conv_algorithm = values.text("conv_algorithm");
  options.winograd = values.boolean("winograd_nonfused");
  options.recompute = values.text("recompute");
  options.switches = {.enable_optimizations = values.boolean("enable_optimizations"),
                      .batchnorm_persistent = values.boolean("batchnorm_persistent"),
                      .rewriter_config = values.text("rewriter_config")};
  options.deterministic = values.boolean("deterministic");
  options.max_cpu_isa = values.text("max_cpu_isa");
  options.variable_update = values.text("variable_update");
  options.all_reduce_spec = values.text("all_reduce_spec");
  options.staged_vars = values.boolean("staged_vars");
  options.sync_batch_norm = values.boolean("sync_batch_norm");
  options.horovod_device = values.text("horovod_device");
  options.horovod_reduce = values.text("horovod_reduce");
  options.rank_deadline = values.optional_real("rank_deadline");
  options.rank_start_deadline = values.optional_real("rank_start_deadline");
  options.listen_address = values.text("listen_address");
  options.log_all_ranks = values.given("log_level");
  return options;
}

}  // namespace trainyard::frontends
