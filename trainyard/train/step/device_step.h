// One replica's steps on an accelerator: batches travel beside the step before (train/step/batch_transfer.h), steps are
// captured where that is asked for, and running out of memory becomes an error that says what would fit.
//
// A captured step reads where it read when it was recorded, so each batch is copied from where it arrived to there: one
// pass within the device's memory. A second recording, of the other buffer, would cost a second pool of activations.
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
    bool first = true;         // of the replicas: as StepCapture
    std::string obstacle;      // to capturing; empty: none
    bool keeps_images = true;  // false where something may change a batch in place
    int64_t classes = 0;       // of a classifier: labels are checked here, where they still lie on the host; 0: not
    int64_t bytes_per_image = 0, fixed_bytes = 0;  // for the estimate of what fits (nn/execution/device_memory.h)
  };
  DeviceStep(std::shared_ptr<nn::Accelerator> accelerator, const Options& options);

  // Does one step with the batch on the device, in one of three ways: calls step(batch); records and replays it; or
  // replays what was recorded. After a replay the tensors that `step` made while it was recorded hold the new values.
  // `observed` is that of StepCapture::next(). Throws what `step` throws, and kNoSpace, with what was asked, held and
  // free, where the device's memory is not enough.
  enum class Done { kCalled, kRecorded, kReplayed };
  Done run(const data::Batch& batch, bool observed, const std::function<void(const data::Batch&)>& step);
  // Does the same for a step that is never captured: a micro-step.
  void run_part(const data::Batch& batch, const std::function<void(const data::Batch&)>& step);

 private:
  // Where the recorded step reads.
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
