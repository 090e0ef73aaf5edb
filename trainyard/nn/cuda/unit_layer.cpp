#include "trainyard/nn/cuda/unit_layer.h"

#include <algorithm>
#include <utility>

namespace trainyard::nn::cuda {
namespace {

// Through ATen, node after node: what has no kernel here.
class PlainLayer : public UnitLayer {
 public:
  PlainLayer(const LayerContext& context, const Unit& unit, std::vector<BoundLayer*> layers) {
    int outside = 0;
    for (size_t n = 0; n < unit.nodes.size(); ++n) {
      Step step{.layer = layers[n]};
      for (const int input : context.node(unit.nodes[n]).inputs) {
        const auto own = std::find(unit.nodes.begin(), unit.nodes.end(), input);
        const bool inside = own != unit.nodes.end();
        step.sources.push_back({inside, inside ? static_cast<int>(own - unit.nodes.begin()) : outside++});
      }
      steps_.push_back(std::move(step));
    }
  }

  at::Tensor run(std::span<const at::Tensor> inputs, const StepRandom& random) override {
    std::vector<at::Tensor> values;
    for (const Step& step : steps_) {
      std::vector<at::Tensor> own;
      for (const Source& source : step.sources) {
        const auto index = static_cast<size_t>(source.index);
        own.push_back(source.inside ? values[index] : inputs[index]);
      }
      values.push_back(step.layer->run(own, /*reuse_input=*/false, random));
    }
    return values.back();
  }

 private:
  struct Source {
    bool inside;  // the unit: index counts its nodes, else the unit's inputs
    int index;
  };
  struct Step {
    BoundLayer* layer;
    std::vector<Source> sources;
  };
  std::vector<Step> steps_;
};

}  // namespace

ParameterId LayerContext::parameter(const Node& node, size_t index) const {
  return build.parameters->find(build.name_prefix + node.parameters[index].name).value();
}

at::Tensor LayerContext::buffer(const Node& node, size_t index) const {
  return build.parameters->buffer(build.parameters->find_buffer(build.name_prefix + node.buffers[index].name).value());
}

float* LayerContext::gradient(ParameterId id) const {
  return gradients() ? build.parameters->gradient(id).data_ptr<float>() : nullptr;
}

std::vector<int> unit_inputs(const Graph& graph, const Unit& unit) {
  std::vector<int> inputs;
  for (const int node : unit.nodes) {
    for (const int input : graph.nodes[static_cast<size_t>(node)].inputs) {
      if (std::find(unit.nodes.begin(), unit.nodes.end(), input) == unit.nodes.end()) inputs.push_back(input);
    }
  }
  return inputs;
}

Nonlinearity nonlinearity_of(const LayerContext& context, const Unit& unit) {
  if (unit.activation < 0) return {};
  return {.present = true, .function = std::get<Activation>(context.node(unit.activation).op).function};
}

std::unique_ptr<UnitLayer> make_unit_layer(const LayerContext& context, const Unit& unit,
                                           std::vector<BoundLayer*> plain) {
  for (const auto make : {make_norm_layer, make_convolution_layer, make_linear_layer, make_sum_layer,
                          make_max_pool_layer, make_mask_layer}) {
    if (std::unique_ptr<UnitLayer> layer = make(context, unit)) return layer;
  }
  if (std::unique_ptr<UnitLayer> layer = make_attention_layer(context, unit, *plain.front())) return layer;
  return std::make_unique<PlainLayer>(context, unit, std::move(plain));
}

}  // namespace trainyard::nn::cuda
