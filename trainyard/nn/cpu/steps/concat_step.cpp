// Concatenation along channels, and zeros around them.
#include <utility>

#include "trainyard/nn/cpu/kernels/kernels.h"
#include "trainyard/nn/cpu/steps/single_input_step.h"

namespace trainyard::nn::cpu {
namespace {

class ConcatStep : public PlanStep {
 public:
  ConcatStep(PlanBuilder& builder, const Unit& unit) {
    const Node& node = builder.graph().nodes[static_cast<size_t>(unit.head())];
    bool needs_gradient = false;
    for (int input : node.inputs) {
      const ValueId id = builder.map_of(input);
      parts_.push_back({.value = id, .data = builder.value(id).data, .map = builder.value(id).map});
      needs_gradient |= builder.needs_gradient(id);
    }
    for (const Part& part : parts_) builder.use(part.data);
    output_ = builder.new_map(node.shape, needs_gradient);
    map_ = builder.value(output_).map;
    dtype_ = builder.dtype();
    data_ = builder.value(output_).data;
  }

  ValueId output() const { return output_; }

  void forward(Run& run) override {
    int64_t to = 0;
    for (const Part& part : parts_) {
      copy_channels({.source_shape = part.map,
                     .target_shape = map_,
                     .dtype = dtype_,
                     .to = to,
                     .count = part.map.channels,
                     .source = run.at(part.data),
                     .target = run.at(data_),
                     .clear_rest = to == 0 && map_.channels != map_.padded_channels()});
      to += part.map.channels;
    }
  }

  void plan_backward(PlanBuilder& builder) override {
    const std::vector<BufferId> gradients = builder.take_gradients(output_, 1);
    if (gradients.empty()) return;
    gradient_ = gradients[0];
    for (Part& part : parts_) {
      if (builder.needs_gradient(part.value)) part.given = builder.give_gradient(part.value, true);
    }
  }

  void backward(Run& run) override {
    int64_t from = 0;
    for (const Part& part : parts_) {
      if (gradient_.valid() && part.given.buffer.valid()) {
        copy_channels({.source_shape = map_,
                       .target_shape = part.map,
                       .dtype = dtype_,
                       .from = from,
                       .count = part.map.channels,
                       .source = run.at(gradient_),
                       .target = run.at(part.given.buffer),
                       .accumulate = part.given.accumulate,
                       .clear_rest = !part.given.accumulate && part.map.channels != part.map.padded_channels()});
      }
      from += part.map.channels;
    }
  }

 private:
  struct Part {
    ValueId value = -1;
    BufferId data;
    MapShape map;
    PlanBuilder::Given given;
  };
  std::vector<Part> parts_;
  ValueId output_ = -1;
  MapShape map_;
  DataType dtype_ = DataType::kFloat;
  BufferId data_, gradient_;
};

class ChannelPadStep : public SingleInputStep {
 public:
  ChannelPadStep(PlanBuilder& builder, const Unit& unit)
      : SingleInputStep(builder, unit, Value::Kind::kMap, Value::Kind::kMap),
        before_(std::get<ChannelPad>(node_.op).before) {}

  void forward(Run& run) override {
    copy_channels({.source_shape = input_map_,
                   .target_shape = output_map_,
                   .dtype = dtype_,
                   .to = before_,
                   .count = input_map_.channels,
                   .source = run.at(input_data_),
                   .target = run.at(output_data_),
                   .clear_rest = true});
  }

 private:
  void run_backward(Run& run) override {
    copy_channels({.source_shape = output_map_,
                   .target_shape = input_map_,
                   .dtype = dtype_,
                   .from = before_,
                   .count = input_map_.channels,
                   .source = run.at(gradient_),
                   .target = run.at(input_gradient_),
                   .accumulate = accumulate_,
                   .clear_rest = !accumulate_});
  }

  int64_t before_;
};

}  // namespace

void make_concat(PlanBuilder& builder, const Unit& unit) {
  auto step = std::make_unique<ConcatStep>(builder, unit);
  builder.set_value(unit.tail(), step->output());
  builder.add_step(std::move(step), unit.nodes, "concat");
}

void make_channel_pad(PlanBuilder& builder, const Unit& unit) {
  add_single_input(builder, unit, std::make_unique<ChannelPadStep>(builder, unit), "channel pad");
}

}  // namespace trainyard::nn::cpu
