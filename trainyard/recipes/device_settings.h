// Where door 1 computes: the flags of devices, of their memory, of 16-bit floats with a scaled loss and of captured
// steps. What only a GPU can do is refused by name where there is none.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include "trainyard/core/flags.h"
#include "trainyard/nn/accelerator.h"
#include "trainyard/optim/loss_scaler.h"

namespace trainyard::recipes {

// What the flags ask for, before any device is opened.
struct DeviceRequest {
  bool gpu = false;
  nn::AcceleratorOptions accelerator;  // with gpu
  bool capture_steps = false;
  std::optional<optim::LossScalerOptions> loss_scale;  // with 16-bit floats that need one
};

// `gpus`: how many this machine has that can be used. Throws kUnsupported for what the device that it comes to cannot
// do, kInvalidArgument for values that make no sense.
DeviceRequest read_device_request(const core::FlagValues& values, int gpus);

struct DeviceSettings {
  std::shared_ptr<nn::Accelerator> accelerator;  // null: the CPU
  bool capture_steps = false;
  std::optional<optim::LossScalerOptions> loss_scale;

  at::Device device() const { return accelerator == nullptr ? at::Device(at::kCPU) : accelerator->device(); }
  // The calling thread's work goes to the device as long as the result lives; null on the CPU.
  std::shared_ptr<void> use() const { return accelerator == nullptr ? nullptr : accelerator->use(); }
  // As upstream prints it: "/cpu:0", "/gpu:1".
  std::string device_name(int replica) const;
};

// Opens the device; logs which one it is where the flags leave it open.
DeviceSettings open_device(const core::FlagValues& values);

}  // namespace trainyard::recipes
