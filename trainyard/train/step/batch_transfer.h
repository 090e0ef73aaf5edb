// Copies batches to an accelerator with double buffering: while a step reads one buffer, the next batch is copied to
// the other. Nothing here waits on the host: the copies and the steps wait for each other on the device.
//
//   compute   step k-1 .............. | step k ................ | step k+1 ...
//   copy      batch k -> buffer 0     | batch k+1 -> buffer 1   | batch k+2 -> buffer 0
//
// This needs a host that runs ahead of the device, as Accelerator::end_step() allows: batch k+1 is enqueued once step k
// is enqueued, not once it is done.
#pragma once

#include <array>
#include <memory>

#include <ATen/core/Tensor.h>

#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/nn/execution/accelerator.h"

namespace trainyard::train {

// Moves batches. For one thread at a time, within the accelerator's use().
class BatchTransfer {
 public:
  // `keeps_images` says that no step changes its "images", so that a tensor which the source returns again is copied
  // once.
  BatchTransfer(std::shared_ptr<nn::Accelerator> accelerator, bool keeps_images);

  // Returns the batch on the device, for work that is enqueued from now on. Tensors that are already there are not
  // copied. The result is valid until the second call after this one.
  data::Batch move(const data::Batch& host);

 private:
  struct Buffer {
    core::NamedTensors tensors;
    at::Tensor host_images;              // host tensor that "images" is a copy of
    std::unique_ptr<nn::Mark> arrived;   // in the lane of copies
    std::unique_ptr<nn::Mark> was_read;  // in the lane of compute
  };

  std::shared_ptr<nn::Accelerator> accelerator_;
  bool keeps_images_;
  std::array<Buffer, 2> buffers_;
  size_t current_ = 0;
};

}  // namespace trainyard::train
