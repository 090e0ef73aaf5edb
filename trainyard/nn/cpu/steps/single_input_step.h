// What steps with one input and one output have in common: the two values, and the way their gradients are handed on.
#pragma once

#include "trainyard/nn/cpu/steps/steps.h"

namespace trainyard::nn::cpu {

class SingleInputStep : public PlanStep {
 public:
  ValueId output() const { return output_; }

  void plan_backward(PlanBuilder& builder) override {
    const std::vector<BufferId> gradients = builder.take_gradients(output_, 1);
    if (gradients.empty() || !builder.needs_gradient(input_)) return;
    gradient_ = gradients[0];
    if (keeps_input_) builder.use(input_data_);
    const PlanBuilder::Given given = builder.give_gradient(input_, true);
    input_gradient_ = given.buffer;
    accumulate_ = given.accumulate;
    plan_more(builder);
  }

  void backward(Run& run) final {
    if (input_gradient_.valid()) run_backward(run);
  }

 protected:
  // The unit's only node, with the kinds of value that the step works on. Map and plain values may be mixed.
  SingleInputStep(PlanBuilder& builder, const Unit& unit, Value::Kind input, Value::Kind output)
      : node_(builder.graph().nodes[static_cast<size_t>(unit.head())]) {
    input_ = input == Value::Kind::kMap ? builder.map_of(node_.inputs[0]) : builder.plain_of(node_.inputs[0]);
    builder.use_value(input_);
    const bool needs_gradient = builder.needs_gradient(input_) || !node_.parameters.empty();
    output_ = output == Value::Kind::kMap ? builder.new_map(node_.shape, needs_gradient)
                                          : builder.new_plain(node_.shape, needs_gradient);
    input_map_ = builder.value(input_).map;
    output_map_ = builder.value(output_).map;
    dtype_ = builder.dtype();
    input_data_ = builder.value(input_).data;
    output_data_ = builder.value(output_).data;
  }

  // Names what else the backward uses.
  virtual void plan_more(PlanBuilder&) {}
  virtual void run_backward(Run& run) = 0;

  const Node& node_;
  ValueId input_ = -1, output_ = -1;
  MapShape input_map_, output_map_;
  DataType dtype_ = DataType::kFloat;
  BufferId input_data_, output_data_, gradient_, input_gradient_;
  bool keeps_input_ = false;  // the backward reads the input
  bool accumulate_ = false;   // into input_gradient_
};

// Adds the step and sets the value of the unit's last node.
template <typename Step>
void add_single_input(PlanBuilder& builder, const Unit& unit, std::unique_ptr<Step> step, std::string kernel) {
  builder.set_value(unit.tail(), step->output());
  builder.add_step(std::move(step), unit.nodes, std::move(kernel));
}

}  // namespace trainyard::nn::cpu
