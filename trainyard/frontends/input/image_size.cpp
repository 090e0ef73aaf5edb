#include "trainyard/frontends/input/image_size.h"

#include <map>
#include <vector>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/train/checkpoint/position_embedding.h"

namespace trainyard::frontends {
namespace {

std::map<std::string, nn::Shape> parameter_shapes(const nn::Graph& graph) {
  std::map<std::string, nn::Shape> shapes;
  for (const nn::Node& node : graph.nodes) {
    for (const nn::ParameterSpec& parameter : node.parameters) shapes[parameter.name] = parameter.shape;
  }
  return shapes;
}

}  // namespace

nn::Size2d image_size_of(const nn::Graph& graph) {
  const nn::Shape& shape = graph.input_shape();
  if (shape.size() == 3) return {shape[1], shape[2]};
  throw core::Error(core::ErrorCode::kUnsupported, {.problem = "the model does not take images",
                                                    .where = graph.name,
                                                    .expected = "an input of [channels, height, width]",
                                                    .actual = nn::to_string(shape)});
}

nn::Size2d check_image_size(const ResizedModel& model) {
  const train::CheckpointIdentity& identity = model.identity;
  const nn::Size2d now = image_size_of(model.graph);
  if (model.saved == now) return now;
  const nn::Graph saved = models::build_model(identity.model, identity.dataset,
                                              {.num_classes = identity.num_classes, .image_size = model.saved});
  const nn::Size2d before = image_size_of(saved);
  if (before == now) return now;
  const std::vector<train::PositionGrid> grids = train::position_grids(model.graph, before);
  const std::map<std::string, nn::Shape> shapes = parameter_shapes(model.graph);
  for (const auto& [name, shape] : parameter_shapes(saved)) {
    const auto found = shapes.find(name);
    bool fits = found != shapes.end() && found->second == shape;
    // The same number of patches may be in other rows and columns.
    for (const train::PositionGrid& grid : grids) {
      if (grid.parameter == name) fits = model.interpolates_positions || grid.saved == grid.patches;
    }
    if (fits) continue;
    const std::string size = models::image_size_text(before);
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = fmt::format("the weights are for images of another size, which {} of {} depends on",
                                              name, identity.model),
                       .where = model.where,
                       .expected = size,
                       .actual = models::image_size_text(now),
                       .remedy = fmt::format("leave --image_size out, or pass --image_size={}{}{}", size,
                                             model.remedy.empty() ? "" : "; ", model.remedy)});
  }
  return before;
}

}  // namespace trainyard::frontends
