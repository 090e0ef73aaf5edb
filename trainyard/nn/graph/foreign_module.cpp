#include <set>

#include <fmt/core.h>
#include <torch/nn/module.h>

#include "trainyard/core/base/error.h"
#include "trainyard/nn/graph/custom_layer.h"

namespace trainyard::nn {

Shape ForeignModule::output_shape(const std::vector<Shape>& inputs) const {
  if (inputs.size() == input_count_) return output_shape_;
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    fmt::format("its module takes {} tensors, the node has {} inputs", input_count_, inputs.size()));
}

const ForeignModule::Instance& ForeignModule::instance() {
  if (instance_.module == nullptr) instance_ = make_();
  return instance_;
}

std::vector<CustomLayer::Variable> ForeignModule::variables() {
  std::vector<Variable> variables;
  std::set<const c10::TensorImpl*> seen;  // tied parameters are listed under each of their names
  const auto add = [&](const std::string& name, const at::Tensor& tensor, bool is_buffer) {
    if (!tensor.defined() || !seen.insert(tensor.unsafeGetTensorImpl()).second) return;
    variables.push_back({.spec = {.name = name,
                                  .shape = tensor.sizes().vec(),
                                  .init = {Initializer::Kind::kFromModule},
                                  .decay = tensor.dim() > 1},
                         .tensor = tensor,
                         .is_buffer = is_buffer});
  };
  const torch::nn::Module& module = *instance().module;
  for (const auto& entry : module.named_parameters()) add(entry.key(), entry.value(), !entry.value().requires_grad());
  for (const auto& entry : module.named_buffers()) add(entry.key(), entry.value(), true);
  return variables;
}

void ForeignModule::set_training(bool training) {
  CustomLayer::set_training(training);
  instance().module->train(training);
}

}  // namespace trainyard::nn
