// The meaning of each operation a second time, by definition: loops in double, no library, no gradient. Tests compare
// executors' values with it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "trainyard/nn/execution/executor.h"

namespace trainyard::nn::naive {

struct Values {
  int64_t batch = 0;
  Shape shape;               // without the batch
  std::vector<double> data;  // [batch, shape...], rows last
};

using Buffers = std::map<std::string, std::vector<double>>;  // by full name

// images: [N, C, H, W] double, contiguous; `set` holds the graph's parameters in double under their own names; in
// training `buffers` are updated.
Values forward(const Graph& graph, const ParameterSet& set, const at::Tensor& images, Mode mode,
               const StepRandom& random, Buffers& buffers);

// The buffers of a set of double.
Buffers buffers_of(const ParameterSet& set);

}  // namespace trainyard::nn::naive
