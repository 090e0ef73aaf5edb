#include "trainyard/nn/execution/foreign_binding.h"

#include <algorithm>
#include <set>

#include <fmt/core.h>
#include <torch/nn/module.h>

#include "trainyard/core/base/error.h"
#include "trainyard/nn/execution/sink_hook.h"

namespace trainyard::nn {

ForeignBinding::ForeignBinding(const Node& node, const Foreign& op, const BuildContext& context)
    : name_(context.name_prefix + node.name), output_shape_(op.output_shape), context_(context), module_(op.make()) {
  ParameterSet& set = *context.parameters;
  torch::nn::Module& module = module_->module();
  module.train(context.mode == Mode::kTraining);

  const auto settle = [&](const at::Tensor& tensor) {
    const at::NoGradGuard no_grad;
    tensor.set_data(
        tensor.detach().to(context.device, tensor.is_floating_point() ? set.dtype() : tensor.scalar_type()));
  };
  const auto add_buffer = [&](const std::string& name, const at::Tensor& tensor) {
    const int index = context.buffer({node.name + "." + name, tensor.sizes().vec(), {Initializer::Kind::kFromModule}});
    if (!set.allocated()) set.provide_buffer(index, tensor);
    buffers_.push_back({tensor, index});
  };
  std::set<const c10::TensorImpl*> seen;  // tied parameters are listed under each of their names
  for (const auto& entry : module.named_parameters()) {
    const at::Tensor& tensor = entry.value();
    if (!tensor.defined() || !seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
    settle(tensor);
    if (!tensor.requires_grad()) {
      add_buffer(entry.key(), tensor);
      continue;
    }
    const ParameterId id = context.parameter({.name = node.name + "." + entry.key(),
                                              .shape = tensor.sizes().vec(),
                                              .init = {Initializer::Kind::kFromModule},
                                              .decay = tensor.dim() > 1});
    if (!set.allocated()) set.provide(id, tensor);
    parameters_.push_back({tensor, id.index});
  }
  for (const auto& entry : module.named_buffers()) {
    const at::Tensor& tensor = entry.value();
    if (!tensor.defined() || !seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
    settle(tensor);
    add_buffer(entry.key(), tensor);
  }
}

void ForeignBinding::bind() {
  const at::NoGradGuard no_grad;
  const ParameterSet& set = *context_.parameters;
  for (const Variable& parameter : parameters_) {
    parameter.tensor.set_data(set.value({parameter.index}));
    if (context_.gradients != nullptr) {
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

at::Tensor ForeignBinding::forward(std::span<const at::Tensor> inputs) {
  if (!bound_) bind();
  follow_trainable();
  std::vector<at::Tensor> own;
  for (const at::Tensor& x : inputs) own.push_back(x.to(context_.parameters->dtype()).contiguous());
  at::Tensor y = module_->forward(own);
  std::vector<int64_t> expected = output_shape_;
  expected.insert(expected.begin(), inputs[0].size(0));
  if (y.sizes() == at::IntArrayRef(expected)) return y;
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = "a foreign module's result has another shape than its node says",
                     .where = name_,
                     .expected = to_string(expected),
                     .actual = to_string(y.sizes().vec()),
                     .remedy = "give foreign_op() the shape of one sample's result"});
}

}  // namespace trainyard::nn
