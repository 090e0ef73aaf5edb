// The model of a training that is done, apart from its trainer.
#pragma once

#include "trainyard/core/base/export.h"
#include "trainyard/nn/graph/graph.h"
#include "trainyard/recipes/run/saved_run.h"
#include "trainyard/recipes/shared/trained_model.h"
#include "trainyard/train/loop/single_cost_trainer.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::recipes {

// Returns a copy of the trainer's parameters in the host's memory, with an executor of the graph's main output and what
// `run` says of the data: as if a checkpoint of this moment were loaded. Its `checkpoint` is empty. Between steps.
TrainedModel finished_model(train::SingleCostTrainer& trainer, const nn::Graph& graph, const SavedRunOptions& run);

}  // namespace trainyard::recipes
TRAINYARD_EXPORT_END
