// A torch::nn::Module as a model, apart from the tests that train it: its headers take long to compile.
#pragma once

#include "trainyard/nn/graph/graph.h"

namespace trainyard::train {

// Images [N, 1, 1, 1] -> x * a * b, [N, 1]; a starts as 1, b as 2. With `noise`, in training, times numbers drawn from
// ATen's generator.
nn::Graph two_scalars(bool noise = false);

}  // namespace trainyard::train
