#include "trainyard/nn/export/keras_model.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/base/error.h"
#include "trainyard/nn/export/keras_weights.h"

namespace trainyard::nn {
namespace {

using Json = nlohmann::json;

struct KerasLayer {
  std::string class_name, name;
  Json config;
  std::vector<int> inputs;  // indices of layers
  int node = -1;            // of the graph, whose weights it has
};

Json pair_of(Size2d size) {
  return {size.height, size.width};
}

// A graph as layers of Keras: at least one for each node. Visits each node's operation.
class KerasNetwork {
 public:
  explicit KerasNetwork(const Graph& graph) : graph_(graph) {
    for (const Node& node : graph.nodes) node_names_.push_back(unique(node.name));
    for (const Node& node : graph.nodes) {
      node_ = &node;
      std::visit(*this, node.op);
      layers_.back().node = node.id;
      layer_of_.push_back(static_cast<int>(layers_.size()) - 1);
    }
    output_ = layer_of_[static_cast<size_t>(graph.output())];
  }

  void append_softmax() { output_ = add("Activation", unique("softmax"), {{"activation", "softmax"}}, {output_}); }

  const std::vector<KerasLayer>& layers() const { return layers_; }
  int output() const { return output_; }
  // Returns the names of the layers that have the nodes' weights, by node id.
  const std::vector<std::string>& node_names() const { return node_names_; }

  // Keras takes '/' for a part of a path, and its PyTorch backend no '.' in the name of anything that holds a weight.
  static std::string plain(std::string name) {
    std::replace_if(
        name.begin(), name.end(), [](char c) { return c == '/' || c == '.'; }, '_');
    return name;
  }

  void operator()(const Input&) {
    Json shape = {nullptr};
    for (const int64_t extent : channels_last(node_->shape)) shape.push_back(extent);
    add_main("InputLayer", {{"batch_input_shape", shape}, {"sparse", false}}, {});
  }

  void operator()(const Convolution& op) {
    if (op.form != Convolution::Form::kConvolution) {
      add_main("Dense", {{"units", op.out_channels}, {"use_bias", op.bias}}, inputs());
      return;
    }
    require(op.dilation == Size2d{1} || op.stride == Size2d{1}, "Keras has no stride beside a dilation");
    const Shape& in = input_shape();
    const Padding padding = resolve_padding(op.padding, {in[1], in[2]}, op.kernel, op.stride, op.dilation);
    const bool same = padding == tensorflow_same(op.kernel, op.stride, op.dilation);
    const int x = same ? inputs()[0] : pad(inputs()[0], padding);
    Json config = {
        {"kernel_size", pair_of(op.kernel)},     {"strides", pair_of(op.stride)}, {"padding", same ? "same" : "valid"},
        {"dilation_rate", pair_of(op.dilation)}, {"use_bias", op.bias},           {"data_format", "channels_last"}};
    if (op.groups == in[0] && in[0] > 1) {
      config["depth_multiplier"] = op.out_channels / in[0];
      add_main("DepthwiseConv2D", std::move(config), {x});
      return;
    }
    config["filters"] = op.out_channels;
    config["groups"] = op.groups;
    add_main("Conv2D", std::move(config), {x});
  }

  void operator()(const TransposedConvolution& op) {
    const bool plain_form = op.groups == 1 && op.padding == Size2d{0} && op.dilation == Size2d{1};
    // Keras' output is never smaller than its stride asks for: max(kernel - stride, 0) pixels more than in * stride.
    const bool kernel_covers = op.kernel.height >= op.stride.height && op.kernel.width >= op.stride.width;
    require(
        plain_form && kernel_covers && op.output_padding == Size2d{0},
        "Keras has transposed convolutions without groups, padding and dilation, of kernels as large as the stride");
    add_main("Conv2DTranspose",
             {{"filters", op.out_channels},
              {"kernel_size", pair_of(op.kernel)},
              {"strides", pair_of(op.stride)},
              {"padding", "valid"},
              {"use_bias", op.bias},
              {"data_format", "channels_last"}},
             inputs());
  }

  void operator()(const Upsample& op) {
    add_main("UpSampling2D",
             {{"size", {op.factor, op.factor}},
              {"interpolation", op.kind == Upsample::Kind::kNearest ? "nearest" : "bilinear"},
              {"data_format", "channels_last"}},
             inputs());
  }

  void operator()(const BatchNorm& op) {
    add_main("BatchNormalization",
             {{"axis", -1}, {"momentum", op.decay}, {"epsilon", op.epsilon}, {"center", true}, {"scale", op.scale}},
             inputs());
  }

  void operator()(const LayerNorm& op) {
    require(input_shape().size() <= 3, "its input is no image");
    add_main("LayerNormalization", {{"axis", -1}, {"epsilon", op.epsilon}, {"center", true}, {"scale", true}},
             inputs());
  }

  void operator()(const Activation& op) {
    using Function = Activation::Function;
    if (op.function == Function::kRelu6) {
      add_main("ReLU", {{"max_value", 6.0}, {"negative_slope", 0.0}, {"threshold", 0.0}}, inputs());
      return;
    }
    const char* const name = op.function == Function::kRelu          ? "relu"
                             : op.function == Function::kSilu        ? "swish"
                             : op.function == Function::kHardSwish   ? "hard_swish"
                             : op.function == Function::kHardSigmoid ? "hard_sigmoid"
                             : op.function == Function::kSigmoid     ? "sigmoid"
                             : op.function == Function::kGelu        ? "gelu"
                                                                     : "tanh";
    add_main("Activation", {{"activation", name}}, inputs());
  }

  void operator()(const Pool& op) {
    const Shape& in = input_shape();
    const Padding own = resolve_padding(op.padding, {in[1], in[2]}, op.kernel, op.stride);
    // What the windows reach: with ceil_mode more than the padding, without it at times less.
    const auto behind = [](int64_t size, int64_t out, int64_t kernel, int64_t stride, int64_t before) {
      return std::max<int64_t>((out - 1) * stride + kernel - size - before, 0);
    };
    Padding padding = own;
    padding.bottom = behind(in[1], node_->shape[1], op.kernel.height, op.stride.height, own.top);
    padding.right = behind(in[2], node_->shape[2], op.kernel.width, op.stride.width, own.left);
    const bool max = op.kind == Pool::Kind::kMax;
    const bool none = padding == Padding::valid();
    const bool same = !none && (max || !op.count_padding) && padding == tensorflow_same(op.kernel, op.stride, 1);
    int x = inputs()[0];
    if (!none && !same) {
      const bool counted = op.count_padding && padding.bottom <= own.bottom && padding.right <= own.right;
      require(max ? never_negative(node_->inputs[0]) : counted,
              max ? "Keras pads a maximum of numbers that may be negative as TensorFlow does only"
                  : "Keras averages windows at the border as TensorFlow does only");
      x = pad(x, padding);
    }
    add_main(max ? "MaxPooling2D" : "AveragePooling2D",
             {{"pool_size", pair_of(op.kernel)},
              {"strides", pair_of(op.stride)},
              {"padding", same ? "same" : "valid"},
              {"data_format", "channels_last"}},
             {x});
  }

  void operator()(const GlobalAveragePool&) {
    add_main("GlobalAveragePooling2D", {{"data_format", "channels_last"}}, inputs());
  }

  void operator()(const AdaptiveAveragePool& op) {
    const Shape& in = input_shape();
    require(in[1] % op.size.height == 0 && in[2] % op.size.width == 0,
            fmt::format("Keras averages windows of one size only, and {} does not divide into {} x {}", to_string(in),
                        op.size.height, op.size.width));
    const Json window = {in[1] / op.size.height, in[2] / op.size.width};
    add_main("AveragePooling2D",
             {{"pool_size", window}, {"strides", window}, {"padding", "valid"}, {"data_format", "channels_last"}},
             inputs());
  }

  void operator()(const Linear& op) {
    add_main("Dense", {{"units", op.out_features}, {"use_bias", op.bias}}, inputs());
  }

  void operator()(const Flatten&) { add_main("Flatten", {{"data_format", "channels_last"}}, inputs()); }
  void operator()(const Add&) { add_main("Add", Json::object(), inputs()); }

  void operator()(const Multiply&) {
    std::vector<int> both = inputs();
    const Shape& scale = graph_.nodes[static_cast<size_t>(node_->inputs[1])].shape;
    if (scale.size() == 1 && input_shape().size() == 3) {
      require(flatten_before(graph_, node_->inputs[1]) == nullptr,
              "its factors are the elements of a flattened image, which have another order in Keras");
      both[1] = reshape("scale", both[1], {1, 1, scale[0]});
    }
    add_main("Multiply", Json::object(), both);
  }

  void operator()(const Concat&) { add_main("Concatenate", {{"axis", -1}}, inputs()); }

  // Rows and columns can be padded and cut in Keras, so channels take the place of columns for a moment.
  void operator()(const ChannelPad& op) {
    const int x = add("ZeroPadding2D", unique(node_->name + "_pad"),
                      {{"padding", {{0, 0}, {op.before, op.after}}}, {"data_format", "channels_last"}},
                      {permute("before", inputs()[0], {1, 3, 2})});
    add_main("Permute", {{"dims", {1, 3, 2}}}, {x});
  }

  void operator()(const ChannelSlice& op) {
    const int64_t after = input_shape()[0] - op.begin - op.count;
    const int x = add("Cropping2D", unique(node_->name + "_crop"),
                      {{"cropping", {{0, 0}, {op.begin, after}}}, {"data_format", "channels_last"}},
                      {permute("before", inputs()[0], {1, 3, 2})});
    add_main("Permute", {{"dims", {1, 3, 2}}}, {x});
  }

  void operator()(const ChannelShuffle& op) {
    const Shape& in = input_shape();
    const int rows = reshape("rows", inputs()[0], {in[1], in[2], op.groups, in[0] / op.groups});
    const int columns = permute("columns", rows, {1, 2, 4, 3});
    add_main("Reshape", {{"target_shape", {in[1], in[2], in[0]}}}, {columns});
  }

  void operator()(const SpatialPad& op) {
    const auto positive = [](int64_t pixels) { return std::max<int64_t>(pixels, 0); };
    int x = inputs()[0];
    if (std::min({op.top, op.bottom, op.left, op.right}) < 0) {
      x = add("Cropping2D", unique(node_->name + "_crop"),
              {{"cropping", {{positive(-op.top), positive(-op.bottom)}, {positive(-op.left), positive(-op.right)}}},
               {"data_format", "channels_last"}},
              {x});
    }
    add_main("ZeroPadding2D",
             {{"padding", {{positive(op.top), positive(op.bottom)}, {positive(op.left), positive(op.right)}}},
              {"data_format", "channels_last"}},
             {x});
  }

  void operator()(const Dropout& op) {
    add_main("Dropout", {{"rate", op.drop}, {"seed", nullptr}, {"noise_shape", nullptr}}, inputs());
  }

  void operator()(const StochasticDepth& op) {
    Json whole_samples = {nullptr};
    for (size_t i = 0; i < node_->shape.size(); ++i) whole_samples.push_back(1);
    add_main("Dropout", {{"rate", op.drop}, {"seed", nullptr}, {"noise_shape", whole_samples}}, inputs());
  }

  template <typename Op>
  void operator()(const Op&) {
    require(false, "Keras has no such layer");
  }

 private:
  static Shape channels_last(Shape shape) {
    if (shape.size() == 3) std::rotate(shape.begin(), shape.begin() + 1, shape.end());
    return shape;
  }

  void require(bool good, const std::string& problem) const {
    if (good) return;
    throw core::Error(core::ErrorCode::kUnsupported,
                      {.problem = "a layer cannot be written as a model of Keras: " + problem,
                       .where = fmt::format("{} ({})", node_->name, node_->description()),
                       .remedy = "write its weights alone, or ONNX"});
  }

  const Shape& input_shape() const { return graph_.nodes[static_cast<size_t>(node_->inputs[0])].shape; }
  std::vector<int> inputs() const {
    std::vector<int> layers;
    for (const int id : node_->inputs) layers.push_back(layer_of_[static_cast<size_t>(id)]);
    return layers;
  }

  Padding tensorflow_same(Size2d kernel, Size2d stride, Size2d dilation) const {
    const Shape& in = input_shape();
    return resolve_padding(Padding::same(), {in[1], in[2]}, kernel, stride, dilation);
  }

  // Whether all numbers of a node are known to be 0 or more, so that zeros around it change no maximum.
  bool never_negative(int id) const {
    const Node& node = graph_.nodes[static_cast<size_t>(id)];
    if (const auto* const activation = std::get_if<Activation>(&node.op)) {
      using Function = Activation::Function;
      return activation->function == Function::kRelu || activation->function == Function::kRelu6 ||
             activation->function == Function::kSigmoid || activation->function == Function::kHardSigmoid;
    }
    const bool keeps_sign = std::holds_alternative<Pool>(node.op) || std::holds_alternative<Concat>(node.op) ||
                            std::holds_alternative<Add>(node.op) || std::holds_alternative<Dropout>(node.op) ||
                            std::holds_alternative<ChannelShuffle>(node.op) ||
                            std::holds_alternative<ChannelSlice>(node.op);
    return keeps_sign &&
           std::all_of(node.inputs.begin(), node.inputs.end(), [this](int input) { return never_negative(input); });
  }

  std::string unique(const std::string& wanted) {
    std::string name = plain(wanted);
    while (!names_.insert(name).second) name += "_";
    return name;
  }

  int add(const std::string& class_name, const std::string& name, Json config, std::vector<int> inputs) {
    config["name"] = name;
    config["dtype"] = "float32";
    if (class_name != "InputLayer") config["trainable"] = true;
    layers_.push_back(
        {.class_name = class_name, .name = name, .config = std::move(config), .inputs = std::move(inputs)});
    return static_cast<int>(layers_.size()) - 1;
  }
  // Adds the node's layer, after the layers that it needs.
  void add_main(const std::string& class_name, Json config, std::vector<int> inputs) {
    add(class_name, node_names_[static_cast<size_t>(node_->id)], std::move(config), std::move(inputs));
  }
  int pad(int x, const Padding& padding) {
    if (padding == Padding::valid()) return x;
    return add(
        "ZeroPadding2D", unique(node_->name + "_pad"),
        {{"padding", {{padding.top, padding.bottom}, {padding.left, padding.right}}}, {"data_format", "channels_last"}},
        {x});
  }
  int permute(const std::string& step, int x, const std::vector<int>& dims) {
    return add("Permute", unique(node_->name + "_" + step), {{"dims", dims}}, {x});
  }
  int reshape(const std::string& step, int x, const Shape& shape) {
    return add("Reshape", unique(node_->name + "_" + step), {{"target_shape", shape}}, {x});
  }

  const Graph& graph_;
  const Node* node_ = nullptr;
  std::set<std::string> names_;
  std::vector<std::string> node_names_;  // by node
  std::vector<KerasLayer> layers_;
  std::vector<int> layer_of_;  // by node
  int output_ = 0;
};

// What Keras calls a config: layers with what each is called with, first inputs first.
std::string config_of(const KerasNetwork& network, const std::string& name) {
  const std::vector<KerasLayer>& all = network.layers();
  const auto reference = [&](int layer) { return Json{all[static_cast<size_t>(layer)].name, 0, 0}; };
  Json layers = Json::array(), inputs = Json::array();
  for (size_t i = 0; i < all.size(); ++i) {
    const KerasLayer& layer = all[i];
    Json calls = Json::array();
    if (layer.inputs.empty()) {
      inputs.push_back(reference(static_cast<int>(i)));
    } else {
      Json call = Json::array();
      for (const int input : layer.inputs) {
        call.push_back(reference(input));
        call.back().push_back(Json::object());
      }
      calls.push_back(call);
    }
    layers.push_back(
        {{"class_name", layer.class_name}, {"name", layer.name}, {"config", layer.config}, {"inbound_nodes", calls}});
  }
  // Keras takes a list of one for a model that is called with a list.
  if (inputs.size() == 1) inputs = Json(inputs[0]);
  const Json config = {{"name", name},
                       {"trainable", true},
                       {"layers", layers},
                       {"input_layers", inputs},
                       {"output_layers", reference(network.output())}};
  return Json{{"class_name", "Functional"}, {"config", config}}.dump();
}

}  // namespace

formats::Hdf5Group to_keras_model(const Graph& graph, const ParameterSet& set, const KerasModelOptions& options) {
  const Graph main = main_output_graph(graph);
  if (const Node* const flatten = flatten_before(main, main.output()); flatten != nullptr) {
    throw core::Error(
        core::ErrorCode::kUnsupported,
        {.problem = "the elements of a flattened image, which are the output, have another order in Keras",
         .where = fmt::format("{} of {}", flatten->name, main.name),
         .expected = "an output of a linear layer, or an image that is not flattened",
         .remedy = "write its weights alone, or ONNX"});
  }
  KerasNetwork network(main);
  if (options.softmax) network.append_softmax();

  std::vector<std::vector<int>> inputs;
  for (const KerasLayer& layer : network.layers()) inputs.push_back(layer.inputs);
  std::vector<int> nodes;
  for (const int layer : keras_order(inputs, {network.output()})) {
    if (const int node = network.layers()[static_cast<size_t>(layer)].node; node >= 0) nodes.push_back(node);
  }
  formats::Hdf5Group weights = to_keras(main, set, nodes, network.node_names());
  formats::Hdf5Group root{.attributes = weights.attributes};
  std::erase_if(root.attributes, [](const auto& attribute) { return attribute.first.starts_with("layer_names"); });
  const std::string name = KerasNetwork::plain(main.name.empty() ? "model" : main.name);
  root.attributes.emplace_back("model_config", config_of(network, name));
  weights.name = "model_weights";
  root.groups.push_back(std::move(weights));
  return root;
}

}  // namespace trainyard::nn
