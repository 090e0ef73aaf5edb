#include "trainyard/nn/execution/executor.h"

#include <fmt/core.h>

#include "trainyard/core/base/error.h"

namespace trainyard::nn {
namespace {

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

void Executor::check_input(const at::Tensor& images) const {
  const Shape& expected = graph().input_shape();
  const bool fits = images.defined() && images.dim() == static_cast<int64_t>(expected.size()) + 1 &&
                    images.sizes().slice(1) == at::IntArrayRef(expected) && images.size(0) > 0;
  if (fits && images.is_floating_point()) return;
  const std::string actual =
      images.defined() ? fmt::format("{} of {}", to_string(images.sizes().vec()), toString(images.scalar_type()))
                       : "an undefined tensor";
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = "the images do not fit the model",
                     .where = graph().name,
                     .expected = fmt::format("a batch of {} of a float type", to_string(expected)),
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
  if (context.gradients != nullptr && &context.gradients->parameters() != context.parameters) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "the gradient sink belongs to another parameter set", .where = graph.name});
  }
  return make(graph, context);
}

}  // namespace trainyard::nn
