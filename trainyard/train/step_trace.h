// Recorded steps as a trace: one track for the trainer's thread (steps, input) and one a replica (forward, loss,
// backward, reduce, update; layers inside forward and backward).
#pragma once

#include <span>

#include "trainyard/formats/trace.h"
#include "trainyard/nn/graph.h"
#include "trainyard/train/step_recorder.h"

namespace trainyard::train {

// The trace starts with the first step. A layer's event is named after its nodes, joined by " + ", or after the kernel
// if it serves no node alone; its arguments are kernel, kind, and bytes and flops where the executor reports them.
formats::Trace step_trace(std::span<const StepRecord> steps, const nn::Graph& graph);

}  // namespace trainyard::train
