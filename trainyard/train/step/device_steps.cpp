#include "trainyard/train/step/device_steps.h"

#include <algorithm>
#include <string>
#include <variant>

#include <fmt/format.h>

namespace trainyard::train {

namespace {

// Returns why a step of this training cannot be recorded; empty: it can.
std::string capture_obstacle(const TowerTrainerOptions& options) {
  if (options.micro_steps > 1) return "micro-steps are handed over one by one";
  if (options.hooks.input_pre || options.hooks.reduce_pre || options.hooks.update_pre)
    return "hooks run in the middle of the step";
  if (options.costs.size() > 1) return "several costs take turns";
  if (options.tower) return "nobody knows what a tower of one's own does on the host";
  for (const nn::Node& node : options.graph.nodes) {
    if (std::holds_alternative<nn::Foreign>(node.op)) {
      return fmt::format("nobody knows what the custom layer {} does", node.name);
    }
  }
  return "";
}

}  // namespace

DeviceStep::Options DeviceSteps::options_for(int r, const data::Batch& batch) const {
  const TowerTrainerOptions& options = replicas_.options();
  const RunMemory& memory = *forecast_.memory();
  const auto element_bytes = static_cast<int64_t>(c10::elementSize(options.devices.dtype));
  int64_t batch_bytes = 0;
  for (const auto& [name, tensor] : batch.tensors) batch_bytes += static_cast<int64_t>(tensor.nbytes());
  const int64_t activations =
      options.tower ? 0 : nn::activation_bytes_per_image(options.graph, element_bytes, /*training=*/true);
  return {.capture = options.devices.capture_steps,
          .first = r == 0,
          .obstacle = capture_obstacle(options),
          .keeps_images = !options.hooks.input_pre && !options.tower,
          .classes = options.tower ? 0 : options.graph.output_shape()[0],
          .bytes_per_image = batch_bytes / std::max<int64_t>(batch.samples(), 1) + activations,
          .fixed_bytes = (memory.parameters + memory.gradients + memory.optimizer) / replicas_.size()};
}

void DeviceSteps::run(int r, const data::Batch& batch, const std::function<void(const data::Batch&)>& work) {
  const TowerTrainerOptions& options = replicas_.options();
  Replica& own = steps_[static_cast<size_t>(r)];
  ReplicaView& view = replicas_[r].view;
  if (!own.step) own.step.emplace(options.devices.accelerators[static_cast<size_t>(r)], options_for(r, batch));
  if (options.micro_steps > 1 || pass_.costs().size() > 1) return own.step->run_part(batch, work);
  const DeviceStep::Done done = own.step->run(batch, replicas_.recorder() != nullptr, work);
  if (done == DeviceStep::Done::kRecorded) {
    own.recorded_view = view;
    own.recorded_l2_loss = r == 0 ? pass_.l2_loss() : at::Tensor();
  }
  if (done == DeviceStep::Done::kReplayed) {
    view = own.recorded_view;
    if (r == 0) pass_.set_l2_loss(own.recorded_l2_loss);
  }
  if (done != DeviceStep::Done::kCalled) replicas_.update().replayed(r);
  if (r == 0 && done != DeviceStep::Done::kCalled) timer_.forget_update();
  // What only a call of the work says, and a replay does not.
  replicas_.update().parameters(r).values_changed();
  view.batch.first_sample = batch.first_sample;
  view.batch.after = batch.after;
  if (r == 0) timer_.end_replica_0();
}

}  // namespace trainyard::train
