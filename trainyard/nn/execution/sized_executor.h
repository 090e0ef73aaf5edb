// Runs one network on images of several sizes, for trainings with progressive resizing.
//
//   auto executor = make_sized_executor("auto", graph_224, {graph_128, graph_192}, context);
//   executor->forward(images_128, random);  // runs graph_128 with the same parameters
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/graph/graph.h"

namespace trainyard::nn {

// Throws kInvalidArgument, naming the first that differs, unless both graphs have the same parameters and buffers, of
// the same shapes, and the same outputs: networks whose weights depend on the size of the images do not.
void check_same_parameters(const Graph& graph, const Graph& resized);

// Makes an executor that runs each batch on the graph for its size: `graph`, or the one of `other_sizes` whose inputs
// have the shapes of the batch. `graph` alone declares parameters, and prepare() prepares it. An executor for another
// size is made at its first batch, and destroyed with its memory at the first batch of yet another size. Throws as
// check_same_parameters() and make_executor() do.
std::unique_ptr<Executor> make_sized_executor(const std::string& name, const Graph& graph,
                                              const std::vector<Graph>& other_sizes, const BuildContext& context);

}  // namespace trainyard::nn
