// An inverted residual block whose weights are constants, computed at once
// (nn/cpu/convolution/inverted_residual/arguments.h).
#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include <omp.h>

#include "trainyard/nn/cpu/convolution/convolution_shape.h"
#include "trainyard/nn/cpu/convolution/inverted_residual/inverted_residual.h"
#include "trainyard/nn/cpu/convolution/onednn/packed_weights.h"
#include "trainyard/nn/cpu/elementwise/magnitude.h"
#include "trainyard/nn/cpu/plan/folded_convolution.h"
#include "trainyard/nn/cpu/plan/nan_guard.h"
#include "trainyard/nn/cpu/plan/steps.h"

namespace trainyard::nn::cpu {
namespace {

// The weights of a block's 1x1 convolutions are read for every band of every image, from the last cache. Blocks of so
// many bytes were measured.
constexpr int64_t kMostWeightBytes = 2 << 20;
constexpr int64_t kWeightAlignment = 64;

using Limits = InvertedResidualShape::Limits;

// Finds the block that the first units make, if they do.
class Match {
 public:
  Match(const PlanBuilder& builder, std::span<const Unit> units) : builder_(builder) {
    const BuildContext& context = builder.context();
    const bool wanted = context.frozen && context.kernels.fusions.folded_norm &&
                        context.kernels.fusions.inverted_residual && context.quantization == nullptr &&
                        !builder.options().gradients && has_inverted_residual(builder.dtype());
    if (!wanted) return;
    for (const size_t count : {3, 2}) {
      if (units.size() >= count && fits(units.first(count))) {
        units_ = units.first(count);
        return;
      }
    }
  }

  std::span<const Unit> units() const { return units_; }  // empty: there is none

 private:
  const Node& node(int id) const { return builder_.graph().nodes[static_cast<size_t>(id)]; }

  bool fits(std::span<const Unit> units) const {
    for (size_t i = 0; i < units.size(); ++i) {
      const bool last = i + 1 == units.size(), depthwise = i + 2 == units.size();
      if (!std::holds_alternative<Convolution>(node(units[i].head()).op) || !is_limit(units[i])) return false;
      const ConvolutionShape s = shape(units[i]);
      if (!(depthwise ? is_depthwise(s) : is_pointwise(s))) return false;
      if (!last && (units[i].add >= 0 || !is_read_once(units[i], units[i + 1]))) return false;
    }
    int64_t weights = 0;
    for (const Unit& unit : {units.front(), units.back()}) {
      const ConvolutionShape s = shape(unit);
      if (s.groups == 1) weights += pointwise_elements(s.in_channels, s.out_channels) * size_of(s.dtype);
    }
    return weights <= kMostWeightBytes;
  }

  ConvolutionShape shape(const Unit& unit) const {
    const Node& head = node(unit.head());
    return convolution_shape(head, node(head.inputs[0]).shape, builder_.options().batch, builder_.dtype());
  }

  bool is_limit(const Unit& unit) const {
    if (unit.activation < 0) return true;
    const auto function = std::get<Activation>(node(unit.activation).op).function;
    return function == Activation::Function::kRelu || function == Activation::Function::kRelu6;
  }

  static bool is_pointwise(const ConvolutionShape& s) {
    return s.groups == 1 && s.kernel_height == 1 && s.kernel_width == 1 && s.stride_height == 1 &&
           s.stride_width == 1 && s.top == 0 && s.left == 0 && s.bottom == 0 && s.right == 0;
  }

  static bool is_depthwise(const ConvolutionShape& s) {
    return s.groups == s.in_channels && s.out_channels == s.in_channels && s.kernel_height == 3 &&
           s.kernel_width == 3 && s.dilation_height == 1 && s.dilation_width == 1 &&
           s.stride_height == s.stride_width && s.stride_height <= 2 && s.top >= 0 && s.left >= 0;
  }

  // Returns whether `next` alone reads what `unit` computes, once.
  bool is_read_once(const Unit& unit, const Unit& next) const {
    int readers = builder_.graph().is_output(unit.tail()) ? 1 : 0;
    for (const Node& reader : builder_.graph().nodes) {
      readers += static_cast<int>(std::count(reader.inputs.begin(), reader.inputs.end(), unit.tail()));
    }
    return readers == 1 && node(next.head()).inputs[0] == unit.tail();
  }

  const PlanBuilder& builder_;
  std::span<const Unit> units_;
};

class InvertedResidualStep : public PlanStep {
 public:
  InvertedResidualStep(PlanBuilder& builder, std::span<const Unit> units)
      : units_(units.begin(), units.end()), graph_(builder.graph()), context_(builder.context()) {
    dtype_ = builder.dtype();
    const Node &first = node(units.front().head()), &depthwise = node(units[units.size() - 2].head());
    const ConvolutionShape s =
        convolution_shape(depthwise, node(depthwise.inputs[0]).shape, builder.options().batch, dtype_);
    shape_ = {.batch = s.batch,
              .in_channels = node(first.inputs[0]).shape[0],
              .hidden_channels = s.in_channels,
              .out_channels = node(units.back().head()).shape[0],
              .expands = units.size() == 3,
              .in_height = s.in_height,
              .in_width = s.in_width,
              .out_height = s.out_height,
              .out_width = s.out_width,
              .stride = s.stride_height,
              .top = s.top,
              .left = s.left,
              .convolved = limits(units_[units_.size() - 2]),
              .projected = limits(units_.back())};
    if (shape_.expands) shape_.expanded = limits(units_.front());
    const int threads = omp_get_max_threads();
    plan_ = plan_inverted_residual(shape_, dtype_, threads);

    source_ = builder.map_of(first.inputs[0]);
    builder.use_value(source_);
    source_data_ = builder.value(source_).data;
    if (units.back().residual >= 0) {
      residual_ = builder.map_of(units.back().residual);
      builder.use_value(residual_);
      residual_data_ = builder.value(residual_).data;
      builder.use_value(source_);  // a conversion of the residual has moved the moment on
    }
    output_ = builder.new_map(node(units.back().tail()).shape, false);
    output_data_ = builder.value(output_).data;
    scratch_ = builder.scratch(plan_.scratch_bytes(threads));
    weights_ = PackedWeights(place_weights());
    sums_.resize(units_.size());
  }

  ValueId output() const override { return output_; }
  std::vector<ValueId> inputs() const override {
    return residual_ >= 0 ? std::vector<ValueId>{source_, residual_} : std::vector<ValueId>{source_};
  }
  int64_t packed_bytes() const override { return weights_.bytes(); }

  float bound(const Run& run) const override {
    float bound = run.bounds[static_cast<size_t>(source_)];
    for (size_t i = 0; i < units_.size(); ++i) {
      const bool adds = i + 1 == units_.size() && residual_ >= 0;
      bound = bound * sums_[i].weights + sums_[i].bias + (adds ? run.bounds[static_cast<size_t>(residual_)] : 0);
      bound = bound_behind(bound * kRoundingUp, activation(units_[i]));
    }
    return bound;
  }

  void forward(Run& run) override {
    const auto* const packed = static_cast<const std::byte*>(
        weights_.get(context_.parameters->version(), [this](void* to) { pack(static_cast<std::byte*>(to)); }));
    const auto floats = [&](int64_t place) { return reinterpret_cast<const float*>(packed + place); };
    inverted_residual({.shape = shape_,
                       .plan = plan_,
                       .source = run.at(source_data_),
                       .expand = shape_.expands ? packed + places_.expand : nullptr,
                       .expand_bias = floats(places_.expand_bias),
                       .depthwise = floats(places_.depthwise),
                       .depthwise_bias = floats(places_.depthwise_bias),
                       .project = packed + places_.project,
                       .project_bias = floats(places_.project_bias),
                       .residual = run.at(residual_data_),
                       .output = run.at(output_data_),
                       .scratch = run.at(scratch_)},
                      dtype_);
  }

  void plan_backward(PlanBuilder&) override {}
  void backward(Run&) override {}

 private:
  const Node& node(int id) const { return graph_.nodes[static_cast<size_t>(id)]; }

  UnitActivation activation(const Unit& unit) const {
    return unit.activation < 0 ? UnitActivation::kNone
                               : unit_activation(std::get<Activation>(node(unit.activation).op).function);
  }

  Limits limits(const Unit& unit) const {
    switch (activation(unit)) {
      case UnitActivation::kRelu:
        return {.least = 0};
      case UnitActivation::kRelu6:
        return {.least = 0, .most = 6};
      default:
        return {};
    }
  }

  // Finds places for all packed weights, and returns the bytes that they take.
  int64_t place_weights() {
    int64_t bytes = 0;
    const auto place = [&](int64_t wanted) {
      return std::exchange(bytes, (bytes + wanted + kWeightAlignment - 1) / kWeightAlignment * kWeightAlignment);
    };
    const auto floats = [](int64_t channels) { return depthwise_elements(channels) / 9 * int64_t{sizeof(float)}; };
    const int64_t hidden = shape_.hidden_channels;
    places_.expand = place(shape_.expands ? pointwise_elements(shape_.in_channels, hidden) * size_of(dtype_) : 0);
    places_.project = place(pointwise_elements(hidden, shape_.out_channels) * size_of(dtype_));
    places_.depthwise = place(depthwise_elements(hidden) * int64_t{sizeof(float)});
    places_.expand_bias = place(floats(hidden));
    places_.depthwise_bias = place(floats(hidden));
    places_.project_bias = place(floats(shape_.out_channels));
    return bytes;
  }

  void pack(std::byte* to) {
    std::fill_n(to, weights_.bytes(), std::byte{0});
    const auto floats = [&](int64_t place) { return reinterpret_cast<float*>(to + place); };
    for (size_t i = 0; i < units_.size(); ++i) {
      const Unit& unit = units_[i];
      const FoldedConvolution folded =
          fold_convolution(node(unit.head()), unit.norm < 0 ? nullptr : &node(unit.norm), context_);
      const auto* const weight = folded.weight.const_data_ptr<float>();
      const auto outputs = static_cast<int64_t>(folded.bias.size()), inputs = folded.weight.numel() / outputs;
      largest_row_sum({.rows = outputs, .columns = inputs, .values = weight, .result = &sums_[i].weights});
      sums_[i].bias = largest_of(folded.bias.data(), outputs, DataType::kFloat);
      if (i + 1 == units_.size()) {
        pack_pointwise(weight, inputs, outputs, dtype_, to + places_.project);
        std::copy(folded.bias.begin(), folded.bias.end(), floats(places_.project_bias));
      } else if (i + 2 == units_.size()) {
        pack_depthwise(weight, outputs, floats(places_.depthwise));
        std::copy(folded.bias.begin(), folded.bias.end(), floats(places_.depthwise_bias));
      } else {
        pack_pointwise(weight, inputs, outputs, dtype_, to + places_.expand);
        std::copy(folded.bias.begin(), folded.bias.end(), floats(places_.expand_bias));
      }
    }
  }

  const std::vector<Unit> units_;
  const Graph& graph_;
  const BuildContext& context_;
  DataType dtype_ = DataType::kFloat;
  InvertedResidualShape shape_;
  InvertedResidualPlan plan_;
  struct Places {
    int64_t expand = 0, project = 0, depthwise = 0, expand_bias = 0, depthwise_bias = 0, project_bias = 0;
  };
  Places places_;  // bytes from the start of the packed weights
  PackedWeights weights_;
  struct Sums {
    float weights = kUnbounded, bias = kUnbounded;  // largest magnitudes: of an output's weights together, of a bias
  };
  std::vector<Sums> sums_;  // by unit
  ValueId source_ = -1, residual_ = -1, output_ = -1;
  BufferId source_data_, residual_data_, output_data_, scratch_;
};

}  // namespace

size_t make_inverted_residual(PlanBuilder& builder, std::span<const Unit> units) {
  const std::span<const Unit> block = Match(builder, units).units();
  if (block.empty()) return 0;
  std::vector<int> nodes;
  for (const Unit& unit : block) nodes.insert(nodes.end(), unit.nodes.begin(), unit.nodes.end());
  auto step = std::make_unique<InvertedResidualStep>(builder, block);
  builder.set_value(block.back().tail(), step->output());
  builder.add_step(std::move(step), std::move(nodes),
                   block.size() == 3 ? "inverted residual" : "depthwise and 1x1 convolution");
  return block.size();
}

}  // namespace trainyard::nn::cpu
