#include "trainyard/recipes/device_settings.h"

#include <array>
#include <charconv>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "trainyard/core/build_info.h"
#include "trainyard/core/error.h"
#include "trainyard/core/flag_value.h"
#include "trainyard/core/log.h"

namespace trainyard::recipes {
namespace {

using core::Error;
using core::ErrorCode;
using core::FlagValues;

constexpr const char* kKind = "cuda";

bool is_gpu(const FlagValues& values, std::string_view flag) {
  return values.text(flag) == "gpu" || values.text(flag) == "GPU";
}

bool cuda_is_built_in() {
  for (const core::OptionalPart& part : core::build_info().optional_parts) {
    if (part.name == "CUDA") return part.built_in;
  }
  return false;
}

Error unsupported(std::string problem, std::string remedy) {
  return {ErrorCode::kUnsupported, {.problem = std::move(problem), .remedy = std::move(remedy)}};
}

// What asks for a GPU only where its value is not the default: a file that dump_config wrote gives every flag.
constexpr std::array kGpuFlags = {"gpu_indices",
                                  "gpu_memory_frac_for_testing",
                                  "allow_growth",
                                  "use_unified_memory",
                                  "gpu_thread_mode",
                                  "per_gpu_thread_count",
                                  "xla",
                                  "xla_compile",
                                  "tf32",
                                  "use_fp16",
                                  "fp16_loss_scale",
                                  "fp16_enable_auto_loss_scale",
                                  "fp16_inc_loss_scale_every_n"};

void refuse_gpu_flags(const FlagValues& values) {
  const std::string remedy = cuda_is_built_in() ? "leave it out, or run it on a machine with a GPU"
                                                : "leave it out: this build has no GPU support";
  for (const char* flag : kGpuFlags) {
    if (values.changed(flag)) throw unsupported(fmt::format("--{} needs a GPU", flag), remedy);
  }
  if (values.given("local_parameter_device") && is_gpu(values, "local_parameter_device")) {
    throw unsupported("--local_parameter_device=gpu needs a GPU", remedy);
  }
  if (values.text("dali_mode") == "GPU") throw unsupported("--dali_mode=GPU needs a GPU", remedy);
  if (values.text("executor") == "cuda") throw unsupported("--executor=cuda needs a GPU", remedy);
}

// What a GPU does not do, or does without being asked.
void refuse_cpu_flags(const FlagValues& values) {
  if (values.integer("num_gpus") > 1) {
    throw unsupported(
        fmt::format("--num_gpus={} cannot be run: gradients between GPUs need NCCL, which is not built yet",
                    values.integer("num_gpus")),
        "use one GPU, or --device=cpu");
  }
  if (values.given("local_parameter_device") && !is_gpu(values, "local_parameter_device")) {
    throw unsupported("--local_parameter_device=cpu cannot be run: variables lie on the GPU that computes",
                      "leave it out");
  }
  for (const char* flag : {"conv_algorithm", "winograd_nonfused", "recompute"}) {
    if (values.changed(flag))
      throw unsupported(fmt::format("--{} is the CPU's", flag), "leave it out, or use --device=cpu");
  }
  if (values.text("executor") == "cpu") throw unsupported("--executor=cpu runs on the CPU", "use --device=cpu");
}

// "2" or "1,0": the first num_gpus of them are used, and that is one.
int first_index(const std::string& indices) {
  if (indices.empty()) return 0;
  std::vector<int> numbers;
  for (const std::string& part : core::split_list(indices)) {
    int number = -1;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), number);
    if (error != std::errc() || end != part.data() + part.size() || number < 0) {
      throw Error(ErrorCode::kInvalidArgument, {.problem = "--gpu_indices is no list of GPUs",
                                                .expected = "numbers from 0, comma separated",
                                                .actual = indices});
    }
    numbers.push_back(number);
  }
  if (numbers.size() != 1) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "--gpu_indices names another number of GPUs than --num_gpus",
                                              .expected = "1",
                                              .actual = std::to_string(numbers.size())});
  }
  return numbers[0];
}

std::optional<optim::LossScalerOptions> loss_scale_of(const FlagValues& values) {
  constexpr double kModelDefault = 128;  // upstream's, of every model
  if (!values.boolean("use_fp16")) {
    for (const char* flag : {"fp16_loss_scale", "fp16_enable_auto_loss_scale", "fp16_inc_loss_scale_every_n"}) {
      if (!values.changed(flag)) continue;
      throw Error(ErrorCode::kInvalidArgument,
                  {.problem = fmt::format("--{} is of --use_fp16", flag), .remedy = "pass both, or neither"});
    }
    return std::nullopt;
  }
  optim::LossScalerOptions options{.scale = values.optional_real("fp16_loss_scale").value_or(kModelDefault),
                                   .automatic = values.boolean("fp16_enable_auto_loss_scale"),
                                   .raise_after = values.integer("fp16_inc_loss_scale_every_n")};
  options.validate();
  if (!options.automatic && options.scale == 1) return std::nullopt;
  return options;
}

void check_capture(const FlagValues& values) {
  const char* flag = values.boolean("xla") ? "xla" : "xla_compile";
  if (values.boolean("eval") || values.boolean("forward_only")) {
    throw unsupported(fmt::format("--{} captures steps of a training", flag), "leave it out");
  }
  // A recorded step has memory of its own, which would find none left.
  if (values.optional_boolean("allow_growth") == false) {
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = fmt::format("--{} and --noallow_growth exclude each other", flag),
                 .remedy = "leave one of them out: a captured step takes memory of its own"});
  }
}

}  // namespace

DeviceRequest read_device_request(const FlagValues& values, int gpus) {
  DeviceRequest request;
  request.gpu = values.given("device") ? is_gpu(values, "device") : gpus > 0;
  if (values.boolean("use_fp16") && values.boolean("use_bf16")) {
    throw Error(ErrorCode::kInvalidArgument, "--use_fp16 and --use_bf16 exclude each other");
  }
  if (!request.gpu) {
    refuse_gpu_flags(values);
    return request;
  }
  refuse_cpu_flags(values);
  request.accelerator = {.index = first_index(values.text("gpu_indices")),
                         .memory_fraction = values.real("gpu_memory_frac_for_testing"),
                         .managed_memory = values.optional_boolean("use_unified_memory").value_or(false),
                         .take_all_memory = values.optional_boolean("allow_growth") == false,
                         .tf32 = values.boolean("tf32")};
  request.accelerator.validate();
  request.capture_steps = values.boolean("xla") || values.boolean("xla_compile");
  if (request.capture_steps) check_capture(values);
  request.loss_scale = loss_scale_of(values);
  return request;
}

std::string DeviceSettings::device_name(int replica) const {
  return accelerator == nullptr ? fmt::format("/cpu:{}", replica)
                                : fmt::format("/gpu:{}", static_cast<int>(accelerator->device().index()));
}

DeviceSettings open_device(const FlagValues& values) {
  const DeviceRequest request = read_device_request(values, nn::accelerator_count(kKind));
  if (!request.gpu) {
    if (!values.given("device")) {
      core::log::info("device: cpu ({})",
                      cuda_is_built_in() ? "this machine has no GPU" : "this build has no GPU support");
    }
    return {};
  }
  DeviceSettings settings{.accelerator = nn::open_accelerator(kKind, request.accelerator),
                          .capture_steps = request.capture_steps,
                          .loss_scale = request.loss_scale};
  core::log::info("device: {}, {}", settings.device_name(0), settings.accelerator->name());
  return settings;
}

}  // namespace trainyard::recipes
