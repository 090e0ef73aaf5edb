// A convolution, with its bias and the ReLU behind it.
#include <algorithm>
#include <cmath>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include "trainyard/core/base/error.h"
#include "trainyard/nn/cpu/convolution/choice/convolution_choice.h"
#include "trainyard/nn/cpu/convolution/convolution.h"
#include "trainyard/nn/cpu/convolution/convolution_shape.h"
#include "trainyard/nn/cpu/convolution/onednn/packed_weights.h"
#include "trainyard/nn/cpu/plan/exact_convolution.h"
#include "trainyard/nn/cpu/plan/group_by_group.h"
#include "trainyard/nn/cpu/plan/nan_guard.h"
#include "trainyard/nn/cpu/plan/steps.h"
#include "trainyard/nn/cpu/simd/kernels.h"
#include "trainyard/nn/execution/gradient_sink.h"

namespace trainyard::nn::cpu {
namespace {

using Kernel = std::unique_ptr<ConvolutionKernel>;

class ConvolutionStep : public PlanStep {
 public:
  ConvolutionStep(const PlanBuilder& builder, const Unit& unit)
      : node_(builder.graph().nodes[static_cast<size_t>(unit.head())]), context_(builder.context()) {
    source_node_ = node_.inputs[0];
    const Shape& image = builder.graph().nodes[static_cast<size_t>(source_node_)].shape;
    shape_ = convolution_shape(node_, image, builder.options().batch, builder.dtype());
    if (unit.activation >= 0) activation_ = UnitActivation::kRelu;
  }

  // Finds a kernel for each direction that is needed.
  void prepare(PlanBuilder& builder) {
    const ValueId source = builder.value_of(source_node_);
    shape_.plain_input =
        builder.is_input(source) && !builder.needs_gradient(source) && shape_.in_channels <= 4 && shape_.groups == 1;
    if (choose(builder)) return;
    shape_.plain_input = false;
    if (choose(builder)) return;
    throw core::Error(core::ErrorCode::kInternal, {.problem = "no kernel for a convolution", .where = node_.name});
  }

  void plan(PlanBuilder& builder) {
    source_ = shape_.plain_input ? builder.value_of(source_node_) : builder.map_of(source_node_);
    builder.use_value(source_);
    source_data_ = builder.value(source_).data;
    if (shape_.plain_input && shape_.dtype == DataType::kBfloat16) {
      source_data_ = builder.acquire(shape_.batch * shape_.in_channels * shape_.in_height * shape_.in_width * 2);
      rounded_ = true;
    }
    weight_ = builder.parameter(node_, 0);
    if (shape_.bias) bias_ = builder.parameter(node_, 1);
    trains_weight_ = builder.trains(weight_);
    trains_bias_ = shape_.bias && builder.trains(bias_);
    output_ = builder.new_map(node_.shape, builder.trains(node_) || builder.needs_gradient(source_));
    output_map_ = builder.value(output_).map;
    output_data_ = builder.value(output_).data;
    workspace_ = workspace(builder);
    guard_ = NanGuard(shape_, {.inference = !builder.options().gradients, .activation = activation_}, *forward_);
    if (!builder.options().gradients) packed_weights_ = PackedWeights(forward_->weights_bytes());
  }

  ValueId output() const override { return output_; }
  std::vector<ValueId> inputs() const override { return {source_}; }
  std::vector<ValueId> kept() const override {
    std::vector<ValueId> kept;
    if (backward_weights_ != nullptr) kept.push_back(source_);
    if (activation_ != UnitActivation::kNone) kept.push_back(output_);
    return kept;
  }
  float bound(const Run& run) const override { return guard_.bound(run, source_, -1, activation_); }
  int64_t packed_bytes() const override { return packed_weights_.bytes(); }
  std::string description() const {
    return convolution_name(shape_, *forward_) + (activation_ == UnitActivation::kNone ? "" : " + relu");
  }

  void forward(Run& run) override {
    if (rounded_) round_image(shape_, run.inputs[static_cast<size_t>(source_)], run.at(source_data_));
    convolve(run, source_data_, output_data_, workspace_);
  }

  RecomputeCost recompute_cost() const override { return RecomputeCost::kCostly; }
  std::function<void(Run&)> plan_recompute(PlanBuilder& builder, const std::vector<ValueId>& /*sources*/) override {
    const BufferId source = kept_source(builder);
    return [this, source, work = workspace(builder), output = builder.new_buffer(output_)](Run& run) {
      convolve(run, source, output, work);
    };
  }

  void plan_backward(PlanBuilder& builder) override {
    gradients_ = builder.take_gradients(output_, activation_ == UnitActivation::kNone ? 1 : kMaxGradients);
    if (gradients_.empty()) return;
    gradient_ = gradients_[0];
    if (activation_ != UnitActivation::kNone) {
      kept_output_ = builder.data(output_);
      BufferId own;
      for (BufferId gradient : gradients_) {
        if (builder.may_overwrite(gradient)) own = gradient;
      }
      gradient_ = own.valid() ? own : builder.acquire(builder.bytes_of(output_));
    }
    if (backward_weights_ != nullptr) {
      kept_source_ = kept_source(builder);
      if (!writes_plain_gradient()) packed_gradient_ = builder.acquire(backward_weights_->weights_bytes());
      if (shape_.bias) {
        bias_gradient_ = builder.acquire(builder.value(output_).map.padded_channels() * int64_t{sizeof(float)});
      }
    }
    const auto scratch_of = [](const Kernel& each) { return each != nullptr ? each->scratch_bytes() : 0; };
    backward_scratch_ = builder.scratch(std::max(scratch_of(backward_weights_), scratch_of(backward_data_)));
    if (backward_data_ == nullptr) return;
    backward_packed_ = builder.acquire(backward_data_->weights_bytes());
    source_gradient_ = builder.give_gradient(source_, false).buffer;
  }

  void backward(Run& run) override {
    if (gradients_.empty()) return;
    if (activation_ != UnitActivation::kNone) {
      ActivationBackward a{.shape = output_map_,
                           .dtype = shape_.dtype,
                           .activation = activation_,
                           .gradient_count = static_cast<int>(gradients_.size()),
                           .input = run.at(kept_output_),  // positive where ReLU's input was
                           .input_gradient = run.at(gradient_)};
      for (size_t i = 0; i < gradients_.size(); ++i) a.gradients[i] = run.at(gradients_[i]);
      activation_backward(a);
    }
    if (backward_data_ != nullptr) {
      send_back(run);
    }
    if (backward_weights_ != nullptr) send_weights_back(run);
  }

 private:
  // Computes the gradients of weight and bias, as the kernels do, and sends those that are wanted.
  void send_weights_back(Run& run) const {
    const at::Tensor plain = trains_weight_ ? plain_gradient() : at::Tensor();
    backward_weights_->backward_weights(run.at(kept_source_), run.at(gradient_),
                                        writes_plain_gradient() ? plain.data_ptr() : run.at(packed_gradient_),
                                        run.at<float>(bias_gradient_), run.at(backward_scratch_));
    if (trains_bias_) {
      context_.gradients->write(bias_, at::from_blob(run.at<float>(bias_gradient_), {shape_.out_channels}, at::kFloat));
    }
    if (!trains_weight_) return;
    float* const values = plain.data_ptr<float>();
    if (backward_weights_->multiplies_pairs() && !guard_.is_source_finite(run, source_, run.at(kept_source_))) {
      exact_weight_gradient(shape_, run.at(kept_source_), run.at(gradient_), values);
    } else if (!writes_plain_gradient()) {
      backward_weights_->unpack(run.at(packed_gradient_), values);
    }
    GradientSink& sink = *context_.gradients;
    sink.overwrite(weight_) ? sink.wrote(weight_) : sink.write(weight_, plain);
  }

  void send_back(const Run& run) const {
    const void* const gradient = run.at(gradient_);
    const bool mixes =
        backward_data_->mixes_groups() && !std::isfinite(largest_of(gradient, output_map_.elements(), shape_.dtype));
    if (!mixes) {
      void* const packed = run.at(backward_packed_);
      backward_data_->pack(weight(), packed);
      if (backward_data_->backward_data_is_finite(gradient, packed, run.at(source_gradient_),
                                                  run.at(backward_scratch_))) {
        return;
      }
    }
    convolve_groups_backward_data(shape_, weight(), gradient, run.at(source_gradient_));
  }

  // The memory of a forward other than its input and output. In training, weights change with every step, so that
  // packed ones live as long as the step's forward. Without a backward, packed_weights_ keeps them.
  struct Workspace {
    BufferId scratch, packed;
  };
  Workspace workspace(PlanBuilder& builder) const {
    return {.scratch = builder.scratch(forward_->scratch_bytes()),
            .packed = builder.options().gradients ? builder.acquire(forward_->weights_bytes()) : BufferId{}};
  }

  // Returns where the backward finds the input. The image in 16 bits is no value of the builder: it stays where it is.
  BufferId kept_source(PlanBuilder& builder) const {
    if (!rounded_) return builder.data(source_);
    builder.use(source_data_);
    return source_data_;
  }

  void convolve(Run& run, BufferId source, BufferId output, const Workspace& work) {
    const void* packed = run.at(work.packed);
    const auto pack = [&](void* to) {
      // In training, only a kernel that hides NaN needs bounds from the weights.
      if (forward_->hides_nan() || !work.packed.valid()) guard_.set_weights(weight(), bias());
      forward_->pack(weight(), to);
    };
    if (work.packed.valid()) {
      pack(run.at(work.packed));
    } else {
      packed = packed_weights_.get(context_.parameters->version(), pack);
    }
    if (guard_.is_safe(run, {.source = source_, .source_data = run.at(source)}) &&
        forward_->forward_is_finite(run.at(source), packed, bias(), run.at(output), run.at(work.scratch))) {
      return;
    }
    guard_.run_without_activation(weight(), bias(), run.at(source), run.at(output));
    activation_forward({.shape = output_map_,
                        .dtype = shape_.dtype,
                        .activation = activation_,
                        .input = run.at(output),
                        .output = run.at(output)});
  }

  bool choose(PlanBuilder& builder) {
    const bool gradients = builder.options().gradients;
    const auto find = [&](ConvolutionDirection direction) {
      return choose_convolution(
          shape_,
          {.direction = direction,
           .inference = !gradients,
           .activation = direction == ConvolutionDirection::kForward ? activation_ : UnitActivation::kNone},
          context_.kernels);
    };
    forward_ = find(ConvolutionDirection::kForward);
    if (forward_ == nullptr) return false;
    if (!gradients) return true;
    const bool weights = builder.trains(node_);
    if (weights) backward_weights_ = find(ConvolutionDirection::kBackwardWeights);
    const bool data = builder.needs_gradient(builder.value_of(source_node_));
    if (data) backward_data_ = find(ConvolutionDirection::kBackwardData);
    return (!weights || backward_weights_ != nullptr) && (!data || backward_data_ != nullptr);
  }

  const float* weight() const { return context_.parameters->value(weight_).const_data_ptr<float>(); }
  const float* bias() const {
    return shape_.bias ? context_.parameters->value(bias_).const_data_ptr<float>() : nullptr;
  }

  // Returns whether the kernel writes the weight's gradient where it belongs.
  bool writes_plain_gradient() const { return trains_weight_ && backward_weights_->has_plain_gradient(); }

  // Returns where the weight's gradient goes: to the parameter set, or, where that holds a part of it already, to a
  // tensor that is added to it.
  at::Tensor plain_gradient() const {
    GradientSink& sink = *context_.gradients;
    if (sink.overwrite(weight_)) return sink.parameters().gradient(weight_);
    return at::empty(context_.parameters->value(weight_).sizes(), at::kFloat);
  }

  const Node& node_;
  const BuildContext& context_;
  int source_node_ = 0;
  ConvolutionShape shape_;
  UnitActivation activation_ = UnitActivation::kNone;
  Kernel forward_, backward_data_, backward_weights_;
  PackedWeights packed_weights_;
  NanGuard guard_;
  Workspace workspace_;
  ParameterId weight_, bias_;
  bool trains_weight_ = false, trains_bias_ = false;
  ValueId source_ = -1, output_ = -1;
  MapShape output_map_;
  bool rounded_ = false;  // source_data_ is the image in 16 bits
  BufferId source_data_, output_data_, kept_source_, kept_output_, gradient_, source_gradient_, packed_gradient_,
      bias_gradient_, backward_scratch_, backward_packed_;
  std::vector<BufferId> gradients_;
};

}  // namespace

void make_convolution(PlanBuilder& builder, const Unit& unit) {
  if (builder.context().frozen) return make_frozen_convolution(builder, unit);
  auto step = std::make_unique<ConvolutionStep>(builder, unit);
  step->prepare(builder);
  step->plan(builder);
  std::string kernel = step->description();
  add_step_of(builder, unit, std::move(step), std::move(kernel));
}

}  // namespace trainyard::nn::cpu
