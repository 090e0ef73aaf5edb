// Layer norm of a map.
#include <cmath>

#include <ATen/ops/from_blob.h>

#include "trainyard/nn/cpu/plan/nan_guard.h"
#include "trainyard/nn/cpu/plan/single_input_step.h"
#include "trainyard/nn/cpu/simd/kernels.h"
#include "trainyard/nn/execution/gradient_sink.h"

namespace trainyard::nn::cpu {
namespace {

class LayerNormStep : public SingleInputStep {
 public:
  LayerNormStep(PlanBuilder& builder, const Unit& unit)
      : SingleInputStep(builder, unit),
        context_(builder.context()),
        weight_(builder.parameter(node_, 0)),
        bias_(builder.parameter(node_, 1)) {
    keeps_input_ = true;
    const int64_t pixels = input_map_.batch * input_map_.pixels() * static_cast<int64_t>(sizeof(float));
    mean_ = builder.acquire(pixels);
    inverse_deviation_ = builder.acquire(pixels);
  }

  RecomputeCost recompute_cost() const override { return RecomputeCost::kCheap; }
  // No element is further from its pixel's mean than the deviation times the square root of their count.
  float bound(const Run& run) const override {
    const int64_t channels = input_map_.channels, pixels = input_map_.batch * input_map_.pixels();
    if (!std::isfinite(largest_of(run.at(inverse_deviation_), pixels, DataType::kFloat))) return kUnbounded;
    const float weight = largest_of(value(weight_), channels, DataType::kFloat);
    const float bias = largest_of(value(bias_), channels, DataType::kFloat);
    return (std::sqrt(static_cast<float>(channels)) * weight + bias) * kRoundingUp;
  }

 private:
  void run_forward(Run& run, BufferId input, BufferId output) override {
    layer_norm_forward({.shape = input_map_,
                        .dtype = dtype_,
                        .epsilon = std::get<LayerNorm>(node_.op).epsilon,
                        .input = run.at(input),
                        .weight = value(weight_),
                        .bias = value(bias_),
                        .output = run.at(output),
                        .mean = run.at<float>(mean_),
                        .inverse_deviation = run.at<float>(inverse_deviation_)});
  }

  void plan_more_recompute(PlanBuilder& builder) override {
    builder.use(mean_);
    builder.use(inverse_deviation_);
  }
  void plan_more(PlanBuilder& builder) override {
    plan_more_recompute(builder);
    const int64_t vector = input_map_.padded_channels() * static_cast<int64_t>(sizeof(float));
    trains_weight_ = builder.trains(weight_);
    trains_bias_ = builder.trains(bias_);
    weight_gradient_ = builder.acquire(vector);
    bias_gradient_ = builder.acquire(vector);
  }

  void run_backward(Run& run) override {
    layer_norm_backward({.shape = input_map_,
                         .dtype = dtype_,
                         .gradient = run.at(gradient_),
                         .input = run.at(kept_input_),
                         .weight = value(weight_),
                         .mean = run.at<float>(mean_),
                         .inverse_deviation = run.at<float>(inverse_deviation_),
                         .input_gradient = run.at(input_gradient_),
                         .accumulate = accumulate_,
                         .weight_gradient = run.at<float>(weight_gradient_),
                         .bias_gradient = run.at<float>(bias_gradient_)});
    if (trains_weight_) send(weight_, run.at<float>(weight_gradient_));
    if (trains_bias_) send(bias_, run.at<float>(bias_gradient_));
  }

  const float* value(ParameterId id) const { return context_.parameters->value(id).const_data_ptr<float>(); }
  void send(ParameterId id, float* gradient) const {
    context_.gradients->write(id, at::from_blob(gradient, {input_map_.channels}, at::kFloat));
  }

  const BuildContext& context_;
  ParameterId weight_, bias_;
  bool trains_weight_ = false, trains_bias_ = false;
  BufferId mean_, inverse_deviation_, weight_gradient_, bias_gradient_;
};

}  // namespace

void make_layer_norm(PlanBuilder& builder, const Unit& unit) {
  add_step_of(builder, unit, std::make_unique<LayerNormStep>(builder, unit), "layer norm");
}

}  // namespace trainyard::nn::cpu
