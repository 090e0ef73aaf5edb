// Base class of steps with one input and one output: the two values and their gradients.
#pragma once

#include <algorithm>

#include "trainyard/nn/cpu/plan/steps.h"

namespace trainyard::nn::cpu {

class SingleInputStep : public PlanStep {
 public:
  ValueId output() const final { return output_; }
  std::vector<ValueId> inputs() const final { return {input_}; }
  void forward(Run& run) final { run_forward(run, input_data_, output_data_); }
  float bound(const Run& run) const override {
    return keeps_bound_ ? std::max(run.bounds[static_cast<size_t>(input_)], least_bound_) : kUnbounded;
  }

  std::vector<ValueId> kept() const final {
    return keeps_input_ ? std::vector<ValueId>{input_} : std::vector<ValueId>();
  }
  std::function<void(Run&)> plan_recompute(PlanBuilder& builder, const std::vector<ValueId>& sources) final {
    const BufferId input = builder.data(sources[0]);
    plan_more_recompute(builder);
    return [this, input, output = builder.new_buffer(output_)](Run& run) { recompute(run, input, output); };
  }

  void plan_backward(PlanBuilder& builder) override {
    const std::vector<BufferId> gradients = builder.take_gradients(output_, 1);
    if (gradients.empty()) return;
    gradient_ = gradients[0];
    if (keeps_input_) kept_input_ = builder.data(input_);
    // Kernels of nodes with parameters compute the input's gradient in any case.
    const PlanBuilder::Given given = builder.give_gradient_if_needed(input_);
    input_gradient_ = given.buffer;
    accumulate_ = given.accumulate;
    plan_more(builder);
  }

  void backward(Run& run) final {
    if (input_gradient_.valid()) run_backward(run);
  }

 protected:
  // `unit` has a single node. `input` and `output` are the kinds of value that the step reads and makes; they may
  // differ.
  SingleInputStep(PlanBuilder& builder, const Unit& unit, Value::Kind input = Value::Kind::kMap,
                  Value::Kind output = Value::Kind::kMap)
      : node_(builder.graph().nodes[static_cast<size_t>(unit.head())]) {
    input_ = input == Value::Kind::kMap ? builder.map_of(node_.inputs[0]) : builder.plain_of(node_.inputs[0]);
    builder.use_value(input_);
    const bool needs_gradient = builder.needs_gradient(input_) || builder.trains(node_);
    output_ = output == Value::Kind::kMap ? builder.new_map(node_.shape, needs_gradient)
                                          : builder.new_plain(node_.shape, needs_gradient);
    input_map_ = builder.value(input_).map;
    output_map_ = builder.value(output_).map;
    dtype_ = builder.dtype();
    input_data_ = builder.value(input_).data;
    output_data_ = builder.value(output_).data;
  }

  virtual void run_forward(Run& run, BufferId input, BufferId output) = 0;
  // Name the other buffers that the backward, or the recomputation, uses.
  virtual void plan_more(PlanBuilder&) {}
  virtual void plan_more_recompute(PlanBuilder&) {}
  virtual void recompute(Run& run, BufferId input, BufferId output) { run_forward(run, input, output); }
  virtual void run_backward(Run& run) = 0;

  const Node& node_;
  ValueId input_ = -1, output_ = -1;
  MapShape input_map_, output_map_;
  DataType dtype_ = DataType::kFloat;
  BufferId gradient_, input_gradient_;
  bool keeps_input_ = false;  // the backward reads the input
  BufferId kept_input_;       // its buffer then
  bool accumulate_ = false;   // into input_gradient_
  bool keeps_bound_ = false;  // outputs are no larger than the largest input or least_bound_
  float least_bound_ = 0;

 private:
  BufferId input_data_, output_data_;
};

}  // namespace trainyard::nn::cpu
