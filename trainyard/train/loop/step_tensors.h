// What a step gives by name, for callbacks that look at any of it.
#pragma once

#include "trainyard/core/base/export.h"
#include "trainyard/core/base/named_tensors.h"
#include "trainyard/train/loop/callback.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

// Returns the replica's losses: "loss", where the step has one.
inline core::NamedTensors losses_of(const ReplicaView& replica) {
  core::NamedTensors losses;
  if (replica.loss.defined()) losses.set("loss", replica.loss);
  return losses;
}

// Returns the replica's outputs: "output", where the step has one.
inline core::NamedTensors outputs_of(const ReplicaView& replica) {
  core::NamedTensors outputs;
  if (replica.output.defined()) outputs.set("output", replica.output);
  return outputs;
}

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
