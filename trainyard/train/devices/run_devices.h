// The devices that a training runs on, and the processes that it shares it with.
//
//   const RunDevices devices = open_devices({.gpus = {0, 1}});
//   const auto on_device = devices.use();  // as long as this lives, the calling thread's work goes there
//   TowerTrainer trainer({.accelerators = devices.accelerators,
//                              .make_communicators = devices.communicators(), ...}, source);
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <c10/core/Device.h>

#include "trainyard/core/base/communicator.h"
#include "trainyard/core/base/export.h"
#include "trainyard/nn/execution/accelerator.h"
#include "trainyard/parallel/process_group/process_group.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::parallel {
class ProcessEngine;
}

namespace trainyard::train {

struct DeviceRequest {
  std::vector<int> gpus{};               // one a replica, all different; empty: the CPU
  nn::AcceleratorOptions accelerator{};  // of each GPU, but for its index
};

struct RunDevices {
  std::vector<std::shared_ptr<nn::Accelerator>> accelerators{};  // one a replica; empty: the CPU
  std::shared_ptr<parallel::ProcessGroup> processes{};           // that train together; null: this one alone
  std::shared_ptr<parallel::ProcessEngine> exchange{};           // of their CPUs; null: GPUs, or this process alone
  int replicas = 1;                                              // of this process

  int rank() const { return processes == nullptr ? 0 : processes->rank(); }
  int ranks() const { return processes == nullptr ? 1 : processes->size(); }
  // Returns whether this is the process that prints and saves.
  [[nodiscard]] bool is_chief() const { return rank() == 0; }

  // Returns the device of replica 0, where evaluation and forward passes run, too; null: the CPU.
  [[nodiscard]] std::shared_ptr<nn::Accelerator> accelerator() const {
    return accelerators.empty() ? nullptr : accelerators[0];
  }
  c10::Device device() const { return accelerators.empty() ? c10::Device(c10::kCPU) : accelerators[0]->device(); }
  // Lets the calling thread's work go to the devices as long as the result lives, replica 0's being the current one.
  nn::AcceleratorScope use() const { return nn::use_all(accelerators); }
  // Returns what TowerTrainerOptions::make_communicators takes; none on the CPU of one process, where threads need
  // none.
  [[nodiscard]] std::function<std::vector<std::unique_ptr<core::Communicator>>()> communicators() const;
  // Collective, after the last exchange: leaves the other processes, and ends it. Throws why the group has failed.
  void leave() const;
};

// Opens the devices. Throws kUnsupported where this build or this machine has none, kInvalidArgument for an index that
// it does not have.
RunDevices open_devices(const DeviceRequest& request, std::shared_ptr<parallel::ProcessGroup> processes = nullptr);

// Returns how many GPUs open_devices() could open.
[[nodiscard]] int gpu_count();

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
