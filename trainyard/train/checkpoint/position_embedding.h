// Interpolates the position embeddings of a transformer (a vector for each patch) for images of another size than its
// weights were trained on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/stateful.h"
#include "trainyard/nn/graph/graph.h"

namespace trainyard::train {

// A parameter [1, tokens + patches, C]: vectors of tokens without a position, then those of the patches, row by row.
struct PositionGrid {
  std::string parameter{};
  int64_t tokens = 1;
  nn::Size2d patches{};  // patches of the model's images: rows and columns
  nn::Size2d saved =
      0;  // patches of the images that the weights were trained on; 0: unknown, as many as patches or a square
};

// Returns the embeddings that a graph adds to the patches of an image after a class token. `saved_image` is the size of
// the images that the weights are for; 0: not known.
[[nodiscard]] std::vector<PositionGrid> position_grids(const nn::Graph& graph, nn::Size2d saved_image = 0);

// Returns `saved`, [1, tokens + grid.saved's patches, C], interpolated to the grid's own patches: bicubic with
// align_corners, as torchvision's interpolate_embeddings() does. Vectors of tokens are copied.
[[nodiscard]] at::Tensor interpolate_positions(const at::Tensor& saved, const PositionGrid& grid);

// Returns how many rows and columns of patches an embedding of this shape is for: grid.saved when known, else those of
// the model when the number is the same, else a square. 0 when the shape is not such an embedding's.
[[nodiscard]] nn::Size2d saved_patches(const nn::Shape& shape, const PositionGrid& grid);

// Returns a reader of the same entries that interpolates the named ones as they are read into a tensor. Names begin
// with `prefix` in `reader`, which must outlive the result.
[[nodiscard]] std::unique_ptr<core::StateReader> interpolating_reader(const core::StateReader& reader,
                                                                      const std::string& prefix,
                                                                      std::vector<PositionGrid> grids);

}  // namespace trainyard::train
