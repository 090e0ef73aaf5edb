#include "trainyard/nn/import/keras_import.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/base/error.h"
#include "trainyard/nn/export/keras_weights.h"

namespace trainyard::nn {
namespace {

using core::Error, core::ErrorCode;
using Json = nlohmann::json;
using Value = GraphBuilder::Value;

// A layer of a config and the layers that it is called with, by index.
struct ConfigLayer {
  std::string class_name, name;
  const Json* config = nullptr;
  std::vector<int> inputs;
};

[[noreturn]] void refuse_config(const std::string& problem, const std::string& where) {
  throw Error(ErrorCode::kCorruptData,
              {.problem = "the config of a Keras model cannot be used: " + problem, .where = where});
}

// Collects the names of the layers that a call names, in order. Keras 2 writes ["name", 0, 0, {}], Keras 3 tensors with
// a "keras_history".
void collect_inputs(const Json& call, std::vector<std::string>& names) {
  if (call.is_object()) {
    if (const auto history = call.find("keras_history"); history != call.end()) {
      names.push_back(history->at(0).get<std::string>());
      return;
    }
    for (const char* const part : {"args", "config"}) {
      if (const auto found = call.find(part); found != call.end()) collect_inputs(*found, names);
    }
    return;
  }
  if (!call.is_array()) return;
  if (call.size() >= 3 && call[0].is_string() && call[1].is_number_integer() && call[2].is_number_integer()) {
    names.push_back(call[0].get<std::string>());
    return;
  }
  for (const Json& part : call) collect_inputs(part, names);
}

// Returns the layers that the output needs, each behind its inputs.
std::vector<ConfigLayer> sorted_layers(const Json& model) {
  const Json& layers = model.at("layers");
  std::map<std::string, int> by_name;
  std::vector<std::vector<int>> inputs(layers.size());
  for (size_t i = 0; i < layers.size(); ++i) {
    if (!by_name.emplace(layers[i].at("name").get<std::string>(), static_cast<int>(i)).second) {
      refuse_config("two layers have one name", layers[i].at("name").get<std::string>());
    }
  }
  const auto index_of = [&](const std::string& name, const std::string& where) {
    const auto found = by_name.find(name);
    if (found == by_name.end()) refuse_config("there is no layer " + name, where);
    return found->second;
  };
  for (size_t i = 0; i < layers.size(); ++i) {
    const std::string name = layers[i].at("name").get<std::string>();
    const Json& calls = layers[i].at("inbound_nodes");
    if (calls.size() > 1) refuse_config("a layer is used several times", name);
    std::vector<std::string> names;
    collect_inputs(calls, names);
    for (const std::string& input : names) inputs[i].push_back(index_of(input, name));
  }
  std::vector<std::string> outputs;
  collect_inputs(model.at("output_layers"), outputs);
  if (outputs.size() != 1) refuse_config(fmt::format("{} outputs instead of one", outputs.size()), "output_layers");

  // Depth first, without recursion: a layer is placed when all its inputs are.
  std::vector<ConfigLayer> sorted;
  std::vector<int> place(layers.size(), -1);
  std::vector<bool> open(layers.size(), false);
  std::vector<int> stack = {index_of(outputs[0], "output_layers")};
  while (!stack.empty()) {
    const auto at = static_cast<size_t>(stack.back());
    if (place[at] >= 0) {
      stack.pop_back();
      continue;
    }
    bool ready = true;
    for (const int input : inputs[at]) {
      if (place[static_cast<size_t>(input)] >= 0) continue;
      if (open[static_cast<size_t>(input)]) refuse_config("layers feed each other", layers[at].at("name"));
      stack.push_back(input);
      ready = false;
    }
    open[at] = !ready;
    if (!ready) continue;
    stack.pop_back();
    place[at] = static_cast<int>(sorted.size());
    ConfigLayer layer{
        .class_name = layers[at].at("class_name"), .name = layers[at].at("name"), .config = &layers[at].at("config")};
    for (const int input : inputs[at]) layer.inputs.push_back(place[static_cast<size_t>(input)]);
    sorted.push_back(std::move(layer));
  }
  return sorted;
}

std::optional<Activation::Function> function_of(const std::string& name) {
  using Function = Activation::Function;
  static const std::map<std::string, Function> kFunctions = {
      {"relu", Function::kRelu},           {"relu6", Function::kRelu6},
      {"silu", Function::kSilu},           {"swish", Function::kSilu},
      {"hard_silu", Function::kHardSwish}, {"hard_swish", Function::kHardSwish},
      {"sigmoid", Function::kSigmoid},     {"hard_sigmoid", Function::kHardSigmoid},
      {"gelu", Function::kGelu},           {"tanh", Function::kTanh}};
  const auto found = kFunctions.find(name);
  return found == kFunctions.end() ? std::nullopt : std::optional(found->second);
}

// Builds the graph of sorted layers.
class GraphOfLayers {
 public:
  // `keras_2`: hard_sigmoid is clip(0.2 x + 0.5) there.
  GraphOfLayers(std::vector<ConfigLayer> layers, const std::string& name, bool keras_2)
      : layers_(std::move(layers)), builder_({.image = image_of(layers_), .name = name}), keras_2_(keras_2) {
    users_.resize(layers_.size(), 0);
    for (const ConfigLayer& layer : layers_) {
      for (const int input : layer.inputs) ++users_[static_cast<size_t>(input)];
    }
    for (const ConfigLayer& layer : layers_) add(layer);
  }

  KerasModel model() {
    KerasModel model{.graph = builder_.build(plain(tensors_.back())), .softmax = softmax_};
    if (const Node* const flatten = flatten_before(model.graph, model.graph.output()); flatten != nullptr) {
      throw Error(ErrorCode::kUnsupported,
                  {.problem = "the elements of a flattened image, which are the output, have another order in Keras",
                   .where = flatten->name + " (Flatten)",
                   .expected = "an output of a Dense, or an image that is not flattened"});
    }
    for (const Node& node : model.graph.nodes) {
      if (!std::holds_alternative<Multiply>(node.op) || node.shape.size() != 3) continue;
      if (flatten_before(model.graph, node.inputs[1]) == nullptr) continue;
      throw Error(ErrorCode::kUnsupported,
                  {.problem = "the elements of a flattened image, which are factors, have another order in Keras",
                   .where = node.name + " (Multiply)",
                   .expected = "factors of a Dense, or of an average of the image"});
    }
    std::vector<std::vector<int>> inputs;
    for (const ConfigLayer& layer : layers_) inputs.push_back(layer.inputs);
    for (const int layer : keras_order(inputs, {static_cast<int>(layers_.size()) - 1})) {
      if (const int node = weighted_[static_cast<size_t>(layer)]; node >= 0) model.nodes.push_back(node);
    }
    return model;
  }

 private:
  // What a layer gives: a node's value, perhaps in a form that only the next layers undo.
  struct Tensor {
    enum class Form {
      kPlain,
      kSwapped,  // channels and columns have changed places
      kRows,     // [H, W, groups, C / groups]
      kColumns,  // [H, W, C / groups, groups]
      kScale,    // a vector as [1, 1, C]
      kPadded,   // the value, to be padded by the convolution behind it
    };
    Value value{};
    Form form = Form::kPlain;
    int64_t groups = 0;
    Padding padding{};
  };
  using Form = Tensor::Form;

  static Shape image_of(const std::vector<ConfigLayer>& layers) {
    const ConfigLayer* input = nullptr;
    for (const ConfigLayer& layer : layers) {
      if (layer.class_name != "InputLayer") continue;
      if (input != nullptr) refuse_config("it has several inputs", layer.name);
      input = &layer;
    }
    if (input == nullptr) refuse_config("it has no input", "layers");
    const Json& config = *input->config;
    const Json& shape = config.contains("batch_shape") ? config["batch_shape"] : config.at("batch_input_shape");
    for (size_t i = 1; i < shape.size(); ++i) {
      if (!shape[i].is_number_integer() || shape[i] <= 0) {
        refuse_config("its images have no fixed size: " + shape.dump(), input->name);
      }
    }
    if (shape.size() != 4) refuse_config("its input is no image [H, W, C]: " + shape.dump(), input->name);
    return {shape[3], shape[1], shape[2]};
  }

  [[noreturn]] void refuse(const std::string& problem) const {
    throw Error(ErrorCode::kUnsupported, {.problem = "a layer of Keras has no counterpart: " + problem,
                                          .where = fmt::format("{} ({})", layer_->name, layer_->class_name)});
  }
  void require(bool good, const std::string& problem) const {
    if (!good) refuse(problem);
  }

  const Json& config() const { return *layer_->config; }
  template <typename T>
  T option(const char* name, T without) const {
    const auto found = config().find(name);
    return found == config().end() || found->is_null() ? without : found->get<T>();
  }
  // A norm names its axis as a number or in a list.
  int64_t axis() const {
    const Json axis = config().value("axis", Json(-1));
    return axis.is_array() ? axis.at(0).get<int64_t>() : axis.get<int64_t>();
  }
  Size2d size(const char* name) const {
    const Json& pair = config().at(name);
    if (pair.is_number_integer()) return pair.get<int64_t>();
    return {pair.at(0), pair.at(1)};
  }
  // {{top, bottom}, {left, right}}
  Padding pixels(const char* name) const {
    const Json& pairs = config().at(name);
    return {
        .top = pairs.at(0).at(0), .bottom = pairs.at(0).at(1), .left = pairs.at(1).at(0), .right = pairs.at(1).at(1)};
  }

  const Tensor& input(size_t index = 0) const {
    if (index >= layer_->inputs.size()) refuse_config("a layer has no input", layer_->name);
    return tensors_[static_cast<size_t>(layer_->inputs[index])];
  }
  // Returns a tensor whose form no layer has undone in the way that graphs can.
  Value plain(const Tensor& tensor) const {
    require(tensor.form == Form::kPlain, "what it takes was reshaped, permuted or padded");
    return tensor.value;
  }
  Value plain() const { return plain(input()); }
  bool is_image(Value value) const { return builder_.shape(value).size() == 3; }

  void give(Value value) { tensors_.push_back({.value = value}); }
  // Adds the activation that is part of a layer.
  void give_activated(Value value) {
    const std::string name = option<std::string>("activation", "linear");
    if (name == "softmax") return give_softmax(value);
    if (name == "linear") return give(value);
    const auto function = known_function(name);
    require(function.has_value(), "activation " + name);
    give(builder_.activation(layer_->name + "_" + name, value, *function));
  }
  std::optional<Activation::Function> known_function(const std::string& name) const {
    const auto function = function_of(name);
    require(!keras_2_ || function != Activation::Function::kHardSigmoid, "hard_sigmoid of Keras 2 has another slope");
    return function;
  }
  // A softmax at the end is the caller's to compute: graphs end with logits.
  void give_softmax(Value value) {
    require(layer_ == &layers_.back(), "a softmax before the end");
    softmax_ = true;
    give(value);
  }

  void add(const ConfigLayer& layer) {
    layer_ = &layer;
    weighted_.push_back(-1);
    try {
      require(option<std::string>("data_format", "channels_last") == "channels_last", "channels stand first");
      add_by_class();
    } catch (const Json::exception& error) {
      refuse_config(error.what(), layer.name);
    } catch (const Error& error) {
      // What graphs refuse as a mistake of the program is one of the file here.
      if (error.code() != ErrorCode::kInvalidArgument) throw;
      refuse(error.what());
    }
  }

  void add_by_class() {
    const std::string& kind = layer_->class_name;
    const std::string& name = layer_->name;
    if (kind == "InputLayer") return give(builder_.input());
    if (kind == "Conv2D" || kind == "DepthwiseConv2D") return add_convolution(kind == "DepthwiseConv2D");
    if (kind == "Conv2DTranspose") return add_transposed();
    if (kind == "Dense") return add_dense();
    if (kind == "BatchNormalization") return add_batch_norm();
    if (kind == "LayerNormalization") {
      require(axis() == -1 || axis() == (is_image(plain()) ? 3 : 1), fmt::format("axis {}", axis()));
      require(option("center", true) && option("scale", true) && !option("rms_scaling", false),
              "center or scale is false, or rms_scaling true");
      return give_weighted(builder_.layer_norm(name, plain(), {.epsilon = option("epsilon", 1e-3)}));
    }
    if (kind == "Activation" || kind == "ReLU" || kind == "Softmax") return add_activation();
    if (kind == "MaxPooling2D" || kind == "AveragePooling2D") return add_pool(kind == "MaxPooling2D");
    if (kind == "GlobalAveragePooling2D") {
      require(!option("keepdims", false), "keepdims");
      return give(builder_.global_average_pool(name, plain()));
    }
    if (kind == "Flatten") return give(builder_.flatten(name, plain()));
    if (kind == "Add" || kind == "Concatenate") {
      std::vector<Value> values;
      for (size_t i = 0; i < layer_->inputs.size(); ++i) values.push_back(plain(input(i)));
      if (kind == "Add") return give(builder_.add(name, values));
      const int64_t axis = option<int64_t>("axis", -1);
      require(axis == -1 || axis == (is_image(plain()) ? 3 : 1), fmt::format("axis {}", axis));
      return give(builder_.concat(name, values));
    }
    if (kind == "Multiply") {
      require(layer_->inputs.size() == 2, "it has other than two inputs");
      const Tensor& scale = input(1);
      return give(builder_.multiply(name, plain(), scale.form == Form::kScale ? scale.value : plain(scale)));
    }
    if (kind == "Dropout") {
      const Json noise = config().value("noise_shape", Json());
      const bool whole = noise.is_array();
      require(!whole || (!noise.empty() &&
                         std::all_of(noise.begin() + 1, noise.end(), [](const Json& size) { return size == 1; })),
              "noise_shape " + noise.dump());
      const double rate = option("rate", 0.5);
      return give(whole ? builder_.stochastic_depth(name, plain(), rate) : builder_.dropout(name, plain(), rate));
    }
    if (kind == "UpSampling2D") return add_upsample();
    if (kind == "ZeroPadding2D" || kind == "Cropping2D") return add_borders(kind == "Cropping2D");
    if (kind == "Permute") return add_permute();
    if (kind == "Reshape") return add_reshape();
    refuse("there is none of its class");
  }

  void give_weighted(Value value) {
    weighted_.back() = value.id;
    give(value);
  }

  Padding own_padding() const {
    const std::string padding = option<std::string>("padding", "valid");
    require(padding == "same" || padding == "valid", "padding " + padding);
    return padding == "same" ? Padding::same() : Padding::valid();
  }

  void add_convolution(bool depthwise) {
    Tensor from = input();
    Convolution op{.kernel = size("kernel_size"),
                   .stride = size("strides"),
                   .padding = own_padding(),
                   .dilation = size("dilation_rate"),
                   .bias = option("use_bias", true)};
    if (from.form == Form::kPadded) {
      op.padding = from.padding;
      from.form = Form::kPlain;
    }
    const Value x = plain(from);
    const int64_t channels = builder_.shape(x)[0];
    op.groups = depthwise ? channels : option<int64_t>("groups", 1);
    op.out_channels =
        depthwise ? channels * option<int64_t>("depth_multiplier", 1) : config().at("filters").get<int64_t>();
    const Value y = builder_.convolution(layer_->name, x, op);
    weighted_.back() = y.id;
    give_activated(y);
  }

  void add_transposed() {
    const TransposedConvolution op{.out_channels = config().at("filters"),
                                   .kernel = size("kernel_size"),
                                   .stride = size("strides"),
                                   .bias = option("use_bias", true)};
    const bool plain_form = own_padding() == Padding::valid() && config().value("output_padding", Json()).is_null() &&
                            (!config().contains("dilation_rate") || size("dilation_rate") == Size2d{1});
    require(plain_form && op.kernel.height >= op.stride.height && op.kernel.width >= op.stride.width,
            "padding, dilation, or a kernel smaller than the stride");
    const Value y = builder_.transposed_convolution(layer_->name, plain(), op);
    weighted_.back() = y.id;
    give_activated(y);
  }

  void add_dense() {
    const Value x = plain();
    const auto units = config().at("units").get<int64_t>();
    const bool bias = option("use_bias", true);
    const Value y =
        is_image(x) ? builder_.convolution(layer_->name, x,
                                           {.out_channels = units, .bias = bias, .form = Convolution::Form::kLinear})
                    : builder_.linear(layer_->name, x, {.out_features = units, .bias = bias});
    weighted_.back() = y.id;
    give_activated(y);
  }

  void add_batch_norm() {
    require(axis() == -1 || axis() == 3, fmt::format("axis {}", axis()));
    require(option("center", true), "center is false");
    give_weighted(builder_.batch_norm(layer_->name, plain(),
                                      {.epsilon = option("epsilon", 1e-3),
                                       .decay = option("momentum", 0.99),
                                       .scale = option("scale", true),
                                       .biased_running_variance = true}));
  }

  void add_activation() {
    const Value x = plain();
    if (layer_->class_name == "Softmax") return give_softmax(x);
    std::string function = "relu";
    if (layer_->class_name == "ReLU") {
      const double most = option("max_value", 0.0);
      require(most == 0 || most == 6, fmt::format("max_value {}", most));
      require(option("negative_slope", 0.0) == 0 && option("threshold", 0.0) == 0, "a slope or a threshold");
      if (most == 6) function = "relu6";
    } else {
      function = config().at("activation").get<std::string>();
    }
    if (function == "softmax") return give_softmax(x);
    if (function == "linear") return give(x);
    const auto known = known_function(function);
    require(known.has_value(), "activation " + function);
    give(builder_.activation(layer_->name, x, *known));
  }

  void add_pool(bool max) {
    const Pool op{.kernel = size("pool_size"), .stride = size("strides"), .padding = own_padding()};
    give(max ? builder_.max_pool(layer_->name, plain(), op) : builder_.average_pool(layer_->name, plain(), op));
  }

  void add_upsample() {
    const Size2d factor = size("size");
    const std::string how = option<std::string>("interpolation", "nearest");
    require(factor.height == factor.width && (how == "nearest" || how == "bilinear"),
            fmt::format("{} x {}, {}", factor.height, factor.width, how));
    give(builder_.upsample(
        layer_->name, plain(),
        {.kind = how == "nearest" ? Upsample::Kind::kNearest : Upsample::Kind::kBilinear, .factor = factor.height}));
  }

  void add_borders(bool crop) {
    const Padding border = pixels(crop ? "cropping" : "padding");
    if (input().form == Form::kSwapped) {
      require(border.top == 0 && border.bottom == 0, "rows and channels are changed at once");
      const Value x = input().value;
      const int64_t channels = builder_.shape(x)[0];
      const Value y = crop
                          ? builder_.channel_slice(
                                layer_->name, x, {.begin = border.left, .count = channels - border.left - border.right})
                          : builder_.channel_pad(layer_->name, x, {.before = border.left, .after = border.right});
      tensors_.push_back({.value = y, .form = Form::kSwapped});
      return;
    }
    // The convolution behind it pads by itself, in one pass.
    if (!crop && only_user_convolves()) {
      tensors_.push_back({.value = plain(), .form = Form::kPadded, .padding = border});
      return;
    }
    const int64_t sign = crop ? -1 : 1;
    give(builder_.spatial_pad(layer_->name, plain(),
                              {.top = sign * border.top,
                               .bottom = sign * border.bottom,
                               .left = sign * border.left,
                               .right = sign * border.right}));
  }

  bool only_user_convolves() const {
    const auto self = static_cast<int>(layer_ - layers_.data());
    if (users_[static_cast<size_t>(self)] != 1) return false;
    const auto user = std::find_if(layers_.begin(), layers_.end(), [self](const ConfigLayer& layer) {
      return std::find(layer.inputs.begin(), layer.inputs.end(), self) != layer.inputs.end();
    });
    return (user->class_name == "Conv2D" || user->class_name == "DepthwiseConv2D") &&
           user->config->value("padding", "valid") == "valid";
  }

  void add_permute() {
    const auto dims = config().at("dims").get<std::vector<int64_t>>();
    const Tensor& x = input();
    if (dims == std::vector<int64_t>{1, 3, 2} && (x.form == Form::kPlain || x.form == Form::kSwapped)) {
      tensors_.push_back({.value = x.value, .form = x.form == Form::kPlain ? Form::kSwapped : Form::kPlain});
      return;
    }
    require(dims == std::vector<int64_t>{1, 2, 4, 3} && x.form == Form::kRows, "no permutation of a channel shuffle");
    tensors_.push_back({.value = x.value, .form = Form::kColumns, .groups = x.groups});
  }

  void add_reshape() {
    const auto target = config().at("target_shape").get<std::vector<int64_t>>();
    const Tensor& x = input();
    const Shape& shape = builder_.shape(x.value);
    if (x.form == Form::kPlain && shape.size() == 1 && target == Shape{1, 1, shape[0]}) {
      tensors_.push_back({.value = x.value, .form = Form::kScale});
      return;
    }
    const bool image = shape.size() == 3;
    if (x.form == Form::kPlain && image && target.size() == 4 && target[2] > 0 && shape[0] % target[2] == 0 &&
        target == Shape{shape[1], shape[2], target[2], shape[0] / target[2]}) {
      tensors_.push_back({.value = x.value, .form = Form::kRows, .groups = target[2]});
      return;
    }
    require(x.form == Form::kColumns && target == Shape{shape[1], shape[2], shape[0]}, "no shape of a graph");
    give(builder_.channel_shuffle(layer_->name, x.value, x.groups));
  }

  std::vector<ConfigLayer> layers_;
  GraphBuilder builder_;
  std::vector<int> users_;  // by layer: how many take what it gives
  const bool keras_2_;
  const ConfigLayer* layer_ = nullptr;
  std::vector<Tensor> tensors_;  // by layer
  std::vector<int> weighted_;    // by layer: the node that has its weights, or -1
  bool softmax_ = false;
};

}  // namespace

KerasModel read_keras_model(const formats::Hdf5File& file) {
  const std::optional<std::string> text = file.text("/", "model_config");
  if (!text) {
    throw Error(ErrorCode::kCorruptData, {.problem = "the file holds no model of Keras, or its weights alone",
                                          .where = file.path(),
                                          .expected = "an attribute model_config"});
  }
  // Files of Keras 1 have no version.
  const bool keras_2 = !file.text("/", "keras_version").value_or("1").starts_with('3');
  try {
    const Json whole = Json::parse(*text);
    const std::string kind = whole.at("class_name");
    if (kind != "Functional" && kind != "Model") {
      throw Error(ErrorCode::kUnsupported, {.problem = "a model of Keras is not a functional one", .actual = kind});
    }
    const Json& config = whole.at("config");
    return GraphOfLayers(sorted_layers(config), config.value("name", "model"), keras_2).model();
  } catch (const Json::exception& error) {
    refuse_config(error.what(), file.path());
  } catch (const Error& error) {
    throw error.in(file.path());
  }
}

void load_keras_weights(const formats::Hdf5File& file, const KerasModel& model, ParameterSet& set) {
  try {
    load_keras(model.graph, set, model.nodes, file, "/model_weights");
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnsupported) throw;
    throw error.in(file.path());  // of a layer, whatever the file holds
  }
}

}  // namespace trainyard::nn
