// A trained model in one piece: network, weights, what its outputs stand for, and how an image becomes its input. It
// needs no registry of models: the file holds the graph itself.
//
//   train::save_model("flowers.safetensors",
//                     {.name = "flowers", .input = source->transform(), .classes = names, .graph = graph}, parameters);
//   const auto model = train::load_model("flowers.safetensors");   // or a train_dir
//   for (const auto& [output, name, probability] : model->predict(bytes).top) ...
//
// The file is safetensors with texts (docs/formats/model_metadata.md), as `trainyard export` writes it; `trainyard
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
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/nn/graph/graph.h"
#include "trainyard/train/model/model_description.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

struct ClassProbability {
  int64_t output = 0;  // which output of the model
  std::string name{};  // of its class; empty where the model has no names
  float probability = 0;
};

struct Prediction {
  std::vector<ClassProbability> top{};  // the most probable first
  double decode_seconds = 0;            // from the bytes to the model's input
  double model_seconds = 0;             // the model itself
};

struct LoadModelOptions {
  // Predictions that may run at the same time, each with memory for activations of its own; more callers wait. 0: as
  // many as this process may use cores.
  int contexts = 0;
  // Threads of each prediction. 0: as the calling thread has (core::apply_thread_options). Programs that predict from
  // several threads set 1, or the threads' teams share the cores.
  int intra_op_threads = 0;
  std::string executor = "auto";      // a name for nn::make_executor
  at::ScalarType dtype = at::kFloat;  // of activations
  // Whether to load averaged weights, of a checkpoint that has some, in the place of its last ones. Unset: as the
  // training's own evaluations did; where that is not saved, averaged ones.
  std::optional<bool> averaged_weights = std::nullopt;
  bool best = false;      // of a train_dir: its best checkpoint, <train_dir>/best, instead of the newest
  void validate() const;  // throws kInvalidArgument
};

// A model on the CPU that only predicts. Any number of threads may call its methods.
class Model {
 public:
  // Takes over the weights: `parameters` is allocated and has what description.graph declares, which must be there.
  // Nobody changes them afterwards. Throws kInvalidArgument where they do not fit, kNotFound for an unknown transform.
  Model(ModelDescription description, nn::ParameterSet parameters, LoadModelOptions options = {});
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const ModelDescription& description() const;
  const nn::Graph& graph() const { return *description().graph; }
  const nn::ParameterSet& parameters() const;

  // Classifies an image, the bytes of a file: JPEG, PNG, or another format of this build. Returns the `top` most
  // probable classes, or as many as there are. Throws kCorruptData for an image that cannot be decoded, kUnsupported
  // for a format that this build cannot read; `where` names the image in the message.
  Prediction predict(std::span<const std::byte> image, int64_t top = 5, const std::string& where = "the image") const;
  // Reads the file and does the same. Throws kNotFound and kIo, too.
  Prediction predict_file(const std::string& path, int64_t top = 5) const;

  // Returns the model's input of an image: [1, 3, height, width] float. Throws as predict() does, and kInvalidArgument
  // for a model that does not say how an image becomes its input (ModelDescription::input).
  [[nodiscard]] at::Tensor decode(std::span<const std::byte> image, const std::string& where = "the image") const;
  // Returns the main output: [N, classes] float logits of images [N, 3, height, width] as decode() makes them.
  [[nodiscard]] at::Tensor logits(const at::Tensor& images) const;

 private:
  class Contexts;
  std::unique_ptr<Contexts> contexts_;
};

// Writes a model's file, whole or not at all. description.graph must be there and have no custom layer
// (kUnsupported); description.num_classes 0 becomes what the graph gives, an empty name the graph's, and the size of
// input images the graph's. Throws kInvalidArgument for more names than outputs, parameters that are not the graph's,
// and where a graph of images of three colours does not say how an image becomes its input (description.input);
// description.transform "" says that it takes tensors only. Throws kIo, kNoSpace.
void save_model(const std::string& path, ModelDescription description, const nn::ParameterSet& parameters);

// Loads a file of save_model() or `trainyard export`; a checkpoint of train::fit(), of `trainyard train` or of another
// command that keeps its checkpoints in a train_dir; or such a train_dir, of which it takes the newest checkpoint, or
// the best one with LoadModelOptions::best. All of the file is checked before memory is taken for it. Throws kNotFound,
// kCorruptData for what is damaged, kInvalidArgument for one that neither holds its graph nor names a model that is
// registered here, or whose weights are not the graph's.
std::shared_ptr<const Model> load_model(const std::string& path, const LoadModelOptions& options = {});

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
