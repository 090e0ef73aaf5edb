#include "trainyard/nn/reference/reference_executor.h"

#include <algorithm>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/tensor.h>

#include "trainyard/core/base/work_count.h"
#include "trainyard/nn/execution/quantized_numbers.h"
#include "trainyard/nn/execution/value_observer.h"
#include "trainyard/nn/reference/backward_observer.h"
#include "trainyard/nn/reference/layers.h"

namespace trainyard::nn {
namespace {

// Returns channels last for images, since oneDNN's and cuDNN's convolutions are faster in it. ATen has double's in the
// plain layout only.
at::MemoryFormat memory_format(at::ScalarType dtype, int64_t dimensions) {
  return dtype != at::kDouble && dimensions == 4 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
}

// Returns whether the operation's backward does not need its output, so that the next layer may overwrite it.
bool backward_ignores_output(const Op& op) {
  return std::holds_alternative<Convolution>(op) || std::holds_alternative<BatchNorm>(op) ||
         std::holds_alternative<Linear>(op) || std::holds_alternative<Add>(op);
}

bool can_overwrite(const Op& op) {
  const auto* activation = std::get_if<Activation>(&op);
  return std::holds_alternative<Add>(op) ||
         (activation != nullptr && activation->function == Activation::Function::kRelu);
}

}  // namespace

ReferenceExecutor::ReferenceExecutor(const Graph& graph, const BuildContext& context)
    : Executor(graph, context), layers_(graph.nodes.size()) {
  for (const Node& node : Executor::graph().nodes) {
    layers_[static_cast<size_t>(node.id)].bound = std::make_unique<BoundLayer>(node, Executor::context());
  }
  if (context.quantization != nullptr) {
    quantized_ = quantized_nodes(Executor::graph(), *Executor::context().quantization);
  }
  plan_memory();
}

void ReferenceExecutor::plan_memory() {
  const std::vector<Node>& nodes = graph().nodes;
  std::vector<int> last_user(nodes.size(), -1), users(nodes.size(), 0);
  for (const Node& node : nodes) {
    for (int input : node.inputs) {
      last_user[static_cast<size_t>(input)] = node.id;
      ++users[static_cast<size_t>(input)];
    }
  }
  for (const Node& node : nodes) {
    const int user = last_user[static_cast<size_t>(node.id)];
    if (user >= 0 && !graph().is_output(node.id)) layers_[static_cast<size_t>(user)].last_uses.push_back(node.id);
    if (node.inputs.empty()) continue;
    const auto first = static_cast<size_t>(node.inputs[0]);
    layers_[static_cast<size_t>(node.id)].reuse_input = users[first] == 1 && !graph().is_output(node.inputs[0]) &&
                                                        can_overwrite(node.op) &&
                                                        backward_ignores_output(nodes[first].op);
  }
}

at::Tensor ReferenceExecutor::run_node(size_t index, std::vector<at::Tensor>& values, const StepRandom& random) {
  const Node& node = graph().nodes[index];
  Layer& layer = layers_[index];
  std::vector<at::Tensor> inputs;
  for (int input : node.inputs) inputs.push_back(values[static_cast<size_t>(input)]);
  for (int input : layer.last_uses) values[static_cast<size_t>(input)].reset();
  if (!quantized_) return compute(node, inputs, layer.reuse_input, random);
  at::Tensor value = quantized_->weights[index] != nullptr ? run_in_8_bits(index, inputs, random)
                                                           : layer.bound->run(inputs, layer.reuse_input, random);
  round_output(index, value);
  return value;
}

at::Tensor ReferenceExecutor::compute(const Node& node, std::span<const at::Tensor> inputs, bool reuse_input,
                                      const StepRandom& random) {
  return layer(node.id).run(inputs, reuse_input, random);
}

at::Tensor ReferenceExecutor::run_in_8_bits(size_t index, const std::vector<at::Tensor>& inputs,
                                            const StepRandom& random) {
  const Node& node = graph().nodes[index];
  const std::vector<float>& scales = *quantized_->weights[index];
  const auto formula = [&](const reference::LayerCall& call) {
    const at::Tensor& weight = call.variables[0];
    std::vector<int64_t> each_channel(static_cast<size_t>(weight.dim()), 1);
    each_channel[0] = -1;
    const at::Tensor scale = at::tensor(scales, at::kDouble).view(each_channel);
    std::vector<at::Tensor> variables{quantize_weights(node, weight, scales).to(at::kDouble) * scale};
    if (call.variables.size() > 1) {
      check_quantized_bias(node, call.variables[1]);
      variables.push_back(call.variables[1].to(at::kDouble));
    }
    const std::vector<at::Tensor> exact{call.x().to(at::kDouble)};
    reference::LayerCall rounded = call;
    rounded.inputs = exact;
    rounded.variables = variables;
    const auto* const convolution = std::get_if<Convolution>(&node.op);
    return convolution != nullptr ? reference::run(*convolution, rounded)
                                  : reference::run(std::get<Linear>(node.op), rounded);
  };
  return layers_[index].bound->run_as(formula, inputs, random).to(context().dtype);
}

void ReferenceExecutor::round_output(size_t index, at::Tensor& value) {
  const ActivationScale* const scale = quantized_->activations[index];
  if (scale == nullptr) return;
  const at::Tensor bad = at::isfinite(value).flatten(1).all(1).logical_not();
  non_finite_ = non_finite_.defined() ? non_finite_.logical_or(bad) : bad;
  value = fake_quantize(value, *scale);
}

void ReferenceExecutor::run_observed(size_t index, std::vector<at::Tensor>& values, const StepRandom& random) {
  const Node& node = graph().nodes[index];
  const reference::AutogradMark before = reference::autograd_mark();
  observer()->begins();
  const NodeRun::Clock::time_point begin = NodeRun::Clock::now();
  values[index] = run_node(index, values, random);
  const NodeRun ran{.nodes = {&node.id, 1}, .kernel = node.kind(), .begin = begin, .end = NodeRun::Clock::now()};
  observer()->ran(ran);
  if (auto* values_too = dynamic_cast<ValueObserver*>(observer()); values_too != nullptr) {
    values_too->made(ran, {&values[index], 1});
  }
  reference::observe_backward(values[index], before, node.id, *observer());
}

void ReferenceExecutor::enter(const Node& input, const at::Tensor& given, std::vector<at::Tensor>& values) {
  if (observer() != nullptr) observer()->begins();
  const NodeRun::Clock::time_point begin = NodeRun::Clock::now();
  values[static_cast<size_t>(input.id)] = given.to(given.options().device(context().device).dtype(context().dtype))
                                              .contiguous(memory_format(context().dtype, given.dim()));
  enter_input(input, values[static_cast<size_t>(input.id)]);
  if (quantized_) round_output(static_cast<size_t>(input.id), values[static_cast<size_t>(input.id)]);
  if (observer() == nullptr) return;
  observer()->ran({.nodes = {&input.id, 1}, .kernel = input.kind(), .begin = begin, .end = NodeRun::Clock::now()});
}

core::NamedTensors ReferenceExecutor::run(const core::NamedTensors& inputs, const StepRandom& random) {
  const std::vector<at::Tensor> given = checked_inputs(inputs);
  require_allocated();
  const at::AutoGradMode autograd(context().mode == Mode::kTraining && c10::GradMode::is_enabled());
  std::vector<at::Tensor> values(graph().nodes.size());
  non_finite_.reset();
  begin_run();
  auto next = given.begin();
  for (const Node& node : graph().nodes) {
    const auto index = static_cast<size_t>(node.id);
    if (std::holds_alternative<Input>(node.op)) {
      enter(node, *next++, values);
    } else if (observer() != nullptr) {
      run_observed(index, values, random);
    } else {
      values[index] = run_node(index, values, random);
    }
    core::count_work();
  }
  core::NamedTensors outputs;
  for (const GraphOutput& output : graph().outputs) {
    at::Tensor value = values[static_cast<size_t>(output.node)];
    if (non_finite_.defined()) {
      std::vector<int64_t> each_sample(static_cast<size_t>(value.dim()), 1);
      each_sample[0] = -1;
      value = value.masked_fill(non_finite_.view(each_sample), std::numeric_limits<double>::quiet_NaN());
    }
    outputs.set(output.name, at::isReducedFloatingType(value.scalar_type()) ? value.to(at::kFloat) : value);
  }
  return outputs;
}

namespace {
const core::Registration<ExecutorFactory> kReference(executors(), "reference",
                                                     [](const Graph& graph, const BuildContext& context) {
                                                       return std::make_unique<ReferenceExecutor>(graph, context);
                                                     });
}  // namespace

}  // namespace trainyard::nn
