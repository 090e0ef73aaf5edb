// Attributes the work of a device in a recorded step to layers and to parts of the step.
#pragma once

#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "trainyard/train/profile/step_recorder.h"

namespace trainyard::train {

struct DeviceWork {
  const nn::DeviceActivity* activity = nullptr;
  int replica = -1;                  // replica whose thread enqueued it; -1: none, such as copies of batches
  std::optional<StepPart> part;      // part of the step in which it was enqueued
  const NodeRecord* node = nullptr;  // run of a layer, when it belongs to one
};

// Returns the owner of each activity of step.device, in its order; empty without a device. Spans tell the owner. Work
// that was enqueued outside of spans, but on a stream that a replica's spans use, belongs to the part of the replica
// that ran then. The work of other threads, such as decoding images, has no owner. `step` must outlive the result.
std::vector<DeviceWork> device_work(const StepRecord& step);
// Returns the activities of replica 0, and those without an owner on its device.
std::vector<DeviceWork> first_replicas_work(const StepRecord& step);

// Returns the seconds between `begin` and `end` in which at least one activity ran. Overlaps count once.
double busy_seconds(const std::vector<const nn::DeviceActivity*>& activities,
                    RecordClock::time_point begin = RecordClock::time_point::min(),
                    RecordClock::time_point end = RecordClock::time_point::max());

// Seconds of replica 0 in one step on the device, by owner.
struct DeviceTimes {
  struct Node {
    double seconds = 0;
    std::vector<std::string> kernels;  // names, in the order of their begins
  };
  std::unordered_map<const NodeRecord*, Node> nodes;
  double loss = 0, between_layers = 0, reduce = 0, update = 0;
  double rest = 0;  // work of no part
  double idle = 0;  // time of the step in which nothing ran
};
DeviceTimes device_times(const StepRecord& step);

}  // namespace trainyard::train
