// The devices of a run: options of devices, their memory, 16-bit floats with loss scaling, captured steps and other
// processes, and the resulting plan on this machine. Options that need a GPU are an error that names them when there is
// none.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/frontends/options/kernel_switches.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/optim/scaling/loss_scaler_options.h"
#include "trainyard/train/devices/open_devices.h"

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
  std::string all_reduce_spec{};           // for collective_all_reduce: "collective", or empty, which is the same
  bool staged_vars = false;                // for parameter_server: replicas read the values before the last update
  bool sync_batch_norm = false;            // batch norms use the batches of all replicas; on the CPU
  std::string horovod_device{};            // "gpu", "cpu", or empty
  std::string horovod_reduce = "average";  // "sum"
  // With several processes. Unset: the defaults of parallel::RankDeadlines.
  std::optional<double> rank_deadline{}, rank_start_deadline{};  // seconds
  std::string listen_address{};                                  // see parallel::ProcessGroupOptions
  bool log_all_ranks = false;  // ranks other than the first log messages below warnings, too

  bool captures_steps() const { return xla || xla_compile; }
  bool many_processes() const { return variable_update == "horovod" || variable_update == "collective_all_reduce"; }
};

// The kinds of work of a run on its devices.
struct DeviceUse {
  bool evaluation = false, forward_only = false;
  bool decodes_on_gpu = false;
  bool prunes = false;  // --asp
};

// Returns the options with what they leave open decided, before any device is opened: `gpu` is set, and `gpu_indices`
// has a GPU for each replica, or none for the CPU. Makes the plan from the number of GPUs of this machine and, with
// many processes, from the local rank of this process. Throws kUnsupported for options that the selected device does
// not support, kInvalidArgument for invalid values.
DeviceOptions plan_devices(const DeviceOptions& options, const DeviceUse& use, int gpus, int local_rank = 0);

// Return what options that were decided ask for: how each GPU is opened, how the loss is scaled (nullopt: it is not),
// and what parameters and slots are rounded to.
nn::AcceleratorOptions accelerator_options(const DeviceOptions& options);
std::optional<optim::LossScalerOptions> loss_scale_of(const DeviceOptions& options);
std::optional<at::ScalarType> variables_of(const DeviceOptions& options);

// Throws kInvalidArgument when a launcher has started several processes and each would train, or evaluate, on its own:
// curves, checkpoints and accuracies would be those of one of them. Forward passes may run in parallel.
void refuse_processes_that_train_alone(const DeviceOptions& options, const DeviceUse& use, int processes);

// Connects to the other processes, if any, and opens the devices. Logs limits of the CPU, and the device when it was
// not specified.
train::OpenDevices open_device(const DeviceOptions& options, const DeviceUse& use);

}  // namespace trainyard::frontends
