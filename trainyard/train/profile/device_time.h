// Whose work a device ran in a recorded step: that of which layer, and of which part of the step.
#pragma once

#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "trainyard/train/profile/step_recorder.h"

namespace trainyard::train {

struct DeviceWork {
  const nn::DeviceActivity* activity = nullptr;
  int replica = -1;                  // whose thread handed it over; -1: nobody's, as copies of batches
  std::optional<StepPart> part;      // that it was handed over in
  const NodeRecord* node = nullptr;  // the layer's run, where it serves one
};

// Returns the owner of each activity of step.device, in its order; none where there is no device. A span tells it. Work
// that was handed over in no span, but to a stream that a replica's spans use, belongs to the part of the replica that
// ran then. What other threads have the device do, such as decoding images, belongs to nobody. `step` outlives the
// result.
std::vector<DeviceWork> device_work(const StepRecord& step);
// Returns those of replica 0, and those that belong to nobody on its device.
std::vector<DeviceWork> first_replicas_work(const StepRecord& step);

// Returns the seconds between `begin` and `end` in which at least one of them ran. What overlaps counts once.
double busy_seconds(const std::vector<const nn::DeviceActivity*>& activities,
                    RecordClock::time_point begin = RecordClock::time_point::min(),
                    RecordClock::time_point end = RecordClock::time_point::max());

// Seconds of replica 0 in one step on the device, by who had them run.
struct DeviceTimes {
  struct Node {
    double seconds = 0;
    std::vector<std::string> kernels;  // names, in the order of their begins
  };
  std::unordered_map<const NodeRecord*, Node> nodes;
  double loss = 0, between_layers = 0, reduce = 0, update = 0;
  double rest = 0;  // work of no part
  double idle = 0;  // of the step: nothing ran
};
DeviceTimes device_times(const StepRecord& step);

}  // namespace trainyard::train
