// The devices of a run: DeviceOptions (device_options.h) are the requested options, this is the resulting plan on this
// machine. Options that need a GPU are an error that names them when there is none.
#pragma once

#include <memory>
#include <optional>

#include <ATen/core/Tensor.h>

#include "trainyard/frontends/options/device_options.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/optim/scaling/loss_scaler_options.h"
#include "trainyard/parallel/collectives/all_reduce_options.h"
#include "trainyard/parallel/variable_update/variable_update.h"
#include "trainyard/train/devices/open_devices.h"

namespace trainyard::frontends {

// The kinds of work of a run on its devices.
struct DeviceUse {
  bool evaluation = false, forward_only = false;
  bool decodes_on_gpu = false;
  bool prunes = false;             // --asp
  bool writes_onnx_graph = false;  // --graph_file or --partitioned_graph_file_prefix, not as text
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

// Returns how gradients are all-reduced on CPUs, and which of them together. Throws kInvalidArgument for a spec that is
// not well formed or that hierarchical_copy excludes.
parallel::AllReduceOptions all_reduce_options(const DeviceOptions& options);
parallel::GradientPacking gradient_packing(const DeviceOptions& options);
// Returns what --sharded_update asks for.
parallel::Sharding::Use sharding_use(const DeviceOptions& options);
// Returns how they are compressed. Throws kInvalidArgument for numbers that are out of range.
parallel::GradientCompression gradient_compression(const DeviceOptions& options);

// Throws kInvalidArgument when a launcher has started several processes and each would train, or evaluate, on its own:
// curves, checkpoints and accuracies would be those of one of them. Forward passes may run in parallel.
void refuse_processes_that_train_alone(const DeviceOptions& options, const DeviceUse& use, int processes);

// Connects to the other processes, if any, and opens the devices. Logs limits of the CPU, and the device when it was
// not specified.
train::OpenDevices open_device(const DeviceOptions& options, const DeviceUse& use);

}  // namespace trainyard::frontends
