#include "trainyard/recipes/shared/trained_model.h"

#include <string>
#include <utility>
#include <vector>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/base/scoped_state.h"
#include "trainyard/formats/tensors/tensor_file.h"
#include "trainyard/optim/averages/weight_average.h"
#include "trainyard/recipes/shared/image_options.h"
#include "trainyard/recipes/shared/image_size.h"
#include "trainyard/train/checkpoint/position_embedding.h"
#include "trainyard/train/checkpoint/weights.h"

namespace trainyard::recipes {
namespace {

// Returns the graph that the file holds, if the model that is wanted is that one; else null.
const nn::Graph* saved_graph(const OpenedModel& opened, const TrainedModel& wanted,
                             const TrainedModelOptions& options) {
  if (options.build || !opened.description.graph) return nullptr;
  const nn::Graph& graph = *opened.description.graph;
  const bool same_model = wanted.identity.model == opened.description.name;
  const bool same_classes = nn::Shape{wanted.identity.num_classes} == graph.output_shape();
  const bool same_size = options.image_size == nn::Size2d(0) || options.image_size == image_size_of(graph);
  return same_model && same_classes && same_size ? &graph : nullptr;
}

// Makes the graph of the identity, or `saved` where it is not null, and what runs it. `trained_on`: the size of the
// images that it was trained on, or 0.
void make_executor(TrainedModel& trained, const TrainedModelOptions& options, nn::Size2d trained_on,
                   const nn::Graph* saved) {
  const models::ModelOptions model{.num_classes = trained.identity.num_classes,
                                   .image_size = options.image_size == nn::Size2d(0) ? trained_on : options.image_size};
  const auto build = [&] {
    if (options.build) return options.build(model);
    return saved != nullptr ? *saved : models::build_model(trained.identity.model, trained.identity.dataset, model);
  };
  const nn::Graph graph = build();
  trained.parameters = std::make_unique<nn::ParameterSet>(nn::ParameterSetOptions{.device = options.device});
  trained.executor = nn::make_executor("auto", graph,
                                       {.device = options.device,
                                        .mode = nn::Mode::kInference,
                                        .frozen = true,
                                        .kernels = options.kernels,
                                        .parameters = trained.parameters.get()});
  trained.parameters->allocate();
  trained.input.training = false;
  trained.input.set_size(graph.input_shape()[1], graph.input_shape()[2]);
}

// Returns the prefix of the weights in a checkpoint that are asked for.
std::string prefix_of_weights(const OpenedModel& opened, const TrainedModelOptions& options) {
  std::string averaged(optim::kAveragedWeights);
  if (!options.averaged_weights || opened.reader->names(averaged).empty()) return "model/";
  core::log::info("the weights are the averaged ones of {} (--weights_of=last takes the last ones)",
                  opened.checkpoint.path);
  return averaged;
}

TrainedModel load_file(const OpenedModel& opened, const TrainedModelOptions& options) {
  const formats::TensorFile& file = *opened.weights;
  const train::CheckpointIdentity& said = opened.identity;
  const std::string model = options.model.empty() ? said.model : options.model;
  if (model.empty()) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "a file of weights does not say which model they are of",
                       .where = options.path,
                       .remedy = "pass --model, one of `trainyard models`"});
  }
  TrainedModel trained;
  trained.checkpoint = opened.checkpoint;
  trained.identity = {.model = model,
                      .dataset = !options.dataset.empty() ? options.dataset
                                 : !said.dataset.empty()  ? said.dataset
                                                          : "imagenet",
                      .num_classes = options.num_classes != 0 ? options.num_classes : said.num_classes};
  if (trained.identity.num_classes == 0) {
    trained.identity.num_classes = models::find_dataset(trained.identity.dataset).num_classes;
  }
  trained.classes = opened.classes;
  trained.label_names = trained.classes.by_output();
  const nn::Graph* const saved = saved_graph(opened, trained, options);
  // The size is the graph's, which an option may have changed.
  trained.input = opened.description.input;
  make_executor(trained, options, opened.image_size, saved);
  const std::vector<std::string> auxiliary =
      options.build || saved != nullptr
          ? std::vector<std::string>()
          : models::find_model(trained.identity.model, trained.identity.dataset).auxiliary;
  const train::LoadedWeights loaded =
      train::load_weights(file, *trained.parameters, trained.identity.num_classes, auxiliary,
                          train::position_grids(trained.executor->graph(), opened.image_size));
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

train::OpenedCheckpoint open_checkpoint(const TrainedModelOptions& options) try {
  const train::CheckpointIdentity expected{
      .model = options.model, .dataset = options.dataset, .num_classes = options.num_classes};
  return train::open_newest_checkpoint(options.path, &expected, options.damaged);
} catch (const core::Error& error) {
  if (error.code() != core::ErrorCode::kNotFound || core::local_file_system().exists(options.path)) throw;
  throw core::Error(core::ErrorCode::kNotFound, {.problem = "there is no such checkpoint, directory or file of weights",
                                                 .where = options.path.empty() ? "an empty path" : options.path,
                                                 .remedy = "check --weights or --train_dir"});
}

}  // namespace

OpenedModel open_model(const TrainedModelOptions& options) {
  OpenedModel opened;
  core::FileSystem& files = core::local_file_system();
  if (files.exists(options.path) && !files.info(options.path).is_directory) {
    opened.weights = std::make_shared<formats::TensorFile>(formats::open_tensor_file(options.path));
    opened.checkpoint.path = options.path;
    opened.description = train::described_in(opened.weights->metadata(), options.path);
    const train::ModelDescription& said = opened.description;
    const bool named = opened.weights->metadata().contains("trainyard.dataset");
    opened.identity = {.model = said.name, .dataset = named ? said.transform : "", .num_classes = said.num_classes};
    opened.classes = {.names = said.classes, .first_output = said.first_output};
    opened.image_size = train::image_size_in(opened.weights->metadata(), options.path);
    return opened;
  }
  return opened_model(open_checkpoint(options));
}

OpenedModel opened_model(train::OpenedCheckpoint checkpoint) {
  OpenedModel opened;
  static_cast<SavedClasses&>(opened) = saved_classes_in(*checkpoint.reader, checkpoint.info, checkpoint.identity);
  opened.image_size = saved_image_size(*checkpoint.reader);
  const train::ModelMetadata metadata = train::saved_metadata(*checkpoint.reader);
  if (!metadata.empty()) {
    opened.description = train::described_in(metadata, opened.checkpoint.path);
    const train::ModelDescription& said = opened.description;
    opened.image_size = {said.input.height, said.input.width};
    opened.classes = {.names = said.classes, .first_output = said.first_output};
  }
  opened.reader = std::move(checkpoint.reader);
  return opened;
}

TrainedModel load_trained_model(const OpenedModel& opened, const TrainedModelOptions& options) {
  if (opened.reader == nullptr) return load_file(opened, options);
  TrainedModel trained;
  trained.checkpoint = opened.checkpoint;
  trained.identity = opened.identity;
  const nn::Graph* const saved = saved_graph(opened, trained, options);
  if (saved != nullptr) trained.input = opened.description.input;
  make_executor(trained, options, opened.image_size, saved);
  const nn::Graph& graph = trained.executor->graph();
  const nn::Size2d trained_on = check_image_size(
      {.identity = opened.identity, .saved = opened.image_size, .graph = graph, .where = opened.checkpoint.path});
  trained.parameters->load(*train::interpolating_reader(*opened.reader, prefix_of_weights(opened, options),
                                                        train::position_grids(graph, trained_on)));
  if (options.kernels.choices != nullptr) {
    options.kernels.choices->load(core::ScopedReader(*opened.reader, "kernels/"));
  }
  trained.classes = opened.classes;
  trained.label_names = trained.classes.by_output();
  if (trained.label_names.empty()) trained.label_names = names_of_texts(opened.label_texts);
  load_evaluation_options(*opened.reader, trained.input);
  // An eval_resize_size is one for the images that the model was trained on.
  const data::TransformOptions now = trained.input;
  trained.input.height = trained_on.height;
  trained.input.width = trained_on.width;
  trained.input.set_size(now.height, now.width);
  return trained;
}

TrainedModel load_trained_model(const TrainedModelOptions& options) {
  return load_trained_model(open_model(options), options);
}

}  // namespace trainyard::recipes
