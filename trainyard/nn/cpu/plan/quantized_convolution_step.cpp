// A convolution that multiplies integers of 8 bits, with the batch norm, the addition and the activation behind it.
#include <optional>
#include <utility>

#include <fmt/core.h>
#include <omp.h>

#include "trainyard/nn/cpu/convolution/convolution_shape.h"
#include "trainyard/nn/cpu/plan/byte_step.h"
#include "trainyard/nn/cpu/plan/quantized_weights.h"
#include "trainyard/nn/cpu/quantized/quantized_convolution.h"

namespace trainyard::nn::cpu {
namespace {

Window window_of(const ConvolutionShape& s) {
  return {.kernel_height = s.kernel_height,
          .kernel_width = s.kernel_width,
          .stride_height = s.stride_height,
          .stride_width = s.stride_width,
          .top = s.top,
          .left = s.left};
}

// Dense and grouped convolutions have kernels of their own, with the same arguments around them.
struct DenseKernel {
  QuantizedConvolution task;

  void prepare(PlanBuilder& builder, const ConvolutionShape& s) {
    task.window = window_of(s);
    task.dilation_height = s.dilation_height;
    task.dilation_width = s.dilation_width;
    task.vnni = has_vnni();
    task.threads = omp_get_max_threads();
    task.winograd = is_faster_by_winograd(task);
    task.clipped = is_faster_clipped(task);
    scratch = builder.scratch(quantized_convolution_scratch_bytes(task));
  }
  void pack(const int8_t* plain, int8_t* packed, int32_t* offsets) const {
    quantized_convolution_pack(task, {.plain = plain, .packed = packed, .offsets = offsets});
  }
  static void run(const QuantizedConvolution& a) { quantized_convolution(a); }
  std::string name() const { return kernel_name(task); }

  BufferId scratch;
};

struct GroupedKernel {
  QuantizedGroupedConvolution task;

  void prepare(PlanBuilder& builder, const ConvolutionShape& s) {
    task.groups = s.groups;
    task.vnni = has_vnni();
    task.window = window_of(s);
    task.dilation_height = s.dilation_height;
    task.dilation_width = s.dilation_width;
    task.threads = omp_get_max_threads();
    scratch = builder.scratch(task.scratch_bytes());
  }
  void pack(const int8_t* plain, int8_t* packed, int32_t* offsets) const {
    QuantizedGroupedPack a{task};
    a.plain = plain;
    a.input_zero = task.input_zero;
    a.packed = packed;
    a.offsets = offsets;
    quantized_grouped_pack(a);
  }
  static void run(const QuantizedGroupedConvolution& a) { quantized_grouped_convolution(a); }
  static std::string name() { return has_vnni() ? "int8 vnni" : "int8 pairs"; }

  BufferId scratch;
};

template <typename Kernel>
class QuantizedConvolutionStep : public ByteStep {
 public:
  QuantizedConvolutionStep(PlanBuilder& builder, const Unit& unit, const ConvolutionShape& shape) {
    const Node& node = node_of(builder, unit.head());
    const int source_node = node.inputs[0];
    const ActivationScale scale = *builder.scale_of(source_node);
    // Images have 3 channels of 16 that count: the first convolution reads them in fours.
    const Value& given = builder.value(builder.value_of(source_node));
    const bool image = given.dtype == DataType::kFloat && given.kind == Value::Kind::kPlain && shape.in_channels <= 4 &&
                       shape.groups == 1;
    const ValueId source = image ? builder.byte_image_of(source_node) : builder.byte_map_of(source_node);
    std::vector<ValueId> inputs{source};
    if (unit.residual >= 0) {
      const bool bytes = builder.scale_of(unit.residual).has_value();
      inputs.push_back(bytes ? builder.byte_map_of(unit.residual) : builder.map_of(unit.residual));
    }
    for (ValueId input : inputs) builder.use_value(input);
    const ValueId output = unit.residual >= 0 ? sum_of(builder, unit, source, inputs[1]) : builder.new_output(unit);

    kernel_.task.input_shape = builder.value(source).map;
    kernel_.task.output_shape = builder.value(output).map;
    kernel_.task.input_zero = scale.zero_point;
    kernel_.task.to = output_to(builder.value(output), activation_of(builder, unit));
    if (unit.residual >= 0) {
      const Value& residual = builder.value(inputs[1]);
      kernel_.task.to.residual_dtype = residual.dtype;
      kernel_.task.to.residual_scale = residual.scale.scale;
      kernel_.task.to.residual_zero = residual.scale.zero_point;
    }
    kernel_.prepare(builder, shape);
    const Node* const norm = unit.norm >= 0 ? &node_of(builder, unit.norm) : nullptr;
    weights_.emplace(builder, node, norm, scale.scale, kernel_.task.output_shape.padded_channels(),
                     kernel_.task.packed_bytes());
    has_residual_ = unit.residual >= 0;
    set_values(builder, std::move(inputs), output);
  }

  int64_t packed_bytes() const override { return weights_->bytes(); }
  std::string kernel_name() const { return kernel_.name(); }

  void forward(Run& run) override {
    auto a = kernel_.task;
    a.weights = weights_->get(
        [&](const int8_t* plain, int8_t* packed, int32_t* offsets) { kernel_.pack(plain, packed, offsets); });
    a.offsets = weights_->offsets();
    a.factors = weights_->factors();
    a.bias = weights_->bias();
    a.input = input_at<uint8_t>(run);
    a.to.output = output_at(run);
    if (has_residual_) a.to.residual = input_at(run, 1);
    // Scales are chosen so that a unit that writes bytes adds bytes, unless those were zero on all calibration images.
    if (has_residual_ && a.to.dtype == DataType::kUint8 && a.to.residual_dtype != DataType::kUint8) {
      note_non_finite(run, a.to.residual, a.output_shape.elements() / a.output_shape.batch, a.to.residual_dtype);
    }
    a.scratch = run.at(kernel_.scratch);
    Kernel::run(a);
  }

 private:
  // Returns the value of a unit with an addition. It is written over the residual where no later step reads that, and
  // where both have the same type.
  static ValueId sum_of(PlanBuilder& builder, const Unit& unit, ValueId source, ValueId residual) {
    const ActivationScale* const scale = builder.output_scale(unit.tail());
    const DataType dtype = scale != nullptr ? DataType::kUint8 : builder.dtype();
    if (!builder.is_last_reader(unit.residual) || residual == source || builder.value(residual).dtype != dtype) {
      return builder.new_output(unit);
    }
    return scale != nullptr ? builder.overwrite_map(residual, *scale) : builder.overwrite_map(residual);
  }

  Kernel kernel_;
  std::optional<QuantizedWeights> weights_;
  bool has_residual_ = false;
};

template <typename Kernel>
void add_convolution(PlanBuilder& builder, const Unit& unit, const ConvolutionShape& shape) {
  auto step = std::make_unique<QuantizedConvolutionStep<Kernel>>(builder, unit, shape);
  std::string name = fmt::format("conv {}x{}{} {}{}", shape.kernel_height, shape.kernel_width,
                                 shape.groups > 1 ? fmt::format(" groups {}", shape.groups) : "", step->kernel_name(),
                                 description_behind(builder, unit));
  add_step_of(builder, unit, std::move(step), std::move(name));
}

}  // namespace

void make_quantized_convolution(PlanBuilder& builder, const Unit& unit) {
  const Node& node = builder.graph().nodes[static_cast<size_t>(unit.head())];
  const Shape& image = builder.graph().nodes[static_cast<size_t>(node.inputs[0])].shape;
  const ConvolutionShape shape = convolution_shape(node, image, builder.options().batch, builder.dtype());
  shape.groups > 1 ? add_convolution<GroupedKernel>(builder, unit, shape)
                   : add_convolution<DenseKernel>(builder, unit, shape);
}

}  // namespace trainyard::nn::cpu
