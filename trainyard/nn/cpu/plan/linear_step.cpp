// A linear layer on plain vectors. Gradients of its weight go straight into the parameter set. A few samples go through
// kernels of our own, many through BLAS. In 16 bits, products are in bfloat16 where the processor has them
// (bf16_linear.h); vectors and sums stay float.
#include <algorithm>

#include <ATen/ops/addmm.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>
#include <omp.h>

#include "trainyard/nn/cpu/convolution/onednn/packed_weights.h"
#include "trainyard/nn/cpu/linear/bf16_linear.h"
#include "trainyard/nn/cpu/plan/single_input_step.h"
#include "trainyard/nn/cpu/simd/isa.h"
#include "trainyard/nn/cpu/simd/kernels.h"
#include "trainyard/nn/execution/gradient_sink.h"

namespace trainyard::nn::cpu {
namespace {

class LinearStep : public UnitStep {
 public:
  LinearStep(PlanBuilder& builder, const Unit& unit) : UnitStep(builder, unit) {
    input_ = builder.plain_of(node_.inputs[0]);
    builder.use_value(input_);
    output_ = builder.new_plain(node_.shape, builder.trains(node_) || builder.needs_gradient(input_));
    batch_ = builder.options().batch;
    in_ = builder.value(input_).shape.at(1);
    out_ = node_.shape.at(0);
    weight_ = builder.parameter(node_, 0);
    if (node_.parameters.size() > 1) bias_ = builder.parameter(node_, 1);
    trains_weight_ = builder.trains(weight_);
    trains_bias_ = bias_.index >= 0 && builder.trains(bias_);
    input_data_ = builder.value(input_).data;
    output_data_ = builder.value(output_).data;
    // With fewer samples 16 bits would gain nothing: the same weights are read.
    constexpr int64_t kLeastPairedSamples = 5;
    pairs_ = builder.dtype() == DataType::kBfloat16 && isa() == Isa::kAvx512Bf16 && batch_ >= kLeastPairedSamples;
    few_ = !pairs_ && batch_ <= LinearForward::kMostSamples;
    // With few samples, reading the weights is all that takes time: rounded ones take half of it.
    if (few_ && context_.frozen && builder.dtype() == DataType::kBfloat16 &&
        batch_ <= LinearForward::kMostRoundedSamples) {
      rounded_ = PackedWeights(in_ * out_ * size_of(DataType::kBfloat16));
    }
    if (pairs_) forward_scratch_ = builder.acquire(bf16_linear::forward_scratch_bytes(shape()));
  }

  ValueId output() const override { return output_; }
  std::vector<ValueId> inputs() const override { return {input_}; }
  std::vector<ValueId> kept() const override {
    return trains_weight_ ? std::vector<ValueId>{input_} : std::vector<ValueId>();
  }

  void forward(Run& run) override {
    const ParameterSet& set = *context_.parameters;
    if (few_) {
      const void* const rounded = rounded_.bytes() == 0 ? nullptr : rounded_.get(set.version(), [&](void* to) {
        at::from_blob(to, {out_, in_}, at::kBFloat16).copy_(set.value(weight_));
      });
      return linear_forward({.batch = batch_,
                             .in = in_,
                             .out = out_,
                             .input = static_cast<const float*>(run.at(input_data_)),
                             .weight = set.value(weight_).const_data_ptr<float>(),
                             .bias = bias_.index >= 0 ? set.value(bias_).const_data_ptr<float>() : nullptr,
                             .rounded_weight = rounded,
                             .output = static_cast<float*>(run.at(output_data_))});
    }
    if (pairs_) {
      return bf16_linear::forward({.shape = shape(),
                                   .input = run.at<float>(input_data_),
                                   .weight = set.value(weight_).const_data_ptr<float>(),
                                   .bias = bias_.index >= 0 ? set.value(bias_).const_data_ptr<float>() : nullptr,
                                   .output = run.at<float>(output_data_),
                                   .scratch = run.at(forward_scratch_),
                                   .threads = omp_get_max_threads()});
    }
    at::Tensor y = matrix(run, output_data_, out_);
    const at::Tensor x = matrix(run, input_data_, in_), weight = set.value(weight_).t();
    if (bias_.index >= 0) {
      at::addmm_out(y, set.value(bias_), x, weight);
    } else {
      at::mm_out(y, x, weight);
    }
  }

  int64_t packed_bytes() const override { return rounded_.bytes(); }

  void plan_backward(PlanBuilder& builder) override {
    const std::vector<BufferId> gradients = builder.take_gradients(output_, 1);
    if (gradients.empty()) return;
    gradient_ = gradients[0];
    if (trains_weight_) kept_input_ = builder.data(input_);
    if (builder.needs_gradient(input_)) input_gradient_ = builder.give_gradient(input_, false).buffer;
    if (!pairs_) return;
    const int64_t data = input_gradient_.valid() ? bf16_linear::backward_data_scratch_bytes(shape()) : 0;
    const int64_t weights = trains_weight_ ? bf16_linear::backward_weights_scratch_bytes(shape()) : 0;
    backward_scratch_ = builder.acquire(std::max(data, weights));
  }

  void backward(Run& run) override {
    if (!gradient_.valid()) return;
    if (pairs_) return backward_in_pairs(run);
    if (few_) return backward_of_few(run);
    const at::Tensor gradient = matrix(run, gradient_, out_);
    if (input_gradient_.valid()) {
      at::Tensor target = matrix(run, input_gradient_, in_);
      at::mm_out(target, gradient, context_.parameters->value(weight_));
    }
    GradientSink& sink = *context_.gradients;
    if (trains_bias_) sink.write(bias_, gradient.sum(0));
    if (!trains_weight_) return;
    const at::Tensor x = matrix(run, kept_input_, in_);
    if (sink.overwrite(weight_)) {
      at::Tensor target = sink.parameters().gradient(weight_);
      at::mm_out(target, gradient.t(), x);
      sink.wrote(weight_);
    } else {
      sink.write(weight_, at::mm(gradient.t(), x));
    }
  }

 private:
  bf16_linear::Shape shape() const { return {.batch = batch_, .in = in_, .out = out_}; }

  void backward_in_pairs(const Run& run) const {
    if (input_gradient_.valid()) {
      bf16_linear::backward_data({.shape = shape(),
                                  .output_gradient = run.at<float>(gradient_),
                                  .weight = context_.parameters->value(weight_).const_data_ptr<float>(),
                                  .input_gradient = run.at<float>(input_gradient_),
                                  .scratch = run.at(backward_scratch_),
                                  .threads = omp_get_max_threads()});
    }
    GradientSink& sink = *context_.gradients;
    if (trains_bias_) sink.write(bias_, matrix(run, gradient_, out_).sum(0));
    if (!trains_weight_) return;
    bf16_linear::backward_weights({.shape = shape(),
                                   .input = run.at<float>(kept_input_),
                                   .output_gradient = run.at<float>(gradient_),
                                   .weight_gradient = sink.parameters().gradient(weight_).data_ptr<float>(),
                                   .accumulate = !sink.overwrite(weight_),
                                   .scratch = run.at(backward_scratch_),
                                   .threads = omp_get_max_threads()});
    sink.wrote(weight_);
  }

  void backward_of_few(const Run& run) const {
    if (input_gradient_.valid()) {
      linear_backward_data({.batch = batch_,
                            .in = in_,
                            .out = out_,
                            .output_gradient = run.at<float>(gradient_),
                            .weight = context_.parameters->value(weight_).const_data_ptr<float>(),
                            .input_gradient = run.at<float>(input_gradient_)});
    }
    GradientSink& sink = *context_.gradients;
    if (trains_bias_) sink.write(bias_, matrix(run, gradient_, out_).sum(0));
    if (!trains_weight_) return;
    linear_backward_weights({.batch = batch_,
                             .in = in_,
                             .out = out_,
                             .input = run.at<float>(kept_input_),
                             .output_gradient = run.at<float>(gradient_),
                             .weight_gradient = sink.parameters().gradient(weight_).data_ptr<float>(),
                             .accumulate = !sink.overwrite(weight_)});
    sink.wrote(weight_);
  }

  at::Tensor matrix(const Run& run, BufferId buffer, int64_t columns) const {
    return at::from_blob(run.at(buffer), {batch_, columns}, at::kFloat);
  }

  ValueId input_ = -1, output_ = -1;
  int64_t batch_ = 0, in_ = 0, out_ = 0;
  ParameterId weight_, bias_;
  bool trains_weight_ = false, trains_bias_ = false;
  bool pairs_ = false;     // products are in bfloat16
  bool few_ = false;       // samples: our kernels in float
  PackedWeights rounded_;  // the weights in bfloat16, where they are constants; empty: they are not used
  BufferId input_data_, output_data_, kept_input_, gradient_, input_gradient_, forward_scratch_, backward_scratch_;
};

}  // namespace

void make_linear(PlanBuilder& builder, const Unit& unit) {
  auto step = std::make_unique<LinearStep>(builder, unit);
  builder.set_value(unit.tail(), step->output());
  builder.add_step(std::move(step), unit.nodes, "linear");
}

}  // namespace trainyard::nn::cpu
