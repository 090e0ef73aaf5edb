#include "trainyard/nn/reference/bound_layer.h"

#include <algorithm>
#include <type_traits>

#include <ATen/core/grad_mode.h>

#include "trainyard/core/base/error.h"
#include "trainyard/nn/execution/sink_hook.h"
#include "trainyard/nn/reference/layers.h"

namespace trainyard::nn {

BoundLayer::BoundLayer(const Node& node, const BuildContext& context)
    : node_(node), context_(context), name_(context.name_prefix + node.name) {
  for (const ParameterSpec& spec : node.parameters) parameters_.push_back(context.parameter(spec));
  for (const BufferSpec& spec : node.buffers) buffers_.push_back(context.buffer(spec));
  if (const auto* foreign = std::get_if<Foreign>(&node.op)) {
    foreign_ = std::make_unique<ForeignBinding>(node, *foreign, context);
  }
}

void BoundLayer::bind() {
  const at::NoGradGuard no_grad;
  const ParameterSet& set = *context_.parameters;
  for (ParameterId id : parameters_) {
    at::Tensor leaf = set.value(id).detach();
    if (context_.gradients != nullptr && context_.mode == Mode::kTraining) {
      leaf.requires_grad_(true);
      send_gradients(leaf, *context_.gradients, id);
    }
    leaves_.push_back(std::move(leaf));
  }
  for (int index : buffers_) buffer_views_.push_back(set.buffer(index));
  bound_ = true;
}

void BoundLayer::follow_trainable() {
  const ParameterSet& set = *context_.parameters;
  if (trainable_version_ == set.trainable_version()) return;
  trainable_version_ = set.trainable_version();
  if (context_.gradients == nullptr || context_.mode != Mode::kTraining) return;
  for (size_t i = 0; i < leaves_.size(); ++i) leaves_[i].requires_grad_(set.trainable(parameters_[i]));
}

bool BoundLayer::trains() const {
  const auto trainable = [this](ParameterId id) { return context_.parameters->trainable(id); };
  return std::any_of(parameters_.begin(), parameters_.end(), trainable) || (foreign_ != nullptr && foreign_->trains());
}

reference::LayerCall BoundLayer::call(std::span<const at::Tensor> inputs, bool reuse_input, const StepRandom& random) {
  if (!bound_) bind();
  follow_trainable();
  return {.node = node_,
          .name = name_,
          .inputs = inputs,
          .variables = leaves_,
          .buffers = buffer_views_,
          .training = context_.mode == Mode::kTraining,
          .trains = trains(),
          .reuse_input = reuse_input,
          .sync_batch_norm = context_.sync_batch_norm,
          .random = random};
}

at::Tensor BoundLayer::run_as(const Formula& formula, std::span<const at::Tensor> inputs, const StepRandom& random) {
  return formula(call(inputs, /*reuse_input=*/false, random));
}

at::Tensor BoundLayer::run(std::span<const at::Tensor> inputs, bool reuse_input, const StepRandom& random) {
  const reference::LayerCall call = this->call(inputs, reuse_input, random);
  return std::visit(
      [&](const auto& op) -> at::Tensor {
        using Operation = std::decay_t<decltype(op)>;
        if constexpr (std::is_same_v<Operation, Foreign>) {
          return foreign_->forward(call.inputs).to(call.x().scalar_type());
        } else if constexpr (std::is_same_v<Operation, Input>) {
          throw core::Error(core::ErrorCode::kInternal, {.problem = "an input is not run", .where = node_.name});
        } else {
          return reference::run(op, call);
        }
      },
      node_.op);
}

}  // namespace trainyard::nn
