#include "trainyard/nn/export/keras_weights.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include <ATen/ops/from_blob.h>
#include <fmt/core.h>

#include "trainyard/core/base/error.h"
#include "trainyard/nn/export/exported_tensor.h"

namespace trainyard::nn {
namespace {

// What Keras keeps an attribute within: HDF5 allows 64 KiB, and its own parts count.
constexpr size_t kMaxAttributeBytes = 64512;

struct Weight {
  std::string name;
  at::Tensor value;  // a view of the set, its elements in Keras' order
  Shape shape;       // Keras'; none: the value's
};
using Weights = std::vector<Weight>;

// The image [C, H, W] whose pixels are the elements of a linear layer's input, in that order; else null.
const Shape* flattened_image(const Graph& graph, const Node& linear) {
  const Node* node = &linear;
  do {
    node = &graph.nodes[static_cast<size_t>(node->inputs[0])];
  } while (std::holds_alternative<Activation>(node->op) || std::holds_alternative<Dropout>(node->op) ||
           std::holds_alternative<StochasticDepth>(node->op));
  if (!std::holds_alternative<Flatten>(node->op)) return nullptr;
  const Shape& shape = graph.nodes[static_cast<size_t>(node->inputs[0])].shape;
  return shape.size() == 3 ? &shape : nullptr;
}

// One node's weights under Keras' names and in Keras' order: first those that are trained.
class KerasForm {
 public:
  KerasForm(const Graph& graph, const Node& node, const ParameterSet& set) : graph_(graph), node_(node), set_(set) {}

  // Conv2D's kernel is [height, width, in / groups, out]; DepthwiseConv2D's, where each channel is a group of its own,
  // [height, width, in, out / in]; a linear layer at each pixel is a Dense.
  Weights operator()(const Convolution& op) const {
    if (op.form != Convolution::Form::kConvolution) return with_bias({{"kernel", parameter(0).t()}}, op.bias);
    const int64_t in = graph_.nodes[static_cast<size_t>(node_.inputs[0])].shape[0];
    const int64_t height = op.kernel.height, width = op.kernel.width;
    const bool depthwise = op.groups == in && in > 1;
    const at::Tensor kernel =
        depthwise ? parameter(0).reshape({in, op.out_channels / in, height, width}).permute({2, 3, 0, 1})
                  : parameter(0).reshape({op.out_channels, in / op.groups, height, width}).permute({2, 3, 1, 0});
    return with_bias({{"kernel", kernel}}, op.bias);
  }

  // Conv2DTranspose's kernel is [height, width, out, in]. Keras has none with groups: those keep names and dimensions.
  Weights operator()(const TransposedConvolution& op) const {
    if (op.groups == 1) return with_bias({{"kernel", parameter(0).permute({2, 3, 1, 0})}}, op.bias);
    return with_bias({{"weight", parameter(0)}}, op.bias);
  }

  Weights operator()(const BatchNorm& op) const {
    Weights weights;
    if (op.scale) weights.push_back({"gamma", parameter(0)});
    weights.push_back({"beta", parameter(op.scale ? 1 : 0)});
    weights.push_back({"moving_mean", exported_buffer(set_, node_.buffers[0].name)});
    weights.push_back({"moving_variance", exported_buffer(set_, node_.buffers[1].name)});
    return weights;
  }

  Weights operator()(const LayerNorm&) const { return {{"gamma", parameter(0)}, {"beta", parameter(1)}}; }

  Weights operator()(const LayerScale&) const { return {{"gamma", parameter(0).flatten()}}; }

  // Dense's kernel is [in, out]; of an image that was flattened, `in` counts channels fastest.
  Weights operator()(const Linear& op) const {
    const at::Tensor weight = parameter(0);
    const Shape* const image = flattened_image(graph_, node_);
    if (image == nullptr) return with_bias({{"kernel", weight.t()}}, op.bias);
    const at::Tensor kernel =
        weight.reshape({op.out_features, (*image)[0], (*image)[1], (*image)[2]}).permute({2, 3, 1, 0});
    return with_bias({{"kernel", kernel, {weight.size(1), op.out_features}}}, op.bias);
  }

  Weights operator()(const Foreign& op) const {
    throw core::Error(core::ErrorCode::kUnsupported, {.problem = "a custom layer has no layout in HDF5",
                                                      .where = node_.name + " (" + op.description + ")",
                                                      .remedy = "write safetensors"});
  }

  // Layers without a counterpart keep names and dimensions.
  template <typename Op>
  Weights operator()(const Op&) const {
    Weights weights;
    const auto short_name = [&](const std::string& name) {
      return name.starts_with(node_.name + ".") ? name.substr(node_.name.size() + 1) : name;
    };
    for (const ParameterSpec& spec : node_.parameters) {
      weights.push_back({short_name(spec.name), exported_parameter(set_, spec.name)});
    }
    for (const BufferSpec& spec : node_.buffers) {
      weights.push_back({short_name(spec.name), exported_buffer(set_, spec.name)});
    }
    return weights;
  }

 private:
  at::Tensor parameter(size_t index) const { return exported_parameter(set_, node_.parameters.at(index).name); }
  Weights with_bias(Weights weights, bool bias) const {
    if (bias) weights.push_back({"bias", parameter(1)});
    return weights;
  }

  const Graph& graph_;
  const Node& node_;
  const ParameterSet& set_;
};

// Throws kUnsupported for weights of a flattened image's elements which would need another order in Keras.
Weights weights_of(const Graph& graph, const Node& node, const ParameterSet& set) {
  Weights weights = std::visit(KerasForm(graph, node, set), node.op);
  const bool reordered = std::holds_alternative<Linear>(node.op) && flattened_image(graph, node) != nullptr;
  if (weights.empty() || reordered) return weights;
  for (const int input : node.inputs) {
    const Node* const flatten = flatten_before(graph, input);
    if (flatten == nullptr) continue;
    throw core::Error(core::ErrorCode::kUnsupported,
                      {.problem = "weights of a flattened image's elements have another order in Keras",
                       .where = node.name,
                       .expected = "the Flatten of an image directly in front of a linear layer",
                       .actual = fmt::format("{}, with other layers between", flatten->name),
                       .remedy = "pool the image to one pixel first, or use safetensors"});
  }
  return weights;
}

// `name`, or "<name>0", "<name>1", ... where all would be too much for one attribute.
void add_names(formats::Hdf5Group& group, const std::string& name, const std::vector<std::string>& texts) {
  size_t longest = 1;
  for (const std::string& text : texts) longest = std::max(longest, text.size());
  const size_t at_once = kMaxAttributeBytes / longest;
  if (texts.size() <= at_once) {
    group.attributes.emplace_back(name, texts);
    return;
  }
  for (size_t begin = 0, number = 0; begin < texts.size(); begin += at_once, ++number) {
    const auto first = texts.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last = texts.begin() + static_cast<std::ptrdiff_t>(std::min(begin + at_once, texts.size()));
    group.attributes.emplace_back(fmt::format("{}{}", name, number), std::vector<std::string>(first, last));
  }
}

// The inverse of add_names().
std::vector<std::string> names_in(const formats::Hdf5File& file, const std::string& group, const std::string& name) {
  if (auto all = file.texts(group, name)) return *std::move(all);
  std::vector<std::string> joined;
  for (size_t number = 0;; ++number) {
    const auto part = file.texts(group, fmt::format("{}{}", name, number));
    if (!part) return joined;
    joined.insert(joined.end(), part->begin(), part->end());
  }
}

std::string path_in(const std::string& group, const std::string& name) {
  return group == "/" ? group + name : group + "/" + name;
}

// Returns whether a weight of the node, whose dimensions are `shape`, can be read from those of the file: the same
// ones, or those of a Conv2D of as many groups as channels, which has the numbers of a DepthwiseConv2D's [height,
// width, in, out / in] as [height, width, 1, out].
bool can_be_read(const Graph& graph, const Node& node, const Shape& shape, const Shape& of_file) {
  if (of_file == shape) return true;
  const auto* const op = std::get_if<Convolution>(&node.op);
  const bool depthwise =
      op != nullptr && shape.size() == 4 && op->groups == graph.nodes[static_cast<size_t>(node.inputs[0])].shape[0];
  return depthwise && of_file == Shape{shape[0], shape[1], 1, shape[2] * shape[3]};
}

formats::Hdf5Group layer_group(const std::string& layer, const Weights& weights) {
  formats::Hdf5Group group{.name = layer};
  std::vector<std::string> names;
  for (const Weight& weight : weights) {
    names.push_back(fmt::format("{}/{}", layer, weight.name));
    const Shape shape = weight.shape.empty() ? weight.value.sizes().vec() : weight.shape;
    group.datasets.push_back({names.back(), shape, [value = weight.value] {
                                const at::Tensor plain = value.to(at::kFloat).contiguous();
                                const float* const first = plain.const_data_ptr<float>();
                                return std::vector<float>(first, first + plain.numel());
                              }});
  }
  add_names(group, "weight_names", names);
  return group;
}

}  // namespace

std::vector<int> keras_order(const std::vector<std::vector<int>>& inputs, const std::vector<int>& outputs) {
  const size_t count = inputs.size();
  std::vector<int> depth(count, 0), found(count, -1), order;
  for (size_t id = count; id-- > 0;) {
    for (const int input : inputs[id]) {
      depth[static_cast<size_t>(input)] = std::max(depth[static_cast<size_t>(input)], depth[id] + 1);
    }
  }
  std::vector<int> stack(outputs.rbegin(), outputs.rend());
  while (!stack.empty()) {
    const int id = stack.back();
    stack.pop_back();
    if (found[static_cast<size_t>(id)] >= 0) continue;
    found[static_cast<size_t>(id)] = static_cast<int>(order.size());
    order.push_back(id);
    const std::vector<int>& below = inputs[static_cast<size_t>(id)];
    stack.insert(stack.end(), below.rbegin(), below.rend());
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return depth[static_cast<size_t>(a)] > depth[static_cast<size_t>(b)]; });
  return order;
}

std::vector<int> keras_order(const Graph& graph) {
  std::vector<std::vector<int>> inputs;
  std::vector<int> outputs;
  for (const Node& node : graph.nodes) inputs.push_back(node.inputs);
  for (const GraphOutput& output : graph.outputs) outputs.push_back(output.node);
  return keras_order(inputs, outputs);
}

const Node* flatten_before(const Graph& graph, int id) {
  std::vector<int> open{id};
  std::vector<bool> seen(graph.nodes.size(), false);  // sums of one value with itself double the ways to it
  while (!open.empty()) {
    const Node& node = graph.nodes[static_cast<size_t>(open.back())];
    open.pop_back();
    if (seen[static_cast<size_t>(node.id)]) continue;
    seen[static_cast<size_t>(node.id)] = true;
    if (node.shape.size() != 1 || std::holds_alternative<Linear>(node.op)) continue;
    if (std::holds_alternative<Flatten>(node.op)) {
      const Shape& from = graph.nodes[static_cast<size_t>(node.inputs[0])].shape;
      if (from.size() == 3 && from[0] > 1 && from[1] * from[2] > 1) return &node;
    }
    open.insert(open.end(), node.inputs.begin(), node.inputs.end());
  }
  return nullptr;
}

formats::Hdf5Group to_keras(const Graph& graph, const ParameterSet& set) {
  return to_keras(graph, set, keras_order(graph));
}

formats::Hdf5Group to_keras(const Graph& graph, const ParameterSet& set, const std::vector<int>& nodes,
                            const std::vector<std::string>& names) {
  formats::Hdf5Group root;
  std::vector<std::string> layers;
  for (const int id : nodes) {
    const Node& node = graph.nodes[static_cast<size_t>(id)];
    const Weights weights = weights_of(graph, node, set);
    if (weights.empty()) continue;
    layers.push_back(names.empty() ? node.name : names[static_cast<size_t>(id)]);
    root.groups.push_back(layer_group(layers.back(), weights));
  }
  add_names(root, "layer_names", layers);
  // Files of Keras 1 and of other backends had other dimensions: readers ask.
  root.attributes.emplace_back("backend", "tensorflow");
  root.attributes.emplace_back("keras_version", "3.0.0");
  return root;
}

void load_keras(const Graph& graph, ParameterSet& set, const std::vector<int>& nodes, const formats::Hdf5File& file,
                const std::string& group) {
  const auto require = [&](bool good, const std::string& where, const std::string& expected,
                           const std::string& actual) {
    if (good) return;
    throw core::Error(core::ErrorCode::kCorruptData, {.problem = "the weights are not those of the model",
                                                      .where = fmt::format("{}: {}", file.path(), where),
                                                      .expected = expected,
                                                      .actual = actual});
  };
  std::vector<std::pair<std::string, std::vector<std::string>>> layers;  // with weights
  for (const std::string& layer : names_in(file, group, "layer_names")) {
    std::vector<std::string> names = names_in(file, path_in(group, layer), "weight_names");
    if (!names.empty()) layers.emplace_back(path_in(group, layer), std::move(names));
  }
  require(layers.size() == nodes.size(), group, fmt::format("{} layers with weights", nodes.size()),
          std::to_string(layers.size()));
  for (size_t i = 0; i < nodes.size(); ++i) {
    const Node& node = graph.nodes[static_cast<size_t>(nodes[i])];
    const auto& [layer, names] = layers[i];
    const Weights weights = weights_of(graph, node, set);
    require(weights.size() == names.size(), layer, fmt::format("{} weights of {}", weights.size(), node.name),
            std::to_string(names.size()));
    for (size_t w = 0; w < weights.size(); ++w) {
      const at::Tensor& value = weights[w].value;
      const Shape shape = weights[w].shape.empty() ? value.sizes().vec() : weights[w].shape;
      formats::Hdf5Floats read = file.read(path_in(layer, names[w]));
      require(can_be_read(graph, node, shape, read.shape),
              fmt::format("{} for {}", path_in(layer, names[w]), node.name), to_string(shape), to_string(read.shape));
      value.copy_(at::from_blob(read.values.data(), value.sizes(), at::kFloat));
    }
  }
  set.values_changed();
}

}  // namespace trainyard::nn
