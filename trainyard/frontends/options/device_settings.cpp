#include "trainyard/frontends/options/device_settings.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/build_info.h"
#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/sockets/random_token.h"
#include "trainyard/core/system/cpu_isa.h"
#include "trainyard/core/system/process_end.h"
#include "trainyard/core/threads/shared_cores.h"
#include "trainyard/frontends/options/cluster_settings.h"
#include "trainyard/nn/execution/accelerator.h"
#include "trainyard/nn/execution/kernel_choices.h"
#include "trainyard/parallel/collectives/all_reduce_choices.h"
#include "trainyard/parallel/collectives/all_reduce_spec.h"
#include "trainyard/parallel/collectives/mpi/mpi_launcher.h"
#include "trainyard/parallel/collectives/mpi/mpi_transport.h"
#include "trainyard/parallel/collectives/process_communicator.h"
#include "trainyard/parallel/collectives/tcp/tcp_transport.h"
#include "trainyard/parallel/launch/agent.h"
#include "trainyard/parallel/process_group/launcher_claims.h"
#include "trainyard/parallel/process_group/process_group.h"
#include "trainyard/parallel/servers/server_group.h"

namespace trainyard::frontends {
namespace {

using core::Error;
using core::ErrorCode;

bool wants_gpu(const DeviceOptions& options, int gpus) {
  return options.gpu.value_or(gpus > 0);
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

// Returns the flags of how an automatic loss scale moves that are set.
std::vector<std::string> loss_scale_rule_flags(const DeviceOptions& options) {
  std::vector<std::string> flags;
  const auto add = [&](const char* flag, bool set) {
    if (set) flags.emplace_back(flag);
  };
  add("fp16_inc_loss_scale_every_n", options.fp16_raise_loss_scale_after.has_value());
  add("loss_scale_rule", options.loss_scale_rule != DeviceOptions().loss_scale_rule);
  add("loss_scale_raise_factor", options.loss_scale_raise_factor.has_value());
  add("loss_scale_lower_factor", options.loss_scale_lower_factor.has_value());
  add("loss_scale_lower_after", options.loss_scale_lower_after.has_value());
  add("loss_scale_most_skips", options.loss_scale_most_skips.has_value());
  return flags;
}

// Returns the flags of loss scaling that are set.
std::vector<std::string> loss_scale_flags(const DeviceOptions& options) {
  std::vector<std::string> flags;
  if (options.fp16_loss_scale) flags.emplace_back("fp16_loss_scale");
  if (options.fp16_automatic_loss_scale) flags.emplace_back("fp16_enable_auto_loss_scale");
  for (const std::string& flag : loss_scale_rule_flags(options)) flags.push_back(flag);
  return flags;
}

// Returns what is set and asks for a GPU.
std::vector<std::string> gpu_flags(const DeviceOptions& options) {
  std::vector<std::string> flags;
  const auto add = [&](const char* flag, bool set) {
    if (set) flags.emplace_back(flag);
  };
  if (!options.passes_over_gpu_flags) {
    add("gpu_indices", !options.gpu_indices.empty());
    add("gpu_memory_frac_for_testing", options.gpu_memory_fraction != 0);
    add("allow_growth", options.allow_growth.has_value());
    add("use_unified_memory", options.use_unified_memory.has_value());
    flags.insert(flags.end(), options.gpu_thread_flags.begin(), options.gpu_thread_flags.end());
  }
  add("xla", options.xla);
  add("xla_compile", options.xla_compile);
  add("tf32", options.tf32);
  // The reference executor computes in fp16 on the CPU, slowly: for who asks for both.
  if (options.use_fp16 && options.gpu == false) return flags;
  add("use_fp16", options.use_fp16);
  const std::vector<std::string> scale = loss_scale_flags(options);
  flags.insert(flags.end(), scale.begin(), scale.end());
  return flags;
}

void refuse_gpu_flags(const DeviceOptions& options, const DeviceUse& use) {
  const std::string remedy = cuda_is_built_in() ? "leave it out, or run it on a machine with a GPU"
                                                : "leave it out: this build has no GPU support";
  const std::vector<std::string> asked = gpu_flags(options);
  if (!asked.empty()) throw unsupported(fmt::format("--{} needs a GPU", asked.front()), remedy);
  if (options.parameters_on_gpu == true) throw unsupported("--local_parameter_device=gpu needs a GPU", remedy);
  if (use.decodes_on_gpu) throw unsupported("--dali_mode=GPU needs a GPU", remedy);
  if (options.executor == "cuda") throw unsupported("--executor=cuda needs a GPU", remedy);
}

// Returns "eval" or "forward_only", the mode that does not train; null: it trains.
const char* mode_flag(const DeviceUse& use) {
  if (use.evaluation) return "eval";
  return use.forward_only ? "forward_only" : nullptr;
}

void check_processes(const DeviceOptions& options, bool gpu) {
  const std::string& mode = options.variable_update;
  check_cluster(options);
  if (mode != "horovod") {
    for (const auto& [flag, set] : {std::pair{"horovod_device", !options.horovod_device.empty()},
                                    std::pair{"horovod_reduce", options.horovod_reduce != "average"},
                                    std::pair{"horovod_compression", options.horovod_compression != "none"}}) {
      if (!set) continue;
      throw Error(ErrorCode::kInvalidArgument, {.problem = fmt::format("--{} is of --variable_update=horovod", flag),
                                                .remedy = "pass both, or neither"});
    }
  }
  if (!options.many_processes() && options.cluster.job_name.empty()) {
    for (const auto& [flag, set] : {std::pair{"rank_deadline", options.rank_deadline.has_value()},
                                    std::pair{"rank_start_deadline", options.rank_start_deadline.has_value()},
                                    std::pair{"listen_address", !options.listen_address.empty()}}) {
      if (!set) continue;
      throw Error(ErrorCode::kInvalidArgument,
                  {.problem = fmt::format("--{} is of several processes", flag),
                   .remedy = "pass --variable_update=horovod or collective_all_reduce, too, or leave it out"});
    }
    return;
  }
  if (!options.cluster.job_name.empty() && !options.listen_address.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = "--listen_address is of processes that a launcher has started",
                 .actual = "--job_name=" + options.cluster.job_name,
                 .remedy = "leave it out: each process listens at its own address of the lists of hosts"});
  }
  const std::string& device = options.horovod_device;
  if (!device.empty() && device != "cpu" && device != "gpu") {
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = "--horovod_device is no device", .expected = "cpu or gpu", .actual = device});
  }
  if (device == "cpu" && gpu) {
    throw unsupported("--horovod_device=cpu cannot be run: the model is on GPUs, and their gradients meet there",
                      "leave it out, or pass --device=cpu");
  }
  if (device == "gpu" && !gpu) {
    throw unsupported("--horovod_device=gpu needs the model on a GPU",
                      "leave it out: gradients are reduced on the CPUs");
  }
  if (mode != "horovod" && options.many_processes() && gpu) {
    throw unsupported(fmt::format("--variable_update={} is between CPUs", mode),
                      "use --variable_update=horovod with a process a GPU, or --device=cpu");
  }
}

void check_sharded_update(const DeviceOptions& options, bool gpu) {
  if (options.sharded_update != "true") return;
  if (gpu) throw unsupported("--sharded_update=true does not work on GPUs", "pass --device=cpu, or leave it out");
  if (options.variable_update == "replicated" || options.many_processes() ||
      options.variable_update == "distributed_all_reduce") {
    return;
  }
  throw Error(ErrorCode::kInvalidArgument,
              {.problem = "--sharded_update=true needs replicas that have a copy of the parameters each",
               .expected = "--variable_update=replicated, horovod, collective_all_reduce or distributed_all_reduce",
               .actual = "--variable_update=" + options.variable_update});
}

// Returns the flags of other compressions than the selected one that are set.
std::vector<std::string> idle_compression_flags(const DeviceOptions& options) {
  const DeviceOptions defaults;
  const std::string& method = options.gradient_compression;
  std::vector<std::string> flags;
  if (method != "powersgd") {
    if (options.powersgd_rank != defaults.powersgd_rank) flags.emplace_back("powersgd_rank");
    if (options.powersgd_start_iter != defaults.powersgd_start_iter) flags.emplace_back("powersgd_start_iter");
    if (options.powersgd_min_compression_rate != defaults.powersgd_min_compression_rate) {
      flags.emplace_back("powersgd_min_compression_rate");
    }
  }
  if (method != "topk" && options.topk_share != defaults.topk_share) flags.emplace_back("topk_share");
  return flags;
}

void check_compression(const DeviceOptions& options, bool gpu) {
  const std::vector<std::string> idle = idle_compression_flags(options);
  if (!idle.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = fmt::format("--{} is of --gradient_compression={}", idle.front(),
                                        idle.front() == "topk_share" ? "topk" : "powersgd"),
                 .remedy = "pass both, or neither"});
  }
  const parallel::GradientCompression compression = gradient_compression(options);
  if (compression.is_default()) return;
  const std::string flag = "--gradient_compression=" + options.gradient_compression;
  if (gpu) throw unsupported(flag + " is for CPUs: GPUs exchange whole gradients", "leave it out");
  if (!options.many_processes() && !(options.variable_update != "independent" && options.replicas > 1)) {
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = flag + " is of gradients that are exchanged, and nothing exchanges them here",
                 .actual = fmt::format("--variable_update={}, {} replica{}", options.variable_update, options.replicas,
                                       options.replicas == 1 ? "" : "s"),
                 .remedy = "start several processes with --variable_update=horovod or collective_all_reduce, or leave "
                           "it out"});
  }
  if (options.staged_vars) throw unsupported(flag + " does not work with --staged_vars", "leave one of them out");
  if (!gradient_packing(options).is_default()) {
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = flag + " excludes packed gradients",
                 .remedy = "leave --gradient_repacking and --agg_small_grads_max_bytes out, and give "
                           "--all_reduce_spec one algorithm for all sizes"});
  }
}

void check_all_reduce(const DeviceOptions& options, bool gpu) {
  check_compression(options, gpu);
  const parallel::AllReduceOptions all_reduce = all_reduce_options(options);
  gradient_packing(options).validate();
  if (options.variable_update == "independent") return;  // nothing is exchanged
  if (all_reduce.is_auto() && options.deterministic) {
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = "--all_reduce_spec=auto chooses by measuring, which --deterministic forbids",
                 .remedy = "leave one of them out, or name an algorithm"});
  }
  if (!gpu) {
    static_cast<void>(all_reduce.choice());  // throws for an algorithm of GPUs
    return;
  }
  if (!options.all_reduce_spec.empty() && options.all_reduce_spec != "nccl") {
    throw unsupported(fmt::format("--all_reduce_spec={} is for CPUs: GPUs exchange by nccl", options.all_reduce_spec),
                      "leave it out, or pass --all_reduce_spec=nccl");
  }
  if (options.hierarchical_copy) {
    throw unsupported("--hierarchical_copy is for CPUs: GPUs exchange by nccl", "leave it out");
  }
  if (options.horovod_compression != "none") {
    throw unsupported("--horovod_compression is for CPUs: GPUs exchange in the gradients' type", "leave it out");
  }
}

// What a GPU does not do, or does without being asked.
void refuse_cpu_flags(const DeviceOptions& options, const DeviceUse& use) {
  if (options.parameters_on_gpu == false) {
    throw unsupported("--local_parameter_device=cpu cannot be run: variables lie on the GPU that computes",
                      "leave it out");
  }
  for (const auto& [flag, set] :
       {std::pair{"conv_algorithm", options.conv_algorithm != "auto"},
        std::pair{"winograd_nonfused", !options.winograd}, std::pair{"recompute", options.recompute != "none"}}) {
    if (set) throw unsupported(fmt::format("--{} is the CPU's", flag), "leave it out, or use --device=cpu");
  }
  if (options.executor == "cpu") throw unsupported("--executor=cpu runs on the CPU", "use --device=cpu");
  if (use.prunes) throw unsupported("--asp does not work on a GPU yet", "use --device=cpu");
  if (use.writes_onnx_graph) {
    throw unsupported("--graph_file and --partitioned_graph_file_prefix do not write ONNX on a GPU",
                      "give the file a name that ends in .txt; or train, then use `trainyard export`");
  }
  if (options.sync_batch_norm) {
    throw unsupported("--sync_batch_norm does not work on a GPU yet", "leave it out, or use --device=cpu");
  }
}

// Returns a GPU a replica, in this order; without a list they are the first ones.
std::vector<int> one_a_replica(const std::vector<int>& indices, int64_t replicas) {
  if (indices.empty()) {
    std::vector<int> first(static_cast<size_t>(replicas));
    std::iota(first.begin(), first.end(), 0);
    return first;
  }
  for (auto index = indices.begin(); index != indices.end(); ++index) {
    if (std::find(indices.begin(), index, *index) == index) continue;
    throw Error(ErrorCode::kInvalidArgument, {.problem = "--gpu_indices names a GPU twice",
                                              .expected = "a GPU for each replica: NCCL refuses to share one",
                                              .actual = fmt::format("{}", *index)});
  }
  if (std::ssize(indices) != replicas) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "--gpu_indices names another number of GPUs than --num_gpus",
                                              .expected = std::to_string(replicas),
                                              .actual = std::to_string(indices.size())});
  }
  return indices;
}

// With many processes, a list names the GPUs of all processes on this machine, and a single index that of each of them.
int index_of_process(const std::vector<int>& indices, int gpus, int local_rank) {
  if (indices.empty()) {
    if (gpus == 0 || local_rank < gpus) return local_rank;
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = "there are more processes than GPUs",
                 .where = fmt::format("LOCAL_RANK {}", local_rank),
                 .expected = fmt::format("at most {} processes on this machine", gpus),
                 .remedy = "start fewer; or pass --gpu_indices=0 where each process sees its own GPU alone"});
  }
  const std::vector<int> all = one_a_replica(indices, std::ssize(indices));
  if (all.size() == 1) return all[0];
  if (static_cast<size_t>(local_rank) < all.size()) return all[static_cast<size_t>(local_rank)];
  throw Error(ErrorCode::kInvalidArgument, {.problem = "--gpu_indices names fewer GPUs than there are processes",
                                            .expected = fmt::format("more than {}, as LOCAL_RANK is", local_rank),
                                            .actual = std::to_string(all.size())});
}

void check_capture(const DeviceOptions& options, const DeviceUse& use) {
  const char* flag = options.xla ? "xla" : "xla_compile";
  if (mode_flag(use) != nullptr) {
    throw unsupported(fmt::format("--{} captures steps of a training", flag), "leave it out");
  }
  // A recorded step has memory of its own, which would find none left.
  if (options.allow_growth == false) {
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = fmt::format("--{} and --noallow_growth exclude each other", flag),
                 .remedy = "leave one of them out: a captured step takes memory of its own"});
  }
}

parallel::ProcessGroupOptions group_options(const DeviceOptions& options) {
  parallel::ProcessGroupOptions group;
  group.deadlines = rank_deadlines(options);
  group.listen_address = options.listen_address;
  group.last_resort = [](const Error& error) {
    core::log::error("{}; a thread of this process waits for it, and the process ends", error.what());
    core::end_process(core::exit_code(error.code()));
  };
  return group;
}

// Collective over the processes: says who speaks, and makes where they agree.
std::shared_ptr<parallel::ProcessGroup> meet(const DeviceOptions& options, const parallel::ProcessRank& process,
                                             parallel::ProcessGroupOptions group) {
  core::log::set_origin(fmt::format("rank {}", process.rank));
  if (process.rank != 0 && !options.log_all_ranks) core::log::set_level(core::log::Level::kWarning);
  return std::make_shared<parallel::ProcessGroup>(process, std::move(group));
}

parallel::PeerWatch watch_of(const std::shared_ptr<parallel::ProcessGroup>& group) {
  return {.reported = [group] { return group->reported(); },
          .report = [group](const Error& error) { group->report(error); },
          .begin =
              [group](const char* operation) {
                group->progress(operation);
                group->begin_meeting();
              },
          .end = [group] { group->end_meeting(); }};
}

// Loopback is not reached from another machine.
void require_address(const std::vector<std::string>& machines, const std::string& listen_address) {
  if (!listen_address.empty()) return;
  const auto other =
      std::find_if(machines.begin(), machines.end(), [&](const std::string& name) { return name != machines[0]; });
  if (other == machines.end()) return;
  throw Error(ErrorCode::kInvalidArgument,
              {.problem = "the processes are on several machines, and rank 0 listens on loopback",
               .actual = fmt::format("rank 0 on {}, rank {} on {}", machines[0], other - machines.begin(), *other),
               .remedy = fmt::format("pass --listen_address=ADDRESS, by which the others reach {}", machines[0])});
}

// Starts what the processes exchange with, while they wait for each other.
template <typename Start>
std::shared_ptr<parallel::ProcessEngine> start_watched(const std::shared_ptr<parallel::ProcessGroup>& processes,
                                                       const Start& start) {
  // Until the exchange's thread makes progress of its own, this one shows that the process is alive.
  const auto turns = std::make_shared<std::atomic<int64_t>>(0);
  processes->watch_exchange([turns] { return turns->load(); });
  parallel::PeerWatch watch = watch_of(processes);
  watch.reported = [turns, reported = std::move(watch.reported)] {
    ++*turns;
    return reported();
  };
  processes->begin_meeting();
  std::shared_ptr<parallel::ProcessEngine> exchange = start(std::move(watch));
  processes->end_meeting();
  return exchange;
}

// The same between CPUs, whose processes a launcher of MPI has started. On one machine they meet before MPI begins, so
// that one that does not come is named from the beginning.
void meet_by_mpi(const DeviceOptions& options, train::OpenDevices& settings) {
  parallel::ProcessGroupOptions group = group_options(options);
  if (group.listen_address.empty()) {
    group.listen_address = parallel::read_environment(parallel::kListenAddressVariable).value_or("");
  }
  const int local_rank = parallel::local_rank_by_mpi();
  core::share_cores(parallel::processes_on_cores());
  if (const auto own = parallel::processes_of_mpirun()) {
    group.share = parallel::share_by_folder(*own, group.deadlines.start);
    settings.processes = meet(options, {.rank = own->rank, .size = own->size, .local_rank = local_rank}, group);
    settings.exchange = start_watched(settings.processes, [&](parallel::PeerWatch watch) {
      // The group's verdict names who does not come, and is to be heard first.
      return parallel::start_mpi(group.deadlines.start + std::chrono::seconds(5), std::move(watch));
    });
  } else {
    settings.exchange = parallel::start_mpi(group.deadlines.start);
    const auto processes = parallel::make_communicator_of_processes(settings.exchange, group.deadlines.start);
    require_address(parallel::machines_of(*processes), group.listen_address);
    group.share = [&](const std::string& text) { return parallel::text_of_first(*processes, text); };
    settings.processes =
        meet(options,
             {.rank = settings.exchange->process(), .size = settings.exchange->processes(), .local_rank = local_rank},
             group);
    settings.exchange->watch(watch_of(settings.processes));
  }
  settings.processes->watch_exchange(settings.exchange->turns());
  core::log::info("processes meet by {}", parallel::mpi_version());
}

// The same between the workers of a cluster, which nothing but their flags knows of. Those without parameter servers
// exchange gradients over TCP, or by shared memory on one machine.
void meet_by_hosts(const DeviceOptions& options, train::OpenDevices& settings) {
  const ClusterOptions& cluster = options.cluster;
  core::share_cores(workers_of_host(cluster));
  const parallel::ProcessRank rank = worker_rank(cluster);
  const parallel::ProcessGroupOptions group = group_options(options);
  if (has_servers(options)) settings.servers = std::make_shared<parallel::ServerGroup>(server_group_options(options));
  settings.processes = meet(options, rank, group);
  core::log::set_origin(fmt::format("worker {}", rank.rank));
  if (has_servers(options)) return settings.servers->fail_with(settings.processes);
  // The group's verdict names who does not come, and is to be heard first.
  constexpr auto kMore = std::chrono::seconds(5);
  parallel::TcpTransportOptions transport{.process = rank.rank, .deadline = group.deadlines.start + kMore};
  for (const std::string& host : cluster.worker_hosts) {
    const HostAddress address = parse_host(host, "worker_hosts");
    transport.addresses.push_back({.host = address.host, .port = address.port});
  }
  transport.token =
      settings.processes->from_first("the token of the exchange", rank.rank == 0 ? core::random_token() : "");
  settings.exchange = start_watched(settings.processes, [&](parallel::PeerWatch watch) {
    return parallel::ProcessEngine::start([transport] { return parallel::open_tcp_transport(transport); },
                                          group.deadlines.start + 2 * kMore, std::move(watch));
  });
  settings.processes->watch_exchange(settings.exchange->turns());
}

// Says what the CPU computes with where that is not all that it has. A limit by flag must be in force by now:
// libraries read it when they are first used.
void check_cpu_isa(const std::string& wanted) {
  const core::CpuIsaLimit limit = core::cpu_isa_limit();
  if (wanted != "auto" && core::parse_cpu_isa_limit(wanted) != limit) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "--max_cpu_isa must be known when the process begins",
                       .expected = wanted,
                       .actual = std::string(core::to_string(limit)),
                       .remedy = fmt::format("set {}={} in the environment", core::kMaxCpuIsaVariable, wanted)});
  }
  if (limit != core::CpuIsaLimit::kNone) core::log::info("instruction set: {}", core::describe_cpu_isa());
}

nn::KernelOptions kernel_options_of(const DeviceOptions& asked) {
  nn::KernelOptions options;
  options.choices = std::make_shared<nn::KernelChoices>();
  if (asked.deterministic) options.convolutions = nn::ConvolutionPolicy::kByShape;
  if (asked.conv_algorithm == "winograd") options.convolutions = nn::ConvolutionPolicy::kWinograd;
  if (asked.conv_algorithm == "direct" || !asked.winograd) options.convolutions = nn::ConvolutionPolicy::kDirect;
  if (asked.recompute == "elementwise") options.recomputation = nn::Recomputation::kElementwise;
  if (asked.recompute == "blocks") options.recomputation = nn::Recomputation::kBlocks;
  const RewriterConfig switches = settle_switches(asked.switches);
  for (const std::string& warning : switches.warnings) core::log::warning("{}", warning);
  options.fusions = switches.fusions;
  if (!switches.recomputation) return options;
  if (asked.recompute != "none" && switches.recomputation != options.recomputation) {
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = "--recompute and the memory_optimization of --rewriter_config ask for different things",
                 .remedy = "leave one of them out"});
  }
  options.recomputation = *switches.recomputation;
  return options;
}

// Decides what runs the model on the device that was opened.
void choose_executor(const DeviceOptions& options, train::OpenDevices& settings) {
  settings.dtype = options.use_bf16 ? at::kBFloat16 : options.use_fp16 ? at::kHalf : at::kFloat;
  settings.executor =
      options.executor == "auto" ? nn::fastest_executor(settings.device(), settings.dtype) : options.executor;
  if (settings.dtype == at::kHalf && settings.device().is_cpu()) {
    core::log::warning(
        "fp16 on the CPU is computed by LibTorch's layers, to try what a GPU will do: --use_bf16 is faster");
  }
  if (settings.kernels.recomputation == nn::Recomputation::kNone || settings.executor == "cpu") return;
  throw core::Error(core::ErrorCode::kUnsupported,
                    {.problem = "--recompute (or memory_optimization of --rewriter_config) is the CPU plan's",
                     .expected = "--executor=cpu",
                     .actual = "--executor=" + settings.executor,
                     .remedy = "leave one of the two out"});
}

}  // namespace

nn::AcceleratorOptions accelerator_options(const DeviceOptions& options) {
  nn::AcceleratorOptions accelerator{.memory_fraction = options.gpu_memory_fraction,
                                     .managed_memory = options.use_unified_memory.value_or(false),
                                     .take_all_memory = options.allow_growth == false,
                                     .tf32 = options.tf32};
  if (!options.gpu_indices.empty()) accelerator.index = options.gpu_indices[0];
  return accelerator;
}

std::optional<optim::LossScalerOptions> loss_scale_of(const DeviceOptions& asked) {
  if (!asked.use_fp16) {
    const std::vector<std::string> flags = loss_scale_flags(asked);
    if (flags.empty()) return std::nullopt;
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = fmt::format("--{} is of --use_fp16", flags.front()), .remedy = "pass both, or neither"});
  }
  // tf_cnn_benchmarks takes fp16_inc_loss_scale_every_n without an automatic scale, too.
  const std::vector<std::string> rule = loss_scale_rule_flags(asked);
  if (!asked.fp16_automatic_loss_scale && !rule.empty() && rule.back() != "fp16_inc_loss_scale_every_n") {
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = fmt::format("--{} is of --fp16_enable_auto_loss_scale", rule.back()),
                 .remedy = "pass both, or neither"});
  }
  optim::LossScalerOptions options{.scale = asked.fp16_loss_scale,
                                   .automatic = asked.fp16_automatic_loss_scale,
                                   .rule = optim::loss_scale_rule_from_name(asked.loss_scale_rule),
                                   .raise_after = asked.fp16_raise_loss_scale_after,
                                   .lower_after = asked.loss_scale_lower_after,
                                   .raise_factor = asked.loss_scale_raise_factor,
                                   .lower_factor = asked.loss_scale_lower_factor};
  options.most_skips_at_floor = asked.loss_scale_most_skips.value_or(options.most_skips_at_floor);
  options.validate();
  if (!options.automatic && options.first_scale() == 1) return std::nullopt;
  return options;
}

std::optional<at::ScalarType> variables_of(const DeviceOptions& asked) {
  if (!asked.fp16_vars) return std::nullopt;
  if (asked.use_fp16) return at::kHalf;
  if (asked.use_bf16) return at::kBFloat16;
  throw Error(ErrorCode::kInvalidArgument, {.problem = "--fp16_vars is of --use_fp16 or --use_bf16",
                                            .remedy = "pass one of them, too, or leave it out"});
}

parallel::AllReduceOptions all_reduce_options(const DeviceOptions& options) {
  parallel::AllReduceOptions all_reduce{.spec = options.all_reduce_spec,
                                        .hierarchical_copy = options.hierarchical_copy,
                                        .topology = parallel::network_topology(options.network_topology)};
  if (options.use_bf16 && options.compact_gradient_transfer == true) all_reduce.wire = at::kBFloat16;
  if (options.horovod_compression == "fp16") all_reduce.wire = at::kHalf;
  if (options.horovod_compression == "bf16") all_reduce.wire = at::kBFloat16;
  all_reduce.validate();
  return all_reduce;
}

parallel::GradientPacking gradient_packing(const DeviceOptions& options) {
  const std::string& spec = options.all_reduce_spec;
  return {.parts = options.gradient_repacking,
          .small_bytes = options.agg_small_grads_max_bytes,
          .small_group = options.agg_small_grads_max_group,
          .separate = !spec.empty() && spec != parallel::kAutoAllReduceSpec &&
                      parallel::parse_all_reduce_spec(spec).size() > 1};
}

parallel::Sharding::Use sharding_use(const DeviceOptions& options) {
  if (options.sharded_update == "auto") return parallel::Sharding::Use::kAuto;
  return options.sharded_update == "true" ? parallel::Sharding::Use::kAlways : parallel::Sharding::Use::kNever;
}

parallel::GradientCompression gradient_compression(const DeviceOptions& options) {
  parallel::GradientCompression compression{.method = parallel::compression_method(options.gradient_compression),
                                            .matrix_approximation_rank = options.powersgd_rank,
                                            .min_compression_rate = options.powersgd_min_compression_rate,
                                            .start_iter = options.powersgd_start_iter,
                                            .top_k_share = options.topk_share};
  compression.validate();
  return compression;
}

DeviceOptions plan_devices(const DeviceOptions& options, const DeviceUse& use, int gpus, int local_rank) {
  DeviceOptions plan = options;
  const bool gpu = wants_gpu(options, gpus);
  plan.gpu = gpu;
  plan.gpu_indices.clear();
  if (options.use_fp16 && options.use_bf16) {
    throw Error(ErrorCode::kInvalidArgument, "--use_fp16 and --use_bf16 exclude each other");
  }
  check_processes(options, gpu);
  if (use.evaluation && !options.cluster.job_name.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = "--eval is of one process, which needs no cluster",
                 .actual = "--job_name=" + options.cluster.job_name,
                 .remedy = "evaluate the checkpoints without --job_name and --variable_update"});
  }
  check_sharded_update(options, gpu);
  check_all_reduce(options, gpu);
  variables_of(options);  // throws
  if (!gpu) {
    refuse_gpu_flags(options, use);
    return plan;
  }
  refuse_cpu_flags(options, use);
  // Where there is none, that is the news.
  if (gpus > 0 && options.replicas > gpus) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "--num_gpus asks for more GPUs than this machine has",
                                              .expected = fmt::format("at most {}", gpus),
                                              .actual = std::to_string(options.replicas)});
  }
  plan.gpu_indices = options.many_processes()
                         ? std::vector<int>{index_of_process(options.gpu_indices, gpus, local_rank)}
                         : one_a_replica(options.gpu_indices, gpus > 0 ? options.replicas : 1);
  if (const char* mode = mode_flag(use); mode != nullptr && options.replicas > 1) {
    throw unsupported(fmt::format("--{} runs on one GPU, and --num_gpus={} asks for more", mode, options.replicas),
                      "leave --num_gpus out");
  }
  accelerator_options(plan).validate();
  if (options.captures_steps()) check_capture(options, use);
  loss_scale_of(options);  // throws
  return plan;
}

void refuse_processes_that_train_alone(const DeviceOptions& options, const DeviceUse& use, int processes) {
  if (processes == 1 || options.many_processes() || use.forward_only) return;
  const auto claim = parallel::several_processes();
  throw Error(ErrorCode::kInvalidArgument,
              {.problem = fmt::format("{} processes were started, and each would {} alone", processes,
                                      use.evaluation ? "evaluate" : "train"),
               .where = claim ? fmt::format("{}, {}", claim->launcher, claim->variables) : "",
               .expected = "--variable_update=horovod, or collective_all_reduce or distributed_all_reduce with several "
                           "replicas a process",
               .actual = "--variable_update=" + options.variable_update,
               .remedy = fmt::format("pass one of them, or start one process; or set {}=1 where each is a run of its "
                                     "own",
                                     parallel::kSeparateProcessesVariable)});
}

train::OpenDevices open_device(const DeviceOptions& options, const DeviceUse& use) {
  const auto several = parallel::several_processes();
  refuse_processes_that_train_alone(options, use, several ? several->size : 1);
  check_cpu_isa(options.max_cpu_isa);
  const int gpus = train::gpu_count();
  parallel::ProcessRank process;
  const bool gpu = wants_gpu(options, gpus);
  if (options.many_processes()) {
    check_processes(options, gpu);  // before anything of the processes is asked for
    check_all_reduce(options, gpu);
    if (gpu) process = parallel::read_process_rank();
  }
  const DeviceOptions plan = plan_devices(options, use, gpus, process.local_rank);
  train::OpenDevices settings;
  if (!plan.gpu_indices.empty()) {
    settings = train::open_devices(plan.gpu_indices, accelerator_options(plan),
                                   options.many_processes() ? meet(options, process, group_options(options)) : nullptr);
  } else {
    if (options.cluster.is_worker()) {
      meet_by_hosts(options, settings);
    } else if (options.many_processes()) {
      meet_by_mpi(options, settings);
    }
    if (!options.gpu) {
      core::log::info("device: cpu ({})",
                      cuda_is_built_in() ? "this machine has no GPU" : "this build has no GPU support");
    }
  }
  settings.replicas = static_cast<int>(options.replicas);
  // Before the executor: the choice of an all-reduce is one of the run's choices of kernels.
  settings.kernels = kernel_options_of(options);
  settings.choose_communicators(all_reduce_options(options),
                                options.deterministic ? nullptr : &parallel::AllReduceChoices::instance());
  settings.capture_steps = plan.captures_steps();
  settings.loss_scale = loss_scale_of(plan);
  settings.variables_as = variables_of(plan);
  for (const auto& each : settings.accelerators) {
    core::log::info("device: /gpu:{}, {}", static_cast<int>(each->device().index()), each->name());
  }
  choose_executor(options, settings);
  return settings;
}

}  // namespace trainyard::frontends
