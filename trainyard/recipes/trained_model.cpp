#include "trainyard/recipes/trained_model.h"

#include <utility>

#include "trainyard/core/error.h"
#include "trainyard/core/scoped_state.h"
#include "trainyard/formats/tensor_file.h"
#include "trainyard/models/model_registry.h"
#include "trainyard/recipes/benchmark_state.h"
#include "trainyard/recipes/image_options.h"
#include "trainyard/train/weights.h"

namespace trainyard::recipes {
namespace {

// Makes the graph of the identity and what runs it.
void make_executor(TrainedModel& trained, const TrainedModelOptions& options) {
  const nn::Graph graph = models::build_model(trained.identity.model, trained.identity.dataset,
                                              {.num_classes = trained.identity.num_classes});
  trained.parameters = std::make_unique<nn::ParameterSet>(nn::ParameterSetOptions{.device = options.device});
  trained.executor = nn::make_executor("auto", graph,
                                       {.device = options.device,
                                        .mode = nn::Mode::kInference,
                                        .frozen = true,
                                        .kernels = options.kernels,
                                        .parameters = trained.parameters.get()});
  trained.parameters->allocate();
  trained.input.training = false;
  trained.input.height = graph.input_shape()[1];
  trained.input.width = graph.input_shape()[2];
}

TrainedModel load_file(const TrainedModelOptions& options) {
  if (options.model.empty()) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "a file of weights does not say which model they are of",
                       .where = options.path,
                       .remedy = "pass --model, one of `trainyard models`"});
  }
  const formats::TensorFile file = formats::open_tensor_file(options.path);
  TrainedModel trained;
  trained.checkpoint.path = options.path;
  trained.identity = {.model = options.model,
                      .dataset = options.dataset.empty() ? "imagenet" : options.dataset,
                      .num_classes = options.num_classes};
  if (trained.identity.num_classes == 0) {
    trained.identity.num_classes = models::find_dataset(trained.identity.dataset).num_classes;
  }
  make_executor(trained, options);
  const train::LoadedWeights loaded =
      train::load_weights(file, *trained.parameters, trained.identity.num_classes,
                          models::find_model(trained.identity.model, trained.identity.dataset).auxiliary);
  if (!loaded.head.empty()) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "the weights are for another number of classes",
                       .where = options.path,
                       .expected = std::to_string(trained.identity.num_classes),
                       .actual = std::to_string(loaded.file_classes),
                       .remedy = "pass --num_classes=" + std::to_string(loaded.file_classes)});
  }
  return trained;
}

}  // namespace

TrainedModel load_trained_model(const TrainedModelOptions& options) {
  core::FileSystem& files = core::local_file_system();
  if (!files.exists(options.path)) {
    throw core::Error(core::ErrorCode::kNotFound,
                      {.problem = "there is no such checkpoint, directory or file of weights",
                       .where = options.path.empty() ? "an empty path" : options.path,
                       .remedy = "check --weights or --train_dir"});
  }
  if (!files.info(options.path).is_directory) return load_file(options);
  TrainedModel trained;
  trained.checkpoint = train::find_checkpoint(options.path);
  trained.identity = train::read_checkpoint_identity(trained.checkpoint);
  train::CheckpointIdentity expected = trained.identity;
  if (!options.model.empty()) expected.model = options.model;
  if (!options.dataset.empty()) expected.dataset = options.dataset;
  if (options.num_classes != 0) expected.num_classes = options.num_classes;
  const auto reader = train::open_checkpoint(trained.checkpoint, &expected);
  make_executor(trained, options);
  trained.parameters->load(core::ScopedReader(*reader, "model/"));
  if (options.kernels.choices != nullptr) options.kernels.choices->load(core::ScopedReader(*reader, "kernels/"));
  trained.label_names = load_label_names(*reader);
  load_evaluation_options(*reader, trained.input);
  return trained;
}

}  // namespace trainyard::recipes
