// The model of a finished training, without its trainer.
#pragma once

#include "trainyard/frontends/model/trained_model.h"
#include "trainyard/frontends/session/saved_run.h"
#include "trainyard/nn/graph/graph.h"
#include "trainyard/train/step/tower_trainer.h"

namespace trainyard::frontends {

// Returns a copy of the trainer's parameters in host memory, with an executor of the graph's main output and the facts
// about the data in `run`, as if a checkpoint of this moment were loaded. Its `checkpoint` is empty. Call it between
// steps.
TrainedModel finished_model(train::TowerTrainer& trainer, const nn::Graph& graph, const SavedRunOptions& run);

}  // namespace trainyard::frontends
