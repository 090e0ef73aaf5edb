// A sum of maps, with the ReLU behind it.
#include <algorithm>
#include <utility>

#include "trainyard/nn/cpu/plan/steps.h"
#include "trainyard/nn/cpu/simd/kernels.h"

namespace trainyard::nn::cpu {
namespace {

class SumStep : public PlanStep {
 public:
  SumStep(PlanBuilder& builder, const Unit& unit) : relu_(unit.activation >= 0) {
    const Node& node = builder.graph().nodes[static_cast<size_t>(unit.head())];
    bool needs_gradient = false;
    for (int input : node.inputs) {
      inputs_.push_back(builder.map_of(input));
      builder.use_value(inputs_.back());
      input_data_.push_back(builder.value(inputs_.back()).data);
      needs_gradient |= builder.needs_gradient(inputs_.back());
    }
    for (ValueId input : inputs_) builder.use_value(input);  // again: conversions of later inputs moved the moment on
    output_ = builder.new_map(node.shape, needs_gradient);
    shape_ = builder.value(output_).map;
    dtype_ = builder.dtype();
    output_data_ = builder.value(output_).data;
    if (relu_ && needs_gradient) mask_ = builder.acquire(shape_.elements() / 8);
  }

  ValueId output() const override { return output_; }
  std::vector<ValueId> inputs() const override { return inputs_; }

  void forward(Run& run) override { add(run, input_data_, output_data_, mask_); }
  float bound(const Run& run) const override {
    float sum = 0;
    for (ValueId input : inputs_) sum += run.bounds[static_cast<size_t>(input)];
    return sum * kRoundingUp;
  }

  RecomputeCost recompute_cost() const override { return RecomputeCost::kCheap; }
  std::function<void(Run&)> plan_recompute(PlanBuilder& builder, const std::vector<ValueId>& sources) override {
    std::vector<BufferId> terms;
    for (ValueId source : sources) terms.push_back(builder.data(source));
    return [this, terms, output = builder.new_buffer(output_)](Run& run) { add(run, terms, output, {}); };
  }

  void plan_backward(PlanBuilder& builder) override {
    // Takes one gradient, however many contributed: all inputs get it, and lists of gradients would grow from sum to
    // sum.
    const std::vector<BufferId> gradients = builder.take_gradients(output_, 1);
    if (gradients.empty()) return;
    gradient_ = masked_ = gradients[0];
    if (relu_) {
      builder.use(mask_);
      if (!builder.may_overwrite(gradient_)) masked_ = builder.acquire(builder.bytes_of(output_));
    }
    for (ValueId input : inputs_) {
      if (builder.needs_gradient(input)) builder.give_gradient(input, masked_);
    }
  }

  void backward(Run& run) override {
    if (!relu_ || !gradient_.valid()) return;
    activation_backward({.shape = shape_,
                         .dtype = dtype_,
                         .activation = UnitActivation::kRelu,
                         .gradients = {run.at(gradient_)},
                         .mask = run.at<uint8_t>(mask_),
                         .input_gradient = run.at(masked_)});
  }

 private:
  void add(const Run& run, const std::vector<BufferId>& terms, BufferId output, BufferId mask) const {
    // The kernel takes so many terms at a time. The sum so far is the first term of the next call.
    for (size_t next = 0; next < terms.size();) {
      SumForward a{.shape = shape_, .dtype = dtype_, .input_count = 0, .output = run.at(output)};
      if (next > 0) a.inputs[a.input_count++] = run.at(output);
      while (a.input_count < kMaxGradients && next < terms.size()) {
        a.inputs[a.input_count++] = run.at(terms[next++]);
      }
      if (relu_ && next == terms.size()) {
        a.activation = UnitActivation::kRelu;
        a.mask = run.at<uint8_t>(mask);
      }
      sum_forward(a);
    }
  }

  bool relu_;
  std::vector<ValueId> inputs_;
  std::vector<BufferId> input_data_;
  ValueId output_ = -1;
  MapShape shape_;
  DataType dtype_ = DataType::kFloat;
  BufferId output_data_, mask_, gradient_, masked_;
};

}  // namespace

void make_sum(PlanBuilder& builder, const Unit& unit) {
  add_step_of(builder, unit, std::make_unique<SumStep>(builder, unit), unit.activation >= 0 ? "sum + relu" : "sum");
}

}  // namespace trainyard::nn::cpu
