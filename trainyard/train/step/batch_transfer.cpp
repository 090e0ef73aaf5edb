#include "trainyard/train/step/batch_transfer.h"

#include <utility>

#include <ATen/ops/empty.h>

namespace trainyard::train {
namespace {

bool fits(const at::Tensor* buffer, const at::Tensor& host) {
  return buffer != nullptr && buffer->sizes() == host.sizes() && buffer->scalar_type() == host.scalar_type();
}

}  // namespace

BatchTransfer::BatchTransfer(std::shared_ptr<nn::Accelerator> accelerator, bool keeps_images)
    : accelerator_(std::move(accelerator)), keeps_images_(keeps_images) {
  for (Buffer& buffer : buffers_) {
    buffer.arrived = accelerator_->make_mark();
    buffer.was_read = accelerator_->make_mark();
  }
}

data::Batch BatchTransfer::move(const data::Batch& host) {
  // All that reads the batch before this one has been handed over: the step, and what looked at it after the step.
  buffers_[current_].was_read->set(nn::Lane::kCompute);
  current_ = 1 - current_;
  Buffer& buffer = buffers_[current_];

  bool fresh = false;
  for (const auto& [name, tensor] : host.tensors) {
    if (!tensor.is_cpu() || fits(buffer.tensors.find(name), tensor)) continue;
    buffer.tensors.set(name,
                       at::empty(tensor.sizes(), tensor.options().device(accelerator_->device()).pinned_memory(false)));
    if (name == "images") buffer.host_images = at::Tensor();
    fresh = true;
  }
  // Memory that the device's allocator gives out may still be read or written by work that waits for its turn.
  if (fresh) buffer.was_read->set(nn::Lane::kCompute);
  buffer.was_read->hold_back(nn::Lane::kCopy);
  data::Batch placed{.first_sample = host.first_sample, .after = host.after};
  for (const auto& [name, tensor] : host.tensors) {
    if (!tensor.is_cpu()) {
      accelerator_->will_read(tensor);
      placed.tensors.set(name, tensor);
      continue;
    }
    const bool may_be_there = keeps_images_ && name == "images";
    const bool there = may_be_there && buffer.host_images.defined() && buffer.host_images.is_same(tensor);
    if (!there) accelerator_->send(tensor, buffer.tensors[name]);
    if (may_be_there) buffer.host_images = tensor;
    placed.tensors.set(name, buffer.tensors[name]);
  }
  buffer.arrived->set(nn::Lane::kCopy);
  buffer.arrived->hold_back(nn::Lane::kCompute);
  return placed;
}

}  // namespace trainyard::train
