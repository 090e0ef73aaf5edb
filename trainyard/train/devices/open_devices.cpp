#include "trainyard/train/devices/open_devices.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "trainyard/core/base/elapsed.h"
#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/nn/execution/accelerator.h"
#include "trainyard/nn/execution/kernel_choices.h"
#include "trainyard/parallel/collectives/all_reduce_choices.h"
#include "trainyard/parallel/collectives/all_reduce_options.h"
#include "trainyard/parallel/collectives/chosen_communicator.h"
#include "trainyard/parallel/collectives/measured_all_reduce.h"
#include "trainyard/parallel/collectives/mpi/mpi_transport.h"
#include "trainyard/parallel/collectives/nccl/gpu_communicators.h"
#include "trainyard/parallel/collectives/process_communicator.h"
#include "trainyard/parallel/collectives/threads/thread_communicator.h"
#include "trainyard/parallel/process_group/process_group.h"
#include "trainyard/parallel/process_group/shared_outcome.h"
#include "trainyard/parallel/servers/server_group.h"

namespace trainyard::train {
namespace {

constexpr const char* kKind = "cuda";
constexpr std::chrono::milliseconds kDeadline = std::chrono::minutes(10);  // which users of communicators replace

// Collective: returns the choice of all processes, and logs it when it is new.
std::string agreed_spec(const OpenDevices& devices, const parallel::AllReduceMeasuring& measuring,
                        parallel::AllReduceChoices& kept) {
  const auto begin = std::chrono::steady_clock::now();
  const parallel::AgreedAllReduce agreed =
      parallel::agree_on_all_reduce(devices.exchange, devices.replicas, measuring, kept);
  if (!agreed.was_kept && !agreed.measured_now) {
    core::log::info("all-reduces could not be measured in {:.2f} s: {} ({})", core::seconds_since(begin), agreed.spec,
                    agreed.description);
  }
  if (agreed.measured_now) {
    core::log::info("all-reduces were measured for {:.2f} s: {} ({}); kept in {}", core::seconds_since(begin),
                    agreed.spec, agreed.description, kept.file().empty() ? "memory" : kept.file());
  }
  return agreed.spec;
}

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

void OpenDevices::choose_communicators(const parallel::AllReduceOptions& all_reduce, parallel::AllReduceChoices* kept) {
  choose_communicators();
  make_gradient_communicators = nullptr;
  const bool measures = kept != nullptr && exchange != nullptr && ranks() > 1;
  if (measures && (all_reduce.is_default() || all_reduce.is_auto())) {
    parallel::AllReduceMeasuring measuring{.transport = parallel::mpi_version()};
    measured_all_reduce = agreed_spec(*this, measuring, *kept);
    make_communicators = [exchange = exchange, replicas = replicas, spec = measured_all_reduce] {
      return parallel::make_measured_communicators(exchange, replicas, kDeadline, spec);
    };
    if (!all_reduce.is_auto()) return;
    if (kernels.choices == nullptr) kernels.choices = std::make_shared<nn::KernelChoices>();
    measuring.order = parallel::AllReduceOrder::kAny;
    measuring.wire = all_reduce.wire;
    const std::string spec = agreed_spec(*this, measuring, *kept);
    automatic_all_reduce_spec = spec == "default" ? "" : spec;
    make_gradient_communicators =
        [exchange = exchange, replicas = replicas,
         automatic = parallel::AutomaticAllReduce{
             .in_rank_order = measured_all_reduce, .spec = spec, .wire = all_reduce.wire, .choices = kernels.choices}] {
          return parallel::make_automatic_communicators(exchange, replicas, kDeadline, automatic);
        };
    return;
  }
  if (all_reduce.is_default() || !accelerators.empty()) return;
  if (exchange != nullptr) {
    make_gradient_communicators = [exchange = exchange, replicas = replicas, choice = all_reduce.choice()] {
      return parallel::make_process_communicators(exchange, replicas, kDeadline, choice);
    };
  } else if (replicas > 1) {
    make_gradient_communicators = [replicas = replicas, choice = all_reduce.choice()] {
      return parallel::make_thread_communicators(replicas, choice);
    };
  }
}

void OpenDevices::report_what_fails(const std::function<void()>& work) const {
  if (processes == nullptr) return work();
  parallel::report_what_fails(*processes, [&] {
    try {
      work();
    } catch (const core::Error& error) {
      if (servers != nullptr) servers->abort(error);
      throw;
    }
  });
}

void OpenDevices::leave() const {
  if (processes == nullptr) return;
  processes->progress("exit");
  processes->leave();
  if (const auto error = processes->reported()) throw core::Error(*error);
  if (servers != nullptr) servers->leave();
  if (exchange == nullptr) return;
  // All ranks have finished their work, so a failure now only affects the shutdown of the exchange.
  constexpr auto kFinishTimeout = std::chrono::seconds(8);
  try {
    exchange->finish(kFinishTimeout);
  } catch (const core::Error& error) {
    core::log::warning("the processes have left each other, but what they exchanged with does not end: {}",
                       error.what());
  }
}

OpenDevices open_devices(const std::vector<int>& gpus) {
  return open_devices(gpus, nn::AcceleratorOptions());
}

OpenDevices open_devices(const std::vector<int>& gpus, const nn::AcceleratorOptions& options,
                         std::shared_ptr<parallel::ProcessGroup> processes) {
  OpenDevices devices{.processes = std::move(processes)};
  for (auto gpu = gpus.begin(); gpu != gpus.end(); ++gpu) {
    if (std::find(gpus.begin(), gpu, *gpu) == gpu) continue;
    // NCCL would fail at the first exchange, without saying why.
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "a GPU is named twice",
                                                          .where = "open_devices()",
                                                          .expected = "another GPU for each replica",
                                                          .actual = std::to_string(*gpu) + " again",
                                                          .remedy = "name each GPU once, and give it larger batches"});
  }
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
