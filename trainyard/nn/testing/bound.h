// A graph that is ready to run, for tests.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/nn/graph/graph.h"

namespace trainyard::nn::testing {

// An executor in inference, and variables of its own that are initialized.
struct Bound {
  explicit Bound(const Graph& graph, const std::string& kind = "reference", uint64_t seed = 7)
      : executor(make_executor(kind, graph, {.mode = Mode::kInference, .parameters = &set})) {
    set.allocate();
    set.initialize(seed);
  }
  ParameterSet set;
  std::unique_ptr<Executor> executor;
};

}  // namespace trainyard::nn::testing
