// The model of a training that is done, apart from its trainer.
#pragma once

#include "trainyard/frontends/model/trained_model.h"
#include "trainyard/frontends/session/saved_run.h"
#include "trainyard/nn/graph/graph.h"
#include "trainyard/train/step/tower_trainer.h"

namespace trainyard::frontends {

// Returns a copy of the trainer's parameters in the host's memory, with an executor of the graph's main output and what
// `run` says of the data: as if a checkpoint of this moment were loaded. Its `checkpoint` is empty. Between steps.
TrainedModel finished_model(train::TowerTrainer& trainer, const nn::Graph& graph, const SavedRunOptions& run);

}  // namespace trainyard::frontends
