// Position embeddings of a transformer for images of another size than those that its weights were trained on: a vector
// for each patch, interpolated between the vectors of the patches that there were.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/export.h"
#include "trainyard/core/base/stateful.h"
#include "trainyard/nn/graph/graph.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

// A parameter [1, tokens + patches, C]: vectors of tokens that have no place, then those of the patches, row by row.
struct PositionGrid {
  std::string parameter{};
  int64_t tokens = 1;
  nn::Size2d patches{};  // of the model's images: rows and columns
  nn::Size2d saved = 0;  // of the images that the weights were trained on; 0: not known, as many as patches or a square
};

// Returns the embeddings of a graph that add to the patches of an image behind a class token. `saved_image` is the size
// of the images that the weights are for; 0: not known.
[[nodiscard]] std::vector<PositionGrid> position_grids(const nn::Graph& graph, nn::Size2d saved_image = 0);

// Returns `saved`, [1, tokens + grid.saved's patches, C], for the grid's own patches: bicubic, the first and the last
// row and column staying where they are (align_corners), as torchvision's interpolate_embeddings() does. Vectors of
// tokens stay as they are.
[[nodiscard]] at::Tensor interpolate_positions(const at::Tensor& saved, const PositionGrid& grid);

// Returns how many rows and columns of patches an embedding of this shape is for: grid.saved where that is known, else
// those of the model where there are as many, else a square. 0 where the shape is that of no such embedding.
[[nodiscard]] nn::Size2d saved_patches(const nn::Shape& shape, const PositionGrid& grid);

// Returns a reader of the same entries that interpolates the named ones as they are read into a tensor. Names begin
// with `prefix` in `reader`, which must outlive the result.
[[nodiscard]] std::unique_ptr<core::StateReader> interpolating_reader(const core::StateReader& reader,
                                                                      const std::string& prefix,
                                                                      std::vector<PositionGrid> grids);

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
