#include "trainyard/train/devices/open_devices.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/nn/execution/accelerator.h"
#include "trainyard/parallel/collectives/all_reduce_options.h"
#include "trainyard/parallel/collectives/nccl/gpu_communicators.h"
#include "trainyard/parallel/collectives/process_communicator.h"
#include "trainyard/parallel/collectives/threads/thread_communicator.h"
#include "trainyard/parallel/process_group/process_group.h"

namespace trainyard::train {
namespace {

constexpr const char* kKind = "cuda";

}  // namespace

int OpenDevices::rank() const {
  return processes == nullptr ? 0 : processes->rank();
}

int OpenDevices::ranks() const {
  return processes == nullptr ? 1 : processes->size();
}

std::shared_ptr<nn::Accelerator> OpenDevices::accelerator() const {
  return accelerators.empty() ? nullptr : accelerators[0];
}

c10::Device OpenDevices::device() const {
  return accelerators.empty() ? c10::Device(c10::kCPU) : accelerators[0]->device();
}

nn::AcceleratorScope OpenDevices::use() const {
  return nn::use_all(accelerators);
}

void OpenDevices::choose_communicators() {
  if (exchange != nullptr) {
    make_communicators = [exchange = exchange, replicas = replicas] {
      return parallel::make_process_communicators(exchange, replicas);
    };
    return;
  }
  make_communicators = nullptr;
  if (accelerators.empty()) return;
  std::vector<c10::Device> devices;
  devices.reserve(accelerators.size());
  for (const auto& accelerator : accelerators) devices.push_back(accelerator->device());
  make_communicators = [devices = std::move(devices), processes = processes] {
    return parallel::make_gpu_communicators(devices, processes);
  };
}

void OpenDevices::choose_communicators(const parallel::AllReduceOptions& all_reduce) {
  choose_communicators();
  make_gradient_communicators = nullptr;
  if (all_reduce.is_default() || !accelerators.empty()) return;
  if (exchange != nullptr) {
    make_gradient_communicators = [exchange = exchange, replicas = replicas, choice = all_reduce.choice()] {
      return parallel::make_process_communicators(exchange, replicas, std::chrono::minutes(10), choice);
    };
  } else if (replicas > 1) {
    make_gradient_communicators = [replicas = replicas, choice = all_reduce.choice()] {
      return parallel::make_thread_communicators(replicas, choice);
    };
  }
}

void OpenDevices::leave() const {
  if (processes == nullptr) return;
  processes->progress("exit");
  processes->leave();
  if (const auto error = processes->reported()) throw core::Error(*error);
  if (exchange == nullptr) return;
  // All ranks have finished their work, so a failure now only affects MPI's own shutdown.
  constexpr auto kFinishTimeout = std::chrono::seconds(8);
  try {
    exchange->finish(kFinishTimeout);
  } catch (const core::Error& error) {
    core::log::warning("the processes have left each other, but MPI does not end: {}", error.what());
  }
}

OpenDevices open_devices(const std::vector<int>& gpus) {
  return open_devices(gpus, nn::AcceleratorOptions());
}

OpenDevices open_devices(const std::vector<int>& gpus, const nn::AcceleratorOptions& options,
                         std::shared_ptr<parallel::ProcessGroup> processes) {
  OpenDevices devices{.processes = std::move(processes)};
  for (const int gpu : gpus) {
    nn::AcceleratorOptions own = options;
    own.index = gpu;
    devices.accelerators.push_back(nn::open_accelerator(kKind, own));
  }
  devices.replicas = std::max(1, static_cast<int>(gpus.size()));
  devices.choose_communicators();
  return devices;
}

int gpu_count() {
  return nn::accelerator_count(kKind);
}

}  // namespace trainyard::train
