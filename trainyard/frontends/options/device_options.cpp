#include "trainyard/frontends/options/device_options.h"

#include <charconv>

#include "trainyard/core/base/error.h"
#include "trainyard/core/flags/flag_value.h"
#include "trainyard/core/flags/option_flags.h"
#include "trainyard/parallel/process_group/launcher_claims.h"
#include "trainyard/parallel/variable_update/gradient_compression.h"

namespace trainyard::frontends {
namespace {

using core::FlagValues;
using D = DeviceOptions;
using DeviceFlags = core::OptionFlags<D>;

std::optional<bool> given_gpu(const FlagValues& values, const char* flag) {
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

// The default in a file asks for nothing, but on the command line a default of one rule may be asked for with another.
bool asks_when_the_scale_rises(const FlagValues& values) {
  constexpr const char* kRaiseAfter = "fp16_inc_loss_scale_every_n";
  return values.changed(kRaiseAfter) ||
         (values.source(kRaiseAfter) == core::FlagSource::kCommandLine && values.changed("loss_scale_rule"));
}

DeviceFlags make_loss_scale_flags() {
  DeviceFlags flags("Loss");
  flags.add(
      "fp16_loss_scale", &D::fp16_loss_scale,
      "with use_fp16: factor of the loss, to begin with where it moves; unset: 128, or what loss_scale_rule says; "
      "1: none");
  flags.add("fp16_enable_auto_loss_scale", &D::fp16_automatic_loss_scale,
            "with use_fp16: lower the loss scale on overflow and raise it again, by loss_scale_rule");
  flags.table()
      .integer("fp16_inc_loss_scale_every_n", 1000,
               "steps without overflow after which the loss scale rises; unset with loss_scale_rule=torch: 2000")
      .group(flags.group());
  flags.choice("loss_scale_rule", &D::loss_scale_rule, {"tensorflow", "torch", "paddle"},
               "how an automatic loss scale moves. tensorflow: from 128, halved by each overflow, doubled after 1000 "
               "steps without; torch: the same from 65536, after 2000; paddle: from 32768, times 0.8 after two "
               "overflows in a row but not below 1, doubled after 1000. A step that overflows is always skipped");
  flags.add("loss_scale_raise_factor", &D::loss_scale_raise_factor,
            "factor by which an automatic loss scale rises; unset: the rule's");
  flags.add("loss_scale_lower_factor", &D::loss_scale_lower_factor,
            "factor by which an automatic loss scale falls; unset: the rule's");
  flags.add("loss_scale_lower_after", &D::loss_scale_lower_after,
            "overflows in a row after which an automatic loss scale falls; unset: the rule's");
  flags.table()
      .integer("loss_scale_most_skips", 100,
               "end the run when so many steps in a row overflow under a loss scale of 1 or less, naming the first "
               "parameter whose gradient does; 0: never")
      .group(flags.group());
  flags.also([](const FlagValues& values, D& options) {
    if (asks_when_the_scale_rises(values)) {
      options.fp16_raise_loss_scale_after = values.integer("fp16_inc_loss_scale_every_n");
    }
    if (values.changed("loss_scale_most_skips")) {
      options.loss_scale_most_skips = values.integer("loss_scale_most_skips");
    }
  });
  return flags;
}

void add_device_flags(DeviceFlags& flags) {
  flags.group("Devices");
  flags.table()
      .choice("device", "gpu", {"cpu", "gpu", "CPU", "GPU"}, "where the model runs")
      .automatic("gpu if there is one, else cpu")
      .group(flags.group());
  flags.table()
      .choice("data_format", "NCHW", {"NHWC", "NCHW"},
              "the layout of images as users see it; kernels choose their own, and both work on every device")
      .group(flags.group());
  flags.table()
      .text("gpu_thread_mode", "gpu_private", "how host threads launch GPU work: global, gpu_private or gpu_shared")
      .group(flags.group())
      .translated("each GPU has one thread of the host that hands its work over, whatever the mode");
  flags.table()
      .integer("per_gpu_thread_count", 0, "host threads a GPU; 0: 2")
      .group(flags.group())
      .translated("one thread of the host hands a GPU's work over: a second one would wait for the first");
  flags.also([](const FlagValues& values, D& options) {
    options.gpu = given_gpu(values, "device");
    for (const char* flag : {"gpu_thread_mode", "per_gpu_thread_count"}) {
      if (values.changed(flag)) options.gpu_thread_flags.emplace_back(flag);
    }
  });
}

void add_kernel_flags(DeviceFlags& flags) {
  flags.group("Kernels");
  flags.add("winograd_nonfused", &D::winograd, "allow Winograd convolutions");
  flags.choice("conv_algorithm", &D::conv_algorithm, {"auto", "direct", "winograd"},
               "how convolutions are computed on the CPU; auto measures once which is faster, for 4 s a run or a "
               "fiftieth of a long training; "
               "winograd is used where there is a kernel (3x3, in float, and in bfloat16 with AVX512_BF16)");
  flags.add("deterministic", &D::deterministic,
            "choose kernels by fixed rules instead of by measuring, so that machines with the same instruction set, "
            "given the same number of threads, compute the same bits, and so does a GPU each time");
  flags.choice(
      "recompute", &D::recompute, {"none", "elementwise", "blocks"},
      "which activations are not kept for the backward but made again, for less memory and the same bits: "
      "those of batch norms and the like, or whole blocks of layers; none keeps all but what an activation on its "
      "own makes, such as GELU");
  flags.choice("executor", &D::executor, {"auto", "cpu", "cuda", "reference"},
               "what runs the model: auto is the device's own, which is fast; reference is plain LibTorch, which tests "
               "trust");
  flags.add("xla", &D::xla, "the same as xla_compile");
  flags.add("xla_compile", &D::xla_compile,
            "on a GPU: capture the whole training step, after some that run as they are, and replay it");
  flags.add("tf32", &D::tf32, "on a GPU: float products and convolutions may round their factors to 10 bits");
  declare_kernel_switches(flags.table(), flags.group());
  flags.also([](const FlagValues& values, D& options) { options.switches = read_kernel_switches(values); });
  flags.table()
      .boolean("use_tf_layers", true, "which of two implementations of the layers to use")
      .group(flags.group())
      .translated("there is one implementation, with the same result and the same checkpoints");
  flags.table()
      .boolean("use_resource_vars", false, "which of two kinds of variables to use")
      .group(flags.group())
      .translated("there is one kind of variables, with the same result");
}

void add_precision_flags(DeviceFlags& flags) {
  flags.group("Precision");
  flags.add("use_bf16", &D::use_bf16, "compute in bfloat16; variables, logits and batch normalization stay in 32 bits");
  flags.add(
      "use_fp16", &D::use_fp16,
      "compute in 16 bits with a scaled loss; variables, logits and batch normalization stay in 32; for GPUs, and "
      "with device=cpu slowly, as a trial");
  flags.add("fp16_vars", &D::fp16_vars,
            "with use_fp16 or use_bf16: variables and what the optimizer keeps of them are 16-bit numbers, too; they "
            "are rounded after each update, and memory and checkpoints hold them in 32 bits");
}

DeviceFlags make_device_flags() {
  DeviceFlags flags("");
  add_device_flags(flags);
  add_kernel_flags(flags);
  add_precision_flags(flags);
  // Acts on devices, and is declared among the flags of threads, the CPU's other settings.
  flags.also([](const FlagValues& values, D& options) { options.max_cpu_isa = values.text("max_cpu_isa"); });
  return flags;
}

void add_replica_flags(DeviceFlags& flags) {
  flags.group("Replicas");
  flags.add("num_gpus", &D::replicas, "devices a process; with device=cpu: replicas on threads");
  flags.table().text("gpu_indices", "", "the GPUs to use, in ring order, comma separated").group(flags.group());
  flags.choice(
      "variable_update", &D::variable_update,
      {"parameter_server", "replicated", "distributed_replicated", "independent", "distributed_all_reduce",
       "collective_all_reduce", "horovod"},
      "where variables live and how gradients are reduced: one copy and the mean; a copy each and the sum; "
      "independent: no exchange; horovod: a process a replica, started by mpirun or trainyard launch, and the "
      "mean; collective_all_reduce: the same with num_gpus replicas a process, and the sum; "
      "distributed_all_reduce: that, or replicated where one process was started, and rank 0 shows the images "
      "and the mean loss of all; parameter_server with job_name: servers hold the one copy, and workers get it "
      "from them in each step; distributed_replicated: the same, and workers keep copies");
  flags.table()
      .choice("local_parameter_device", "gpu", {"cpu", "gpu", "CPU", "GPU"},
              "where parameter_server keeps the variables: where the model runs, nowhere else")
      .automatic("where the model runs")
      .group(flags.group());
  flags.also([](const FlagValues& values, D& options) {
    options.gpu_indices = read_gpu_indices(values.text("gpu_indices"));
    options.parameters_on_gpu = given_gpu(values, "local_parameter_device");
  });
  flags.table()
      .choice("gradient_reduction", "auto", {"auto", "sum", "mean"},
              "how gradients of replicas are joined; auto: mean for parameter_server and distributed_replicated, what "
              "horovod_reduce says for horovod, else sum")
      .group(flags.group());
  flags.add("sync_batch_norm", &D::sync_batch_norm,
            "batch norms normalize with the statistics of all replicas' batches together; on the CPU");
  flags.choice("sharded_update", &D::sharded_update, {"auto", "true", "false"},
               "each replica updates its part of the parameters straight from the gradients of all, and keeps the "
               "optimizer's state of that part; on CPUs that share memory. auto: where it works; results are the same");
  flags.table()
      .choice("variable_consistency", "strong", {"strong", "relaxed"},
              "relaxed: each update applies the gradients of the step before, and the first one none")
      .group(flags.group());
  flags.add("staged_vars", &D::staged_vars,
            "replicas compute with the values of one update before, of variable_update=parameter_server; on the CPU");
}

DeviceFlags make_all_reduce_flags() {
  DeviceFlags flags("All-reduce");
  flags.add(
      "all_reduce_spec", &D::all_reduce_spec,
      "how gradients are reduced: an algorithm, algorithm#shards, or with variable_update=distributed_all_reduce "
      "several by the size of what is reduced, in bytes: pscpu:32k:xring; auto: those that are measured to be the "
      "fastest between processes. On CPUs: xring, ring, rechd, shuffle, "
      "pscpu, psgpu, pscpu/pscpu, collective, of which variable_update=collective_all_reduce takes the last; on "
      "GPUs: nccl");
  flags.add("hierarchical_copy", &D::hierarchical_copy,
            "reduce within two groups of replicas first, then between the groups; on the CPU");
  flags.choice("network_topology", &D::network_topology, {"dgx1", "gcp_v100"},
               "which replicas lead the groups of hierarchical_copy; gcp_v100 is for eight");
  flags
      .add("gradient_repacking", &D::gradient_repacking,
           "join all gradients and reduce them in this many parts of one size; 0: as they come")
      .bounds(0);
  flags.add("agg_small_grads_max_bytes", &D::agg_small_grads_max_bytes,
            "join consecutive gradients of at most this many bytes each, and reduce them together; 0: none");
  flags.add("agg_small_grads_max_group", &D::agg_small_grads_max_group, "most gradients joined so");
  return flags;
}

// Those that a benchmark of all-reduces does not have: it has no 16-bit training, and no graph.
void add_more_all_reduce_flags(DeviceFlags& flags) {
  flags.group("All-reduce");
  core::FlagTable& table = flags.table();
  const std::string& group = flags.group();
  table
      .boolean("compact_gradient_transfer", true,
               "with use_bf16, on CPUs: gradients travel as 16-bit numbers where this is given, and are summed in 32; "
               "on GPUs they travel in 32 bits")
      .automatic("false")
      .group(group);
  flags.choice("gradient_compression", &D::gradient_compression, {"none", "powersgd", "topk"},
               "for slow networks, on CPUs: exchange products of narrow matrices (powersgd) or the largest elements "
               "(topk) instead of gradients; what is lost of one is added to the next");
  flags.add("powersgd_rank", &D::powersgd_rank, "with gradient_compression=powersgd: columns of the narrow matrices")
      .bounds(1, static_cast<double>(parallel::GradientCompression::kMostRank));
  flags
      .add("powersgd_start_iter", &D::powersgd_start_iter,
           "with gradient_compression=powersgd: steps before the first one whose gradients are compressed")
      .bounds(0);
  flags
      .add("powersgd_min_compression_rate", &D::powersgd_min_compression_rate,
           "with gradient_compression=powersgd: a gradient that shrinks by less than this factor is not compressed")
      .bounds(1, 1e6);
  flags
      .add("topk_share", &D::topk_share,
           "with gradient_compression=topk: the part of each gradient's elements that is exchanged")
      .bounds(1e-6, 1);
  flags.also([](const FlagValues& values, D& options) {
    if (values.given("compact_gradient_transfer")) {
      options.compact_gradient_transfer = values.boolean("compact_gradient_transfer");
    }
  });
  table.integer("allreduce_merge_scope", 1, "size of the groups that share a name in the graph")
      .group(group)
      .warned("names do not influence how gradients are joined; gradient_repacking and agg_small_grads_max_bytes do");
}

void add_process_flags(DeviceFlags& flags) {
  flags.group("Processes");
  const core::OptionFlags<ClusterOptions>& cluster = core::flags_of<cluster_flags>();
  cluster.declare(flags.table());
  flags.also([&cluster](const FlagValues& values, D& options) {
    cluster.read(values, options.cluster);
    options.cluster.sums_gradients = values.text("gradient_reduction") == "sum";
  });
  flags
      .add("horovod_device", &D::horovod_device,
           "where horovod reduces: gpu, by NCCL, or cpu, by MPI; empty: where the model runs")
      .default_value = std::string();
  flags.choice("horovod_reduce", &D::horovod_reduce, {"average", "sum"},
               "how horovod joins the gradients of processes");
  flags.choice("horovod_compression", &D::horovod_compression, {"none", "fp16", "bf16"},
               "the 16-bit numbers as which horovod's gradients travel between CPUs; they are summed in 32 bits");
  flags
      .add("rank_deadline", &D::rank_deadline,
           "seconds that processes wait for one that has died, is frozen or does not go on; default 120")
      .bounds(0.5, 1e6);
  flags
      .add("rank_start_deadline", &D::rank_start_deadline,
           "the same before the first step is done, and in the first evaluation; default 600")
      .bounds(0.5, 1e6);
  flags
      .add("listen_address", &D::listen_address,
           "address of this machine at which rank 0 meets the processes of other machines; empty: those of one machine "
           "meet on loopback")
      .default_value = std::string();
  flags.table()
      .text("server_protocol", "grpc", "protocol of TensorFlow's servers")
      .group(flags.group())
      .warned(
          "parameter servers speak gRPC; GPUs talk by NCCL, processes on CPUs by MPI or TCP, replicas of one "
          "process by their common memory");
  flags.also([](const FlagValues& values, D& options) {
    options.log_all_ranks = values.given("log_level");
    options.started_together = parallel::several_processes().has_value();
  });
}

DeviceFlags make_replica_flags() {
  DeviceFlags flags("");
  add_replica_flags(flags);
  return flags;
}

DeviceFlags make_process_flags() {
  DeviceFlags flags("");
  add_more_all_reduce_flags(flags);
  add_process_flags(flags);
  return flags;
}

DeviceFlags make_memory_flags() {
  DeviceFlags flags("Memory");
  flags
      .add("gpu_memory_frac_for_testing", &D::gpu_memory_fraction,
           "the part of the GPU's memory that may be used; 0: all; above 1 with use_unified_memory")
      .bounds(0);
  flags.add("use_unified_memory", &D::use_unified_memory,
            "GPU memory whose pages move between GPU and host: gpu_memory_frac_for_testing may be above 1 then, and "
            "steps are not captured");
  flags.add("allow_growth", &D::allow_growth, "take GPU memory as it is needed; false: all of it at the start");
  return flags;
}

}  // namespace

void declare_loss_scale_flags(core::FlagTable& table) {
  core::flags_of<make_loss_scale_flags>().declare(table);
}

void declare_device_flags(core::FlagTable& table) {
  core::flags_of<make_device_flags>().declare(table);
}

void declare_replica_flags(core::FlagTable& table) {
  for (const DeviceFlags* flags : {&core::flags_of<make_replica_flags>(), &core::flags_of<make_all_reduce_flags>(),
                                   &core::flags_of<make_process_flags>()})
    flags->declare(table);
}

void declare_all_reduce_flags(core::FlagTable& table) {
  core::flags_of<make_all_reduce_flags>().declare(table);
}

void declare_memory_flags(core::FlagTable& table) {
  core::flags_of<make_memory_flags>().declare(table);
}

void read_all_reduce_flags(const FlagValues& values, DeviceOptions& options) {
  core::flags_of<make_all_reduce_flags>().read(values, options);
}

DeviceOptions read_device_options(const FlagValues& values) {
  DeviceOptions options;
  for (const DeviceFlags* flags : {&core::flags_of<make_loss_scale_flags>(), &core::flags_of<make_device_flags>(),
                                   &core::flags_of<make_replica_flags>(), &core::flags_of<make_all_reduce_flags>(),
                                   &core::flags_of<make_process_flags>(), &core::flags_of<make_memory_flags>()}) {
    flags->read(values, options);
  }
  return options;
}

}  // namespace trainyard::frontends
