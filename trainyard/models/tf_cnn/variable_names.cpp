#include "trainyard/models/tf_cnn/variable_names.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"

namespace trainyard::models {
namespace {

constexpr std::string_view kBackbone = "resnet34_backbone.";

const nn::Node* find_node(const nn::Graph& graph, std::string_view name) {
  const auto found =
      std::find_if(graph.nodes.begin(), graph.nodes.end(), [&](const nn::Node& node) { return node.name == name; });
  return found == graph.nodes.end() ? nullptr : &*found;
}

const nn::Convolution* convolution_called(const nn::Graph& graph, std::string_view name) {
  const nn::Node* const node = find_node(graph, name);
  return node == nullptr ? nullptr : std::get_if<nn::Convolution>(&node->op);
}

// Returns "layer2.0." of "layer2.0.conv1"; empty where the node is in no block of a ResNet.
std::string_view block_of(std::string_view name) {
  constexpr std::string_view kLayer = "layer";
  if (!name.starts_with(kLayer)) return {};
  const size_t first = name.find('.'), second = first == std::string_view::npos ? first : name.find('.', first + 1);
  return second == std::string_view::npos ? std::string_view() : name.substr(0, second + 1);
}

// Returns the nodes with parameters in the order in which the builder there makes them.
std::vector<const nn::Node*> building_order(const nn::Graph& graph) {
  std::vector<const nn::Node*> order;
  for (const nn::Node& node : graph.nodes) {
    if (node.parameters.empty()) continue;
    const std::string_view block = block_of(node.name);
    auto place = order.end();
    if (!block.empty() && std::string_view(node.name).substr(block.size()).starts_with("downsample")) {
      place = std::find_if(order.begin(), order.end(),
                           [&](const nn::Node* before) { return before->name == std::string(block) + "conv1"; });
    }
    order.insert(place, &node);
  }
  return order;
}

// What the modules of a network there are called, in order. Convolutions before the first are in none.
std::vector<std::string> module_kinds(const nn::Graph& graph) {
  if (find_node(graph, "module0") == nullptr) return {};
  std::vector<std::string> kinds;
  const auto add = [&](const char* kind, int count) { kinds.insert(kinds.end(), static_cast<size_t>(count), kind); };
  if (graph.name == "googlenet") add("incept_v1", 9);
  if (graph.name == "inception3") {
    add("incept_v3_a", 3);
    add("incept_v3_b", 1);
    add("incept_v3_c", 4);
    add("incept_v3_d", 1);
    add("incept_v3_e", 2);
  }
  if (graph.name == "inception4") {
    for (const char* kind : {"incept_v4_sa", "incept_v4_sb", "incept_v4_sc"}) add(kind, 1);
    add("incept_v4_a", 4);
    add("incept_v4_ra", 1);
    add("incept_v4_b", 7);
    add("incept_v4_rb", 1);
    add("incept_v4_c", 3);
  }
  return kinds;
}

// Convolutions before the first module.
int64_t convolutions_before_modules(const nn::Graph& graph) {
  return graph.name == "inception3" ? 5 : 3;
}

// The scopes in which a network there has its convolutions.
class Scopes {
 public:
  explicit Scopes(const nn::Graph& graph) : graph_(graph), modules_(module_kinds(graph)) {
    // Only bottlenecks are in scopes of their own.
    if (convolution_called(graph, "layer1.0.conv3") == nullptr) return;
    const nn::Convolution* const first = convolution_called(graph, "layer2.0.conv1");
    if (find_node(graph, "layer1.0.bn0") != nullptr) {
      block_ = "resnet_v2";
    } else {
      block_ = first != nullptr && first->stride == nn::Size2d(2) ? "resnet_v1" : "resnet_v1.5";
    }
  }

  // Returns "resnet_v10/", or "" for a convolution outside of all scopes. To be called for each convolution in order.
  std::string of_convolution(const nn::Node& node) {
    const int64_t number = convolutions_++;
    if (std::string_view(node.name).starts_with(kBackbone)) return "resnet34_backbone/";
    if (const std::string_view block = block_of(node.name); !block.empty() && !block_.empty()) {
      if (blocks_.empty() || blocks_.back() != block) blocks_.emplace_back(block);
      return fmt::format("{}{}/", block_, blocks_.size() - 1);
    }
    if (modules_.empty() || number < convolutions_before_modules(graph_)) return "";
    return module_scope(node);
  }

 private:
  // A module's convolutions are before the concatenation that ends it. All modules of a kind have the number 0: the
  // builder there counts the names with the number, not those without it.
  std::string module_scope(const nn::Node& node) const {
    for (size_t i = 0; i < modules_.size(); ++i) {
      const nn::Node* const end = find_node(graph_, fmt::format("module{}", i));
      if (end != nullptr && node.id < end->id) return modules_[i] + "0/";
    }
    return "";
  }

  const nn::Graph& graph_;
  std::vector<std::string> modules_;
  std::string block_;
  std::vector<std::string> blocks_;  // that had a convolution
  int64_t convolutions_ = 0;
};

void add_norm(const nn::Node& node, const std::string& scope, std::vector<BenchmarkVariable>& variables) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {".weight", "gamma"}, {".bias", "beta"}, {".running_mean", "moving_mean"}, {".running_var", "moving_variance"}};
  const auto add = [&](const std::string& name) {
    for (const auto& [end, variable] : kNames) {
      if (name == node.name + std::string(end)) variables.push_back({name, scope + std::string(variable)});
    }
  };
  for (const nn::ParameterSpec& parameter : node.parameters) add(parameter.name);
  for (const nn::BufferSpec& buffer : node.buffers) add(buffer.name);
}

[[noreturn]] void refuse(const nn::Graph& graph, const nn::Node& node) {
  throw core::Error(core::ErrorCode::kUnsupported,
                    {.problem = "the names of this network's variables in TensorFlow are not known",
                     .where = fmt::format("{}, layer {}", graph.name, node.name),
                     .expected = "convolutions, batch norms and affine layers of tf_cnn_benchmarks' layer builder",
                     .actual = std::string(node.kind()),
                     .remedy = "export the weights as safetensors or as a PyTorch state dict"});
}

bool is_plain(const nn::Convolution& op) {
  return op.groups == 1 && op.form == nn::Convolution::Form::kConvolution;
}

}  // namespace

std::vector<BenchmarkVariable> benchmark_variables(const nn::Graph& graph) {
  std::vector<BenchmarkVariable> variables;
  std::map<int, std::string> norm_scopes;  // by the id of a convolution that makes its norm itself
  Scopes scopes(graph);
  int convolutions = 0, norms = 0, affines = 0;
  for (const nn::Node* const node : building_order(graph)) {
    if (const auto* op = std::get_if<nn::Convolution>(&node->op); op != nullptr && is_plain(*op)) {
      const std::string scope = fmt::format("{}conv{}/", scopes.of_convolution(*node), convolutions++);
      variables.push_back({node->name + ".weight", scope + "conv2d/kernel", VariableLayout::kKernel});
      if (op->bias) {
        variables.push_back({node->name + ".bias", scope + "biases"});
      } else {
        norm_scopes[node->id] = scope;
      }
    } else if (std::holds_alternative<nn::BatchNorm>(node->op)) {
      const auto own = norm_scopes.find(node->inputs.front());
      const std::string scope = own == norm_scopes.end() ? "" : own->second;
      add_norm(*node, fmt::format("{}batchnorm{}/", scope, norms++), variables);
    } else if (const auto* linear = std::get_if<nn::Linear>(&node->op)) {
      const std::string scope = fmt::format("affine{}/", affines++);
      variables.push_back({node->name + ".weight", scope + "weights", VariableLayout::kMatrix});
      if (linear->bias) variables.push_back({node->name + ".bias", scope + "biases"});
    } else {
      refuse(graph, *node);
    }
  }
  return variables;
}

std::vector<BenchmarkVariable> official_backbone_variables(const nn::Graph& graph) {
  std::vector<BenchmarkVariable> variables;
  const auto numbered = [](const char* kind, int number) {
    return number == 0 ? fmt::format("{}/", kind) : fmt::format("{}_{}/", kind, number);
  };
  int convolutions = 0, norms = 0;
  for (const nn::Node& node : graph.nodes) {
    if (!std::string_view(node.name).starts_with(kBackbone)) continue;
    if (std::holds_alternative<nn::Convolution>(node.op)) {
      variables.push_back(
          {node.name + ".weight", numbered("conv2d", convolutions++) + "kernel", VariableLayout::kKernel});
    } else if (std::holds_alternative<nn::BatchNorm>(node.op)) {
      add_norm(node, numbered("batch_normalization", norms++), variables);
    }
  }
  return variables;
}

nn::Graph as_in_tf_cnn_benchmarks(nn::Graph graph) {
  if (convolution_called(graph, "layer1.0.conv3") == nullptr) return graph;
  for (nn::Node& node : graph.nodes) {
    auto* const pool = std::get_if<nn::Pool>(&node.op);
    if (pool != nullptr && node.name == "maxpool" && pool->padding == nn::Padding::all(1)) {
      pool->padding = nn::Padding::same();
    }
  }
  return graph;
}

std::vector<std::string> layers_of_flattened_images(const nn::Graph& graph) {
  std::vector<std::string> names;
  for (const nn::Node& node : graph.nodes) {
    if (!std::holds_alternative<nn::Linear>(node.op)) continue;
    // Past dropout, which has the shape of its input.
    const nn::Node* before = &graph.nodes[static_cast<size_t>(node.inputs.front())];
    while (before->kind() == "dropout") before = &graph.nodes[static_cast<size_t>(before->inputs.front())];
    if (before->kind() != "flatten") continue;
    const nn::Shape& image = graph.nodes[static_cast<size_t>(before->inputs.front())].shape;
    if (image.size() == 3 && image[1] * image[2] > 1) names.push_back(node.name);
  }
  return names;
}

}  // namespace trainyard::models
