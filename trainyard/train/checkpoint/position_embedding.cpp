#include "trainyard/train/checkpoint/position_embedding.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/upsample_bicubic2d.h>

#include "trainyard/core/base/log.h"
#include "trainyard/core/base/scoped_state.h"

namespace trainyard::train {
namespace {

class InterpolatingReader : public core::ScopedReader {
 public:
  InterpolatingReader(const core::StateReader& reader, const std::string& prefix, std::vector<PositionGrid> grids)
      : ScopedReader(reader, prefix), grids_(std::move(grids)) {}

  using core::ScopedReader::tensor;
  void tensor(const std::string& name, at::Tensor& destination) const override {
    const auto grid = std::find_if(grids_.begin(), grids_.end(), [&](const auto& g) { return g.parameter == name; });
    if (grid == grids_.end() || grid->saved == grid->patches) return ScopedReader::tensor(name, destination);
    const at::NoGradGuard no_grad;
    destination.copy_(interpolate_positions(ScopedReader::tensor(name), *grid));
  }

 private:
  const std::vector<PositionGrid> grids_;
};

}  // namespace

std::vector<PositionGrid> position_grids(const nn::Graph& graph, nn::Size2d saved_image) {
  std::vector<PositionGrid> grids;
  for (const nn::Node& node : graph.nodes) {
    if (!std::holds_alternative<nn::PositionEmbedding>(node.op)) continue;
    const nn::Node& tokens = graph.nodes[static_cast<size_t>(node.inputs[0])];
    if (!std::holds_alternative<nn::ClassToken>(tokens.op)) continue;
    const nn::Shape &patches = graph.nodes[static_cast<size_t>(tokens.inputs[0])].shape, &image = graph.input_shape();
    PositionGrid& grid = grids.emplace_back();
    grid.parameter = node.parameters.at(0).name;
    grid.patches = {patches[1], patches[2]};
    if (saved_image != nn::Size2d(0)) {
      grid.saved = {saved_image.height * patches[1] / image[1], saved_image.width * patches[2] / image[2]};
    }
  }
  return grids;
}

nn::Size2d saved_patches(const nn::Shape& shape, const PositionGrid& grid) {
  if (shape.size() != 3 || shape[0] != 1 || shape[1] <= grid.tokens) return 0;
  const int64_t count = shape[1] - grid.tokens;
  for (const nn::Size2d known : {grid.saved, grid.patches}) {
    if (known.height * known.width == count) return known;
  }
  const auto side = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(count))));
  return side * side == count ? side : 0;
}

at::Tensor interpolate_positions(const at::Tensor& saved, const PositionGrid& grid) {
  const nn::Size2d from = grid.saved, to = grid.patches;
  core::log::info("{} is interpolated from {} x {} patches to {} x {}", grid.parameter, from.height, from.width,
                  to.height, to.width);
  const int64_t channels = saved.size(2);
  const at::Tensor tokens = saved.narrow(1, 0, grid.tokens);
  const at::Tensor patches = saved.narrow(1, grid.tokens, saved.size(1) - grid.tokens)
                                 .transpose(1, 2)
                                 .reshape({1, channels, from.height, from.width});
  const at::Tensor scaled = at::upsample_bicubic2d(patches, {to.height, to.width}, true);
  return at::cat({tokens, scaled.flatten(2).transpose(1, 2)}, 1);
}

std::unique_ptr<core::StateReader> interpolating_reader(const core::StateReader& reader, const std::string& prefix,
                                                        std::vector<PositionGrid> grids) {
  return std::make_unique<InterpolatingReader>(reader, prefix, std::move(grids));
}

}  // namespace trainyard::train
