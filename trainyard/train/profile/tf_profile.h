// Converts recorded steps to TensorFlow's profile of a run (formats/logs/tf_profile.h).
#pragma once

#include <cstdint>
#include <span>

#include "trainyard/formats/logs/tf_profile.h"
#include "trainyard/nn/graph/graph.h"
#include "trainyard/train/profile/step_recorder.h"

namespace trainyard::train {

// Returns a node for each layer, a second one, "gradients/<layer>", for its backward when that ran, and one for each
// other part of a step (input, loss, reduce, update). The time of fused layers is in the first of them. Steps are
// numbered from 0. Replica r is the device CPU:r. `batch` is the number of images in a replica's step. On an
// accelerator times are those of enqueueing the work.
formats::TfProfile tf_profile(std::span<const StepRecord> steps, const nn::Graph& graph, int64_t batch);

}  // namespace trainyard::train
