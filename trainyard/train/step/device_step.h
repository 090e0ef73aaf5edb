// Runs one replica's steps on an accelerator: batches are copied during the previous step
// (train/step/batch_transfer.h), steps are captured when requested, and running out of memory becomes an error that
// says what would fit.
//
// A captured step reads the addresses that were recorded, so each batch is copied there from its buffer: one pass
// within the device's memory. A second recording, for the other buffer, would need a second pool of activations.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/nn/execution/accelerator.h"
#include "trainyard/train/devices/device_room.h"
#include "trainyard/train/step/batch_transfer.h"
#include "trainyard/train/step/step_capture.h"

namespace trainyard::train {

class DeviceStep {
 public:
  struct Options {
    bool capture = false;
    bool first = true;         // first replica of the run, as in StepCapture
    std::string obstacle;      // obstacle to capturing; empty: none
    bool keeps_images = true;  // false where something may change a batch in place
    int64_t classes =
        0;  // classes of a classifier, for checking labels while they are still on the host; 0: not checked
    int64_t bytes_per_image = 0, fixed_bytes = 0;  // for the estimate of what fits (nn/execution/device_memory.h)
  };
  DeviceStep(std::shared_ptr<nn::Accelerator> accelerator, const Options& options);

  // Runs one step with the batch on the device, in one of three ways: calls step(batch); records and replays it; or
  // replays the recording. After a replay the tensors that `step` made while it was recorded hold the new values.
  // `observed` is that of StepCapture::next(). Throws what `step` throws, and kNoSpace, with the bytes requested, held
  // and free, when the device's memory is not enough.
  enum class Done { kCalled, kRecorded, kReplayed };
  Done run(const data::Batch& batch, bool observed, const std::function<void(const data::Batch&)>& step);
  // Does the same for a step that is never captured: a micro-step.
  void run_part(const data::Batch& batch, const std::function<void(const data::Batch&)>& step);

 private:
  // The tensors that the recorded step reads.
  struct Inputs {
    core::NamedTensors tensors;
    at::Tensor host_images;  // what "images" of them holds
  };
  data::Batch on_device(const data::Batch& batch);
  void fill_inputs(const data::Batch& batch);
  DeviceNeeds needs(const data::Batch& batch) const;
  Done record_and_replay(const data::Batch& batch, const std::function<void(const data::Batch&)>& step);

  std::shared_ptr<nn::Accelerator> accelerator_;
  Options options_;
  StepCapture capture_;
  BatchTransfer transfer_;
  Inputs inputs_;
  std::unique_ptr<nn::RecordedWork> recording_;
};

}  // namespace trainyard::train
