#include "trainyard/nn/execution/executor.h"

#include <algorithm>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/registry.h"
#include "trainyard/nn/execution/gradient_sink.h"

namespace trainyard::nn {
namespace {

const Input& input_of(const Node& node) {
  return std::get<Input>(node.op);
}

ParameterSet& set_of(const BuildContext& context) {
  if (context.parameters != nullptr) return *context.parameters;
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = "an executor needs a parameter set", .where = "BuildContext::parameters"});
}

}  // namespace

ParameterId BuildContext::parameter(const ParameterSpec& spec) const {
  ParameterSpec named = spec;
  named.name = name_prefix + spec.name;
  return set_of(*this).declare(named);
}

int BuildContext::buffer(const BufferSpec& spec) const {
  BufferSpec named = spec;
  named.name = name_prefix + spec.name;
  return set_of(*this).declare_buffer(named);
}

at::Tensor Executor::forward(const at::Tensor& images, const StepRandom& random) {
  return run({{input_of(graph().nodes.front()).name, images}}, random).begin()->tensor;
}

std::vector<at::Tensor> Executor::checked_inputs(const core::NamedTensors& inputs) const {
  std::vector<std::string> names;
  for (const int id : graph().inputs()) names.push_back(input_of(graph().nodes[static_cast<size_t>(id)]).name);
  for (const auto& given : inputs) {
    if (std::find(names.begin(), names.end(), given.name) != names.end()) continue;
    throw core::unknown_name("input of " + graph().name, given.name, names);
  }
  std::vector<at::Tensor> result;
  for (const int id : graph().inputs()) {
    const Node& node = graph().nodes[static_cast<size_t>(id)];
    const at::Tensor* const given = inputs.find(input_of(node).name);
    if (given == nullptr) {
      throw core::Error(core::ErrorCode::kInvalidArgument,
                        {.problem = fmt::format("the input '{}' is missing", input_of(node).name),
                         .where = graph().name,
                         .expected = fmt::format("{}", fmt::join(names, ", ")),
                         .actual = fmt::format("{}", fmt::join(inputs.names(), ", "))});
    }
    check_input(node, *given, result.empty() ? *given : result.front());
    result.push_back(*given);
  }
  return result;
}

void Executor::check_input(const Node& node, const at::Tensor& given, const at::Tensor& first) const {
  const bool fits = given.defined() && given.dim() == static_cast<int64_t>(node.shape.size()) + 1 &&
                    given.sizes().slice(1) == at::IntArrayRef(node.shape) && given.size(0) > 0;
  if (fits && given.is_floating_point() && given.size(0) == first.size(0)) return;
  const bool other_batch = fits && given.size(0) != first.size(0);
  const std::string actual =
      given.defined() ? fmt::format("{} of {}", to_string(given.sizes().vec()), toString(given.scalar_type()))
                      : "an undefined tensor";
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = fmt::format("the input '{}' does not fit {}", input_of(node).name,
                                            other_batch ? "the others" : "the model"),
                     .where = graph().name,
                     .expected = other_batch ? fmt::format("a batch of {}", first.size(0))
                                             : fmt::format("a batch of {} of a float type", to_string(node.shape)),
                     .actual = actual});
}

void Executor::require_allocated() const {
  if (context().parameters->allocated()) return;
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = "the parameter set is not allocated",
                     .where = graph().name,
                     .remedy = "call allocate() once all executors that declare its parameters are made"});
}

void Executor::require_all_trainable(std::string_view executor) const {
  if (context().mode != Mode::kTraining || context().parameters->all_trainable()) return;
  throw core::Error(core::ErrorCode::kUnsupported,
                    {.problem = fmt::format("parameters cannot be frozen on {} yet", executor),
                     .where = graph().name,
                     .remedy = "train all parameters, or use the reference executor"});
}

void Executor::require_one_input_and_output(std::string_view executor) const {
  const size_t inputs = graph().inputs().size(), outputs = graph().outputs.size();
  if (inputs == 1 && outputs == 1) return;
  throw core::Error(core::ErrorCode::kUnsupported,
                    {.problem = fmt::format("{} cannot run a graph of several inputs or outputs yet", executor),
                     .where = graph().name,
                     .expected = "one input and one output",
                     .actual = fmt::format("{} and {}", inputs, outputs),
                     .remedy = "use the reference executor, or the main output alone (nn::main_output_graph)"});
}

ExecutorRegistry& executors() {
  static ExecutorRegistry registry("executor");
  return registry;
}

std::string fastest_executor(at::Device device, at::ScalarType dtype) {
  const bool sixteen_bits = dtype == at::kHalf || dtype == at::kBFloat16;
  if (device.is_cuda() && (dtype == at::kFloat || sixteen_bits)) return "cuda";
  return device.is_cpu() && (dtype == at::kFloat || dtype == at::kBFloat16) ? "cpu" : "reference";
}

std::unique_ptr<Executor> make_executor(const std::string& name, const Graph& graph, const BuildContext& context) {
  const ExecutorFactory& make =
      executors().get(name == "auto" ? fastest_executor(context.device, context.dtype) : name);
  set_of(context);
  if (context.frozen && context.mode != Mode::kInference) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "variables are constants in inference only", .where = graph.name});
  }
  if (context.quantization != nullptr && !context.frozen) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "a network computes in 8 bits only with constant variables",
                       .where = graph.name,
                       .expected = "BuildContext::frozen",
                       .actual = "variables that may change"});
  }
  if (context.quantization != nullptr && !context.device.is_cpu()) {
    throw core::Error(core::ErrorCode::kUnsupported, {.problem = "networks compute in 8 bits on CPUs only",
                                                      .where = graph.name,
                                                      .expected = "the CPU",
                                                      .actual = context.device.str()});
  }
  if (context.sync_batch_norm != nullptr && !context.device.is_cpu()) {
    throw core::Error(core::ErrorCode::kUnsupported,
                      {.problem = "batch norms meet those of other replicas on CPUs only",
                       .where = graph.name,
                       .expected = "no exchange of statistics, or the CPU",
                       .actual = context.device.str()});
  }
  if (context.gradients != nullptr && &context.gradients->parameters() != context.parameters) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "the gradient sink belongs to another parameter set", .where = graph.name});
  }
  return make(graph, context);
}

}  // namespace trainyard::nn
