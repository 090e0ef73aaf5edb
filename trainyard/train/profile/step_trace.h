// Converts recorded steps to a trace: one track for the trainer's thread (steps, input) and one per replica (forward,
// loss, backward, reduce, update; layers inside forward and backward). With an accelerator these show the enqueueing;
// the executed work is in one track per stream.
#pragma once

#include <span>

#include "trainyard/formats/logs/trace.h"
#include "trainyard/nn/graph/graph.h"
#include "trainyard/train/profile/step_recorder.h"

namespace trainyard::train {

// Returns the trace, which starts with the first step. A layer's event is named after its nodes, joined by " + ", or
// after the kernel if that serves no node alone. Its arguments are kernel, kind, and bytes and flops where the executor
// reports them. An accelerator's work is named after the kernel, has the layer as an argument, and is connected by a
// flow to its enqueueing. Work that overlaps with earlier work of the same stream is in a further track of the stream.
[[nodiscard]] formats::Trace step_trace(std::span<const StepRecord> steps, const nn::Graph& graph);

}  // namespace trainyard::train
