#include "trainyard/recipes/device_settings.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "trainyard/core/base/build_info.h"
#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/flags/flag_value.h"
#include "trainyard/core/system/cpu_isa.h"

namespace trainyard::recipes {
namespace {

using core::Error;
using core::ErrorCode;
using core::FlagValues;

constexpr const char* kKind = "cuda";

bool is_gpu(const FlagValues& values, std::string_view flag) {
  return values.text(flag) == "gpu" || values.text(flag) == "GPU";
}

bool wants_gpu(const FlagValues& values, int gpus) {
  return values.given("device") ? is_gpu(values, "device") : gpus > 0;
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

// Processes meet on GPUs alone.
void check_horovod(const FlagValues& values, bool gpu) {
  if (values.text("variable_update") != "horovod") {
    for (const char* flag : {"horovod_device", "horovod_reduce"}) {
      if (!values.changed(flag)) continue;
      throw Error(ErrorCode::kInvalidArgument, {.problem = fmt::format("--{} is of --variable_update=horovod", flag),
                                                .remedy = "pass both, or neither"});
    }
    return;
  }
  const std::string device = values.text("horovod_device");
  if (!device.empty() && device != "cpu" && device != "gpu") {
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = "--horovod_device is no device", .expected = "cpu or gpu", .actual = device});
  }
  if (device == "cpu") {
    throw unsupported("--horovod_device=cpu cannot be run: horovod reduces on GPUs only, by NCCL",
                      "leave it out: gradients are reduced on the GPUs");
  }
  if (!gpu) {
    throw unsupported("--variable_update=horovod cannot be run on CPUs: its processes meet by NCCL, which needs GPUs",
                      "use GPUs, or --num_gpus replicas of one process");
  }
  for (const char* mode : {"eval", "forward_only"}) {
    if (values.boolean(mode)) {
      throw unsupported(fmt::format("--{} runs in one process, and --variable_update=horovod asks for many", mode),
                        "leave --variable_update out");
    }
  }
}

// What a GPU does not do, or does without being asked.
void refuse_cpu_flags(const FlagValues& values) {
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

// "1,0": a GPU a replica, in this order; without a list they are the first ones.
std::vector<int> read_gpu_indices(const std::string& indices, int64_t replicas) {
  std::vector<int> numbers;
  if (indices.empty()) {
    numbers.resize(static_cast<size_t>(replicas));
    std::iota(numbers.begin(), numbers.end(), 0);
    return numbers;
  }
  for (const std::string& part : core::split_list(indices)) {
    int number = -1;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), number);
    if (error != std::errc() || end != part.data() + part.size() || number < 0) {
      throw Error(ErrorCode::kInvalidArgument, {.problem = "--gpu_indices is no list of GPUs",
                                                .expected = "numbers from 0, comma separated",
                                                .actual = indices});
    }
    if (std::find(numbers.begin(), numbers.end(), number) != numbers.end()) {
      throw Error(ErrorCode::kInvalidArgument, {.problem = "--gpu_indices names a GPU twice",
                                                .expected = "a GPU for each replica: NCCL refuses to share one",
                                                .actual = indices});
    }
    numbers.push_back(number);
  }
  if (static_cast<int64_t>(numbers.size()) != replicas) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "--gpu_indices names another number of GPUs than --num_gpus",
                                              .expected = std::to_string(replicas),
                                              .actual = std::to_string(numbers.size())});
  }
  return numbers;
}

// With horovod: a list names the GPUs of all processes on this machine, a single index that of each of them.
int index_of_process(const std::string& indices, int gpus, int local_rank) {
  if (indices.empty()) {
    if (gpus == 0 || local_rank < gpus) return local_rank;
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = "there are more processes than GPUs",
                 .where = fmt::format("LOCAL_RANK {}", local_rank),
                 .expected = fmt::format("at most {} processes on this machine", gpus),
                 .remedy = "start fewer; or pass --gpu_indices=0 where each process sees its own GPU alone"});
  }
  const auto named = static_cast<int64_t>(core::split_list(indices).size());
  const std::vector<int> all = read_gpu_indices(indices, named);
  if (all.size() == 1) return all[0];
  if (static_cast<size_t>(local_rank) < all.size()) return all[static_cast<size_t>(local_rank)];
  throw Error(ErrorCode::kInvalidArgument, {.problem = "--gpu_indices names fewer GPUs than there are processes",
                                            .expected = fmt::format("more than {}, as LOCAL_RANK is", local_rank),
                                            .actual = indices});
}

void refuse_one_gpu_modes(const FlagValues& values) {
  for (const char* mode : {"eval", "forward_only"}) {
    if (values.boolean(mode)) {
      throw unsupported(
          fmt::format("--{} runs on one GPU, and --num_gpus={} asks for more", mode, values.integer("num_gpus")),
          "leave --num_gpus out");
    }
  }
}

std::optional<optim::LossScalerOptions> loss_scale_of(const FlagValues& values) {
  if (!values.boolean("use_fp16")) {
    for (const char* flag : {"fp16_loss_scale", "fp16_enable_auto_loss_scale", "fp16_inc_loss_scale_every_n"}) {
      if (!values.changed(flag)) continue;
      throw Error(ErrorCode::kInvalidArgument,
                  {.problem = fmt::format("--{} is of --use_fp16", flag), .remedy = "pass both, or neither"});
    }
    return std::nullopt;
  }
  optim::LossScalerOptions options{.automatic = values.boolean("fp16_enable_auto_loss_scale"),
                                   .raise_after = values.integer("fp16_inc_loss_scale_every_n")};
  options.scale = values.optional_real("fp16_loss_scale").value_or(options.scale);
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

DeviceRequest read_device_request(const FlagValues& values, int gpus, int local_rank) {
  DeviceRequest request;
  request.gpu = wants_gpu(values, gpus);
  if (values.boolean("use_fp16") && values.boolean("use_bf16")) {
    throw Error(ErrorCode::kInvalidArgument, "--use_fp16 and --use_bf16 exclude each other");
  }
  check_horovod(values, request.gpu);
  if (!request.gpu) {
    refuse_gpu_flags(values);
    return request;
  }
  refuse_cpu_flags(values);
  const int64_t replicas = values.integer("num_gpus");
  // Where there is none, that is the news.
  if (gpus > 0 && replicas > gpus) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "--num_gpus asks for more GPUs than this machine has",
                                              .expected = fmt::format("at most {}", gpus),
                                              .actual = std::to_string(replicas)});
  }
  request.gpu_indices = values.text("variable_update") == "horovod"
                            ? std::vector<int>{index_of_process(values.text("gpu_indices"), gpus, local_rank)}
                            : read_gpu_indices(values.text("gpu_indices"), gpus > 0 ? replicas : 1);
  if (replicas > 1) refuse_one_gpu_modes(values);
  request.accelerator = {.index = request.gpu_indices[0],
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
  if (accelerators.empty()) return fmt::format("/cpu:{}", replica);
  return fmt::format("/gpu:{}", static_cast<int>(accelerators[static_cast<size_t>(replica)]->device().index()));
}

// Collective over the processes: what they have to agree on, and who speaks.
std::shared_ptr<parallel::Rendezvous> meet(const FlagValues& values, const parallel::ProcessRank& process) {
  constexpr auto kDeadline = std::chrono::minutes(10);
  core::log::set_origin(fmt::format("rank {}", process.rank));
  if (process.rank != 0 && !values.given("log_level")) core::log::set_level(core::log::Level::kWarning);
  return std::make_shared<parallel::Rendezvous>(process, kDeadline);
}

// Says what the CPU computes with where that is not all that it has. A limit by flag must be in force by now:
// libraries read it when they are first used.
void check_cpu_isa(const FlagValues& values) {
  const std::string wanted = values.text("max_cpu_isa");
  const core::CpuIsaLimit limit = core::cpu_isa_limit();
  if (wanted != "auto" && core::parse_cpu_isa_limit(wanted) != limit) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "--max_cpu_isa must be known when the process begins",
                       .expected = wanted,
                       .actual = core::to_string(limit),
                       .remedy = fmt::format("set {}={} in the environment", core::kMaxCpuIsaVariable, wanted)});
  }
  if (limit != core::CpuIsaLimit::kNone) core::log::info("instruction set: {}", core::describe_cpu_isa());
}

DeviceSettings open_device(const FlagValues& values) {
  check_cpu_isa(values);
  parallel::ProcessRank process;
  const bool processes = values.text("variable_update") == "horovod";
  const int gpus = nn::accelerator_count(kKind);
  check_horovod(values, wants_gpu(values, gpus));  // before anything of the processes is asked for
  if (processes) process = parallel::read_process_rank();
  const DeviceRequest request = read_device_request(values, gpus, process.local_rank);
  if (!request.gpu) {
    if (!values.given("device")) {
      core::log::info("device: cpu ({})",
                      cuda_is_built_in() ? "this machine has no GPU" : "this build has no GPU support");
    }
    return {};
  }
  DeviceSettings settings{.capture_steps = request.capture_steps,
                          .loss_scale = request.loss_scale,
                          .processes = processes ? meet(values, process) : nullptr};
  for (size_t r = 0; r < request.gpu_indices.size(); ++r) {
    nn::AcceleratorOptions options = request.accelerator;
    options.index = request.gpu_indices[r];
    settings.accelerators.push_back(nn::open_accelerator(kKind, options));
    core::log::info("device: {}, {}", settings.device_name(static_cast<int>(r)), settings.accelerators[r]->name());
  }
  return settings;
}

}  // namespace trainyard::recipes
