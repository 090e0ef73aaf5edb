// The devices of a run: what is asked for, and its flags. device_settings.h makes a plan for this machine of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/flags/flags.h"
#include "trainyard/frontends/options/cluster_options.h"
#include "trainyard/frontends/options/kernel_switches.h"

namespace trainyard::frontends {

struct DeviceOptions {
  std::optional<bool> gpu{};                // unset: a GPU if there is one
  int64_t replicas = 1;                     // devices of this process; on the CPU: threads
  std::vector<int> gpu_indices{};           // one per replica; empty: the first ones. With horovod also one per process
  std::optional<bool> parameters_on_gpu{};  // unset: on the replicas' device

  // The allocation of GPU memory: see the members of the same names in nn::AcceleratorOptions.
  double gpu_memory_fraction = 0;
  std::optional<bool> allow_growth{}, use_unified_memory{};
  bool tf32 = false;
  // Given flags of TensorFlow's GPU threads, which have no effect.
  std::vector<std::string> gpu_thread_flags{};
  // false: on a CPU, options about the use of GPUs (all members from gpu_indices to here, except tf32) are an error
  // that names them. true: they are ignored, as in tf_cnn_benchmarks.
  bool passes_over_gpu_flags = false;

  bool use_bf16 = false, use_fp16 = false;
  bool fp16_vars = false;                   // with one of them: parameters and slots have that type, too
  std::optional<double> fp16_loss_scale{};  // with use_fp16; unset: the rule's; 1: none, unless it is automatic
  bool fp16_automatic_loss_scale = false;
  std::string loss_scale_rule = "tensorflow";  // "torch", "paddle"
  // How an automatic scale changes. Unset members are those of the rule.
  std::optional<int64_t> fp16_raise_loss_scale_after{};  // steps without overflow
  std::optional<double> loss_scale_raise_factor{}, loss_scale_lower_factor{};
  std::optional<int64_t> loss_scale_lower_after{};  // overflows in a row
  std::optional<int64_t> loss_scale_most_skips{};   // unset: 100

  bool xla = false, xla_compile = false;  // each of them captures the step

  std::string executor = "auto";        // a name of nn::executors(), or auto: the fastest
  std::string conv_algorithm = "auto";  // of the CPU: "direct", "winograd"
  bool winograd = true;                 // the CPU may choose it
  std::string recompute = "none";       // of the CPU: "elementwise", "blocks"
  KernelSwitches switches{};
  bool deterministic = false;
  std::string max_cpu_isa = "auto";  // limit that the process must have been started with: "avx2", "avx512"

  std::string variable_update = "parameter_server";  // a name of parallel::variable_updates()
  // How gradients are reduced (parallel/collectives/all_reduce_options.h), and which of them together
  // (parallel::GradientPacking).
  std::string all_reduce_spec{};
  bool hierarchical_copy = false;
  std::string network_topology = "dgx1";            // of hierarchical_copy: "gcp_v100"
  std::optional<bool> compact_gradient_transfer{};  // true: with use_bf16, between CPUs, gradients travel in bfloat16
  int64_t gradient_repacking = 0;                   // > 0: in this many equal parts
  int64_t agg_small_grads_max_bytes = 0, agg_small_grads_max_group = 10;
  // Whether each replica updates its part of the parameters (parallel::Sharding): "auto", "true", "false".
  std::string sharded_update = "auto";
  // How gradients are compressed for slow networks, on CPUs: "powersgd", "topk" (parallel::GradientCompression).
  std::string gradient_compression = "none";
  int64_t powersgd_rank = 2, powersgd_start_iter = 0;
  double powersgd_min_compression_rate = 2;
  double topk_share = 0.01;
  bool staged_vars = false;                  // for parameter_server: replicas read the values before the last update
  bool sync_batch_norm = false;              // batch norms use the batches of all replicas; on the CPU
  std::string horovod_device{};              // "gpu", "cpu", or empty
  std::string horovod_reduce = "average";    // "sum"
  std::string horovod_compression = "none";  // the type in which horovod's gradients travel: "fp16", "bf16"
  ClusterOptions cluster{};                  // with servers or a controller
  // A launcher has started several processes: distributed_all_reduce is between them, and else within this one.
  bool started_together = false;
  // With several processes. Unset: the defaults of parallel::RankDeadlines.
  std::optional<double> rank_deadline{}, rank_start_deadline{};  // seconds
  std::string listen_address{};                                  // see parallel::ProcessGroupOptions
  bool log_all_ranks = false;  // ranks other than the first log messages below warnings, too

  bool captures_steps() const { return xla || xla_compile; }
  // Returns true when gradients are exchanged with other processes.
  bool many_processes() const {
    return variable_update == "horovod" || variable_update == "collective_all_reduce" || cluster.is_worker() ||
           (variable_update == "distributed_all_reduce" && started_together);
  }
};

// Declare the flags of the loss scale; of the device, its kernels and its precision; of replicas and processes; and of
// GPU memory: four parts of the help. Among them are --data_format, --gradient_reduction and --variable_consistency,
// which other options have.
void declare_loss_scale_flags(core::FlagTable& table);
void declare_device_flags(core::FlagTable& table);
void declare_replica_flags(core::FlagTable& table);
void declare_memory_flags(core::FlagTable& table);
// Declare and read the flags of how gradients are reduced alone, which are among those of replicas.
void declare_all_reduce_flags(core::FlagTable& table);
void read_all_reduce_flags(const core::FlagValues& values, DeviceOptions& options);
// Reads them, and also --max_cpu_isa and --log_level, which others declare. Throws kInvalidArgument for a --gpu_indices
// that is not a list of GPUs.
[[nodiscard]] DeviceOptions read_device_options(const core::FlagValues& values);

}  // namespace trainyard::frontends
