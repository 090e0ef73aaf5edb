// Changes of a graph that concern its training alone: the rates of dropout and stochastic depth, and how fast batch
// norm statistics follow. Parameters keep their names, their shapes and their order, so that checkpoints of the graph
// before fit the one after; inference computes the same.
#pragma once

#include "trainyard/nn/graph/graph.h"

namespace trainyard::nn {

// Returns the graph with another decay of the running statistics of all batch norms: running = decay * running +
// (1 - decay) * batch; PyTorch's momentum is 1 - decay. Throws kInvalidArgument for a decay that is not in [0, 1], and
// for a graph without batch norms.
Graph with_batch_norm_decay(const Graph& graph, double decay);

// Returns the graph with this probability of dropping in all of its dropout layers (Srivastava et al., "Dropout: a
// simple way to prevent neural networks from overfitting", 2014). A graph without any gets one, named
// "<layer>.dropout", in front of the linear layer, or the convolution, that gives its main output. 0 drops nothing.
// Throws kInvalidArgument for a probability that is not in [0, 1), and for a graph whose output no such layer gives.
Graph with_dropout(const Graph& graph, double drop);

// Returns the node that gives this output's values by weights of its own: a linear layer or a convolution, behind which
// come layers without parameters alone. Null where another kind of layer does.
const Node* last_layer(const Graph& graph, const GraphOutput& output);

// Returns the graph with stochastic depth (Huang et al., "Deep networks with stochastic depth", 2016): the branch of
// residual block l of L is dropped, for each sample by itself, with probability l / L * drop, and the rest divided by
// the probability of being kept, as torchvision.ops.stochastic_depth does in mode "row".
//
// The layers are called "<sum>.stochastic_depth". A residual block is a sum of two values of which one, the branch,
// comes through more convolutions and linear layers than the other from where both begin. 0 drops nothing.
//
// Throws kInvalidArgument for a probability that is not in [0, 1), for a graph without residual blocks, and for one
// that has such layers: whoever builds it sets their rates.
Graph with_stochastic_depth(const Graph& graph, double drop);

}  // namespace trainyard::nn
