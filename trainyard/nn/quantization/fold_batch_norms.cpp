#include "trainyard/nn/quantization/fold_batch_norms.h"

#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/zeros.h>

#include "trainyard/core/base/error.h"
#include "trainyard/nn/quantization/weights_of.h"

namespace trainyard::nn {
namespace {

// FoldedValues by name, while the network is changed.
using FoldedValues = std::map<std::string, at::Tensor>;

std::map<int, int> find_norms(const Graph& graph) {
  std::vector<std::vector<int>> users(graph.nodes.size());
  for (const Node& node : graph.nodes) {
    for (int input : node.inputs) users[static_cast<size_t>(input)].push_back(node.id);
  }
  std::map<int, int> norm_of;
  for (const Node& node : graph.nodes) {
    const std::vector<int>& of = users[static_cast<size_t>(node.id)];
    if (!std::holds_alternative<Convolution>(node.op) || graph.is_output(node.id) || of.size() != 1) continue;
    if (std::holds_alternative<BatchNorm>(graph.nodes[static_cast<size_t>(of[0])].op)) norm_of[node.id] = of[0];
  }
  return norm_of;
}

// Gives a node of the graph a bias.
void add_bias(Node& node, const Graph& graph) {
  std::visit(
      [](auto& op) {
        if constexpr (requires { op.bias_init; }) {
          op.bias = true;
          op.bias_init = Initializer::zeros();
        }
      },
      node.op);
  std::vector<Shape> shapes;
  for (int input : node.inputs) shapes.push_back(graph.nodes[static_cast<size_t>(input)].shape);
  node.parameters.clear();
  node.buffers.clear();
  infer_node(node, shapes);
}

class Folding {
 public:
  Folding(const Graph& graph, const ParameterSet& parameters, bool all_biases)
      : all_(graph), folded_(fold_graph(graph, all_biases)), parameters_(parameters) {}

  FoldedNetwork fold() {
    for (const Node& node : folded_.graph.nodes) copy_values(node);
    std::shared_ptr<ParameterSet> set = make_set();  // which reads the graph
    return {.graph = std::move(folded_.graph), .parameters = std::move(set)};
  }

 private:
  void copy_values(const Node& kept) {
    const Node& node = folded_.given.node(kept.name);
    for (const ParameterSpec& spec : node.parameters) values_[spec.name] = value(spec.name);
    for (const BufferSpec& spec : node.buffers) values_[spec.name] = value(spec.name);
    if (has_bias(kept.op) && !has_bias(node.op)) values_[bias_name(kept)] = at::zeros({kept.shape[0]}, at::kFloat);
    const auto norm = folded_.norm_of.find(node.id);
    if (norm != folded_.norm_of.end()) fold(kept, folded_.given.nodes[static_cast<size_t>(norm->second)]);
  }

  void fold(const Node& convolution, const Node& norm) {
    const auto& op = std::get<BatchNorm>(norm.op);
    const auto of_norm = [&](const char* name) { return value(norm.name + "." + name).to(at::kDouble); };
    at::Tensor factor = of_norm("running_var").add(op.epsilon).rsqrt();
    if (op.scale) factor.mul_(of_norm("weight"));
    at::Tensor& weight = values_[weight_name(convolution)];
    at::Tensor& bias = values_[bias_name(convolution)];
    std::vector<int64_t> by_channel(static_cast<size_t>(weight.dim()), 1);
    by_channel[0] = -1;
    weight = weight.to(at::kDouble).mul_(factor.view(by_channel)).to(at::kFloat);
    bias = bias.to(at::kDouble).sub_(of_norm("running_mean")).mul_(factor).add_(of_norm("bias")).to(at::kFloat);
    require_finite(norm.name, weight);
    require_finite(norm.name, bias);
  }

  // Returns the value that is given, in float on the CPU.
  at::Tensor value(const std::string& name) const {
    const auto parameter = parameters_.find(name);
    const auto buffer = parameters_.find_buffer(name);
    if (!parameter && !buffer) {
      throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "the parameters are not those of the graph",
                                                            .where = folded_.given.name,
                                                            .expected = "'" + name + "'",
                                                            .actual = "no such parameter"});
    }
    const at::Tensor given = parameter ? parameters_.value(*parameter) : parameters_.buffer(*buffer);
    if (!given.is_floating_point()) return given.detach().cpu().clone();
    require_finite(name, given);
    return given.detach().to(at::kCPU, at::kFloat).clone();
  }

  static void require_finite(const std::string& name, const at::Tensor& value) {
    if (at::isfinite(value).all().item<bool>()) return;
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "a network with NaN or infinite numbers cannot be quantized",
                       .where = name,
                       .remedy = "take an earlier checkpoint"});
  }

  std::shared_ptr<ParameterSet> make_set() {
    add_custom_values();
    auto set = std::make_shared<ParameterSet>();
    for (const Node& node : folded_.graph.nodes) {
      for (const ParameterSpec& spec : node.parameters) set->declare(spec);
      for (const BufferSpec& spec : node.buffers) set->declare_buffer(spec);
    }
    for (const ParameterSpec& spec : custom_parameters_) set->declare(spec);
    for (const auto& [spec, start] : custom_buffers_) set->provide_buffer(set->declare_buffer(spec), start);
    set->allocate();
    for (const auto& [name, value] : values_) {
      if (const auto parameter = set->find(name)) {
        set->value(*parameter).copy_(value);
      } else {
        set->buffer(*set->find_buffer(name)).copy_(value);
      }
    }
    set->values_changed();
    return set;
  }

  // Only the set knows what custom layers have declared: what no node of the given graph has.
  void add_custom_values() {
    std::set<std::string> known;
    for (const Node& node : all_.nodes) {
      for (const ParameterSpec& spec : node.parameters) known.insert(spec.name);
      for (const BufferSpec& spec : node.buffers) known.insert(spec.name);
    }
    for (const Segment& segment : parameters_.segments()) {
      if (known.contains(segment.spec.name) || !belongs(segment.spec.name)) continue;
      custom_parameters_.push_back(segment.spec);
      values_[segment.spec.name] = value(segment.spec.name);
    }
    for (int index = 0; index < static_cast<int>(parameters_.buffer_count()); ++index) {
      const BufferSpec& spec = parameters_.buffer_spec(index);
      if (known.contains(spec.name) || !belongs(spec.name)) continue;
      custom_buffers_.emplace_back(spec, parameters_.buffer(index).detach().cpu().clone());
    }
  }
  bool belongs(const std::string& name) const {
    for (const Node& node : folded_.graph.nodes) {
      if (std::holds_alternative<Foreign>(node.op) && name.starts_with(node.name + ".")) return true;
    }
    return false;
  }

  const Graph& all_;
  FoldedGraph folded_;
  const ParameterSet& parameters_;
  FoldedValues values_;
  std::vector<ParameterSpec> custom_parameters_;
  std::vector<std::pair<BufferSpec, at::Tensor>> custom_buffers_;
};

}  // namespace

FoldedGraph fold_graph(const Graph& graph, bool all_biases) {
  FoldedGraph folded{.given = main_output_graph(graph)};
  folded.norm_of = find_norms(folded.given);
  folded.graph.name = folded.given.name;
  folded.graph.outputs = folded.given.outputs;
  std::set<int> norms;
  for (const auto& [convolution, norm] : folded.norm_of) norms.insert(norm);
  std::vector<int> new_ids(folded.given.nodes.size(), -1);
  for (const Node& node : folded.given.nodes) {
    const auto id = static_cast<size_t>(node.id);
    if (norms.contains(node.id)) {
      new_ids[id] = new_ids[static_cast<size_t>(node.inputs[0])];
      continue;
    }
    Node& kept = folded.graph.nodes.emplace_back(node);
    kept.id = new_ids[id] = static_cast<int>(folded.graph.nodes.size()) - 1;
    for (int& input : kept.inputs) input = new_ids[static_cast<size_t>(input)];
    const bool folds = folded.norm_of.contains(node.id);
    if (is_weighted(node.op) && !has_bias(node.op) && (folds || all_biases)) add_bias(kept, folded.graph);
  }
  for (GraphOutput& output : folded.graph.outputs) output.node = new_ids[static_cast<size_t>(output.node)];
  return folded;
}

FoldedNetwork fold_batch_norms(const Graph& graph, const ParameterSet& parameters, bool all_biases) {
  const at::NoGradGuard no_grad;
  return Folding(graph, parameters, all_biases).fold();
}

}  // namespace trainyard::nn
