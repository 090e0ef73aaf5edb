#include "trainyard/train/profile/tf_profile.h"

#include <chrono>
#include <map>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace trainyard::train {
namespace {

using std::chrono::duration_cast;
using std::chrono::microseconds;

class ProfileMaker {
 public:
  ProfileMaker(const nn::Graph& graph, int64_t batch)
      : graph_(graph),
        batch_(batch),
        clock_offset_(std::chrono::system_clock::now().time_since_epoch() - RecordClock::now().time_since_epoch()) {
    for (const nn::Node& node : graph.nodes) profile_.nodes.push_back(described(node));
  }

  void add(const StepRecord& step) {
    const auto number = static_cast<int64_t>(profile_.steps.size());
    profile_.steps.push_back(number);
    add(step.trainer, number, 0);
    for (size_t r = 0; r < step.replicas.size(); ++r) add(step.replicas[r], number, r);
  }

  formats::TfProfile take() {
    for (const auto& [id, node] : gradients_) profile_.nodes.push_back(node);
    for (const auto& [name, node] : parts_) profile_.nodes.push_back(node);
    return std::move(profile_);
  }

 private:
  formats::TfProfileNode described(const nn::Node& node) const {
    formats::TfProfileNode result{.id = node.id, .name = node.name, .op = std::string(node.kind())};
    result.inputs.assign(node.inputs.begin(), node.inputs.end());
    result.shape = {batch_};
    result.shape.insert(result.shape.end(), node.shape.begin(), node.shape.end());
    result.float_ops = batch_ * nn::forward_flops(graph_, node);
    return result;
  }

  formats::TfProfileNode& gradient_of(int id) {
    const auto [found, added] = gradients_.try_emplace(id);
    if (added) {
      formats::TfProfileNode& node = found->second = profile_.nodes[static_cast<size_t>(id)];
      node.executions.clear();
      node.id = static_cast<int64_t>(graph_.nodes.size()) + id;
      node.name = "gradients/" + node.name;
      node.op += "_gradient";
      node.inputs = {id};
      node.float_ops *= 2;
    }
    return found->second;
  }

  formats::TfProfileNode& part_of(StepPart part) {
    const auto [found, added] = parts_.try_emplace(part);
    if (added) {
      found->second.id = static_cast<int64_t>(2 * graph_.nodes.size() + parts_.size()) - 1;
      found->second.name = "step/" + std::string(part_name(part));
      found->second.op = part_name(part);
    }
    return found->second;
  }

  void add(const ThreadRecord& thread, int64_t step, size_t replica) {
    for (const NodeRecord& run : thread.nodes) {
      if (run.nodes.empty()) continue;  // work that serves no layer alone
      const int id = run.nodes.front();
      const bool forward = run.phase == nn::NodeRun::Phase::kForward;
      add_run(forward ? profile_.nodes[static_cast<size_t>(id)] : gradient_of(id), step, replica, run.begin, run.end);
    }
    for (const PartRecord& part : thread.parts) {
      const bool holds_layers =
          part.part == StepPart::kStep || part.part == StepPart::kForward || part.part == StepPart::kBackward;
      if (!holds_layers) add_run(part_of(part.part), step, replica, part.begin, part.end);
    }
  }

  void add_run(formats::TfProfileNode& node, int64_t step, size_t replica, RecordClock::time_point begin,
               RecordClock::time_point end) const {
    const int64_t start = duration_cast<microseconds>(begin.time_since_epoch() + clock_offset_).count();
    const std::string device = fmt::format("/job:localhost/replica:0/task:0/device:CPU:{}", replica);
    if (node.device.empty()) node.device = device;
    node.executions[step].push_back({device, start, duration_cast<microseconds>(end - begin).count()});
  }

  const nn::Graph& graph_;
  const int64_t batch_;
  const std::chrono::nanoseconds clock_offset_;  // of the wall clock
  formats::TfProfile profile_;
  std::map<int, formats::TfProfileNode> gradients_;  // by the layer's id
  std::map<StepPart, formats::TfProfileNode> parts_;
};

}  // namespace

formats::TfProfile tf_profile(std::span<const StepRecord> steps, const nn::Graph& graph, int64_t batch) {
  ProfileMaker maker(graph, batch);
  for (const StepRecord& step : steps) maker.add(step);
  return maker.take();
}

}  // namespace trainyard::train
