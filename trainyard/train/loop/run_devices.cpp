#include "trainyard/train/loop/run_devices.h"

#include <utility>

#include "trainyard/parallel/nccl/gpu_communicators.h"

namespace trainyard::train {
namespace {

constexpr const char* kKind = "cuda";

}  // namespace

std::function<std::vector<std::unique_ptr<core::Communicator>>()> RunDevices::communicators() const {
  if (accelerators.empty()) return {};
  std::vector<c10::Device> devices;
  devices.reserve(accelerators.size());
  for (const auto& accelerator : accelerators) devices.push_back(accelerator->device());
  return [devices = std::move(devices), processes = processes] {
    return parallel::make_gpu_communicators(devices, processes);
  };
}

RunDevices open_devices(const DeviceRequest& request, std::shared_ptr<parallel::Rendezvous> processes) {
  RunDevices devices{.accelerators = {}, .processes = std::move(processes)};
  for (const int gpu : request.gpus) {
    nn::AcceleratorOptions options = request.accelerator;
    options.index = gpu;
    devices.accelerators.push_back(nn::open_accelerator(kKind, options));
  }
  return devices;
}

int gpu_count() {
  return nn::accelerator_count(kKind);
}

}  // namespace trainyard::train
