// Sets the size of a graph's images in the options that make its input.
#pragma once

#include <algorithm>
#include <cstdint>

#include "trainyard/data/augment/transform.h"
#include "trainyard/nn/graph/graph.h"

namespace trainyard::train {

// Sets the size of `input` to that of the graph's images, if it takes images. A preset for another size is scaled in
// its ratio (TransformOptions::set_size): 256 for 224 becomes 110 for 96. An eval_resize_size that is smaller than the
// size in `input` was meant for the graph's images, and is kept.
inline void set_input_size(const nn::Graph& graph, data::TransformOptions& input) {
  const nn::Shape& image = graph.input_shape();
  if (image.size() != 3) return;
  if (input.eval_resize_size >= std::max(input.height, input.width)) return input.set_size(image[1], image[2]);
  input.height = image[1];
  input.width = image[2];
}

}  // namespace trainyard::train
