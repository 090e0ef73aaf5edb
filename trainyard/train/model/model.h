// A trained model in one file: network, weights, the meaning of its outputs, and how an image becomes its input. It
// needs no registry of models, because the file contains the graph.
//
//   train::save_model("flowers.safetensors",
//                     {.name = "flowers", .input = source->transform(), .classes = names, .graph = graph}, parameters);
//   const auto model = train::load_model("flowers.safetensors");   // or a train_dir
//   for (const auto& [output, name, probability] : model->predict(bytes).top) ...
//
// The file is safetensors with texts (docs/formats/model_metadata.md), and with scales where the model computes in 8
// bits (docs/formats/quantization.md), as `trainyard export` writes it; `trainyard
// predict --weights=FILE` reads it, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/export.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/nn/graph/graph.h"

namespace trainyard::nn {
struct Quantization;  // nn/graph/quantization.h
}

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

// The metadata of a model's file: its network, the meaning of its outputs, and how an image becomes its input.
struct ModelDescription {
  std::string name{};  // name of the network: "resnet50"
  // How an image becomes input: a name of data::transforms(). Empty: the model takes tensors, and no image files.
  std::string transform = "imagenet";
  // Options of that transform, as far as an evaluation uses them. Unset: it is not known how images become input, so
  // the model takes tensors only.
  std::optional<data::TransformOptions> input = std::nullopt;
  std::string preprocessor{};          // name in data::input_presets() that `input` is derived from; empty: not known
  int64_t num_classes = 0;             // outputs
  std::vector<std::string> classes{};  // class names, from `first_output` on; empty: classes have numbers only
  int64_t first_output = 0;            // output of the first class; 1: output 0 is the background
  // true: an image has any number of the classes, and each output's probability is its sigmoid; stored with `classes`.
  bool label_sets = false;
  // true: `classes` are what the training's records called their labels, by output, as far as it read them, with empty
  // texts for the others. They name outputs, but number no class folders.
  bool classes_of_records = false;
  std::optional<nn::Graph> graph = std::nullopt;  // unset: readers must know the network by its name
  // The scales by which the graph computes in integers of 8 bits (quantize_model()); null: it computes in float.
  std::shared_ptr<const nn::Quantization> quantization = nullptr;

  // Returns the name of an output, or an empty text.
  const std::string& class_name(int64_t output) const;
};

struct ClassProbability {
  int64_t output = 0;  // output of the model
  std::string name{};  // name of its class; empty when the model has no names
  float probability = 0;
};

struct Prediction {
  std::vector<ClassProbability> top{};  // the most probable first
  double decode_seconds = 0;            // time from the bytes to the model's input
  double model_seconds = 0;             // time of the model itself
};

struct LoadModelOptions {
  // Predictions that may run at the same time, each with memory for activations of its own; further callers wait. 0:
  // the number of cores that this process may use.
  int contexts = 0;
  // Threads of each prediction. 0: those of the calling thread (core::apply_thread_options). Programs that predict from
  // several threads set 1, or the threads' teams share the cores.
  int intra_op_threads = 0;
  std::string executor = "auto";      // a name for nn::make_executor
  at::ScalarType dtype = at::kFloat;  // of activations
  // Whether to load a checkpoint's averaged weights, if it has some, instead of its last ones. Unset: as in the
  // training's own evaluations, or averaged ones when that is not saved.
  std::optional<bool> averaged_weights = std::nullopt;
  bool best = false;      // loads a train_dir's best checkpoint, <train_dir>/best, instead of the newest
  void validate() const;  // throws kInvalidArgument
};

// A model on the CPU that only predicts. Any number of threads may call its methods.
class Model {
 public:
  // Takes ownership of the weights: `parameters` is allocated and has all that description.graph declares, which must
  // be set. They must not be changed afterwards. Throws kInvalidArgument when they do not fit, kNotFound for an unknown
  // transform.
  Model(ModelDescription description, nn::ParameterSet parameters, LoadModelOptions options = {});
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const ModelDescription& description() const;
  const nn::Graph& graph() const { return *description().graph; }
  const nn::ParameterSet& parameters() const;

  // Classifies an image, the bytes of a file: JPEG, PNG, or another format of this build. Returns the `top` most
  // probable classes, or as many as there are. Throws kCorruptData for an image that cannot be decoded, kUnsupported
  // for a format that this build cannot read, and for a model whose main output is not [classes]; `where` names the
  // image in the message.
  Prediction predict(std::span<const std::byte> image, int64_t top = 5, const std::string& where = "the image") const;
  // Reads the file and does the same. Also throws kNotFound and kIo.
  Prediction predict_file(const std::string& path, int64_t top = 5) const;

  // Returns the model's input for an image: [1, 3, height, width] float. Throws as predict() does, and kInvalidArgument
  // for a model that does not say how an image becomes its input (ModelDescription::input).
  [[nodiscard]] at::Tensor decode(std::span<const std::byte> image, const std::string& where = "the image") const;
  // Returns the main output: [N, classes] float logits of images [N, 3, height, width] as decode() makes them.
  [[nodiscard]] at::Tensor logits(const at::Tensor& images) const;

 private:
  class Contexts;
  std::unique_ptr<Contexts> contexts_;
};

// Writes a model's file atomically. description.graph must be set and have no custom layer (kUnsupported). A
// num_classes of 0, an empty name, and the size of input images are taken from the graph. Throws kInvalidArgument for
// more names than outputs, for parameters that are not the graph's, for a description.quantization that is not the
// graph's, and when description.input is unset although the
// graph takes images of three colours; a description.transform of "" declares that it takes tensors only. Throws kIo,
// kNoSpace.
void save_model(const std::string& path, ModelDescription description, const nn::ParameterSet& parameters);

// Loads a file of save_model() or `trainyard export`; a checkpoint of train::fit(), of `trainyard train` or of another
// command that keeps its checkpoints in a train_dir; or such a train_dir, of which it takes the newest checkpoint, or
// the best one with LoadModelOptions::best. A checkpoint of a quantization-aware training computes in 8 bits. The whole
// file is checked before memory is allocated for it. Throws kNotFound, kCorruptData when it is damaged,
// kInvalidArgument when it neither contains its graph nor names a registered model, or when the weights are not the
// graph's.
std::shared_ptr<const Model> load_model(const std::string& path, const LoadModelOptions& options = {});

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
