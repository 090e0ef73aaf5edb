// The devices that a training runs on, and the processes that train together.
//
//   const OpenDevices devices = open_devices({0, 1});
//   const auto on_device = devices.use();  // as long as this lives, the calling thread's work goes there
//   TowerTrainer trainer({.graph = graph, .devices = devices, ...}, source);
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include "trainyard/core/base/export.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/optim/scaling/loss_scaler_options.h"

namespace trainyard::nn {
class Accelerator;
struct AcceleratorOptions;
}  // namespace trainyard::nn

namespace trainyard::parallel {
class AllReduceChoices;
class ProcessEngine;
class ProcessGroup;
class ServerGroup;
struct AllReduceOptions;
}  // namespace trainyard::parallel

TRAINYARD_EXPORT_BEGIN
namespace trainyard::core {
class Communicator;
}

namespace trainyard::train {

// Opened devices: where replicas compute, with which other processes, and with which kernels and precision. Everything
// that runs on the devices of a run holds one. A default-constructed one is the CPU with a single replica.
struct OpenDevices {
  int replicas = 1;                                              // of this process
  std::vector<std::shared_ptr<nn::Accelerator>> accelerators{};  // one a replica; empty: the CPU
  std::shared_ptr<parallel::ProcessGroup> processes{};           // that train together; null: this one alone
  std::shared_ptr<parallel::ProcessEngine> exchange{};           // of their CPUs; null: GPUs, or this process alone
  std::shared_ptr<parallel::ServerGroup> servers{};              // that hold the parameters; null: replicas do
  // As in parallel::VariableUpdateOptions. None: replicas exchange gradients in the host's memory.
  std::function<std::vector<std::unique_ptr<core::Communicator>>()> make_communicators{};
  // The same for gradients alone, where an algorithm was asked for. None: make_communicators.
  std::function<std::vector<std::unique_ptr<core::Communicator>>()> make_gradient_communicators{};
  // How processes all-reduce by what was measured (parallel/collectives/measured_all_reduce.h); empty: by the rule.
  std::string measured_all_reduce{};
  // With AllReduceOptions::is_auto(): the all_reduce_spec that was measured; empty: none is faster than the default.
  std::string automatic_all_reduce_spec{};
  std::string executor = "auto";                    // a name for nn::make_executor
  at::ScalarType dtype = at::kFloat;                // of activations; kDouble makes the parameters double too
  nn::KernelOptions kernels = nn::KernelOptions();  // not {}: GCC 12 warns of it in error
  bool capture_steps = false;  // record a step on the accelerator and replay it (train/step/step_capture.h)
  // For 16-bit gradients, on any device and with activations of any kind; none: the loss is as it is.
  std::optional<optim::LossScalerOptions> loss_scale{};
  // kHalf or kBFloat16: parameters and the slots of optimizers are, after each update, numbers that such floats hold,
  // as if they were stored so (--fp16_vars). In memory and in checkpoints they stay floats.
  std::optional<at::ScalarType> variables_as{};

  int rank() const;
  int ranks() const;
  // Returns whether this is the process that prints and saves.
  [[nodiscard]] bool is_chief() const { return rank() == 0; }

  // Returns the device of replica 0, where evaluation and forward passes run, too; null: the CPU.
  [[nodiscard]] std::shared_ptr<nn::Accelerator> accelerator() const;
  c10::Device device() const;
  // Makes replica 0's device the current one of the calling thread while the result lives, so that its work is enqueued
  // there.
  nn::AcceleratorScope use() const;
  // Sets make_communicators to what these devices exchange gradients with: NCCL between GPUs, `exchange` between
  // processes on CPUs, and none on the CPU of one process, whose threads need none. Replicas must be set.
  void choose_communicators();
  // Does that, and sets make_gradient_communicators to the algorithms of `all_reduce`, between CPUs and where there are
  // several replicas. Throws as AllReduceOptions::choice() does.
  //
  // With `kept`, processes that were not asked for an algorithm choose one by measuring, and so do those with
  // AllReduceOptions::is_auto(), whose choice goes into kernels.choices, which is made where it is missing. Collective
  // then: the choice is rank 0's, where `kept` is read and written.
  void choose_communicators(const parallel::AllReduceOptions& all_reduce, parallel::AllReduceChoices* kept = nullptr);
  // Runs `work`. The other processes and the servers are told of what it throws before it is thrown on
  // (parallel::report_what_fails): they would see a process that ends, and name this one.
  void report_what_fails(const std::function<void()>& work) const;
  // Collective, after the last exchange: ends the exchange and leaves the process group. Throws why the group has
  // failed.
  void leave() const;
};

// Opens one GPU for each replica, all different. An empty list: the CPU. Throws kUnsupported where this build or this
// machine has none, kInvalidArgument for an index that it does not have or that is named twice.
OpenDevices open_devices(const std::vector<int>& gpus);
// Does the same with the settings of each GPU, whose index is left out, and for the processes that train together.
OpenDevices open_devices(const std::vector<int>& gpus, const nn::AcceleratorOptions& options,
                         std::shared_ptr<parallel::ProcessGroup> processes = nullptr);

// Returns how many GPUs open_devices() could open.
[[nodiscard]] int gpu_count();

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
