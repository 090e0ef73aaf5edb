// A linear layer that multiplies integers of 8 bits: a 1x1 convolution of images of one pixel.
#include <optional>
#include <utility>

#include <omp.h>

#include "trainyard/nn/cpu/plan/byte_step.h"
#include "trainyard/nn/cpu/plan/quantized_weights.h"
#include "trainyard/nn/cpu/quantized/quantized_convolution.h"

namespace trainyard::nn::cpu {
namespace {

class QuantizedLinearStep : public ByteStep {
 public:
  QuantizedLinearStep(PlanBuilder& builder, const Unit& unit) {
    const Node& node = builder.graph().nodes[static_cast<size_t>(unit.head())];
    const ValueId source = builder.bytes_of_vector(node.inputs[0]);
    const ActivationScale scale = builder.value(source).scale;
    const ValueId output = builder.new_output(unit);
    const int64_t batch = builder.options().batch, in = builder.value(source).shape.at(1), out = node.shape.at(0);
    task_ = {.input_shape = {.batch = batch, .channels = in, .block = channel_block()},
             .output_shape = {.batch = batch, .channels = out, .block = channel_block()},
             .vectors = true,
             .vnni = has_vnni(),
             .input_zero = scale.zero_point,
             .to = output_to(builder.value(output)),
             .threads = omp_get_max_threads()};
    task_.clipped = is_faster_clipped(task_);
    scratch_ = builder.scratch(quantized_convolution_scratch_bytes(task_));
    weights_.emplace(builder, node, nullptr, scale.scale, task_.output_shape.padded_channels(), task_.packed_bytes());
    set_values(builder, {source}, output);
  }

  int64_t packed_bytes() const override { return weights_->bytes(); }
  std::string kernel() const { return kernel_name(task_); }

  void forward(Run& run) override {
    QuantizedConvolution a = task_;
    a.weights = weights_->get([&](const int8_t* plain, int8_t* packed, int32_t* offsets) {
      quantized_convolution_pack(task_, {.plain = plain, .packed = packed, .offsets = offsets});
    });
    a.offsets = weights_->offsets();
    a.factors = weights_->factors();
    a.bias = weights_->bias();
    a.input = input_at<uint8_t>(run);
    a.to.output = output_at(run);
    a.scratch = run.at(scratch_);
    quantized_convolution(a);
  }

 private:
  QuantizedConvolution task_;
  BufferId scratch_;
  std::optional<QuantizedWeights> weights_;
};

}  // namespace

void make_quantized_linear(PlanBuilder& builder, const Unit& unit) {
  auto step = std::make_unique<QuantizedLinearStep>(builder, unit);
  const std::string kernel = "linear " + step->kernel();
  add_step_of(builder, unit, std::move(step), kernel);
}

}  // namespace trainyard::nn::cpu
