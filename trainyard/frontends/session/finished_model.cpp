#include "trainyard/frontends/session/finished_model.h"

namespace trainyard::frontends {

TrainedModel finished_model(train::TowerTrainer& trainer, const nn::Graph& graph, const SavedRunOptions& run) {
  TrainedModel model;
  model.identity = run.identity;
  model.classes = run.classes;
  model.label_names = model.classes.by_output();
  model.input = run.input;
  model.preprocessor = run.preprocessor;
  model.label_sets = run.label_sets;
  model.input.training = false;
  model.parameters = std::make_unique<nn::ParameterSet>();
  model.executor = nn::make_executor("auto", nn::main_output_graph(graph),
                                     {.mode = nn::Mode::kInference, .parameters = model.parameters.get()});
  model.parameters->allocate();
  trainer.wait();
  const nn::ParameterSet& from = trainer.parameters();
  for (const nn::Segment& segment : model.parameters->segments()) {
    model.parameters->value(segment.id).copy_(from.value(*from.find(segment.spec.name)));
  }
  for (int b = 0; b < static_cast<int>(model.parameters->buffer_count()); ++b) {
    model.parameters->buffer(b).copy_(from.buffer(*from.find_buffer(model.parameters->buffer_spec(b).name)));
  }
  model.parameters->values_changed();
  return model;
}

}  // namespace trainyard::frontends
