// NVIDIA DALI's TensorFlow ResNet-N example with a custom training loop, as a function: a model function and parameters
// by name go in, the trained model comes out.
//
//   frontends::TrainedCtl trained = frontends::train_ctl(frontends::ctl_zoo_model("resnet50"),
//                                                    {.image_width = 224, .image_height = 224, ...});
//
// docs/howto/train_ctl.md compares the example's names with those here, and lists the differences.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/export.h"
#include "trainyard/core/threads/stop_token.h"
#include "trainyard/frontends/model/trained_model.h"
#include "trainyard/frontends/train_ctl/ctl_means.h"
#include "trainyard/frontends/train_ctl/ctl_model.h"
#include "trainyard/frontends/train_ctl/params.h"
#include "trainyard/train/evaluation/evaluator.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::frontends {

struct CtlConsole {
  std::ostream* out = nullptr;                        // output of the lines; null: std::cout
  core::StopToken stop = core::StopSource().token();  // ends the training after a step; it still saves and exports
};

// The model in the host's memory, ready for evaluation (train/evaluation/evaluator.h), prediction and export.
struct TrainedCtl : TrainedModel {
  // Returns the probabilities [N, classes] of images [N, 3, H, W] that were made as `input` says.
  [[nodiscard]] at::Tensor predict(const at::Tensor& images);

  int64_t global_step = 0;
  CtlMeans means{};                               // of the last epoch
  std::optional<train::Evaluation> validation{};  // of the last epoch, if there was one
  bool stopped = false;                           // by CtlConsole::stop
  std::string export_path{};                      // empty: nothing was exported
};

// Trains, or continues from the newest checkpoint in params.log_dir. Throws what TrainCtlParams::validate() throws,
// kInvalidArgument for a model that does not fit the images or the classes, or a checkpoint of another one, and
// kUnsupported for a model without a Keras form when params.export_dir is set, all before the first step.
TrainedCtl train_ctl(const CtlModelFunction& model_function, const TrainCtlParams& params,
                     const CtlConsole& console = {});

// Loads the model in params.export_dir, runs it on three batches of synthetic images, and returns its probabilities: [3
// * batch_size, classes]. Throws kNotFound when there is no such file, kCorruptData for a damaged one, kInvalidArgument
// for images of another size.
at::Tensor predict_ctl(const TrainCtlParams& params, const CtlConsole& console = {});

}  // namespace trainyard::frontends
TRAINYARD_EXPORT_END
