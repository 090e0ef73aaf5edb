// Recorded steps as a trace: one track for the trainer's thread (steps, input) and one a replica (forward, loss,
// backward, reduce, update; layers inside forward and backward). Behind an accelerator these show the hand-over; what
// it ran stands in one track a stream.
#pragma once

#include <span>

#include "trainyard/core/base/export.h"
#include "trainyard/formats/logs/trace.h"
#include "trainyard/nn/graph/graph.h"
#include "trainyard/train/profile/step_recorder.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

// Returns the trace, which starts with the first step. A layer's event is named after its nodes, joined by " + ", or
// after the kernel if that serves no node alone. Its arguments are kernel, kind, and bytes and flops where the executor
// reports them. What an accelerator ran is named after the kernel and tells the layer, and a flow leads to it from the
// hand-over. Where it overlaps with what the same stream ran before, it stands in a further track of the stream.
[[nodiscard]] formats::Trace step_trace(std::span<const StepRecord> steps, const nn::Graph& graph);

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
