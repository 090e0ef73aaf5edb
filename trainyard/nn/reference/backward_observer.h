// Measures autograd's backward of a node of the graph, with hooks around each autograd function that the node's forward
// made.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "trainyard/nn/execution/node_observer.h"

namespace trainyard::nn::reference {

// A position in the sequence of autograd functions that this thread's forward makes.
using AutogradMark = uint64_t;
AutogradMark autograd_mark();

// Reports each autograd function that made `output` since `before` when backward runs it: as backward of `node`, with
// the function's name as the kernel. The accumulation of parameters' gradients, which includes the sink's writes,
// counts as the node's. Sums of gradients of a value with several users happen between functions and count as no
// node's. Does nothing without autograd. The observer must live until the backward has run.
void observe_backward(const at::Tensor& output, AutogradMark before, int node, NodeObserver& observer);

}  // namespace trainyard::nn::reference
