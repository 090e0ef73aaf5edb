#include "trainyard/train/step/device_step.h"

#include <exception>
#include <utility>
#include <vector>

#include <ATen/ops/empty_like.h>

#include "trainyard/nn/execution/loss.h"
#include "trainyard/train/loop/error_context.h"

namespace trainyard::train {

namespace {

// The extents of all its tensors, one behind the other: what tells batches of other shapes apart.
std::vector<int64_t> shapes_of(const data::Batch& batch) {
  std::vector<int64_t> shapes;
  for (const auto& [name, tensor] : batch.tensors) {
    shapes.push_back(tensor.dim());
    shapes.insert(shapes.end(), tensor.sizes().begin(), tensor.sizes().end());
  }
  return shapes;
}

}  // namespace

DeviceStep::DeviceStep(std::shared_ptr<nn::Accelerator> accelerator, const Options& options)
    : accelerator_(std::move(accelerator)),
      options_(options),
      capture_(options.capture ? options.obstacle : "", options.first),
      transfer_(accelerator_, options.keeps_images) {}

data::Batch DeviceStep::on_device(const data::Batch& batch) {
  // A loss of one's own may have targets of another form.
  const at::Tensor* const labels = batch.tensors.find("labels");
  if (options_.classes > 0 && labels != nullptr && labels->dim() == 1 && labels->scalar_type() == at::kLong) {
    nn::check_labels(*labels, options_.classes);
    const at::Tensor* const mixed = batch.tensors.find("labels_mixed");
    if (mixed != nullptr) nn::check_labels(*mixed, options_.classes);
  }
  return transfer_.move(batch);
}

void DeviceStep::fill_inputs(const data::Batch& batch) {
  const data::Batch arrived = on_device(batch);
  if (inputs_.tensors.empty()) {
    for (const auto& [name, tensor] : arrived.tensors) inputs_.tensors.set(name, at::empty_like(tensor));
  }
  const at::Tensor* const images = batch.tensors.find("images");
  const bool there = options_.keeps_images && images != nullptr && inputs_.host_images.defined() &&
                     inputs_.host_images.is_same(*images);
  for (const auto& [name, tensor] : arrived.tensors) {
    if (there && name == "images") continue;
    inputs_.tensors[name].copy_(tensor, /*non_blocking=*/true);
  }
  if (images != nullptr) inputs_.host_images = *images;
}

DeviceNeeds DeviceStep::needs(const data::Batch& batch) const {
  return {.batch = batch.samples(), .fixed_bytes = options_.fixed_bytes, .bytes_per_image = options_.bytes_per_image};
}

void DeviceStep::run_part(const data::Batch& batch, const std::function<void(const data::Batch&)>& step) {
  run_or_explain(*accelerator_, needs(batch), [&] { step(on_device(batch)); });
}

DeviceStep::Done DeviceStep::run(const data::Batch& batch, bool observed,
                                 const std::function<void(const data::Batch&)>& step) {
  const StepCapture::Action action =
      options_.capture ? capture_.next(shapes_of(batch), observed) : StepCapture::Action::kRun;
  Done done = Done::kCalled;
  if (action == StepCapture::Action::kRun) {
    run_part(batch, step);
  } else if (action == StepCapture::Action::kRecord) {
    run_or_explain(*accelerator_, needs(batch), [&] { done = record_and_replay(batch, step); });
  } else {
    fill_inputs(batch);
    recording_->replay();
    done = Done::kReplayed;
  }
  return done;
}

DeviceStep::Done DeviceStep::record_and_replay(const data::Batch& batch,
                                               const std::function<void(const data::Batch&)>& step) {
  fill_inputs(batch);
  const data::Batch placed{.tensors = inputs_.tensors, .first_sample = batch.first_sample, .after = batch.after};
  try {
    recording_ = accelerator_->record([&] { step(placed); });
  } catch (...) {
    const core::Error error = as_error(std::current_exception());
    capture_.give_up(error.what());
    step(placed);
    inputs_ = {};
    return Done::kCalled;
  }
  capture_.recorded();
  recording_->replay();
  return Done::kRecorded;
}

}  // namespace trainyard::train
