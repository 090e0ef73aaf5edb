#include "trainyard/nn/graph/custom_layer.h"

#include <algorithm>

#include <fmt/core.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/tensors.h"

namespace trainyard::nn {

CustomLayer::~CustomLayer() = default;

at::Tensor CustomLayer::declare(Variable variable) {
  const std::string& name = variable.spec.name;
  const auto fail = [&](std::string problem, std::string remedy) {
    return core::Error(core::ErrorCode::kInvalidArgument,
                       {.problem = std::move(problem), .where = name, .remedy = std::move(remedy)});
  };
  if (name.empty()) throw fail("a custom layer declares a tensor without a name", "name it, such as \"weight\"");
  if (std::ranges::any_of(variables_, [&](const Variable& other) { return other.spec.name == name; })) {
    throw fail("a custom layer declares two tensors of one name", "give each parameter and buffer a name of its own");
  }
  if (std::ranges::any_of(variable.spec.shape, [](int64_t extent) { return extent < 0; })) {
    throw fail(fmt::format("a custom layer declares a tensor of shape {}", to_string(variable.spec.shape)),
               "give parameter() the shape of the tensor, which has no batch");
  }
  if (!variable.tensor.defined()) variable.tensor = core::new_tensor(variable.spec.shape);
  variables_.push_back(variable);
  return variable.tensor;
}

at::Tensor CustomLayer::parameter(ParameterSpec spec) {
  return declare({.spec = std::move(spec)});
}

at::Tensor CustomLayer::buffer(BufferSpec spec) {
  return declare(
      {.spec = {.name = std::move(spec.name), .shape = std::move(spec.shape), .init = spec.init}, .is_buffer = true});
}

at::Tensor CustomLayer::buffer(std::string name, const at::Tensor& start) {
  if (!start.defined()) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "a custom layer's buffer has no values to start with", .where = std::move(name)});
  }
  return declare(
      {.spec = {.name = std::move(name), .shape = start.sizes().vec(), .init = {Initializer::Kind::kFromModule}},
       .tensor = start.detach().clone(),
       .is_buffer = true});
}

}  // namespace trainyard::nn
