#include "trainyard/recipes/trained_model.h"

#include "trainyard/core/scoped_state.h"
#include "trainyard/models/model_registry.h"
#include "trainyard/recipes/benchmark_state.h"
#include "trainyard/recipes/image_options.h"

namespace trainyard::recipes {

TrainedModel load_trained_model(const std::string& path, const std::string& model, const std::string& dataset,
                                const nn::KernelOptions& kernels) {
  TrainedModel trained;
  trained.checkpoint = train::find_checkpoint(path);
  trained.identity = train::read_checkpoint_identity(trained.checkpoint);
  train::CheckpointIdentity expected = trained.identity;
  if (!model.empty()) expected.model = model;
  if (!dataset.empty()) expected.dataset = dataset;
  const auto reader = train::open_checkpoint(trained.checkpoint, &expected);
  const nn::Graph graph =
      models::build_model(expected.model, expected.dataset, {.num_classes = trained.identity.num_classes});
  trained.parameters = std::make_unique<nn::ParameterSet>();
  trained.executor = nn::make_executor(
      "auto", graph,
      {.mode = nn::Mode::kInference, .frozen = true, .kernels = kernels, .parameters = trained.parameters.get()});
  trained.parameters->allocate();
  trained.parameters->load(core::ScopedReader(*reader, "model/"));
  if (kernels.choices != nullptr) kernels.choices->load(core::ScopedReader(*reader, "kernels/"));
  trained.label_names = load_label_names(*reader);
  trained.input.training = false;
  trained.input.height = graph.input_shape()[1];
  trained.input.width = graph.input_shape()[2];
  load_evaluation_options(*reader, trained.input);
  return trained;
}

}  // namespace trainyard::recipes
