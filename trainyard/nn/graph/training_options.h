// Changes of a graph that affect only training: the rates of dropout and stochastic depth, and the decay of batch norm
// statistics. Parameters keep their names, shapes and order, so that checkpoints of the original graph fit the changed
// one; inference computes the same.
#pragma once

#include "trainyard/nn/graph/graph.h"

namespace trainyard::nn {

// Returns the graph with another decay of the running statistics of all batch norms: running = decay * running +
// (1 - decay) * batch; PyTorch's momentum is 1 - decay. Throws kInvalidArgument for a decay that is not in [0, 1], and
// for a graph without batch norms.
Graph with_batch_norm_decay(const Graph& graph, double decay);

// Returns the graph with this probability of dropping in all of its dropout layers (Srivastava et al., "Dropout: a
// simple way to prevent neural networks from overfitting", 2014). A graph without any gets one, named
// "<layer>.dropout", before the linear layer, or the convolution, of its main output. 0 drops nothing. Throws
// kInvalidArgument for a probability that is not in [0, 1), and for a graph whose output has no such layer.
Graph with_dropout(const Graph& graph, double drop);

// Returns the last node with weights before this output, if it is a linear layer or a convolution; only layers without
// parameters follow it. Returns null otherwise.
const Node* last_layer(const Graph& graph, const GraphOutput& output);

// Returns the graph with stochastic depth (Huang et al., "Deep networks with stochastic depth", 2016): the branch of
// residual block l of L is dropped, independently for each sample, with probability l / L * drop, and the rest divided
// by the probability of being kept, as torchvision.ops.stochastic_depth does in mode "row".
//
// The layers are called "<sum>.stochastic_depth". A residual block is a sum of two values, of which one, the branch,
// passes more convolutions and linear layers from their common origin than the other. 0 drops nothing.
//
// Throws kInvalidArgument for a probability that is not in [0, 1), for a graph without residual blocks, and for one
// that already has such layers: their rates are set when it is built.
Graph with_stochastic_depth(const Graph& graph, double drop);

}  // namespace trainyard::nn
