#include "trainyard/nn/execution/foreign_binding.h"

#include <algorithm>
#include <string>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <fmt/core.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/error.h"
#include "trainyard/nn/execution/sink_hook.h"

namespace trainyard::nn {
namespace {

// Returns how often each tensor was changed in place so far; LibTorch does not count it in its inference mode.
std::vector<int64_t> versions_of(std::span<const at::Tensor> tensors) {
  std::vector<int64_t> versions;
  for (const at::Tensor& x : tensors) versions.push_back(x.is_inference() ? 0 : static_cast<int64_t>(x._version()));
  return versions;
}

}  // namespace

ForeignBinding::ForeignBinding(const Node& node, const Foreign& op, const BuildContext& context)
    : name_(op.description.empty() ? context.name_prefix + node.name
                                   : fmt::format("{}{} ({})", context.name_prefix, node.name, op.description)),
      output_shape_(node.shape),
      context_(context),
      layer_(op.make()) {
  ParameterSet& set = *context.parameters;
  for (const CustomLayer::Variable& variable : layer_->variables()) {
    const at::Tensor& tensor = variable.tensor;
    const bool has_start = variable.spec.init.kind == Initializer::Kind::kFromModule;
    {
      const at::NoGradGuard no_grad;
      tensor.set_data(
          tensor.detach().to(context.device, tensor.is_floating_point() ? set.dtype() : tensor.scalar_type()));
    }
    const std::string name = node.name + "." + variable.spec.name;
    if (variable.is_buffer) {
      const int index = context.buffer({name, variable.spec.shape, variable.spec.init});
      if (has_start && !set.allocated()) set.provide_buffer(index, tensor);
      buffers_.push_back({tensor, index});
      continue;
    }
    ParameterSpec spec = variable.spec;
    spec.name = name;
    const ParameterId id = context.parameter(spec);
    if (has_start && !set.allocated()) set.provide(id, tensor);
    parameters_.push_back({tensor, id.index});
  }
  layer_->set_training(context.mode == Mode::kTraining);
}

void ForeignBinding::bind() {
  const at::NoGradGuard no_grad;
  const ParameterSet& set = *context_.parameters;
  for (const Variable& parameter : parameters_) {
    parameter.tensor.set_data(set.value({parameter.index}));
    if (context_.gradients != nullptr) {
      parameter.tensor.requires_grad_(true);
      send_gradients(parameter.tensor, *context_.gradients, {parameter.index});
    } else {
      parameter.tensor.requires_grad_(false);
    }
  }
  for (const Variable& buffer : buffers_) buffer.tensor.set_data(set.buffer(buffer.index));
  bound_ = true;
}

void ForeignBinding::follow_trainable() {
  const ParameterSet& set = *context_.parameters;
  if (trainable_version_ == set.trainable_version()) return;
  trainable_version_ = set.trainable_version();
  if (context_.gradients == nullptr) return;
  for (const Variable& parameter : parameters_) parameter.tensor.requires_grad_(set.trainable({parameter.index}));
}

bool ForeignBinding::trains() const {
  return std::any_of(parameters_.begin(), parameters_.end(),
                     [this](const Variable& parameter) { return context_.parameters->trainable({parameter.index}); });
}

at::Tensor ForeignBinding::run(std::span<const at::Tensor> inputs) const {
  const std::vector<int64_t> versions = versions_of(inputs);
  try {
    at::Tensor y = layer_->forward(inputs);
    if (versions_of(inputs) != versions) {
      throw core::Error(core::ErrorCode::kInvalidArgument,
                        {.problem = "a layer's forward() changes its input in place, which other layers may read",
                         .where = name_,
                         .remedy = "compute a new tensor, as inputs[0].relu() instead of inputs[0].relu_(), or begin "
                                   "with inputs[0].clone()"});
    }
    return y;
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const c10::Error& error) {
    std::vector<std::string> shapes;
    for (const at::Tensor& x : inputs) shapes.push_back(to_string(x.sizes().vec()));
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = fmt::format("a layer's forward() fails: {}", error.what_without_backtrace()),
                       .where = name_,
                       .actual = fmt::format("inputs {}", fmt::join(shapes, ", ")),
                       .remedy = "declare each tensor that forward() uses by parameter() or buffer() in the "
                                 "constructor, and compare its shape with those of the inputs, which begin with the "
                                 "batch"});
  }
}

at::Tensor ForeignBinding::forward(std::span<const at::Tensor> inputs) {
  if (!bound_) bind();
  follow_trainable();
  std::vector<at::Tensor> own;
  for (const at::Tensor& x : inputs) own.push_back(x.to(context_.parameters->dtype()).contiguous());
  at::Tensor y = run(own);
  std::vector<int64_t> expected = output_shape_;
  expected.insert(expected.begin(), inputs[0].size(0));
  if (y.defined() && y.sizes() == at::IntArrayRef(expected)) return y;
  throw core::Error(
      core::ErrorCode::kInvalidArgument,
      {.problem = "a layer's result has another shape than its node says",
       .where = name_,
       .expected = to_string(expected),
       .actual = y.defined() ? to_string(y.sizes().vec()) : "no tensor",
       .remedy = "return one sample's shape from output_shape() of a custom layer; give foreign_op() that "
                 "of a module"});
}

}  // namespace trainyard::nn
