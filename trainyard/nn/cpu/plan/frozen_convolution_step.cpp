// A convolution whose weights are constants: the batch norm behind it is folded into them, the addition and the
// activation behind that are oneDNN's post-operations where it has them.
#include <utility>

#include "trainyard/core/base/error.h"
#include "trainyard/nn/cpu/convolution/choice/convolution_choice.h"
#include "trainyard/nn/cpu/convolution/convolution_shape.h"
#include "trainyard/nn/cpu/convolution/onednn/packed_weights.h"
#include "trainyard/nn/cpu/plan/folded_convolution.h"
#include "trainyard/nn/cpu/plan/nan_guard.h"
#include "trainyard/nn/cpu/plan/steps.h"
#include "trainyard/nn/cpu/simd/kernels.h"

namespace trainyard::nn::cpu {
namespace {

class FrozenConvolutionStep : public PlanStep {
 public:
  FrozenConvolutionStep(const PlanBuilder& builder, const Unit& unit)
      : unit_(unit), graph_(builder.graph()), node_(node(unit.head())), context_(builder.context()) {
    shape_ = convolution_shape(node_, node(node_.inputs[0]).shape, builder.options().batch, builder.dtype());
    shape_.bias |= unit.norm >= 0;
    if (unit.activation >= 0) {
      activation_ = unit_activation(std::get<Activation>(node(unit.activation).op).function);
    }
  }

  // Finds a kernel.
  void prepare(const PlanBuilder& builder) {
    // The sum is written into the residual's memory when no other step reads that, nor this convolution.
    if (unit_.residual >= 0) {
      adds_in_place_ = builder.is_last_reader(unit_.residual) &&
                       builder.value_of(unit_.residual) != builder.value_of(node_.inputs[0]);
    }
    const bool own_addition = unit_.residual >= 0 && !adds_in_place_;
    activates_ = !own_addition && ConvolutionKernel::is_fusable(activation_);
    shape_.plain_input = builder.is_input(builder.value_of(node_.inputs[0])) && !builder.scale_of(node_.inputs[0]) &&
                         shape_.in_channels <= 4 && shape_.groups == 1;
    if (choose() || (std::exchange(shape_.plain_input, false) && choose())) return activate_in_kernel();
    activates_ = false;
    if (choose()) return activate_in_kernel();
    throw core::Error(core::ErrorCode::kInternal, {.problem = "no kernel for a convolution", .where = node_.name});
  }

  void plan(PlanBuilder& builder) {
    source_ = shape_.plain_input ? builder.value_of(node_.inputs[0]) : builder.map_of(node_.inputs[0]);
    if (unit_.residual >= 0) residual_ = builder.map_of(unit_.residual);
    builder.use_value(source_);
    if (residual_ >= 0) builder.use_value(residual_);
    source_data_ = builder.value(source_).data;
    if (shape_.plain_input && shape_.dtype == DataType::kBfloat16) {
      source_data_ = builder.acquire(shape_.batch * shape_.in_channels * shape_.in_height * shape_.in_width * 2);
      rounded_ = true;
    }
    output_ = adds_in_place_ ? builder.overwrite_map(residual_) : builder.new_map(node_.shape, false);
    if (residual_ >= 0 && !adds_in_place_) residual_data_ = builder.value(residual_).data;
    output_map_ = builder.value(output_).map;
    output_data_ = builder.value(output_).data;
    scratch_ = builder.scratch(kernel_->scratch_bytes());
    weights_ = PackedWeights(kernel_->weights_bytes());
    const UnitActivation fused = activates_ ? activation_ : UnitActivation::kNone;
    guard_ = NanGuard(shape_, {.inference = true, .sum = adds_in_place_, .activation = fused}, *kernel_);
    bias_ = std::vector<float>(static_cast<size_t>(shape_.out_channels));
  }

  ValueId output() const override { return output_; }
  std::vector<ValueId> inputs() const override {
    return residual_ >= 0 ? std::vector<ValueId>{source_, residual_} : std::vector<ValueId>{source_};
  }
  float bound(const Run& run) const override { return guard_.bound(run, source_, residual_, activation_); }
  int64_t packed_bytes() const override { return weights_.bytes(); }
  std::string description() const {
    std::string text = convolution_name(shape_, *kernel_);
    if (unit_.norm >= 0) text += " + batch norm";
    if (unit_.add >= 0) text += " + add";
    if (unit_.activation >= 0) text += " + activation";
    return text;
  }

  void forward(Run& run) override {
    const void* const weights = weights_.get(context_.parameters->version(), [&](void* target) {
      const at::Tensor folded = fold();
      guard_.set_weights(folded.const_data_ptr<float>(), bias());
      kernel_->pack(folded.const_data_ptr<float>(), target);
    });
    if (rounded_) round_image(shape_, run.inputs[static_cast<size_t>(source_)], run.at(source_data_));
    const bool safe = guard_.is_safe(run, {.source = source_,
                                           .source_data = run.at(source_data_),
                                           .residual = adds_in_place_ ? residual_ : -1,
                                           .residual_data = run.at(output_data_)});
    if (safe) {
      kernel_->forward(run.at(source_data_), weights, bias(), run.at(output_data_), run.at(scratch_));
    } else {
      const at::Tensor folded = fold();  // sets the bias
      guard_.run_without_activation(folded.const_data_ptr<float>(), bias(), run.at(source_data_), run.at(output_data_));
    }
    if (residual_data_.valid()) {
      sum_forward({.shape = output_map_,
                   .dtype = shape_.dtype,
                   .activation = activation_,
                   .inputs = {run.at(output_data_), run.at(residual_data_)},
                   .output = run.at(output_data_)});
    } else if (!safe || (!activates_ && activation_ != UnitActivation::kNone)) {
      activate(run);
    }
  }

  void plan_backward(PlanBuilder&) override {}
  void backward(Run&) override {}

 private:
  const Node& node(int id) const { return graph_.nodes[static_cast<size_t>(id)]; }

  bool choose() {
    kernel_ = choose_convolution(
        shape_,
        {.inference = true, .sum = adds_in_place_, .activation = activates_ ? activation_ : UnitActivation::kNone},
        context_.kernels);
    return kernel_ != nullptr;
  }

  // Some kernels have more activations than those that are is_fusable().
  void activate_in_kernel() {
    const bool own_addition = unit_.residual >= 0 && !adds_in_place_;
    if (activates_ || own_addition || activation_ == UnitActivation::kNone) return;
    if (auto both = kernel_->with_activation(activation_)) {
      kernel_ = std::move(both);
      activates_ = true;
    }
  }

  const float* bias() const { return shape_.bias ? bias_.data() : nullptr; }

  void activate(const Run& run) const {
    activation_forward({.shape = output_map_,
                        .dtype = shape_.dtype,
                        .activation = activation_,
                        .input = run.at(output_data_),
                        .output = run.at(output_data_)});
  }

  // Returns the weights with the norm folded into them and sets the bias that goes with them.
  at::Tensor fold() {
    FoldedConvolution folded = fold_convolution(node_, unit_.norm < 0 ? nullptr : &node(unit_.norm), context_);
    bias_ = std::move(folded.bias);
    return folded.weight;
  }

  const Unit unit_;
  const Graph& graph_;
  const Node& node_;
  const BuildContext& context_;
  ConvolutionShape shape_;  // `bias` is set where only the norm brings one, too
  UnitActivation activation_ = UnitActivation::kNone;
  bool adds_in_place_ = false;  // the addition is a post-operation
  bool activates_ = false;      // the activation is a post-operation
  bool rounded_ = false;        // source_data_ is the image in 16 bits
  std::unique_ptr<ConvolutionKernel> kernel_;
  PackedWeights weights_;
  NanGuard guard_;
  std::vector<float> bias_;
  ValueId source_ = -1, residual_ = -1, output_ = -1;
  MapShape output_map_;
  BufferId source_data_, residual_data_, output_data_, scratch_;
};

}  // namespace

void make_frozen_convolution(PlanBuilder& builder, const Unit& unit) {
  auto step = std::make_unique<FrozenConvolutionStep>(builder, unit);
  step->prepare(builder);
  step->plan(builder);
  std::string kernel = step->description();
  add_step_of(builder, unit, std::move(step), std::move(kernel));
}

}  // namespace trainyard::nn::cpu
