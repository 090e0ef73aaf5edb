// The model that `trainyard bench layers` and `bench latency` time: its flags, its graph and the device that it runs
// on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trainyard/core/flags/flags.h"
#include "trainyard/frontends/options/device_settings.h"
#include "trainyard/nn/execution/kernel_choices.h"
#include "trainyard/nn/graph/graph.h"
#include "trainyard/train/devices/open_devices.h"

namespace trainyard::cli {

struct BenchedModel {
  std::string model;
  std::string dataset;        // "imagenet", "cifar10"; empty: the first that has the model
  nn::Size2d image_size = 0;  // pixels; 0: the model's own
  // What of these is read: `gpu`, `executor`, `use_bf16` and `use_fp16` for activations, and `switches`, by which
  // layers are fused.
  frontends::DeviceOptions device;
  int intra_op_threads = 0;  // 0: the cores that this process may use
  // Stores the chosen kernels when there are alternatives. May be null.
  std::shared_ptr<nn::KernelChoices> choices;
};

void declare_benched_model_flags(core::FlagTable& table, const char* group);

// Reads what declare_benched_model_flags() declared; `choices` are new. `command` is for messages: "bench layers".
// Throws kInvalidArgument for a missing model and for two 16-bit types at once.
BenchedModel read_benched_model(const core::FlagValues& values, const char* command);

// Returns the model's data set: the given one, or the first that has the model.
std::string benched_dataset(const BenchedModel& benched);

// Builds the graph, with the classes that the original benchmarks have. Throws kNotFound for an unknown model.
nn::Graph build_benched_model(const BenchedModel& benched);

// Opens the device. Throws kUnsupported for a missing GPU and for half precision on the CPU.
train::OpenDevices open_benched_device(const BenchedModel& benched);

// Returns the threads of one operation.
int benched_threads(const BenchedModel& benched);

// Returns "bfloat16", "float16" or "".
std::string benched_dtype_text(const train::OpenDevices& devices);

}  // namespace trainyard::cli
