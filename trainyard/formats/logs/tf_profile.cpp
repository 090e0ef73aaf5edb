#include "trainyard/formats/logs/tf_profile.h"

#include <algorithm>
#include <string_view>

#include <protozero/pbf_writer.hpp>

namespace trainyard::formats {
namespace {

enum ProfileField : uint32_t { kProfileNodes = 1, kProfileSteps = 3 };
enum NodeField : uint32_t {
  kNodeName = 1,
  kNodeInputs = 2,
  kNodeShape = 4,
  kNodeOpTypes = 5,
  kNodeDevice = 6,
  kNodeFloatOps = 8,
  kNodeOp = 9,
  kNodeExecs = 12,
  kNodeId = 13
};
enum ExecField : uint32_t { kExecRunCount = 1, kExecStart = 2, kExecEnd = 3, kExecOnCpu = 5, kExecDevices = 6 };
enum MapField : uint32_t { kMapKey = 1, kMapValue = 2 };
constexpr uint32_t kTimeTuples = 1;   // of ExecTime
constexpr uint32_t kTupleValues = 1;  // of Tuple: int64_values

// ASCII passes; of all else nothing is known.
std::string ascii_text(std::string_view text) {
  std::string result(text);
  std::replace_if(
      result.begin(), result.end(), [](char c) { return static_cast<unsigned char>(c) > 0x7e; }, '?');
  return result;
}

void write_execution(const std::vector<TfExecution>& runs, protozero::pbf_writer& message) {
  int64_t first = runs.front().start_us, last = 0;
  std::map<std::string, std::vector<const TfExecution*>> by_device;
  for (const TfExecution& run : runs) {
    first = std::min(first, run.start_us);
    last = std::max(last, run.start_us + run.duration_us);
    by_device[run.device].push_back(&run);
  }
  message.add_int64(kExecRunCount, static_cast<int64_t>(runs.size()));
  message.add_int64(kExecStart, first);
  message.add_int64(kExecEnd, last);
  for (const auto& [device, on_device] : by_device) {
    protozero::pbf_writer entry(message, kExecOnCpu);
    entry.add_string(kMapKey, ascii_text(device));
    protozero::pbf_writer times(entry, kMapValue);
    for (const TfExecution* run : on_device) {
      const int64_t values[] = {run->start_us, run->duration_us};
      protozero::pbf_writer tuple(times, kTimeTuples);
      tuple.add_packed_int64(kTupleValues, std::begin(values), std::end(values));
    }
  }
  for (const auto& [device, on_device] : by_device) message.add_string(kExecDevices, ascii_text(device));
}

void write_node(const TfProfileNode& node, protozero::pbf_writer& message) {
  message.add_string(kNodeName, ascii_text(node.name));
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    protozero::pbf_writer entry(message, kNodeInputs);
    entry.add_int32(kMapKey, static_cast<int32_t>(i));
    entry.add_int32(kMapValue, static_cast<int32_t>(node.inputs[i]));
  }
  message.add_packed_int64(kNodeShape, node.shape.begin(), node.shape.end());
  message.add_string(kNodeOpTypes, ascii_text(node.op));
  message.add_string(kNodeDevice, ascii_text(node.device));
  message.add_int64(kNodeFloatOps, node.float_ops);
  message.add_string(kNodeOp, ascii_text(node.op));
  for (const auto& [step, runs] : node.executions) {
    if (runs.empty()) continue;
    protozero::pbf_writer entry(message, kNodeExecs);
    entry.add_int64(kMapKey, step);
    protozero::pbf_writer execution(entry, kMapValue);
    write_execution(runs, execution);
  }
  message.add_int64(kNodeId, node.id);
}

}  // namespace

std::string tf_profile_proto(const TfProfile& profile) {
  std::string bytes;
  protozero::pbf_writer message(bytes);
  for (const TfProfileNode& node : profile.nodes) {
    protozero::pbf_writer entry(message, kProfileNodes);
    entry.add_int64(kMapKey, node.id);
    protozero::pbf_writer value(entry, kMapValue);
    write_node(node, value);
  }
  message.add_packed_int64(kProfileSteps, profile.steps.begin(), profile.steps.end());
  return bytes;
}

}  // namespace trainyard::formats
