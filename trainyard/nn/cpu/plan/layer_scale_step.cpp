// Layer scale with the stochastic depth and the addition behind it, in one pass: a factor for each channel of each
// sample.
#include <algorithm>
#include <utility>

#include <ATen/ops/from_blob.h>

#include "trainyard/nn/cpu/plan/nan_guard.h"
#include "trainyard/nn/cpu/plan/steps.h"
#include "trainyard/nn/cpu/simd/kernels.h"
#include "trainyard/nn/execution/gradient_sink.h"
#include "trainyard/nn/execution/keep_mask.h"

namespace trainyard::nn::cpu {
namespace {

class LayerScaleStep : public UnitStep {
 public:
  LayerScaleStep(PlanBuilder& builder, const Unit& unit) : UnitStep(builder, unit) {
    scale_ = builder.parameter(node_, 0);
    if (unit.depth >= 0 && builder.training()) {
      const Node& depth = builder.graph().nodes[static_cast<size_t>(unit.depth)];
      drop_ = std::get<StochasticDepth>(depth.op).drop;
      depth_name_ = context_.name_prefix + depth.name;
    }
    input_ = builder.map_of(node_.inputs[0]);
    if (unit.residual >= 0) residual_ = builder.map_of(unit.residual);
    builder.use_value(input_);
    if (residual_ >= 0) builder.use_value(residual_);
    const bool residual_needs_gradient = residual_ >= 0 && builder.needs_gradient(residual_);
    multiplies_back_ = builder.trains(node_) || builder.needs_gradient(input_);
    output_ = builder.new_map(node_.shape, multiplies_back_ || residual_needs_gradient);
    map_ = builder.value(output_).map;
    dtype_ = builder.dtype();
    input_data_ = builder.value(input_).data;
    if (residual_ >= 0) residual_data_ = builder.value(residual_).data;
    output_data_ = builder.value(output_).data;
    kept_samples_ = builder.acquire(map_.batch * static_cast<int64_t>(sizeof(float)));
    factors_ = builder.acquire(map_.batch * map_.channels * static_cast<int64_t>(sizeof(float)));
  }

  ValueId output() const override { return output_; }
  std::vector<ValueId> inputs() const override {
    return residual_ >= 0 ? std::vector<ValueId>{input_, residual_} : std::vector<ValueId>{input_};
  }
  std::vector<ValueId> kept() const override { return {input_}; }

  void forward(Run& run) override {
    float* const kept = run.at<float>(kept_samples_);
    std::fill_n(kept, map_.batch, 1.0F);
    if (drop_ > 0) {
      fill_keep_mask(kept, map_.batch, 1, drop_, static_cast<float>(1 / (1 - drop_)), depth_name_, run.random);
    }
    const auto* const scale = context_.parameters->value(scale_).const_data_ptr<float>();
    float* factor = run.at<float>(factors_);
    for (int64_t n = 0; n < map_.batch; ++n) {
      for (int64_t c = 0; c < map_.channels; ++c) *factor++ = scale[c] * kept[n];
    }
    apply(run, input_data_, residual_data_, output_data_);
  }

  float bound(const Run& run) const override {
    const float factor = largest_of(run.at(factors_), map_.batch * map_.channels, DataType::kFloat);
    const float added = residual_ >= 0 ? run.bounds[static_cast<size_t>(residual_)] : 0;
    return (run.bounds[static_cast<size_t>(input_)] * factor + added) * kRoundingUp;
  }

  RecomputeCost recompute_cost() const override { return RecomputeCost::kCheap; }
  std::function<void(Run&)> plan_recompute(PlanBuilder& builder, const std::vector<ValueId>& sources) override {
    const BufferId input = builder.data(sources[0]);
    const BufferId residual = residual_ >= 0 ? builder.data(sources[1]) : BufferId{};
    builder.use(factors_);
    return [this, input, residual, output = builder.new_buffer(output_)](Run& run) {
      apply(run, input, residual, output);
    };
  }

  void plan_backward(PlanBuilder& builder) override {
    const std::vector<BufferId> gradients = builder.take_gradients(output_, 1);
    if (gradients.empty()) return;
    gradient_ = gradients[0];
    if (residual_ >= 0 && builder.needs_gradient(residual_)) builder.give_gradient(residual_, gradient_);
    if (!multiplies_back_) return;
    trains_ = builder.trains(scale_);
    builder.use(kept_samples_);
    builder.use(factors_);
    kept_input_ = builder.data(input_);
    given_ = builder.give_gradient_if_needed(input_);
    factor_gradients_ = builder.acquire(map_.batch * map_.channels * static_cast<int64_t>(sizeof(float)));
    scale_gradient_ = builder.acquire(map_.channels * static_cast<int64_t>(sizeof(float)));
  }

  void backward(Run& run) override {
    if (!multiplies_back_ || !gradient_.valid()) return;
    scale_channels_backward({.shape = map_,
                             .dtype = dtype_,
                             .gradient = run.at(gradient_),
                             .input = run.at(kept_input_),
                             .factor = run.at<float>(factors_),
                             .input_gradient = run.at(given_.buffer),
                             .accumulate = given_.accumulate,
                             .factor_gradient = run.at<float>(factor_gradients_)});
    if (trains_) send(run);
  }

 private:
  void send(const Run& run) const {
    const auto *const kept = run.at<float>(kept_samples_), *const factors = run.at<float>(factor_gradients_);
    float* const sums = run.at<float>(scale_gradient_);
    for (int64_t c = 0; c < map_.channels; ++c) {
      double sum = 0;
      for (int64_t n = 0; n < map_.batch; ++n) sum += double{kept[n]} * factors[n * map_.channels + c];
      sums[c] = static_cast<float>(sum);
    }
    context_.gradients->write(scale_, at::from_blob(sums, {map_.channels, 1, 1}, at::kFloat));
  }

  void apply(const Run& run, BufferId input, BufferId residual, BufferId output) const {
    scale_channels_forward({.shape = map_,
                            .dtype = dtype_,
                            .input = run.at(input),
                            .factor = run.at<float>(factors_),
                            .residual = run.at(residual),
                            .output = run.at(output)});
  }

  ParameterId scale_;
  double drop_ = 0;
  bool multiplies_back_ = false;  // the scale or what lies below it needs a gradient
  bool trains_ = false;
  std::string depth_name_;
  ValueId input_ = -1, residual_ = -1, output_ = -1;
  MapShape map_;
  DataType dtype_ = DataType::kFloat;
  BufferId input_data_, residual_data_, output_data_, kept_samples_, factors_;
  BufferId gradient_, kept_input_, factor_gradients_, scale_gradient_;
  PlanBuilder::Given given_;
};

}  // namespace

void make_layer_scale(PlanBuilder& builder, const Unit& unit) {
  add_step_of(builder, unit, std::make_unique<LayerScaleStep>(builder, unit),
              unit.add >= 0 ? "layer scale + add" : "layer scale");
}

}  // namespace trainyard::nn::cpu
