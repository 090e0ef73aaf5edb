#include "trainyard/train/devices/run_devices.h"

#include <chrono>
#include <utility>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/parallel/collectives/nccl/gpu_communicators.h"
#include "trainyard/parallel/collectives/process_communicator.h"

namespace trainyard::train {
namespace {

constexpr const char* kKind = "cuda";

}  // namespace

std::function<std::vector<std::unique_ptr<core::Communicator>>()> RunDevices::communicators() const {
  if (exchange != nullptr) {
    return
        [exchange = exchange, replicas = replicas] { return parallel::make_process_communicators(exchange, replicas); };
  }
  if (accelerators.empty()) return {};
  std::vector<c10::Device> devices;
  devices.reserve(accelerators.size());
  for (const auto& accelerator : accelerators) devices.push_back(accelerator->device());
  return [devices = std::move(devices), processes = processes] {
    return parallel::make_gpu_communicators(devices, processes);
  };
}

void RunDevices::leave() const {
  if (processes == nullptr) return;
  processes->progress("exit");
  processes->leave();
  if (const auto error = processes->reported()) throw core::Error(*error);
  if (exchange == nullptr) return;
  // All have done all that they wanted, so whoever is in the way now costs nobody anything but MPI's own end.
  constexpr auto kFinishTimeout = std::chrono::seconds(8);
  try {
    exchange->finish(kFinishTimeout);
  } catch (const core::Error& error) {
    core::log::warning("the processes have left each other, but MPI does not end: {}", error.what());
  }
}

RunDevices open_devices(const DeviceRequest& request, std::shared_ptr<parallel::ProcessGroup> processes) {
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
