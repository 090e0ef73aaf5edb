// A batch norm in training, its activation, and the depthwise 3x3 convolution that alone reads them, as one step
// (nn/cpu/simd/norm_depthwise_arguments.h): the map between norm and convolution is never written. For float maps: in
// 16 bits it is not faster.
#include <algorithm>
#include <utility>

#include <ATen/ops/empty.h>
#include <omp.h>

#include "trainyard/nn/cpu/convolution/convolution_shape.h"
#include "trainyard/nn/cpu/elementwise/magnitude.h"
#include "trainyard/nn/cpu/plan/nan_guard.h"
#include "trainyard/nn/cpu/plan/steps.h"
#include "trainyard/nn/cpu/plan/training_norm.h"
#include "trainyard/nn/cpu/simd/kernels.h"
#include "trainyard/nn/execution/gradient_sink.h"

namespace trainyard::nn::cpu {
namespace {

// Returns whether `convolution` alone reads what `norm` computes, once.
bool is_only_reader(const Graph& graph, const Unit& norm, const Unit& convolution) {
  int readers = graph.is_output(norm.tail()) ? 1 : 0;
  for (const Node& reader : graph.nodes) {
    readers += static_cast<int>(std::count(reader.inputs.begin(), reader.inputs.end(), norm.tail()));
  }
  return readers == 1 && graph.nodes[static_cast<size_t>(convolution.head())].inputs[0] == norm.tail();
}

bool has_kernel(const ConvolutionShape& s) {
  const auto within = [](int64_t padding) { return padding >= 0 && padding < NormDepthwise::kWindow; };
  return s.groups == s.in_channels && s.out_channels == s.in_channels && s.kernel_height == NormDepthwise::kWindow &&
         s.kernel_width == NormDepthwise::kWindow && s.dilation_height == 1 && s.dilation_width == 1 &&
         s.stride_height == s.stride_width && s.stride_height <= 2 && within(s.top) && within(s.left) && !s.bias;
}

bool fits(const PlanBuilder& builder, const Unit& norm, const Unit& convolution) {
  const BuildContext& context = builder.context();
  const Graph& graph = builder.graph();
  const auto node = [&](int id) -> const Node& { return graph.nodes[static_cast<size_t>(id)]; };
  const Node &first = node(norm.head()), &second = node(convolution.head());
  // A norm whose parameters are frozen does as in inference. Replicas meet between the two passes of a norm. Without
  // the switch nothing is fused with a norm.
  return builder.dtype() == DataType::kFloat && context.kernels.fusions.norm_activation && builder.training() &&
         builder.options().gradients && context.sync_batch_norm == nullptr &&
         std::holds_alternative<BatchNorm>(first.op) && builder.layer(first).trains() && norm.add < 0 &&
         std::holds_alternative<Convolution>(second.op) && convolution.activation < 0 &&
         is_only_reader(graph, norm, convolution) &&
         has_kernel(convolution_shape(second, first.shape, builder.options().batch, builder.dtype()));
}

class NormDepthwiseStep : public PlanStep {
 public:
  NormDepthwiseStep(PlanBuilder& builder, const Unit& norm, const Unit& convolution)
      : context_(builder.context()),
        input_(builder.map_of(builder.graph().nodes[static_cast<size_t>(norm.head())].inputs[0])),
        norm_(builder, norm, builder.value(input_).map) {
    const Node& first = builder.graph().nodes[static_cast<size_t>(norm.head())];
    const Node& second = builder.graph().nodes[static_cast<size_t>(convolution.head())];
    const ConvolutionShape shape = convolution_shape(second, first.shape, builder.options().batch, DataType::kFloat);
    weight_ = builder.parameter(second, 0);
    trains_weight_ = builder.trains(weight_);
    builder.use_value(input_);
    input_data_ = builder.value(input_).data;
    output_ = builder.new_map(second.shape, true);
    output_data_ = builder.value(output_).data;
    shape_ = {.input_shape = builder.value(input_).map,
              .output_shape = builder.value(output_).map,
              .stride = shape.stride_height,
              .top = shape.top,
              .left = shape.left,
              .threads = omp_get_max_threads()};
    scratch_ = builder.scratch(NormDepthwiseForward{shape_}.scratch_bytes());
  }

  ValueId output() const override { return output_; }
  std::vector<ValueId> inputs() const override { return {input_}; }
  std::vector<ValueId> kept() const override { return {input_}; }

  void forward(Run& run) override {
    NormDepthwiseForward a = arguments(run, input_data_, output_data_, scratch_);
    norm_depthwise_forward(a);
    norm_.update_running_statistics(run, count());
  }

  float bound(const Run& run) const override {
    float largest_window = 0;
    largest_row_sum({.rows = shape_.input_shape.channels,
                     .columns = NormDepthwise::kWindow * NormDepthwise::kWindow,
                     .values = weight(),
                     .result = &largest_window});
    const float normalized = bound_behind(norm_.bound(run, count()) * kRoundingUp, norm_.activation());
    return normalized * largest_window * kRoundingUp;
  }

  RecomputeCost recompute_cost() const override { return RecomputeCost::kCostly; }
  std::function<void(Run&)> plan_recompute(PlanBuilder& builder, const std::vector<ValueId>& sources) override {
    const BufferId input = builder.data(sources[0]);
    norm_.use_factors(builder);
    const BufferId scratch = builder.scratch(NormDepthwiseForward{shape_}.scratch_bytes());
    return [this, input, scratch, output = builder.new_buffer(output_)](Run& run) {
      NormDepthwiseForward a = arguments(run, input, output, scratch);
      a.collects = false;
      norm_depthwise_forward(a);
    };
  }

  void plan_backward(PlanBuilder& builder) override {
    const std::vector<BufferId> gradients = builder.take_gradients(output_, 1);
    if (gradients.empty()) return;
    gradient_ = gradients[0];
    norm_.plan_backward(builder);
    kept_input_ = builder.data(input_);
    backward_scratch_ = builder.scratch(NormDepthwiseBackward{shape_}.scratch_bytes());
    // The kernel computes all gradients in any case.
    if (!trains_weight_) {
      unused_gradient_ = builder.acquire(shape_.input_shape.channels * NormDepthwise::kWindow * NormDepthwise::kWindow *
                                         int64_t{sizeof(float)});
    }
    input_gradient_ = builder.acquire(builder.bytes_of(input_));
    if (builder.needs_gradient(input_)) builder.give_gradient(input_, input_gradient_);
  }

  void backward(Run& run) override {
    if (!gradient_.valid()) return;
    const at::Tensor plain = trains_weight_ ? plain_gradient() : at::Tensor();
    NormDepthwiseBackward a{shape_};
    a.weights = weight();
    a.scratch = run.at(backward_scratch_);
    a.norm = norm_.backward(run);
    a.norm.input = run.at(kept_input_);
    a.norm.input_gradient = run.at(input_gradient_);
    a.output_gradient = run.at(gradient_);
    a.weights_gradient = trains_weight_ ? plain.data_ptr<float>() : run.at<float>(unused_gradient_);
    norm_depthwise_backward(a);
    if (trains_weight_) {
      GradientSink& sink = *context_.gradients;
      sink.overwrite(weight_) ? sink.wrote(weight_) : sink.write(weight_, plain);
    }
    norm_.send_gradients(run);
  }

 private:
  double count() const { return static_cast<double>(shape_.input_shape.batch * shape_.input_shape.pixels()); }
  const float* weight() const { return context_.parameters->value(weight_).const_data_ptr<float>(); }

  NormDepthwiseForward arguments(const Run& run, BufferId input, BufferId output, BufferId scratch) const {
    NormDepthwiseForward a{shape_};
    a.weights = weight();
    a.scratch = run.at(scratch);
    a.norm = norm_.forward(run);
    a.norm.input = run.at(input);
    a.output = run.at(output);
    return a;
  }

  // Returns where the weight's gradient goes: to the parameter set, or, where that holds a part of it already, to a
  // tensor that is added to it.
  at::Tensor plain_gradient() const {
    GradientSink& sink = *context_.gradients;
    if (sink.overwrite(weight_)) return sink.parameters().gradient(weight_);
    return at::empty(context_.parameters->value(weight_).sizes(), at::kFloat);
  }

  const BuildContext& context_;
  ValueId input_, output_ = -1;
  TrainingNorm norm_;
  NormDepthwise shape_;  // without weights and memory
  ParameterId weight_;
  bool trains_weight_ = false;
  BufferId input_data_, output_data_, scratch_, gradient_, kept_input_, backward_scratch_, input_gradient_,
      unused_gradient_;
};

}  // namespace

size_t make_norm_depthwise(PlanBuilder& builder, std::span<const Unit> units) {
  if (units.size() < 2 || !fits(builder, units[0], units[1])) return 0;
  std::vector<int> nodes;
  for (const Unit& unit : units.first(2)) nodes.insert(nodes.end(), unit.nodes.begin(), unit.nodes.end());
  auto step = std::make_unique<NormDepthwiseStep>(builder, units[0], units[1]);
  builder.set_value(units[1].tail(), step->output());
  builder.add_step(std::move(step), std::move(nodes),
                   units[0].activation >= 0 ? "batch norm + activation + depthwise" : "batch norm + depthwise");
  return 2;
}

}  // namespace trainyard::nn::cpu
