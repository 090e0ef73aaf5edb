// Batch norm with the addition and the activation behind it, normalized with the batch's statistics, or with those of
// the batches of all replicas. running_norm_step.cpp has the one that takes the running statistics.
#include <utility>

#include <ATen/ops/from_blob.h>

#include "trainyard/nn/cpu/plan/nan_guard.h"
#include "trainyard/nn/cpu/plan/steps.h"
#include "trainyard/nn/cpu/plan/training_norm.h"
#include "trainyard/nn/cpu/simd/kernels.h"
#include "trainyard/nn/execution/sync_batch_norm.h"

namespace trainyard::nn::cpu {
namespace {

class NormStep : public PlanStep {
 public:
  NormStep(PlanBuilder& builder, const Unit& unit)
      : context_(builder.context()),
        input_(builder.map_of(builder.graph().nodes[static_cast<size_t>(unit.head())].inputs[0])),
        residual_(unit.residual >= 0 ? builder.map_of(unit.residual) : -1),
        norm_(builder, unit, builder.value(input_).map) {
    const Node& node = builder.graph().nodes[static_cast<size_t>(unit.head())];
    builder.use_value(input_);
    if (residual_ >= 0) builder.use_value(residual_);
    const bool inputs_need_gradient =
        builder.needs_gradient(input_) || (residual_ >= 0 && builder.needs_gradient(residual_));
    output_ = builder.new_map(node.shape, builder.trains(node) || inputs_need_gradient);
    shape_ = builder.value(output_).map;
    dtype_ = builder.dtype();
    input_data_ = builder.value(input_).data;
    if (residual_ >= 0) residual_data_ = builder.value(residual_).data;
    output_data_ = builder.value(output_).data;
    if (exchanges()) exchanged_ = builder.acquire((2 * shape_.channels + 1) * static_cast<int64_t>(sizeof(double)));
    if (residual_ >= 0 && norm_.activation() == UnitActivation::kRelu && builder.options().gradients) {
      mask_ = builder.acquire(shape_.elements() / 8);
    }
  }

  ValueId output() const override { return output_; }
  std::vector<ValueId> inputs() const override {
    return residual_ >= 0 ? std::vector<ValueId>{input_, residual_} : std::vector<ValueId>{input_};
  }
  std::vector<ValueId> kept() const override { return {input_}; }

  void forward(Run& run) override {
    NormForward a = norm_.forward(run);
    a.dtype = dtype_;
    a.input = run.at(input_data_);
    a.residual = run.at(residual_data_);
    a.output = run.at(output_data_);
    a.mask = run.at<uint8_t>(mask_);
    a.moments = run.at<double>(exchanged_);
    if (exchanges()) {
      // Between the two passes, outside of the kernels: only this thread may meet others, and it may throw.
      norm_moments(a);
      a.moments[2 * shape_.channels] = own_count();
      context_.sync_batch_norm->all_reduce_moments(exchanged(run, 2 * shape_.channels + 1));
      norm_with_moments(a);
    } else {
      norm_forward(a);
    }
    norm_.update_running_statistics(run, count(run));
  }

  float bound(const Run& run) const override {
    const float added = residual_ >= 0 ? run.bounds[static_cast<size_t>(residual_)] : 0;
    return bound_behind((norm_.bound(run, count(run)) + added) * kRoundingUp, norm_.activation());
  }

  RecomputeCost recompute_cost() const override { return RecomputeCost::kCheap; }
  std::function<void(Run&)> plan_recompute(PlanBuilder& builder, const std::vector<ValueId>& sources) override {
    const BufferId input = builder.data(sources[0]);
    const BufferId residual = residual_ >= 0 ? builder.data(sources[1]) : BufferId{};
    norm_.use_factors(builder);
    return [this, input, residual, output = builder.new_buffer(output_)](Run& run) {
      const NormForward a = norm_.forward(run);
      scale_shift({.shape = shape_,
                   .dtype = dtype_,
                   .activation = a.activation,
                   .input = run.at(input),
                   .residual = run.at(residual),
                   .scale = a.scale,
                   .shift = a.shift,
                   .output = run.at(output)});
    };
  }

  void plan_backward(PlanBuilder& builder) override {
    gradients_ = builder.take_gradients(output_, kMaxGradients);
    if (gradients_.empty()) return;
    norm_.plan_backward(builder);
    for (BufferId id : {mask_, exchanged_}) builder.use(id);
    kept_input_ = builder.data(input_);
    BufferId own;
    for (BufferId gradient : gradients_) {
      if (builder.may_overwrite(gradient)) own = gradient;
    }
    if (residual_ >= 0 && builder.needs_gradient(residual_)) {
      // Without an activation, a single gradient is the residual's, too.
      if (norm_.activation() == UnitActivation::kNone && gradients_.size() == 1) {
        builder.give_gradient(residual_, gradients_[0]);
        own = {};
      } else {
        masked_ = own.valid() ? own : builder.acquire(builder.bytes_of(output_));
        builder.give_gradient(residual_, masked_);
        own = {};
      }
    }
    // The kernel computes the input's gradient in any case.
    input_gradient_ = own.valid() ? own : builder.acquire(builder.bytes_of(input_));
    if (builder.needs_gradient(input_)) builder.give_gradient(input_, input_gradient_);
  }

  void backward(Run& run) override {
    if (gradients_.empty()) return;
    NormBackward a = norm_.backward(run);
    a.dtype = dtype_;
    a.gradient_count = static_cast<int>(gradients_.size());
    a.input = run.at(kept_input_);
    a.mask = run.at<uint8_t>(mask_);
    a.masked = run.at(masked_);
    a.input_gradient = run.at(input_gradient_);
    for (size_t i = 0; i < gradients_.size(); ++i) a.gradients[i] = run.at(gradients_[i]);
    if (exchanges()) {
      a.sums = run.at<double>(exchanged_);
      a.count = count(run);
      norm_gradient_sums(a);
      context_.sync_batch_norm->all_reduce_sum(exchanged(run, 2 * shape_.channels));
      norm_backward_with_sums(a);
    } else {
      norm_backward(a);
    }
    norm_.send_gradients(run);
  }

 private:
  bool exchanges() const { return context_.sync_batch_norm != nullptr; }
  double own_count() const { return static_cast<double>(shape_.batch * shape_.pixels()); }
  // Returns the number of values in a channel that the statistics are of. After forward().
  double count(const Run& run) const {
    return exchanges() ? run.at<double>(exchanged_)[2 * shape_.channels] : own_count();
  }
  at::Tensor exchanged(const Run& run, int64_t values) const {
    return at::from_blob(run.at<double>(exchanged_), {values}, at::kDouble);
  }

  const BuildContext& context_;
  ValueId input_, residual_, output_ = -1;
  TrainingNorm norm_;  // its buffers are acquired behind the conversions of both maps
  MapShape shape_;
  DataType dtype_ = DataType::kFloat;
  BufferId input_data_, residual_data_, output_data_, kept_input_, mask_;
  // [2 channels + 1] double: the moments, in the backward the gradient's sums, and behind them the count of both.
  BufferId exchanged_;
  std::vector<BufferId> gradients_;
  BufferId masked_, input_gradient_;
};

}  // namespace

void make_norm(PlanBuilder& builder, const Unit& unit) {
  // A norm that is frozen as a whole does as in inference, whether gradients are wanted or not.
  const Node& node = builder.graph().nodes[static_cast<size_t>(unit.head())];
  if (!builder.training() || !builder.layer(node).trains()) return make_running_norm(builder, unit);
  auto step = std::make_unique<NormStep>(builder, unit);
  builder.set_value(unit.tail(), step->output());
  std::string kernel = "batch norm";
  if (unit.add >= 0) kernel += " + add";
  if (unit.activation >= 0) kernel += " + activation";
  builder.add_step(std::move(step), unit.nodes, std::move(kernel));
}

}  // namespace trainyard::nn::cpu
