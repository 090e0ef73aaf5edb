// A model from a checkpoint or a file of weights, ready to run forward: for evaluation, prediction and export.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/base/stateful.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/formats/tensors/tensor_file.h"
#include "trainyard/frontends/model/class_names.h"
#include "trainyard/frontends/options/image_options.h"
#include "trainyard/frontends/options/precision_options.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/nn/quantization/quantized_model.h"
#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/model/model.h"

namespace trainyard::frontends {

// An open checkpoint or file of weights, whose metadata can be read before the model is made. It stays valid when a
// running training removes the checkpoint. For one thread at a time.
struct OpenedModel : SavedClasses {
  std::shared_ptr<const core::StateReader> reader{};     // reader of a checkpoint; null for a file of weights
  std::shared_ptr<const formats::TensorFile> weights{};  // null for a checkpoint
  nn::Size2d image_size = 0;                             // size of the images it was trained on; 0: not stored
  train::ModelDescription description{};                 // metadata of a file, or of a checkpoint of train::fit()
  // How evaluation makes its images, with image_size. Unset: not stored; input_of() has further sources.
  std::optional<TrainedInput> input{};
  bool averaged_weights = true;              // whether the training's own evaluations used averaged weights
  std::optional<data::Division> division{};  // how the training divided its images; unset: as by default, or not stored
  bool label_sets = false;                   // outputs are independent labels (train::CheckpointFacts)
  bool has_scales = false;                   // a checkpoint of a quantization-aware training, which computes in 8 bits
  bool quantized = false;                    // a file of a model in 8 bits (docs/formats/quantization.md)
};

// Returns how images become input: from the metadata, or, for a file of weights without metadata, the input of the
// library that publishes `model` (published_input.h). Unset when nothing is known.
[[nodiscard]] std::optional<TrainedInput> input_of(const OpenedModel& opened, const std::string& model,
                                                   const std::string& dataset);

struct TrainedModel {
  train::CheckpointInfo checkpoint{};  // of a file of weights: its path, and step 0
  train::CheckpointIdentity identity{};
  ClassNames classes{};  // without names if the training had none
  std::vector<std::string>
      label_names{};  // by output, with empty texts for missing names; may be shorter than the number of outputs
  data::TransformOptions input{};  // of evaluation
  std::string preprocessor{};      // name in data::input_presets() that `input` is derived from; empty: not known
  std::string input_origin{};      // origin of `input`, for messages; empty: defaults
  bool label_sets = false;         // outputs are independent labels (train::CheckpointFacts)
  bool input_known = true;         // false: the training had tensors, and it is not known how an image becomes one
  std::unique_ptr<nn::ParameterSet> parameters{};
  // The scales of what computes in 8 bits; null: all in float.
  std::shared_ptr<const nn::Quantization> quantization{};
  std::unique_ptr<nn::Executor> executor{};  // in inference mode, bound to `parameters` and `quantization`
};

// Returns kernel options with choices of their own, which are empty.
[[nodiscard]] nn::KernelOptions kernels_with_choices();

struct TrainedModelOptions {
  // A checkpoint directory, a train directory, of which the newest checkpoint is used, a file of weights (safetensors,
  // .pth), or a checkpoint or train directory of tf_cnn_benchmarks, which is as such a file. A file without metadata
  // (train/model/model_description.h) needs `model` and has no class names; its images are made as in the library that
  // publishes the network's weights, else as in tf_cnn_benchmarks.
  std::string path{};
  // The expected model and data set; another one is an error that names both. Empty: any checkpoint; imagenet for
  // weights.
  std::string model{}, dataset{};
  int64_t num_classes = 0;  // of weights; 0: the data set's
  // Height and width of the images. 0 means the size that the model was trained with, or the model's own size if that
  // is not known. Position embeddings are interpolated for another size; all other weights must have the model's shapes
  // for that size.
  nn::Size2d image_size = 0;
  // Whether to load a checkpoint's averaged weights, if it has some, instead of its last ones. Unset: as in the
  // training's own evaluations.
  std::optional<bool> averaged_weights{};
  // What to do when the newest checkpoint of a train directory is damaged; not kSetAside.
  train::DamagedCheckpoints damaged = train::DamagedCheckpoints::kStop;
  // For the executor. Its choices, if there are any, are replaced by those of the checkpoint.
  nn::KernelOptions kernels = kernels_with_choices();
  at::Device device = at::kCPU;
  // How the model computes. Unset: as kFloat32, for callers that use graph and parameters without the scales of 8 bits;
  // a quantized model is then an error.
  std::optional<Precision> precision{};
  // true: logs which input was selected when the model does not say it, and how it differs from the model's. False: the
  // caller does.
  bool tells_input = true;
  // Makes the graph of a model that is not registered, which is then the expected one. Empty: the file's own graph, if
  // it has one and no other model, number of classes or image size is requested; else the registry's.
  std::function<nn::Graph(const models::ModelOptions&)> build{};
};

// Returns true when `path` is a checkpoint of TensorFlow, or a directory with one and none of Trainyard.
[[nodiscard]] bool holds_tensorflow_weights(const std::string& path);

// Opens options.path. The expected model and data set and `damaged` are the only other options that are used. Throws
// kNotFound when there is no checkpoint or file, kCorruptData for a damaged one, kInvalidArgument for a checkpoint of
// another model or data set.
OpenedModel open_model(const TrainedModelOptions& options);

// Returns the metadata of an open checkpoint.
[[nodiscard]] OpenedModel opened_model(train::OpenedCheckpoint checkpoint);

// Makes the trained model one that computes in 8 bits: graph, parameters, scales and executor are those of `quantized`.
void take_quantized(TrainedModel& trained, nn::QuantizedModel&& quantized);

// Makes the model and loads what was opened. A checkpoint with scales computes in 8 bits with kAuto, on a CPU, and
// kInt8. Throws kInvalidArgument for weights without a model, or of another one,
// another number of classes or images of another size, and where kInt8 is asked of a model without scales: its message
// names `trainyard quantize`. Throws kUnsupported for a quantized model on a GPU.
TrainedModel load_trained_model(const OpenedModel& opened, const TrainedModelOptions& options);
TrainedModel load_trained_model(const TrainedModelOptions& options);  // opens it first

}  // namespace trainyard::frontends
