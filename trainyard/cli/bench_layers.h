// `trainyard bench layers`: times the layers of a model on an executor, over some steps with synthetic images.
#pragma once

#include <cstdint>

#include "trainyard/cli/benched_model.h"
#include "trainyard/train/profile/layer_report.h"

namespace trainyard::cli {

struct LayerBenchOptions {
  BenchedModel benched;
  int64_t batch_size = 0;  // 0: the model's
  bool forward_only = false;
  bool frozen = false;  // forward only: batch norms folded into the convolutions
  int64_t warmup_steps = 3, steps = 10;
};

// Runs steps of training (loss, backward and Nesterov momentum included), or of inference. Throws kNotFound for an
// unknown model or executor, kUnsupported for a missing GPU, kInvalidArgument for steps below one and for frozen
// training. On a GPU the times are measured by the device (train/profile/layer_report.h).
train::LayerReport bench_layers(const LayerBenchOptions& options);

}  // namespace trainyard::cli
