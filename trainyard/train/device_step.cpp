#include "trainyard/train/device_step.h"

#include <algorithm>
#include <exception>
#include <utility>

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include "trainyard/nn/loss.h"
#include "trainyard/train/error_context.h"

namespace trainyard::train {
namespace {

// Through pinned memory, from which the device copies while this thread goes on.
void copy_to(const at::Tensor& target, const at::Tensor& host) {
  if (target.is_cpu()) {
    target.copy_(host);
  } else {
    target.copy_(host.pin_memory(), /*non_blocking=*/true);
  }
}

at::Tensor like(const at::Tensor& host, const at::Tensor& buffer, at::Device device) {
  const bool fits = buffer.defined() && buffer.sizes() == host.sizes() && buffer.scalar_type() == host.scalar_type();
  return fits ? buffer : at::empty(host.sizes(), host.options().device(device));
}

}  // namespace

DeviceStep::DeviceStep(std::shared_ptr<nn::Accelerator> accelerator, const Options& options)
    : accelerator_(std::move(accelerator)), options_(options), capture_(options.capture ? options.obstacle : "") {}

data::Batch DeviceStep::on_device(const data::Batch& batch, Buffers& buffers) const {
  nn::check_labels(batch.labels, options_.classes);
  const bool there =
      options_.keeps_images && buffers.host_images.defined() && buffers.host_images.is_same(batch.images);
  if (!there) {
    buffers.images = like(batch.images, buffers.images, accelerator_->device());
    copy_to(buffers.images, batch.images);
    buffers.host_images = batch.images;
  }
  buffers.labels = like(batch.labels, buffers.labels, accelerator_->device());
  copy_to(buffers.labels, batch.labels);
  return {.images = buffers.images, .labels = buffers.labels, .first_sample = batch.first_sample, .after = batch.after};
}

void DeviceStep::run_or_explain(int64_t batch, const std::function<void()>& work) const {
  try {
    work();
  } catch (const c10::OutOfMemoryError&) {
    const nn::DeviceMemory memory = accelerator_->memory();
    throw nn::out_of_device_memory(accelerator_->name(), accelerator_->refused_bytes(), memory, batch,
                                   nn::largest_batch(std::min(memory.limit, memory.held + memory.free),
                                                     options_.fixed_bytes, options_.bytes_per_image));
  }
}

void DeviceStep::run_part(const data::Batch& batch, const std::function<void(const data::Batch&)>& step) {
  run_or_explain(batch.images.size(0), [&] { step(on_device(batch, buffers_)); });
}

DeviceStep::Done DeviceStep::run(const data::Batch& batch, bool observed,
                                 const std::function<void(const data::Batch&)>& step) {
  const StepCapture::Action action =
      options_.capture ? capture_.next(batch.images.sizes().vec(), observed) : StepCapture::Action::kRun;
  Done done = Done::kCalled;
  if (action == StepCapture::Action::kRun) {
    run_part(batch, step);
  } else if (action == StepCapture::Action::kRecord) {
    run_or_explain(batch.images.size(0), [&] { done = record_and_replay(batch, step); });
  } else {
    on_device(batch, recorded_buffers_);
    recording_->replay();
    done = Done::kReplayed;
  }
  return done;
}

DeviceStep::Done DeviceStep::record_and_replay(const data::Batch& batch,
                                               const std::function<void(const data::Batch&)>& step) {
  const data::Batch placed = on_device(batch, recorded_buffers_);
  try {
    recording_ = accelerator_->record([&] { step(placed); });
  } catch (...) {
    const core::Error error = as_error(std::current_exception());
    capture_.give_up(error.what());
    step(placed);
    return Done::kCalled;
  }
  capture_.recorded();
  buffers_ = {};  // of the warm-up
  recording_->replay();
  return Done::kRecorded;
}

}  // namespace trainyard::train
