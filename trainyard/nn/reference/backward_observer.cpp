#include "trainyard/nn/reference/backward_observer.h"

#include <limits>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <ATen/SequenceNumber.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include "trainyard/nn/execution/value_observer.h"

namespace trainyard::nn::reference {
namespace {

using torch::autograd::variable_list;

// Shared by the hooks in front of a function and behind it.
struct Stopwatch {
  std::string kernel;
  int node;
  NodeObserver* observer;
  ValueObserver* value_observer;  // the same, where it is one
  NodeRun::Clock::time_point begin;
};

struct StartHook : torch::autograd::FunctionPreHook {
  explicit StartHook(std::shared_ptr<Stopwatch> stopwatch) : watch(std::move(stopwatch)) {}
  variable_list operator()(const variable_list& gradients) override {
    watch->observer->begins();
    watch->begin = NodeRun::Clock::now();
    return gradients;
  }
  std::shared_ptr<Stopwatch> watch;
};

struct StopHook : torch::autograd::FunctionPostHook {
  explicit StopHook(std::shared_ptr<Stopwatch> stopwatch) : watch(std::move(stopwatch)) {}
  variable_list operator()(const variable_list& results, const variable_list&) override {
    const NodeRun run{.nodes = {&watch->node, 1},
                      .phase = NodeRun::Phase::kBackward,
                      .kernel = watch->kernel,
                      .begin = watch->begin,
                      .end = NodeRun::Clock::now()};
    watch->observer->ran(run);
    if (watch->value_observer != nullptr) watch->value_observer->made(run, results);
    return results;
  }
  std::shared_ptr<Stopwatch> watch;
};

std::string kernel_name(const torch::autograd::Node& function) {
  const std::string name = function.name();  // "ConvolutionBackward0", "torch::autograd::AccumulateGrad"
  const size_t scope = name.rfind("::");
  return scope == std::string::npos ? name : name.substr(scope + 2);
}

void observe(torch::autograd::Node& function, int node, NodeObserver& observer) {
  const auto watch = std::make_shared<Stopwatch>(
      Stopwatch{kernel_name(function), node, &observer, dynamic_cast<ValueObserver*>(&observer), {}});
  function.add_pre_hook(std::make_unique<StartHook>(watch));
  function.add_post_hook(std::make_unique<StopHook>(watch));
}

bool is_observed(const torch::autograd::Node& function) {
  for (const auto& hook : function.post_hooks()) {
    if (dynamic_cast<const StopHook*>(hook.get()) != nullptr) return true;
  }
  return false;
}

}  // namespace

AutogradMark autograd_mark() {
  return at::sequence_number::peek();
}

void observe_backward(const at::Tensor& output, AutogradMark before, int node, NodeObserver& observer) {
  // A function that accumulates into a leaf has the largest sequence number. It lives as long as some graph that uses
  // the leaf, so it may be observed already.
  constexpr uint64_t kLeaf = std::numeric_limits<uint64_t>::max();
  std::vector<torch::autograd::Node*> pending{output.grad_fn().get()};
  std::set<torch::autograd::Node*> seen;
  while (!pending.empty()) {
    torch::autograd::Node* function = pending.back();
    pending.pop_back();
    if (function == nullptr || function->sequence_nr() < before || !seen.insert(function).second) continue;
    if (function->sequence_nr() != kLeaf || !is_observed(*function)) observe(*function, node, observer);
    for (const auto& edge : function->next_edges()) pending.push_back(edge.function.get());
  }
}

}  // namespace trainyard::nn::reference
