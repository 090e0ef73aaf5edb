// Maps times factors: of each channel (squeeze-and-excitation), of each sample (stochastic depth), of each element
// (dropout).
#include <utility>

#include "trainyard/nn/cpu/plan/nan_guard.h"
#include "trainyard/nn/cpu/plan/single_input_step.h"
#include "trainyard/nn/cpu/simd/kernels.h"
#include "trainyard/nn/execution/keep_mask.h"

namespace trainyard::nn::cpu {
namespace {

class ScaleChannelsStep : public PlanStep {
 public:
  ScaleChannelsStep(PlanBuilder& builder, const Unit& unit) {
    const Node& node = builder.graph().nodes[static_cast<size_t>(unit.head())];
    input_ = builder.map_of(node.inputs[0]);
    factor_ = builder.plain_of(node.inputs[1]);
    builder.use_value(input_);
    builder.use_value(factor_);
    output_ = builder.new_map(node.shape, builder.needs_gradient(input_) || builder.needs_gradient(factor_));
    map_ = builder.value(output_).map;
    dtype_ = builder.dtype();
    input_data_ = builder.value(input_).data;
    factor_data_ = builder.value(factor_).data;
    output_data_ = builder.value(output_).data;
  }

  ValueId output() const override { return output_; }
  std::vector<ValueId> inputs() const override { return {input_, factor_}; }
  std::vector<ValueId> kept() const override { return {input_, factor_}; }

  void forward(Run& run) override { scale(run, input_data_, factor_data_, output_data_); }
  float bound(const Run& run) const override {
    const float factor = largest_of(run.at(factor_data_), map_.batch * map_.channels, DataType::kFloat);
    return run.bounds[static_cast<size_t>(input_)] * factor * kRoundingUp;
  }

  RecomputeCost recompute_cost() const override { return RecomputeCost::kCheap; }
  std::function<void(Run&)> plan_recompute(PlanBuilder& builder, const std::vector<ValueId>& sources) override {
    const BufferId input = builder.data(sources[0]), factor = builder.data(sources[1]);
    return [this, input, factor, output = builder.new_buffer(output_)](Run& run) { scale(run, input, factor, output); };
  }

  void plan_backward(PlanBuilder& builder) override {
    const std::vector<BufferId> gradients = builder.take_gradients(output_, 1);
    if (gradients.empty()) return;
    gradient_ = gradients[0];
    kept_input_ = builder.data(input_);
    kept_factor_ = builder.data(factor_);
    // The kernel computes both gradients. A gradient that is not needed is written to scratch memory of this step.
    given_ = builder.give_gradient_if_needed(input_);
    factor_gradient_ = builder.needs_gradient(factor_) ? builder.give_gradient(factor_, false).buffer
                                                       : builder.acquire(builder.bytes_of(factor_));
  }

  void backward(Run& run) override {
    if (!gradient_.valid()) return;
    scale_channels_backward({.shape = map_,
                             .dtype = dtype_,
                             .gradient = run.at(gradient_),
                             .input = run.at(kept_input_),
                             .factor = run.at<float>(kept_factor_),
                             .input_gradient = run.at(given_.buffer),
                             .accumulate = given_.accumulate,
                             .factor_gradient = run.at<float>(factor_gradient_)});
  }

 private:
  void scale(const Run& run, BufferId input, BufferId factor, BufferId output) const {
    scale_channels_forward({.shape = map_,
                            .dtype = dtype_,
                            .input = run.at(input),
                            .factor = run.at<float>(factor),
                            .output = run.at(output)});
  }

  ValueId input_ = -1, factor_ = -1, output_ = -1;
  MapShape map_;
  DataType dtype_ = DataType::kFloat;
  BufferId input_data_, factor_data_, output_data_, kept_input_, kept_factor_, gradient_, factor_gradient_;
  PlanBuilder::Given given_;
};

// Dropout and stochastic depth in training. In inference they are the identity.
class RandomScaleStep : public SingleInputStep {
 public:
  RandomScaleStep(PlanBuilder& builder, const Unit& unit, double drop, bool per_element)
      : SingleInputStep(builder, unit),
        drop_(drop),
        per_element_(per_element),
        name_(builder.context().name_prefix + node_.name) {
    factors_ = per_element ? input_map_.channels * input_map_.pixels() : 1;
    factor_ = builder.acquire(input_map_.batch * factors_ * static_cast<int64_t>(sizeof(float)));
  }

  RecomputeCost recompute_cost() const override { return RecomputeCost::kCheap; }
  float bound(const Run& run) const override {
    return run.bounds[static_cast<size_t>(input_)] * static_cast<float>(1 / (1 - drop_)) * kRoundingUp;
  }

 private:
  void run_forward(Run& run, BufferId input, BufferId output) override {
    fill_keep_mask(run.at<float>(factor_), input_map_.batch, factors_, drop_, static_cast<float>(1 / (1 - drop_)),
                   name_, run.random);
    scale(run, input, output, false);
  }
  void recompute(Run& run, BufferId input, BufferId output) override { scale(run, input, output, false); }

  void plan_more(PlanBuilder& builder) override { builder.use(factor_); }
  void plan_more_recompute(PlanBuilder& builder) override { builder.use(factor_); }
  void run_backward(Run& run) override { scale(run, gradient_, input_gradient_, accumulate_); }

  void scale(const Run& run, BufferId from, BufferId to, bool accumulate) const {
    scale_samples({.shape = input_map_,
                   .dtype = dtype_,
                   .input = run.at(from),
                   .factor = run.at<float>(factor_),
                   .per_element = per_element_,
                   .output = run.at(to),
                   .accumulate = accumulate});
  }

  double drop_;
  bool per_element_;
  std::string name_;
  int64_t factors_ = 1;  // a sample
  BufferId factor_;
};

}  // namespace

void make_scale_channels(PlanBuilder& builder, const Unit& unit) {
  add_step_of(builder, unit, std::make_unique<ScaleChannelsStep>(builder, unit), "scale channels");
}

void make_random_scale(PlanBuilder& builder, const Unit& unit) {
  const Node& node = builder.graph().nodes[static_cast<size_t>(unit.head())];
  const auto* dropout = std::get_if<Dropout>(&node.op);
  const double drop = dropout != nullptr ? dropout->drop : std::get<StochasticDepth>(node.op).drop;
  if (!builder.training() || drop == 0) return builder.set_value(node.id, builder.value_of(node.inputs[0]));
  add_step_of(builder, unit, std::make_unique<RandomScaleStep>(builder, unit, drop, dropout != nullptr),
              dropout != nullptr ? "dropout" : "stochastic depth");
}

}  // namespace trainyard::nn::cpu
