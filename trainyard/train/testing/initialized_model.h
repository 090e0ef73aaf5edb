// A model with random weights, for tests that evaluate without a trainer.
#pragma once

#include <memory>
#include <utility>

#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/nn/graph/graph.h"

namespace trainyard::train {

struct InitializedModel {
  nn::Graph graph;
  nn::ParameterSet set;
  std::unique_ptr<nn::Executor> owner;  // which has declared the parameters

  explicit InitializedModel(nn::Graph network) : graph(std::move(network)) {
    owner = nn::make_executor("reference", graph, {.mode = nn::Mode::kInference, .parameters = &set});
    set.allocate();
    set.initialize(3);
  }
};

}  // namespace trainyard::train
