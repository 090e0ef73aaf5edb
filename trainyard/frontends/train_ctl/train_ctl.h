// NVIDIA DALI's TensorFlow ResNet-N example with a custom training loop, as a function: a model function and parameters
// by name go in, the trained model comes out.
//
//   frontends::TrainedCtl trained = frontends::train_ctl(frontends::ctl_zoo_model("resnet50"),
//                                                    {.image_width = 224, .image_height = 224, ...});
//
// docs/howto/train_ctl.md compares the example's names with those here, and lists the differences.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/export.h"
#include "trainyard/core/threads/stop_token.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/nn/graph/graph.h"
#include "trainyard/optim/optimizers/optimizer_options.h"
#include "trainyard/train/evaluation/evaluator.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::frontends {

// The parameters of train_ctl() and predict_ctl(), with the names of the example (runner_ctl.py). Required parameters
// are unset by default: a missing or invalid one is an error that names it.
struct TrainCtlParams {
  std::optional<int64_t> image_width{}, image_height{};  // required; pixels
  std::string image_format = "channels_last";  // or channels_first: the user's layout; kernels choose their own
  bool distort_color = false;                  // of training images, without dali_mode
  std::optional<double> momentum{};            // required
  std::optional<double> loss_scale{};          // required; read with precision fp16
  std::string data_dir{};               // TFRecords train-* and validation-*, or class folders; empty: synthetic images
  std::string data_idx_dir{};           // their DALI index files; empty: the records are scanned
  std::optional<int64_t> batch_size{};  // required; images a device
  std::optional<int64_t> num_iter{};    // required; of iter_unit
  std::optional<std::string> iter_unit{};  // required: epoch or batch
  std::string log_dir{};                   // for checkpoints; empty: none
  std::string export_dir{};                // for saved_model_rn50.h5; empty: none
  std::string tensorboard_dir{};           // empty: none
  std::optional<int64_t> display_every{};  // required; steps
  std::optional<std::string> precision{};  // required: fp32, bf16, or fp16, which needs a GPU
  std::string dali_mode = "none";          // CPU or GPU: the input of the example's DALI pipeline
  std::optional<bool> use_xla{};           // required; true needs a GPU
  // In addition to those of the example:
  std::optional<int64_t> dali_threads{};  // that prepare images; unset: 4 with dali_mode, else half of the cores
  int64_t devices = 1;                    // each corresponds to a process of the example; on a CPU, threads
  // Trains with the other processes that mpirun (on CPUs) or a launcher of GPU processes has started, one device each,
  // as with Horovod in the example: each trains on its part of the batches, and rank 0 prints, saves and exports.
  bool horovod = false;
  uint64_t seed = 1234;  // of initial weights, order and augmentation

  // Throws kInvalidArgument, naming the parameter, for one that is missing, invalid, or contradicts another, and for a
  // directory that does not exist. `gpus` is the number of GPUs of this machine; kUnsupported when one is needed.
  void validate(int gpus) const;
  // Does the part about directories; with horovod, for rank 0 only, which writes there.
  void validate_directories() const;
  // Does the same for the parameters that predict_ctl() reads.
  void validate_for_prediction() const;

  bool uses_dali() const { return dali_mode != "none"; }
  bool counts_epochs() const { return iter_unit == "epoch"; }
  // Returns "<export_dir>/saved_model_rn50.h5", the example's name for every model.
  [[nodiscard]] std::string export_path() const;
};

// The result of a model function for train_ctl(): a network, and the regularization that Keras would collect from its
// layers.
struct CtlModel {
  // Images [3, H, W] to logits [num_classes]; a softmax is added when probabilities are needed. Checkpoints store its
  // name: `trainyard predict`, eval and export open those of registered models.
  nn::Graph graph{};
  std::vector<optim::RegularizationTerm> regularization{};  // a part of the loss
};

// Makes the model. `batch_size` is that of a device.
using CtlModelFunction = std::function<CtlModel(int64_t num_classes, int64_t batch_size)>;

// Returns a function for a registered ImageNet model, with the example's Keras l2(1e-4) (optim::keras_l2()): "resnet50"
// and "trivial" are the example's own, dali/resnet50 and dali/trivial; any other name is find_model()'s
// (models/registry/model_registry.h). Throws as build_model() does when it is called.
[[nodiscard]] CtlModelFunction ctl_zoo_model(const std::string& name, nn::Size2d image_size = 224);

// Means over the steps of an epoch.
struct CtlMeans {
  int64_t steps = 0;
  double loss = 0, top_1 = 0, top_5 = 0;  // loss: with the regularization
};

struct CtlConsole {
  std::ostream* out = nullptr;                        // output of the lines; null: std::cout
  core::StopToken stop = core::StopSource().token();  // ends the training after a step; it still saves and exports
};

// The model in the host's memory, ready for evaluation (train/evaluation/evaluator.h), prediction and export.
struct TrainedCtl {
  // Returns the probabilities [N, classes] of images [N, 3, H, W] that were made as `input` says.
  [[nodiscard]] at::Tensor predict(const at::Tensor& images);

  std::unique_ptr<nn::ParameterSet> parameters{};
  std::unique_ptr<nn::Executor> executor{};  // in inference mode, bound to `parameters`
  data::TransformOptions input{};            // of evaluation: how images are made
  std::vector<std::string> label_names{};    // by output, with empty texts for missing names
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
