// Where a run computes: what is asked for of devices, their memory, 16-bit floats with a scaled loss, captured steps
// and other processes, and what that comes to on this machine. What only a GPU can do is refused by name where there is
// none.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/export.h"
#include "trainyard/frontends/options/kernel_switches.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/optim/scaling/loss_scaler_options.h"
#include "trainyard/train/devices/open_devices.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::frontends {

struct DeviceOptions {
  std::optional<bool> gpu{};                // unset: a GPU if there is one
  int64_t replicas = 1;                     // devices of this process; on the CPU: threads
  std::vector<int> gpu_indices{};           // one a replica; empty: the first ones. With horovod also one a process
  std::optional<bool> parameters_on_gpu{};  // unset: where the replicas are

  // How much of a GPU's memory is taken, and when: what nn::AcceleratorOptions says of the same names.
  double gpu_memory_fraction = 0;
  std::optional<bool> allow_growth{}, use_unified_memory{};
  bool tf32 = false;
  // Flags of TensorFlow's threads of a GPU that were given. They have no effect.
  std::vector<std::string> gpu_thread_flags{};
  // On a CPU, what says how GPUs are used (all members from gpu_indices to here, but tf32) is refused by name; true: it
  // is passed over, as in tf_cnn_benchmarks.
  bool passes_over_gpu_flags = false;

  bool use_bf16 = false, use_fp16 = false;
  bool fp16_vars = false;                   // with one of them: parameters and slots are such numbers, too
  std::optional<double> fp16_loss_scale{};  // with use_fp16; unset: the rule's; 1: none, unless it moves
  bool fp16_automatic_loss_scale = false;
  std::string loss_scale_rule = "tensorflow";  // "torch", "paddle"
  // How an automatic scale moves. What is unset is as the rule has it.
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
  std::string max_cpu_isa = "auto";  // that the process must have begun with: "avx2", "avx512"

  std::string variable_update = "parameter_server";  // a name of parallel::variable_updates()
  std::string all_reduce_spec{};           // of collective_all_reduce: "collective", or empty, which is the same
  bool staged_vars = false;                // of parameter_server: replicas read the values of one update before
  bool sync_batch_norm = false;            // batch norms see the batches of all replicas; on the CPU
  std::string horovod_device{};            // "gpu", "cpu", or empty
  std::string horovod_reduce = "average";  // "sum"
  // Of several processes. Unset: what parallel::RankDeadlines says.
  std::optional<double> rank_deadline{}, rank_start_deadline{};  // seconds
  std::string listen_address{};                                  // parallel::ProcessGroupOptions says what it is
  bool log_all_ranks = false;  // ranks behind the first log what is below warnings, too

  bool captures_steps() const { return xla || xla_compile; }
  bool many_processes() const { return variable_update == "horovod" || variable_update == "collective_all_reduce"; }
};

// What a run does on its devices.
struct DeviceUse {
  bool evaluation = false, forward_only = false;
  bool decodes_on_gpu = false;
  bool prunes = false;  // --asp
};

// Returns the options with what they leave open decided, before any device is opened: `gpu` is set, and `gpu_indices`
// has a GPU for each replica, or none for the CPU. Decides by the number of GPUs that this machine has, and, with many
// processes, by which of its processes this is.
// Throws kUnsupported for what the device that is chosen cannot do, kInvalidArgument for values that make no sense.
DeviceOptions plan_devices(const DeviceOptions& options, const DeviceUse& use, int gpus, int local_rank = 0);

// Return what options that were decided ask for: how each GPU is opened, how the loss is scaled (nullopt: it is not),
// and what parameters and slots are rounded to.
nn::AcceleratorOptions accelerator_options(const DeviceOptions& options);
std::optional<optim::LossScalerOptions> loss_scale_of(const DeviceOptions& options);
std::optional<at::ScalarType> variables_of(const DeviceOptions& options);

// Throws kInvalidArgument where a launcher has started several processes, and each would train, or evaluate, as if it
// were the only one: curves, checkpoints and accuracies would be those of one of them. Forward passes may run side by
// side.
void refuse_processes_that_train_alone(const DeviceOptions& options, const DeviceUse& use, int processes);

// Meets the other processes, where there are any, and opens the devices. Logs where the CPU is limited, and which
// device it is where that is left open.
train::OpenDevices open_device(const DeviceOptions& options, const DeviceUse& use);

}  // namespace trainyard::frontends
TRAINYARD_EXPORT_END
