// A model from a checkpoint or a file of weights, ready to run forward: for evaluation, prediction and export.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/core/base/stateful.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/formats/tensors/tensor_file.h"
#include "trainyard/frontends/model/class_names.h"
#include "trainyard/frontends/options/image_options.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/execution/kernel_choices.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/model/model_description.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::frontends {

// A checkpoint or a file of weights that was opened: what it says of itself can be looked at before the model is made.
// Stays valid when a training that runs removes the checkpoint. One thread at a time.
struct OpenedModel : SavedClasses {
  std::shared_ptr<const core::StateReader> reader{};     // of a checkpoint; null: it is a file of weights
  std::shared_ptr<const formats::TensorFile> weights{};  // null: it is a checkpoint
  nn::Size2d image_size = 0;                             // of the images it was trained on; 0: it does not say
  train::ModelDescription description{};                 // what a file, or a checkpoint of train::fit(), says
  // How evaluation makes its images, with image_size; not set: it does not say. input_of() knows more.
  std::optional<TrainedInput> input{};
  bool averaged_weights = true;  // those that the training's own evaluations took
};

// Returns how images become input of what was opened: what it says; of a file of weights that says nothing, what the
// library makes of its images whose network `model` is (published/published_input.h). Not set: nothing is known.
[[nodiscard]] std::optional<TrainedInput> input_of(const OpenedModel& opened, const std::string& model,
                                                   const std::string& dataset);

struct TrainedModel {
  train::CheckpointInfo checkpoint{};  // of a file of weights: its path, and step 0
  train::CheckpointIdentity identity{};
  ClassNames classes{};                    // without names where the training had none
  std::vector<std::string> label_names{};  // by output, an empty one for none; may be shorter than the outputs
  data::TransformOptions input{};          // of evaluation
  std::string preprocessor{};  // the name in data::input_presets() that `input` began from; empty: not known
  std::string input_origin{};  // what says how images become input, for messages; empty: nothing, these are defaults
  bool input_known = true;     // false: the training had tensors, and nothing says how an image becomes one of them
  std::unique_ptr<nn::ParameterSet> parameters{};
  std::unique_ptr<nn::Executor> executor{};  // in inference mode, bound to `parameters`
};

struct TrainedModelOptions {
  // A checkpoint directory, a train directory whose newest one is meant, or a file of weights (safetensors, .pth).
  // Where a file's metadata do not say it (train/model/model_description.h), it needs `model`, has no names, and its
  // images are made as the library does that publishes weights of the network, else as tf_cnn_benchmarks does.
  std::string path{};
  // Those that the caller expects, or empty: any checkpoint; imagenet for weights. Another one is an error that names
  // both.
  std::string model{}, dataset{};
  int64_t num_classes = 0;  // of weights; 0: the data set's
  // Height and width of the images. 0 means the size that the model was trained with, or the model's own where nothing
  // tells that. Position embeddings are interpolated for another size; all other weights must have the shapes that the
  // model then has.
  nn::Size2d image_size = 0;
  // Loads averaged weights, where a checkpoint has some, in the place of its last ones. Not set: those that the
  // training's own evaluations took.
  std::optional<bool> averaged_weights{};
  // Where the newest checkpoint of a train directory is damaged; not kSetAside.
  train::DamagedCheckpoints damaged = train::DamagedCheckpoints::kStop;
  // For the executor; its choices, if there are any, become the checkpoint's, which the model computed with so far.
  nn::KernelOptions kernels = {.choices = std::make_shared<nn::KernelChoices>()};
  at::Device device = at::kCPU;
  // Logs which input was chosen where the model does not say it, and how it differs from what the model says. False:
  // the caller has.
  bool tells_input = true;
  // Makes the graph of a model that is not registered, which is then the one that is expected. None: the file's own
  // graph, where it has one and no other model, number of classes or image size is asked for; else the registry.
  std::function<nn::Graph(const models::ModelOptions&)> build{};
};

// Opens what options.path names; only that, the expected model and data set and `damaged` are looked at. Throws
// kNotFound when there is no checkpoint or file, kCorruptData for a damaged one, kInvalidArgument for a checkpoint of
// another model or data set.
OpenedModel open_model(const TrainedModelOptions& options);

// Returns what an open checkpoint says of itself.
[[nodiscard]] OpenedModel opened_model(train::OpenedCheckpoint checkpoint);

// Makes the model and loads what was opened. Throws kInvalidArgument for weights without a model, or of another one,
// another number of classes or images of another size.
TrainedModel load_trained_model(const OpenedModel& opened, const TrainedModelOptions& options);
TrainedModel load_trained_model(const TrainedModelOptions& options);  // opens it first

}  // namespace trainyard::frontends
TRAINYARD_EXPORT_END
