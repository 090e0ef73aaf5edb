// Steps that move bytes: concatenations, paddings, slices and shuffles of channels, flattening.
#include <array>
#include <memory>
#include <utility>

#include "trainyard/nn/cpu/plan/byte_step.h"

namespace trainyard::nn::cpu {
namespace {

// Inputs whose scale is not that of the output go through a table.
class ByteConcatStep : public ByteStep {
 public:
  ByteConcatStep(PlanBuilder& builder, const Unit& unit) {
    std::vector<ValueId> inputs;
    for (int input : node_of(builder, unit.head()).inputs) inputs.push_back(builder.byte_map_of(input));
    for (ValueId input : inputs) builder.use_value(input);
    const ValueId output = builder.new_output(unit);
    const Value& joined = builder.value(output);
    int64_t first = 0;
    for (ValueId input : inputs) {
      const Value& value = builder.value(input);
      Part& part = parts_.emplace_back();
      part.copy = {.source_shape = value.map, .target_shape = joined.map, .to = first, .count = value.map.channels};
      first += value.map.channels;
      if (value.scale == joined.scale) continue;
      part.table = std::make_unique<Table>();
      byte_table({.scale = value.scale.scale,
                  .zero_point = value.scale.zero_point,
                  .output_inverse_scale = 1 / joined.scale.scale,
                  .output_zero_point = joined.scale.zero_point,
                  .table = part.table->bytes.data()});
      part.copy.table = part.table->bytes.data();
    }
    set_values(builder, std::move(inputs), output);
  }

  void forward(Run& run) override {
    for (size_t i = 0; i < parts_.size(); ++i) {
      CopyChannelsBytes a = parts_[i].copy;
      a.source = input_at<uint8_t>(run, i);
      a.target = output_at<uint8_t>(run);
      copy_channels_bytes(a);
    }
  }

 private:
  struct Table {
    alignas(64) std::array<uint8_t, 256> bytes;
  };
  struct Part {
    CopyChannelsBytes copy;
    std::unique_ptr<Table> table;
  };
  std::vector<Part> parts_;
};

// One map is a part of the other, from channel `first` on: a padding with channels of zeros, or a slice.
class BytePartStep : public ByteStep {
 public:
  BytePartStep(PlanBuilder& builder, const Unit& unit, int64_t first, bool pads) {
    const Node& node = node_of(builder, unit.head());
    const ValueId input = builder.byte_map_of(node.inputs[0]);
    const ActivationScale scale = builder.value(input).scale;
    const ValueId output = builder.new_byte_map(node.shape, scale);
    const MapShape& from = builder.value(input).map;
    const MapShape& to = builder.value(output).map;
    task_ = {.source_shape = from,
             .target_shape = to,
             .from = pads ? 0 : first,
             .to = pads ? first : 0,
             .count = pads ? from.channels : to.channels,
             .fill_rest = pads,
             .fill = scale.zero_point};
    set_values(builder, {input}, output);
  }

  void forward(Run& run) override {
    CopyChannelsBytes a = task_;
    a.source = input_at<uint8_t>(run);
    a.target = output_at<uint8_t>(run);
    copy_channels_bytes(a);
  }

 private:
  CopyChannelsBytes task_;
};

class ByteShuffleStep : public ByteStep {
 public:
  ByteShuffleStep(PlanBuilder& builder, const Unit& unit) {
    const Node& node = node_of(builder, unit.head());
    const ValueId input = builder.byte_map_of(node.inputs[0]);
    const ActivationScale scale = builder.value(input).scale;
    const ValueId output = builder.new_byte_map(node.shape, scale);
    shape_ = builder.value(output).map;
    const int64_t groups = std::get<ChannelShuffle>(node.op).groups, columns = shape_.channels / groups;
    for (int64_t c = 0; c < shape_.channels; ++c) {
      channels_.push_back(static_cast<int32_t>(c % groups * columns + c / groups));
    }
    set_values(builder, {input}, output);
  }

  void forward(Run& run) override {
    permute_channels_bytes({.shape = shape_,
                            .channels = channels_.data(),
                            .input = input_at<uint8_t>(run),
                            .output = output_at<uint8_t>(run)});
  }

 private:
  MapShape shape_;
  std::vector<int32_t> channels_;  // by output channel: the input's
};

class ByteFlattenStep : public ByteStep {
 public:
  ByteFlattenStep(PlanBuilder& builder, const Unit& unit) {
    const Node& node = node_of(builder, unit.head());
    const ValueId input = builder.byte_map_of(node.inputs[0]);
    const ActivationScale scale = builder.value(input).scale;
    shape_ = builder.value(input).map;
    set_values(builder, {input}, builder.new_byte_plain(node.shape, scale));
  }

  void forward(Run& run) override {
    flatten_bytes({.shape = shape_, .map = input_at<uint8_t>(run), .plain = output_at<uint8_t>(run)});
  }

 private:
  MapShape shape_;
};

bool has_scales(const PlanBuilder& builder, const Unit& unit) {
  const Node& node = node_of(builder, unit.head());
  if (node.shape.size() != 3) return false;
  for (int input : node.inputs) {
    if (!builder.scale_of(input)) return false;
  }
  return true;
}

}  // namespace

bool make_byte_concat(PlanBuilder& builder, const Unit& unit) {
  if (!has_scales(builder, unit) || builder.output_scale(unit.tail()) == nullptr) return false;
  add_step_of(builder, unit, std::make_unique<ByteConcatStep>(builder, unit), "concat int8");
  return true;
}

bool make_byte_channel_pad(PlanBuilder& builder, const Unit& unit) {
  if (!has_scales(builder, unit)) return false;
  const int64_t first = std::get<ChannelPad>(node_of(builder, unit.head()).op).before;
  add_step_of(builder, unit, std::make_unique<BytePartStep>(builder, unit, first, true), "channel pad int8");
  return true;
}

bool make_byte_channel_slice(PlanBuilder& builder, const Unit& unit) {
  if (!has_scales(builder, unit)) return false;
  const int64_t first = std::get<ChannelSlice>(node_of(builder, unit.head()).op).begin;
  add_step_of(builder, unit, std::make_unique<BytePartStep>(builder, unit, first, false), "channel slice int8");
  return true;
}

bool make_byte_channel_shuffle(PlanBuilder& builder, const Unit& unit) {
  if (!has_scales(builder, unit)) return false;
  add_step_of(builder, unit, std::make_unique<ByteShuffleStep>(builder, unit), "channel shuffle int8");
  return true;
}

bool make_byte_flatten(PlanBuilder& builder, const Unit& unit) {
  const int source = node_of(builder, unit.head()).inputs[0];
  if (!builder.scale_of(source)) return false;
  if (node_of(builder, source).shape.size() != 3) {
    builder.set_value(unit.tail(), builder.bytes_of_vector(source));  // a vector stays as it is
  } else {
    add_step_of(builder, unit, std::make_unique<ByteFlattenStep>(builder, unit), "flatten int8");
  }
  return true;
}

}  // namespace trainyard::nn::cpu
