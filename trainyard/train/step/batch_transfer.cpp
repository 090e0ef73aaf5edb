#include "trainyard/train/step/batch_transfer.h"

#include <utility>

#include <ATen/ops/empty.h>

namespace trainyard::train {
namespace {

bool fits(const at::Tensor& buffer, const at::Tensor& host) {
  return buffer.defined() && buffer.sizes() == host.sizes() && buffer.scalar_type() == host.scalar_type();
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

  const bool moves = host.images.is_cpu();
  const bool there = keeps_images_ && buffer.host_images.defined() && buffer.host_images.is_same(host.images);
  bool fresh = false;
  for (auto [target, source] : {std::pair{&buffer.images, &host.images}, std::pair{&buffer.labels, &host.labels}}) {
    if (!source->is_cpu() || fits(*target, *source)) continue;
    *target = at::empty(source->sizes(), source->options().device(accelerator_->device()).pinned_memory(false));
    fresh = true;
  }
  // Memory that the device's allocator gives out may still be read or written by work that waits for its turn.
  if (fresh) buffer.was_read->set(nn::Lane::kCompute);
  buffer.was_read->hold_back(nn::Lane::kCopy);
  if (moves) {
    if (!there) accelerator_->send(host.images, buffer.images);
    buffer.host_images = host.images;
  } else {
    accelerator_->will_read(host.images);
  }
  accelerator_->send(host.labels, buffer.labels);
  buffer.arrived->set(nn::Lane::kCopy);
  buffer.arrived->hold_back(nn::Lane::kCompute);
  return {.images = moves ? buffer.images : host.images,
          .labels = buffer.labels,
          .first_sample = host.first_sample,
          .after = host.after};
}

}  // namespace trainyard::train
