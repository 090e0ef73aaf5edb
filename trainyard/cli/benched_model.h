// The model that `trainyard bench layers` and `bench latency` time: its flags, its graph and the device that it runs
// on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trainyard/core/flags/flags.h"
#include "trainyard/frontends/options/device_settings.h"
#include "trainyard/frontends/options/precision_options.h"
#include "trainyard/nn/execution/kernel_choices.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/nn/graph/graph.h"
#include "trainyard/nn/graph/quantization.h"
#include "trainyard/train/devices/open_devices.h"

namespace trainyard::cli {

struct BenchedModel {
  std::string model;          // with `weights`: the expected one, or empty
  std::string dataset;        // "imagenet", "cifar10"; empty: the first that has the model
  nn::Size2d image_size = 0;  // pixels; 0: the model's own
  std::string weights;        // a trained model: checkpoint, train directory or file; empty: random weights
  frontends::Precision precision = frontends::Precision::kAuto;  // of inference; needs kAuto in training
  // What of these is read: `gpu`, `executor`, `use_bf16` and `use_fp16` for activations, and `switches`, by which
  // layers are fused.
  frontends::DeviceOptions device;
  int intra_op_threads = 0;  // 0: the cores that this process may use
  // Stores the chosen kernels when there are alternatives. May be null.
  std::shared_ptr<nn::KernelChoices> choices;
};

void declare_benched_model_flags(core::FlagTable& table, const char* group);

// Reads what declare_benched_model_flags() declared; `choices` are new. `command` is for messages: "bench layers".
// Throws kInvalidArgument for a missing model and for several types at once.
BenchedModel read_benched_model(const core::FlagValues& values, const char* command);

// The network that is timed, and its weights.
struct BenchedNetwork {
  nn::Graph graph;
  // The scales of what computes in 8 bits; null: all in float.
  std::shared_ptr<const nn::Quantization> quantization;
  std::shared_ptr<const nn::ParameterSet> weights;  // null: random ones, as the graph initializes them
};

// Builds the network for inference: that of a trained model, or the one that build_benched_model() builds. Where 8 bits
// are asked of a model without scales, finds them with random images, as times need no better ones. Sets `model` and
// `dataset` of a trained model. Throws what load_trained_model() and nn::quantize() throw.
BenchedNetwork build_benched_network(BenchedModel& benched, uint64_t seed);

// Copies the network's weights into the set, which is allocated for its graph; without weights initializes it.
void start_benched(const BenchedNetwork& network, uint64_t seed, nn::ParameterSet& parameters);

// Returns the model's data set: the given one, or the first that has the model.
std::string benched_dataset(const BenchedModel& benched);

// Builds the graph, with the classes that the original benchmarks have. Throws kNotFound for an unknown model.
nn::Graph build_benched_model(const BenchedModel& benched);

// Opens the device. Throws kUnsupported for a missing GPU and for half precision on the CPU.
train::OpenDevices open_benched_device(const BenchedModel& benched);

// Returns the threads of one operation.
int benched_threads(const BenchedModel& benched);

// Returns "bfloat16", "float16" or ""; with scales "int8", "int8 and bfloat16".
std::string benched_dtype_text(const train::OpenDevices& devices, bool quantized = false);

}  // namespace trainyard::cli
