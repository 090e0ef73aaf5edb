#include "trainyard/train/profile/device_time.h"

#include <algorithm>
#include <map>
#include <utility>

#include "trainyard/core/base/elapsed.h"

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

// The part of `replica` that ran when work without a span was handed over.
DeviceWork owner_by_time(const StepRecord& step, int replica, RecordClock::time_point handed_over) {
  for (const PartRecord& part : step.replicas[static_cast<size_t>(replica)].parts) {
    if (part.begin <= handed_over && handed_over < part.end) return {.replica = replica, .part = part.part};
  }
  return {};
}

using StreamId = std::pair<int64_t, int64_t>;  // device and stream

StreamId stream_of(const nn::DeviceActivity& activity) {
  return {activity.device, activity.stream};
}

}  // namespace

std::vector<DeviceWork> device_work(const StepRecord& step) {
  std::vector<DeviceWork> work;
  if (!step.device) return work;
  const std::unordered_map<uint64_t, DeviceWork> owners = owners_by_span(step);
  std::map<StreamId, int> replicas;  // that hand work to a stream
  for (const nn::DeviceActivity& activity : step.device->activities) {
    const auto known = owners.find(activity.span);
    work.push_back(known != owners.end() ? known->second : DeviceWork{});
    work.back().activity = &activity;
    if (known != owners.end()) replicas.try_emplace(stream_of(activity), known->second.replica);
  }
  for (DeviceWork& one : work) {
    const auto replica = replicas.find(stream_of(*one.activity));
    if (one.replica >= 0 || !one.activity->handed_over || replica == replicas.end()) continue;
    const nn::DeviceActivity* const activity = one.activity;
    one = owner_by_time(step, replica->second, *activity->handed_over);
    one.activity = activity;
  }
  return work;
}

std::vector<DeviceWork> first_replicas_work(const StepRecord& step) {
  std::vector<DeviceWork> work = device_work(step);
  const auto own = std::find_if(work.begin(), work.end(), [](const DeviceWork& one) { return one.replica == 0; });
  const int64_t device = own == work.end() ? 0 : own->activity->device;
  std::erase_if(work, [&](const DeviceWork& one) { return one.replica > 0 || one.activity->device != device; });
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
  for (const DeviceWork& work : first_replicas_work(step)) {
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
    times.idle += core::seconds_between(part.begin, part.end) - busy_seconds(all, part.begin, part.end);
  }
  return times;
}

}  // namespace trainyard::train
