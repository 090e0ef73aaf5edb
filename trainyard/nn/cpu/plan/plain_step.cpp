// A node that has no kernel here: ATen's operations on plain tensors, with an autograd of its own for the backward.
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <torch/csrc/autograd/autograd.h>

#include "trainyard/nn/cpu/plan/steps.h"
#include "trainyard/nn/reference/bound_layer.h"

namespace trainyard::nn::cpu {
namespace {

class PlainStep : public PlanStep {
 public:
  PlainStep(PlanBuilder& builder, const Unit& unit)
      : node_(builder.graph().nodes[static_cast<size_t>(unit.head())]), layer_(builder.layer(node_)) {
    for (int input : node_.inputs) inputs_.push_back({.value = builder.plain_of(input)});
    bool needs_gradient = builder.trains(node_);
    for (Input& input : inputs_) {
      builder.use_value(input.value);
      input.data = builder.value(input.value).data;
      input.shape = builder.value(input.value).shape;
      input.needs_gradient = builder.needs_gradient(input.value);
      needs_gradient |= input.needs_gradient;
    }
    output_ = builder.new_plain(node_.shape, needs_gradient);
    gradients_ = builder.needs_gradient(output_);
    output_data_ = builder.value(output_).data;
    output_shape_ = builder.value(output_).shape;
  }

  ValueId output() const override { return output_; }
  std::vector<ValueId> inputs() const override {
    std::vector<ValueId> result;
    for (const Input& input : inputs_) result.push_back(input.value);
    return result;
  }
  bool pins_inputs() const override { return true; }  // autograd keeps views of them

  void forward(Run& run) override {
    const at::AutoGradMode autograd(gradients_);
    std::vector<at::Tensor> inputs;
    for (const Input& input : inputs_) {
      inputs.push_back(at::from_blob(run.at(input.data), input.shape, at::kFloat));
      if (input.needs_gradient) inputs.back().requires_grad_(true);
    }
    const at::Tensor output = layer_.run(inputs, false, run.random);
    at::from_blob(run.at(output_data_), output_shape_, at::kFloat).copy_(output.detach());
    if (!gradients_) return;
    inputs.push_back(output);
    run.kept[static_cast<size_t>(index)] = std::move(inputs);
  }

  void plan_backward(PlanBuilder& builder) override {
    const std::vector<BufferId> gradients = builder.take_gradients(output_, 1);
    if (gradients.empty()) return;
    gradient_ = gradients[0];
    for (Input& input : inputs_) {
      builder.use(input.data);  // autograd keeps views of it
      if (input.needs_gradient) input.given = builder.give_gradient(input.value, false).buffer;
    }
  }

  void backward(Run& run) override {
    std::vector<at::Tensor> kept = std::exchange(run.kept[static_cast<size_t>(index)], {});
    if (!gradient_.valid()) return;
    const at::Tensor output = std::move(kept.back());
    const at::AutoGradMode autograd(true);
    if (output.requires_grad()) {
      const at::Tensor gradient = at::from_blob(run.at(gradient_), output_shape_, at::kFloat);
      torch::autograd::backward({output}, {gradient.to(output.scalar_type())});
    }
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (!inputs_[i].given.valid()) continue;
      at::Tensor target = at::from_blob(run.at(inputs_[i].given), inputs_[i].shape, at::kFloat);
      const at::Tensor& gradient = kept[i].grad();
      gradient.defined() ? target.copy_(gradient) : target.zero_();
    }
  }

 private:
  struct Input {
    ValueId value = -1;
    BufferId data, given;
    std::vector<int64_t> shape;
    bool needs_gradient = false;
  };

  const Node& node_;
  BoundLayer& layer_;
  bool gradients_ = false;
  std::vector<Input> inputs_;
  ValueId output_ = -1;
  BufferId output_data_, gradient_;
  std::vector<int64_t> output_shape_;
};

}  // namespace

void make_plain(PlanBuilder& builder, const Unit& unit) {
  auto step = std::make_unique<PlainStep>(builder, unit);
  builder.set_value(unit.tail(), step->output());
  builder.add_step(std::move(step), unit.nodes,
                   std::string(builder.graph().nodes[static_cast<size_t>(unit.head())].kind()) + " (ATen)");
}

}  // namespace trainyard::nn::cpu
