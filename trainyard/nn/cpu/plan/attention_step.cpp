// Attention of a map's pixels, whose heads fill whole channel blocks.
#include <ATen/ops/zeros.h>
#include <omp.h>

#include "trainyard/nn/cpu/attention/bf16_attention.h"
#include "trainyard/nn/cpu/plan/nan_guard.h"
#include "trainyard/nn/cpu/plan/single_input_step.h"
#include "trainyard/nn/cpu/simd/isa.h"
#include "trainyard/nn/cpu/simd/kernels.h"
#include "trainyard/nn/execution/gradient_sink.h"
#include "trainyard/nn/graph/attention_windows.h"

namespace trainyard::nn::cpu {
namespace {

class AttentionStep : public SingleInputStep {
 public:
  AttentionStep(PlanBuilder& builder, const Unit& unit)
      : SingleInputStep(builder, unit),
        op_(std::get<Attention>(node_.op)),
        context_(builder.context()),
        windows_(attention_windows(op_, input_map_.height, input_map_.width)) {
    keeps_input_ = true;
    pairs_ = dtype_ == DataType::kBfloat16 && isa() == Isa::kAvx512Bf16;
    if (op_.window > 0) {
      table_ = builder.parameter(node_, 0);
      positions_ = relative_positions(op_.window);
      bias_ = builder.acquire(op_.heads * bias_elements() * kFloatBytes);
    }
    if (!pairs_) {
      const int64_t floats = AttentionForward::memory_floats(places(nullptr), channel_block());
      memory_ = builder.acquire(omp_get_max_threads() * floats * kFloatBytes);
    }
    if (builder.needs_gradient(output_)) {
      log_sums_ = builder.acquire(input_map_.batch * op_.heads * output_map_.pixels() * kFloatBytes);
    }
  }

  RecomputeCost recompute_cost() const override { return RecomputeCost::kCostly; }
  // Outputs are means of the input's values, as long as the scores and the bias are far from infinity.
  float bound(const Run& run) const override {
    constexpr float kModest = 0x1p40F;
    const float input = run.bounds[static_cast<size_t>(input_)];
    const bool modest = input <= kModest && (!bias_.valid() || largest_of(run.at(bias_), op_.heads * bias_elements(),
                                                                          DataType::kFloat) <= kModest);
    return modest ? input * kRoundingUp : kUnbounded;
  }

 private:
  static constexpr int64_t kFloatBytes = sizeof(float);

  void run_forward(Run& run, BufferId input, BufferId output) override {
    if (bias_.valid()) spread_bias(run.at<float>(bias_));
    const AttentionForward a = {.places = places(run.at<float>(bias_)),
                                .input = run.at(input),
                                .output = run.at(output),
                                .log_sums = run.at<float>(log_sums_),
                                .memory = run.at<float>(memory_)};
    pairs_ ? bf16_attention::forward(a) : attention_forward(a);
  }

  void plan_more_recompute(PlanBuilder& builder) override {
    use_kept(builder);
    builder.use(memory_);
  }
  void plan_more(PlanBuilder& builder) override {
    use_kept(builder);
    if (bias_.valid() && builder.trains(table_)) {
      bias_gradient_ = builder.acquire(input_map_.batch * op_.heads * bias_elements() * kFloatBytes);
    }
  }

  void run_backward(Run& run) override {
    const AttentionBackward a = {.places = places(run.at<float>(bias_)),
                                 .gradient = run.at(gradient_),
                                 .input = run.at(kept_input_),
                                 .log_sums = run.at<float>(log_sums_),
                                 .input_gradient = run.at(input_gradient_),
                                 .accumulate = accumulate_,
                                 .bias_gradient = run.at<float>(bias_gradient_)};
    pairs_ ? bf16_attention::backward(a) : attention_backward(a);
    if (bias_gradient_.valid()) send_bias(run.at<float>(bias_gradient_));
  }

  void use_kept(PlanBuilder& builder) const {
    builder.use(bias_);
    builder.use(log_sums_);
  }

  AttentionPlaces places(const float* bias) const {
    return {.shape = output_map_,
            .pixels_in = input_map_.pixels(),
            .dtype = dtype_,
            .heads = op_.heads,
            .windows = windows_.count,
            .tokens = windows_.tokens,
            .queries = op_.queries > 0 ? op_.queries : windows_.tokens,
            .pixels = windows_.pixels.data(),
            .regions = windows_.regions.empty() ? nullptr : windows_.regions.data(),
            .bias = bias};
  }

  int64_t bias_elements() const { return windows_.tokens * windows_.tokens; }  // of a head

  // Spreads the table, [place, head], over `bias`, [head, query, key].
  void spread_bias(float* bias) const {
    const auto* const table = context_.parameters->value(table_).const_data_ptr<float>();
    for (int64_t head = 0; head < op_.heads; ++head) {
      for (int64_t place : positions_) *bias++ = table[place * op_.heads + head];
    }
  }

  // Sums the gradients, [batch, head, query, key], into the table's gradient.
  void send_bias(const float* gradients) const {
    const at::Tensor sums = at::zeros(context_.parameters->value(table_).sizes(), at::kDouble);
    auto* const table = sums.data_ptr<double>();
    for (int64_t i = 0; i < input_map_.batch * op_.heads; ++i) {
      for (int64_t place : positions_) table[place * op_.heads + i % op_.heads] += *gradients++;
    }
    context_.gradients->write(table_, sums.to(at::kFloat));
  }

  const Attention& op_;
  const BuildContext& context_;
  AttentionWindows windows_;
  bool pairs_ = false;  // products in bfloat16
  ParameterId table_;
  std::vector<int64_t> positions_;
  BufferId bias_, bias_gradient_, log_sums_, memory_;
};

}  // namespace

void make_attention(PlanBuilder& builder, const Unit& unit) {
  const Node& node = builder.graph().nodes[static_cast<size_t>(unit.head())];
  const int64_t depth = node.shape[0] / std::get<Attention>(node.op).heads;
  if (depth % channel_block() != 0) return make_plain(builder, unit);
  add_step_of(builder, unit, std::make_unique<AttentionStep>(builder, unit), "attention");
}

}  // namespace trainyard::nn::cpu
