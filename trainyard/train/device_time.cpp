#include "trainyard/train/device_time.h"

#include <algorithm>
#include <utility>

namespace trainyard::train {
namespace {

using Activities = std::vector<const nn::DeviceActivity*>;

StepPart part_of(nn::NodeRun::Phase phase) {
  return phase == nn::NodeRun::Phase::kForward ? StepPart::kForward : StepPart::kBackward;
}

std::unordered_map<uint64_t, DeviceWork> owners_by_span(const StepRecord& step) {
  std::unordered_map<uint64_t, DeviceWork> owners;
  for (size_t r = 0; r < step.replicas.size(); ++r) {
    for (const PartRecord& part : step.replicas[r].parts) {
      owners[part.span] = {.replica = static_cast<int>(r), .part = part.part};
    }
    for (const NodeRecord& node : step.replicas[r].nodes) {
      owners[node.span] = {.replica = static_cast<int>(r), .part = part_of(node.phase), .node = &node};
    }
  }
  owners.erase(0);
  return owners;
}

DeviceWork owner_by_time(const StepRecord& step, RecordClock::time_point handed_over) {
  for (size_t r = 0; r < step.replicas.size(); ++r) {
    for (const PartRecord& part : step.replicas[r].parts) {
      if (part.begin <= handed_over && handed_over < part.end) {
        return {.replica = static_cast<int>(r), .part = part.part};
      }
    }
  }
  return {};
}

}  // namespace

std::vector<DeviceWork> device_work(const StepRecord& step) {
  std::vector<DeviceWork> work;
  if (!step.device) return work;
  const std::unordered_map<uint64_t, DeviceWork> owners = owners_by_span(step);
  for (const nn::DeviceActivity& activity : step.device->activities) {
    DeviceWork owner;
    if (const auto known = owners.find(activity.span); known != owners.end()) {
      owner = known->second;
    } else if (activity.handed_over) {
      owner = owner_by_time(step, *activity.handed_over);
    }
    owner.activity = &activity;
    work.push_back(owner);
  }
  return work;
}

double busy_seconds(const Activities& activities, RecordClock::time_point begin, RecordClock::time_point end) {
  std::vector<std::pair<RecordClock::time_point, RecordClock::time_point>> times;
  for (const nn::DeviceActivity* activity : activities) {
    times.emplace_back(std::max(begin, activity->begin), std::min(end, activity->end));
  }
  std::sort(times.begin(), times.end());
  RecordClock::duration busy{};
  RecordClock::time_point until = RecordClock::time_point::min();
  for (const auto& [from, to] : times) {
    if (to <= std::max(from, until)) continue;
    busy += to - std::max(from, until);
    until = to;
  }
  return std::chrono::duration<double>(busy).count();
}

DeviceTimes device_times(const StepRecord& step) {
  Activities all, loss, between, reduce, update, rest;
  std::unordered_map<const NodeRecord*, Activities> nodes;
  for (const DeviceWork& work : device_work(step)) {
    if (work.replica > 0) continue;
    all.push_back(work.activity);
    if (work.node != nullptr && !work.node->nodes.empty()) {
      nodes[work.node].push_back(work.activity);
    } else if (work.part == StepPart::kForward || work.part == StepPart::kBackward) {
      between.push_back(work.activity);
    } else if (work.part == StepPart::kLoss) {
      loss.push_back(work.activity);
    } else if (work.part == StepPart::kReduce) {
      reduce.push_back(work.activity);
    } else if (work.part == StepPart::kUpdate) {
      update.push_back(work.activity);
    } else {
      rest.push_back(work.activity);
    }
  }
  DeviceTimes times{.nodes = {},
                    .loss = busy_seconds(loss),
                    .between_layers = busy_seconds(between),
                    .reduce = busy_seconds(reduce),
                    .update = busy_seconds(update),
                    .rest = busy_seconds(rest)};
  for (const auto& [node, activities] : nodes) {
    DeviceTimes::Node& own = times.nodes[node];
    own.seconds = busy_seconds(activities);
    for (const nn::DeviceActivity* activity : activities) {
      if (activity->kind != nn::DeviceActivity::Kind::kSpan) own.kernels.push_back(activity->name);
    }
  }
  for (const PartRecord& part : step.trainer.parts) {
    if (part.part != StepPart::kStep) continue;
    times.idle +=
        std::chrono::duration<double>(part.end - part.begin).count() - busy_seconds(all, part.begin, part.end);
  }
  return times;
}

}  // namespace trainyard::train
