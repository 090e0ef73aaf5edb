// Sums, activations, pools and products with a factor a channel, of bytes, and layer norms that write them.
#include <array>
#include <utility>

#include "trainyard/nn/cpu/plan/byte_step.h"

namespace trainyard::nn::cpu {
namespace {

bool is_map(const Node& node) {
  return node.shape.size() == 3;
}

class ByteSumStep : public ByteStep {
 public:
  ByteSumStep(PlanBuilder& builder, const Unit& unit) {
    std::vector<ValueId> inputs;
    for (int input : node_of(builder, unit.head()).inputs) inputs.push_back(builder.byte_map_of(input));
    for (ValueId input : inputs) builder.use_value(input);
    const ValueId output = builder.new_output(unit);
    task_ = {.shape = builder.value(output).map,
             .input_count = static_cast<int>(inputs.size()),
             .to = output_to(builder.value(output), activation_of(builder, unit))};
    for (size_t i = 0; i < inputs.size(); ++i) {
      task_.scales[i] = builder.value(inputs[i]).scale.scale;
      task_.zero_points[i] = builder.value(inputs[i]).scale.zero_point;
    }
    set_values(builder, std::move(inputs), output);
  }

  void forward(Run& run) override {
    SumBytes a = task_;
    for (size_t i = 0; i < static_cast<size_t>(a.input_count); ++i) a.inputs[i] = input_at<uint8_t>(run, i);
    a.to.output = output_at(run);
    sum_bytes(a);
  }

 private:
  SumBytes task_;
};

class ByteActivationStep : public ByteStep {
 public:
  ByteActivationStep(PlanBuilder& builder, const Unit& unit) {
    const Node& node = node_of(builder, unit.head());
    const int source = node.inputs[0];
    const ValueId input = is_map(node) ? builder.byte_map_of(source) : builder.bytes_of_vector(source);
    const ValueId output = builder.new_output(unit);
    const ActivationScale from = builder.value(input).scale, to = builder.value(output).scale;
    byte_table({.scale = from.scale,
                .zero_point = from.zero_point,
                .activation = unit_activation(std::get<Activation>(node.op).function),
                .output_inverse_scale = 1 / to.scale,
                .output_zero_point = to.zero_point,
                .table = table_.data()});
    count_ = builder.bytes_of(output);
    set_values(builder, {input}, output);
  }

  void forward(Run& run) override {
    map_bytes(
        {.count = count_, .input = input_at<uint8_t>(run), .table = table_.data(), .output = output_at<uint8_t>(run)});
  }

 private:
  alignas(64) std::array<uint8_t, 256> table_;
  int64_t count_ = 0;
};

// What maximum and average pools have in common.
class BytePoolStep : public ByteStep {
 public:
  BytePoolStep(PlanBuilder& builder, const Unit& unit) : op_(std::get<Pool>(node_of(builder, unit.head()).op)) {
    const Node& node = node_of(builder, unit.head());
    const Shape& image = node_of(builder, node.inputs[0]).shape;
    padding_ = resolve_padding(op_.padding, {image[1], image[2]}, op_.kernel, op_.stride);
    const ValueId input = builder.byte_map_of(node.inputs[0]);
    const ActivationScale scale = builder.value(input).scale;
    const ValueId output =
        op_.kind == Pool::Kind::kMax ? builder.new_byte_map(node.shape, scale) : builder.new_output(unit);
    const Window window{.kernel_height = op_.kernel.height,
                        .kernel_width = op_.kernel.width,
                        .stride_height = op_.stride.height,
                        .stride_width = op_.stride.width,
                        .top = padding_.top,
                        .left = padding_.left};
    task_ = {.input_shape = builder.value(input).map,
             .output_shape = builder.value(output).map,
             .window = window,
             .bottom = padding_.bottom,
             .right = padding_.right,
             .count_padding = op_.count_padding,
             .scale = scale.scale,
             .zero_point = scale.zero_point,
             .to = output_to(builder.value(output))};
    set_values(builder, {input}, output);
  }

  void forward(Run& run) override {
    if (op_.kind == Pool::Kind::kMax) {
      return max_pool_bytes({.input_shape = task_.input_shape,
                             .output_shape = task_.output_shape,
                             .window = task_.window,
                             .input = input_at<uint8_t>(run),
                             .output = output_at<uint8_t>(run)});
    }
    AveragePoolBytes a = task_;
    a.input = input_at<uint8_t>(run);
    a.to.output = output_at(run);
    average_pool_bytes(a);
  }

 private:
  const Pool& op_;
  Padding padding_;
  AveragePoolBytes task_;
};

class ByteGlobalAverageStep : public ByteStep {
 public:
  ByteGlobalAverageStep(PlanBuilder& builder, const Unit& unit) {
    const Node& node = node_of(builder, unit.head());
    const ValueId input = builder.byte_map_of(node.inputs[0]);
    const ActivationScale scale = builder.value(input).scale;
    const ValueId output = new_average(builder, unit);
    task_ = {.shape = builder.value(input).map,
             .scale = scale.scale,
             .zero_point = scale.zero_point,
             .to = output_to(builder.value(output))};
    set_values(builder, {input}, output);
  }

  void forward(Run& run) override {
    GlobalAverageBytes a = task_;
    a.input = input_at<uint8_t>(run);
    a.to.output = output_at(run);
    global_average_bytes(a);
  }

 private:
  // Means are written as vectors. A map of one pixel has the same layout when its channels fill blocks.
  static ValueId new_average(PlanBuilder& builder, const Unit& unit) {
    const Shape& shape = node_of(builder, unit.tail()).shape;
    const ActivationScale* const scale = builder.output_scale(unit.tail());
    if (scale == nullptr || (shape.size() == 3 && shape[0] % channel_block() != 0)) {
      return builder.new_plain(shape, false);
    }
    return shape.size() == 3 ? builder.new_byte_map(shape, *scale) : builder.new_byte_plain(shape, *scale);
  }

  GlobalAverageBytes task_;
};

class ByteScaleChannelsStep : public ByteStep {
 public:
  ByteScaleChannelsStep(PlanBuilder& builder, const Unit& unit) {
    const Node& node = node_of(builder, unit.head());
    const ValueId input = builder.byte_map_of(node.inputs[0]), factor = builder.plain_of(node.inputs[1]);
    builder.use_value(input);
    const ActivationScale scale = builder.value(input).scale;
    const ValueId output = builder.new_output(unit);
    task_ = {.shape = builder.value(input).map,
             .scale = scale.scale,
             .zero_point = scale.zero_point,
             .to = output_to(builder.value(output))};
    set_values(builder, {input, factor}, output);
  }

  void forward(Run& run) override {
    ScaleChannelsBytes a = task_;
    a.input = input_at<uint8_t>(run);
    a.factor = input_at<float>(run, 1);
    a.to.output = output_at(run);
    if (a.to.dtype == DataType::kUint8) note_non_finite(run, a.factor, a.shape.channels, DataType::kFloat);
    scale_channels_bytes(a);
  }

 private:
  ScaleChannelsBytes task_;
};

// Reads floats.
class ByteLayerNormStep : public ByteStep {
 public:
  ByteLayerNormStep(PlanBuilder& builder, const Unit& unit) : context_(builder.context()) {
    const Node& node = node_of(builder, unit.head());
    const ValueId input = builder.map_of(node.inputs[0]);
    builder.use_value(input);
    const ValueId output = builder.new_output(unit);
    weight_ = builder.parameter(node, 0);
    bias_ = builder.parameter(node, 1);
    const QuantizedOutput to = output_to(builder.value(output));
    task_.shape = builder.value(input).map;
    task_.dtype = builder.value(input).dtype;
    task_.epsilon = std::get<LayerNorm>(node.op).epsilon;
    task_.inverse_scale = to.inverse_scale;
    task_.zero_point = to.zero_point;
    set_values(builder, {input}, output);
  }

  void forward(Run& run) override {
    LayerNormBytes a = task_;
    a.input = input_at(run);
    a.weight = context_.parameters->value(weight_).const_data_ptr<float>();
    a.bias = context_.parameters->value(bias_).const_data_ptr<float>();
    a.output = output_at(run);
    a.non_finite = run.non_finite.data();
    layer_norm_bytes(a);
  }

 private:
  const BuildContext& context_;
  ParameterId weight_, bias_;
  LayerNormBytes task_;
};

bool has_scale(const PlanBuilder& builder, const Unit& unit) {
  return builder.scale_of(node_of(builder, unit.head()).inputs[0]).has_value();
}

}  // namespace

bool make_byte_sum(PlanBuilder& builder, const Unit& unit) {
  const Node& node = node_of(builder, unit.head());
  if (!is_map(node) || node.inputs.size() > kMostByteInputs) return false;
  for (int input : node.inputs) {
    if (!builder.scale_of(input)) return false;
  }
  add_step_of(builder, unit, std::make_unique<ByteSumStep>(builder, unit),
              "sum int8" + description_behind(builder, unit));
  return true;
}

bool make_byte_activation(PlanBuilder& builder, const Unit& unit) {
  if (!has_scale(builder, unit) || builder.output_scale(unit.tail()) == nullptr) return false;
  add_step_of(builder, unit, std::make_unique<ByteActivationStep>(builder, unit), "activation int8");
  return true;
}

bool make_byte_pool(PlanBuilder& builder, const Unit& unit) {
  if (!has_scale(builder, unit)) return false;
  const bool max = std::get<Pool>(node_of(builder, unit.head()).op).kind == Pool::Kind::kMax;
  add_step_of(builder, unit, std::make_unique<BytePoolStep>(builder, unit),
              max ? "max pool int8" : "average pool int8");
  return true;
}

bool make_byte_global_average(PlanBuilder& builder, const Unit& unit) {
  if (!has_scale(builder, unit)) return false;
  add_step_of(builder, unit, std::make_unique<ByteGlobalAverageStep>(builder, unit), "global average pool int8");
  return true;
}

bool make_byte_scale_channels(PlanBuilder& builder, const Unit& unit) {
  const Node& node = node_of(builder, unit.head());
  if (!has_scale(builder, unit) || !is_map(node) || is_map(node_of(builder, node.inputs[1]))) return false;
  add_step_of(builder, unit, std::make_unique<ByteScaleChannelsStep>(builder, unit), "scale channels int8");
  return true;
}

bool make_byte_layer_norm(PlanBuilder& builder, const Unit& unit) {
  const Node& node = node_of(builder, unit.head());
  if (builder.output_scale(node.id) == nullptr || !is_map(node)) return false;
  add_step_of(builder, unit, std::make_unique<ByteLayerNormStep>(builder, unit), "layer norm to int8");
  return true;
}

}  // namespace trainyard::nn::cpu
