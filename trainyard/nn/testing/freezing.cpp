#include "trainyard/nn/testing/freezing.h"

#include <utility>

#include <ATen/ops/equal.h>

namespace trainyard::nn::freezing {
namespace {

using Value = GraphBuilder::Value;
using Function = Activation::Function;

Convolution square(int64_t channels, int64_t kernel = 3, int64_t stride = 1) {
  return {.out_channels = channels, .kernel = kernel, .stride = stride, .padding = Padding::all(kernel / 2)};
}

Convolution linear_form(int64_t channels) {
  return {.out_channels = channels, .bias = true, .form = Convolution::Form::kLinear};
}

// Every activation behind a norm, a norm without a scale, depthwise and grouped convolutions, biases, concatenation,
// factors of channels, dropout, and layers that run through ATen.
Graph branches_graph() {
  GraphBuilder b({.image = {3, 9, 10}, .name = "branches"});
  Convolution start = square(20);
  start.bias = true;
  const Value x = b.activation("start.relu", b.convolution("start.conv", b.input(), start));
  Convolution depthwise = square(20);
  depthwise.groups = 20;
  const Value y = b.batch_norm("left.bn", b.convolution("left.conv", x, depthwise), {.epsilon = 0.1, .scale = false});
  const Value left = b.activation("left.relu6", y, Function::kRelu6);
  const Value z = b.batch_norm("middle.bn", b.convolution("middle.conv", x, square(19, 1)));
  const Value middle = b.activation("middle.silu", z, Function::kSilu);
  const Value right = b.average_pool("right.pool", x, {.kernel = 3, .stride = 1, .padding = Padding::all(1)});
  Value joined = b.batch_norm("joined.bn", b.concat("joined", {left, middle, right}));
  joined = b.activation("joined.hard_swish", joined, Function::kHardSwish);
  Value factors = b.linear("squeeze.fc", b.global_average_pool("squeeze.pool", joined), {.out_features = 59});
  factors = b.activation("squeeze.sigmoid", factors, Function::kSigmoid);
  Value end = b.dropout("end.drop", b.multiply("squeeze", joined, factors), 0.25);
  end = b.batch_norm("end.bn", b.convolution("end.conv", end, square(16, 3, 2)));
  end = b.batch_norm("end.gelu.bn", b.local_response_norm("end.lrn", end, {}));
  end = b.channel_shuffle("end.shuffle", b.activation("end.gelu", end, Function::kGelu), 4);
  end =
      b.channel_slice("end.slice", b.channel_pad("end.pad", end, {.before = 2, .after = 3}), {.begin = 1, .count = 18});
  end = b.adaptive_average_pool("end.adaptive", end, {3, 2});
  return b.build(b.linear("fc", b.flatten("flat", end), {.out_features = 5}));
}

// Layer norms, attention with and without windows, layer scales with stochastic depth, a class token.
Graph transformer_graph() {
  GraphBuilder b({.image = {3, 8, 8}, .name = "transformer"});
  Convolution patches{.out_channels = 32, .kernel = 2, .stride = 2, .bias = true};
  Value x = b.layer_norm("patches.ln", b.convolution("patches.conv", b.input(), patches), {});
  Value y = b.layer_norm("window.ln", x, {});
  y = b.convolution("window.qkv", y, linear_form(96));
  y = b.attention("window.attention", y, {.heads = 2, .window = 2, .shift = 1});
  y = b.layer_scale("window.scale", b.convolution("window.out", y, linear_form(32)), {Initializer::constant(0.5)});
  x = b.add("window.add", {x, b.stochastic_depth("window.depth", y, 0.25)});
  y = b.convolution("mlp.up", b.layer_norm("mlp.ln", x, {}), linear_form(48));
  y = b.convolution("mlp.down", b.activation("mlp.gelu", y, Function::kGelu), linear_form(32));
  x = b.add("mlp.add", {b.layer_scale("mlp.scale", y, {Initializer::constant(0.5)}), x});
  x = b.position_embedding("position", b.class_token("token", x, {}), {});
  y = b.convolution("all.qkv", x, linear_form(96));
  x = b.add("all.add", {x, b.attention("all.attention", y, {.heads = 2})});
  return b.build(b.linear("fc", b.global_average_pool("pool", x), {.out_features = 5}));
}

bool has(std::string_view name, std::string_view part) {
  return name.find(part) != std::string_view::npos;
}

bool is_norm(std::string_view name) {
  return has(name, "bn") || has(name, "ln.");
}

bool is_head(std::string_view name) {
  return name.starts_with("fc.");
}

// Returns whether a share of about 1 in 2 takes the parameter, another share for each salt.
bool is_drawn(std::string_view name, uint32_t salt) {
  uint32_t hash = 2166136261U + salt;
  for (const char letter : name) hash = (hash ^ static_cast<uint8_t>(letter)) * 16777619U;
  return (hash >> 13) % 2 == 0;
}

}  // namespace

Graph residual_graph() {
  GraphBuilder b({.image = {3, 12, 12}, .name = "residual"});
  const auto block = [&](const std::string& name, Value x, const Convolution& op) {
    return b.batch_norm(name + ".bn", b.convolution(name + ".conv", x, op));
  };
  Value x = b.activation("stem.relu", block("stem", b.input(), square(20)));
  x = b.max_pool("stem.pool", x, {.kernel = 3, .stride = 2, .padding = Padding::all(1)});
  Value y = b.activation("first.a.relu", block("first.a", x, square(24, 3, 2)));
  y = block("first.b", y, square(24));
  x = b.activation("first.relu", b.add("first.add", {y, block("first.shortcut", x, square(24, 1, 2))}));
  y = b.activation("second.a.relu", block("second.a", x, square(16, 1)));
  y = block("second.b", y, square(24));
  x = b.activation("second.relu", b.add("second.add", {x, y}));
  return b.build(b.linear("fc", b.global_average_pool("pool", x), {.out_features = 5}));
}

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.name;
}

std::vector<Case> cases() {
  using Choice = std::pair<std::string, std::function<bool(std::string_view)>>;
  const std::vector<Choice> choices = {
      {"Nothing", [](std::string_view) { return false; }},
      {"AllBelowTheHead", [](std::string_view name) { return !is_head(name); }},
      {"TheHead", is_head},
      {"Norms", is_norm},
      {"AllButNorms", [](std::string_view name) { return !is_norm(name); }},
      {"Weights", [](std::string_view name) { return name.ends_with("weight"); }},
      {"Biases", [](std::string_view name) { return name.ends_with("bias"); }},
      {"ConvolutionWeights", [](std::string_view name) { return name.ends_with("conv.weight"); }},
      {"AllButABlock",
       [](std::string_view name) {
         return !name.starts_with("first.") && !name.starts_with("middle.") && !name.starts_with("window.");
       }},
      {"AllButOneConvolution",
       [](std::string_view name) {
         return name != "first.a.conv.weight" && name != "joined.bn.bias" && name != "mlp.up.weight";
       }},
      {"Everything", [](std::string_view) { return true; }},
      {"ADraw", [](std::string_view name) { return is_drawn(name, 1); }},
      {"AnotherDraw", [](std::string_view name) { return is_drawn(name, 2); }},
      {"AThirdDraw", [](std::string_view name) { return is_drawn(name, 3); }},
  };
  const std::vector<std::pair<std::string, Graph>> graphs = {
      {"Residual", residual_graph()}, {"Branches", branches_graph()}, {"Transformer", transformer_graph()}};
  std::vector<Case> result;
  for (const auto& [graph_name, graph] : graphs) {
    for (const auto& [name, is_frozen] : choices) result.push_back({graph_name + name, graph, is_frozen});
  }
  return result;
}

void freeze(ParameterSet& set, const std::function<bool(std::string_view)>& is_frozen) {
  for (const Segment& segment : set.segments()) {
    set.set_trainable(segment.id, !is_frozen(segment.spec.name));
  }
}

Step step(conformance::Rig& rig, const std::vector<at::Tensor>& images, bool image_gradient) {
  const auto micro_steps = static_cast<int>(images.size());
  rig.set.gradients().fill_(7);
  Step result;
  for (int i = 0; i < micro_steps; ++i) {
    const at::Tensor leaf = images[static_cast<size_t>(i)].to(rig.executor->context().dtype).detach().clone();
    leaf.requires_grad_(image_gradient);
    rig.sink.begin(i, micro_steps);
    result.output = rig.executor->forward(leaf, conformance::kRandom);
    if (result.output.requires_grad()) result.output.backward(conformance::Rig::cotangent(result.output));
    rig.sink.finish();
    if (image_gradient) result.image_gradient = leaf.grad();
  }
  for (const Segment& segment : rig.set.segments()) {
    result.gradients[segment.spec.name] = rig.set.gradient(segment.id).clone();
  }
  result.buffers = buffers_of(rig.set);
  return result;
}

std::map<std::string, at::Tensor> buffers_of(const ParameterSet& set) {
  std::map<std::string, at::Tensor> buffers;
  for (int i = 0; i < static_cast<int>(set.buffer_count()); ++i) {
    buffers[set.buffer_spec(i).name] = set.buffer(i).clone();
  }
  return buffers;
}

void set_buffers(ParameterSet& set, const std::map<std::string, at::Tensor>& buffers) {
  for (const auto& [name, value] : buffers) set.buffer(*set.find_buffer(name)).copy_(value);
}

at::Tensor images_of(const Graph& graph, int64_t batch, std::string_view name) {
  Shape shape = graph.input_shape();
  shape.insert(shape.begin(), batch);
  return conformance::separated(shape, 2, name);
}

std::set<std::string> frozen_buffers(const Graph& graph, const ParameterSet& set) {
  std::set<std::string> names;
  for (const Node& node : graph.nodes) {
    bool trains = false;
    for (const ParameterSpec& spec : node.parameters) trains |= set.trainable(*set.find(spec.name));
    for (const BufferSpec& spec : node.buffers) {
      if (!trains) names.insert(spec.name);
    }
  }
  return names;
}

void expect_frozen_buffers_kept(const Graph& graph, const ParameterSet& set,
                                const std::map<std::string, at::Tensor>& start, const Step& actual) {
  const std::set<std::string> unchanged = frozen_buffers(graph, set);
  for (const auto& [name, buffer] : start) {
    const bool is_table = name.ends_with("index");  // attention's, which nothing changes
    EXPECT_EQ(at::equal(actual.buffers.at(name), buffer), is_table || unchanged.contains(name)) << name;
  }
}

Step step_once_thawed(conformance::Rig& rig, const std::function<bool(std::string_view)>& is_frozen,
                      const at::Tensor& images, bool image_gradient) {
  const auto start = buffers_of(rig.set);
  step(rig, {images}, image_gradient);
  freeze(rig.set, is_frozen);
  step(rig, {images}, image_gradient);
  freeze(rig.set, [](std::string_view) { return false; });
  set_buffers(rig.set, start);
  return step(rig, {images}, image_gradient);
}

std::set<int> nodes_that_train(const Graph& graph, const ParameterSet& set) {
  std::set<int> nodes;
  for (const Node& node : graph.nodes) {
    for (const ParameterSpec& spec : node.parameters) {
      if (set.trainable(*set.find(spec.name))) nodes.insert(node.id);
    }
    for (int input : node.inputs) {
      if (nodes.contains(input)) nodes.insert(node.id);
    }
  }
  return nodes;
}

}  // namespace trainyard::nn::freezing
