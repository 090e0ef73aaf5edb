// `trainyard bench layers`: times the layers of a model on an executor, over some steps with synthetic images.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <c10/core/ScalarType.h>

#include "trainyard/frontends/options/device_settings.h"
#include "trainyard/nn/execution/kernel_choices.h"
#include "trainyard/nn/graph/ops.h"
#include "trainyard/train/profile/layer_report.h"

namespace trainyard::cli {

struct LayerBenchOptions {
  std::string model;
  std::string dataset;        // "imagenet", "cifar10"; empty: the first that has the model
  nn::Size2d image_size = 0;  // pixels; 0: the model's own
  int64_t batch_size = 0;     // 0: the model's
  // What of these is read: `gpu`, `executor`, `use_bf16` and `use_fp16` for activations, and `switches`, by which
  // layers are fused.
  frontends::DeviceOptions device;
  bool forward_only = false;
  bool frozen = false;  // forward only: batch norms folded into the convolutions
  int64_t warmup_steps = 3, steps = 10;
  int intra_op_threads = 0;  // 0: the cores that this process may use
  // Stores the chosen kernels when there are alternatives. May be null.
  std::shared_ptr<nn::KernelChoices> choices;
};

// Runs steps of training (loss, backward and Nesterov momentum included), or of inference. Throws kNotFound for an
// unknown model or executor, kUnsupported for a missing GPU, kInvalidArgument for steps below one and for frozen
// training. On a GPU the times are measured by the device (train/profile/layer_report.h).
train::LayerReport bench_layers(const LayerBenchOptions& options);

}  // namespace trainyard::cli
