#include "trainyard/nn/reference/reference_executor.h"

#include <algorithm>

#include <ATen/core/grad_mode.h>

#include "trainyard/nn/execution/value_observer.h"
#include "trainyard/nn/reference/backward_observer.h"

namespace trainyard::nn {
namespace {

// Returns channels last for images, since oneDNN's and cuDNN's convolutions are faster in it. ATen has double's in the
// plain layout only.
at::MemoryFormat memory_format(at::ScalarType dtype, int64_t dimensions) {
  return dtype != at::kDouble && dimensions == 4 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
}

// Returns whether the operation's backward does not need its output, so that the next layer may overwrite it.
bool forgets_output(const Op& op) {
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
    if (user >= 0 && node.id != graph().output) layers_[static_cast<size_t>(user)].last_uses.push_back(node.id);
    if (node.inputs.empty()) continue;
    const auto first = static_cast<size_t>(node.inputs[0]);
    layers_[static_cast<size_t>(node.id)].reuse_input =
        users[first] == 1 && can_overwrite(node.op) && forgets_output(nodes[first].op);
  }
}

at::Tensor ReferenceExecutor::run(size_t index, std::vector<at::Tensor>& values, const StepRandom& random) {
  const Node& node = graph().nodes[index];
  Layer& layer = layers_[index];
  std::vector<at::Tensor> inputs;
  for (int input : node.inputs) inputs.push_back(values[static_cast<size_t>(input)]);
  for (int input : layer.last_uses) values[static_cast<size_t>(input)].reset();
  return layer.bound->run(inputs, layer.reuse_input, random);
}

void ReferenceExecutor::run_observed(size_t index, std::vector<at::Tensor>& values, const StepRandom& random) {
  const Node& node = graph().nodes[index];
  const reference::AutogradMark before = reference::autograd_mark();
  observer()->begins();
  const NodeRun::Clock::time_point begin = NodeRun::Clock::now();
  values[index] = run(index, values, random);
  const NodeRun ran{.nodes = {&node.id, 1}, .kernel = node.kind(), .begin = begin, .end = NodeRun::Clock::now()};
  observer()->ran(ran);
  if (auto* values_too = dynamic_cast<ValueObserver*>(observer()); values_too != nullptr) {
    values_too->made(ran, {&values[index], 1});
  }
  reference::observe_backward(values[index], before, node.id, *observer());
}

at::Tensor ReferenceExecutor::forward(const at::Tensor& images, const StepRandom& random) {
  check_input(images);
  require_allocated();
  const at::AutoGradMode autograd(context().mode == Mode::kTraining && c10::GradMode::is_enabled());
  std::vector<at::Tensor> values(graph().nodes.size());
  if (observer() != nullptr) observer()->begins();
  const NodeRun::Clock::time_point begin = NodeRun::Clock::now();
  values[0] = images.to(images.options().device(context().device).dtype(context().dtype))
                  .contiguous(memory_format(context().dtype, images.dim()));
  if (observer() != nullptr) {
    const Node& input = graph().nodes[0];
    observer()->ran({.nodes = {&input.id, 1}, .kernel = input.kind(), .begin = begin, .end = NodeRun::Clock::now()});
  }
  for (size_t index = 1; index < values.size(); ++index) {
    if (observer() != nullptr) {
      run_observed(index, values, random);
    } else {
      values[index] = run(index, values, random);
    }
  }
  const at::Tensor& logits = values[static_cast<size_t>(graph().output)];
  return at::isReducedFloatingType(logits.scalar_type()) ? logits.to(at::kFloat) : logits;
}

namespace {
const core::Registration<ExecutorFactory> kReference(executors(), "reference",
                                                     [](const Graph& graph, const BuildContext& context) {
                                                       return std::make_unique<ReferenceExecutor>(graph, context);
                                                     });
}  // namespace

}  // namespace trainyard::nn
