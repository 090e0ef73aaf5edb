// Makes the network that is quantized: batch norms vanish into the convolutions before them.
#pragma once

#include <map>
#include <memory>

#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/nn/graph/graph.h"

namespace trainyard::nn {

// A graph with values of its own for all that it declares, in float32.
struct FoldedNetwork {
  Graph graph{};
  std::shared_ptr<ParameterSet> parameters{};
};

// The graph of the main output without batch norms behind convolutions, whatever the values are.
struct FoldedGraph {
  Graph given{};                 // main_output_graph()
  Graph graph{};                 // what is left of it
  std::map<int, int> norm_of{};  // by the id of a convolution of `given`: the batch norm that is folded into it
};
// Returns the graph that fold_batch_norms() makes.
[[nodiscard]] FoldedGraph fold_graph(const Graph& graph, bool all_biases = false);

// Returns the network of the graph's main output with its batch norms folded by their running statistics:
//   w'[o] = w[o] * a[o], b'[o] = (b[o] - running_mean[o]) * a[o] + shift[o], a = scale / sqrt(running_var + epsilon)
// for a convolution whose output only a batch norm reads. The convolution keeps its name and gets a bias, the batch
// norm's node vanishes. A batch norm that follows no convolution stays. With `all_biases` every convolution and linear
// layer gets a bias, zero where it had none. `parameters` has all that the graph declares. Throws kInvalidArgument when
// a parameter, or one of the new ones, is not finite; the message names it.
[[nodiscard]] FoldedNetwork fold_batch_norms(const Graph& graph, const ParameterSet& parameters,
                                             bool all_biases = false);

}  // namespace trainyard::nn
