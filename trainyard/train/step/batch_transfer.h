// Batches on their way to an accelerator: while a step reads the one buffer there, the next batch travels to the other.
// Nothing here waits on the host: the copies and the steps wait for each other on the device.
//
//   compute   step k-1 .............. | step k ................ | step k+1 ...
//   copy      batch k -> buffer 0     | batch k+1 -> buffer 1   | batch k+2 -> buffer 0
//
// That picture needs a host that is ahead of the device, as Accelerator::end_step() lets it be: batch k+1 is handed
// over once step k is, not once it is done.
#pragma once

#include <array>
#include <memory>

#include <ATen/core/Tensor.h>

#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/nn/execution/accelerator.h"

namespace trainyard::train {

// Moves batches. One thread at a time, which uses the accelerator.
class BatchTransfer {
 public:
  // `keeps_images` says that no step changes its "images", so that those of a source that gives the same tensor again
  // travel once.
  BatchTransfer(std::shared_ptr<nn::Accelerator> accelerator, bool keeps_images);

  // Returns the batch on the device, for work that is handed over from now on. Tensors that were made there stay where
  // they are. What was moved stays until the second call after this one.
  data::Batch move(const data::Batch& host);

 private:
  struct Buffer {
    core::NamedTensors tensors;
    at::Tensor host_images;              // what "images" of them holds
    std::unique_ptr<nn::Mark> arrived;   // in the lane of copies
    std::unique_ptr<nn::Mark> was_read;  // in the lane of compute
  };

  std::shared_ptr<nn::Accelerator> accelerator_;
  bool keeps_images_;
  std::array<Buffer, 2> buffers_;
  size_t current_ = 0;
};

}  // namespace trainyard::train
