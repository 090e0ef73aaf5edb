// Where door 1 computes: the flags of devices, of their memory, of 16-bit floats with a scaled loss and of captured
// steps. What only a GPU can do is refused by name where there is none.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/flags/flags.h"
#include "trainyard/nn/execution/accelerator.h"
#include "trainyard/optim/loss_scaler.h"
#include "trainyard/parallel/nccl/rendezvous.h"

namespace trainyard::recipes {

// What the flags ask for, before any device is opened.
struct DeviceRequest {
  bool gpu = false;
  nn::AcceleratorOptions accelerator;  // with gpu: of each, but for its index
  std::vector<int> gpu_indices;        // with gpu: one a replica, all different
  bool capture_steps = false;
  std::optional<optim::LossScalerOptions> loss_scale;  // with 16-bit floats that need one
};

// `gpus`: how many this machine has that can be used; `local_rank`: with horovod, which of its processes this is.
// Throws kUnsupported for what the device that it comes to cannot do, kInvalidArgument for values that make no sense.
DeviceRequest read_device_request(const core::FlagValues& values, int gpus, int local_rank = 0);

struct DeviceSettings {
  std::vector<std::shared_ptr<nn::Accelerator>> accelerators;  // one a replica; empty: the CPU
  bool capture_steps = false;
  std::optional<optim::LossScalerOptions> loss_scale;
  std::shared_ptr<parallel::Rendezvous> processes;  // that train together, with horovod; null: this one alone

  int rank() const { return processes == nullptr ? 0 : processes->rank(); }
  int ranks() const { return processes == nullptr ? 1 : processes->size(); }
  // The process that prints and saves.
  bool is_chief() const { return rank() == 0; }

  // Of replica 0, where evaluation and forward passes run, too; null: the CPU.
  std::shared_ptr<nn::Accelerator> accelerator() const { return accelerators.empty() ? nullptr : accelerators[0]; }
  at::Device device() const { return accelerators.empty() ? at::Device(at::kCPU) : accelerators[0]->device(); }
  // The calling thread's work goes to the devices as long as the result lives, replica 0's being the current one; null
  // on the CPU.
  std::shared_ptr<void> use() const { return nn::use_all(accelerators); }
  // As upstream prints it: "/cpu:0", "/gpu:1".
  std::string device_name(int replica) const;
};

// Meets the other processes, where there are any; opens the device; logs which one it is where the flags leave it open.
DeviceSettings open_device(const core::FlagValues& values);

}  // namespace trainyard::recipes
