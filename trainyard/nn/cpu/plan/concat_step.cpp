// Concatenation along channels, padding with channels of zeros, and slices of channels.
#include <cmath>
#include <utility>

#include "trainyard/nn/cpu/plan/single_input_step.h"
#include "trainyard/nn/cpu/simd/kernels.h"

namespace trainyard::nn::cpu {
namespace {

// A map whose channels are those of a wider map from channel `first` on.
struct Slice {
  MapShape map, whole;
  DataType dtype = DataType::kFloat;
  int64_t first = 0;

  // The wider map's other channels stay as they are, or become zero with `clear_rest`.
  void put(const void* from, void* to, bool clear_rest, bool accumulate = false) const {
    CopyChannels a = call(map, whole, from, to, accumulate);
    a.to = first;
    a.clear_rest = clear_rest;
    copy_channels(a);
  }
  void take(const void* from, void* to, bool accumulate) const {
    CopyChannels a = call(whole, map, from, to, accumulate);
    a.from = first;
    copy_channels(a);
  }

 private:
  CopyChannels call(const MapShape& source, const MapShape& target, const void* from, void* to, bool accumulate) const {
    return {.source_shape = source,
            .target_shape = target,
            .dtype = dtype,
            .count = map.channels,
            .source = from,
            .target = to,
            .accumulate = accumulate};
  }
};

class ConcatStep : public PlanStep {
 public:
  ConcatStep(PlanBuilder& builder, const Unit& unit) {
    const Node& node = builder.graph().nodes[static_cast<size_t>(unit.head())];
    bool needs_gradient = false;
    std::vector<ValueId> values;
    for (int input : node.inputs) {
      values.push_back(builder.map_of(input));
      needs_gradient |= builder.needs_gradient(values.back());
    }
    output_ = builder.new_map(node.shape, needs_gradient);
    data_ = builder.value(output_).data;
    parts_ = parts_of(builder, values);
  }

  ValueId output() const override { return output_; }
  std::vector<ValueId> inputs() const override {
    std::vector<ValueId> result;
    for (const Part& part : parts_) result.push_back(part.value);
    return result;
  }

  void forward(Run& run) override { join(run, parts_, data_); }
  float bound(const Run& run) const override {
    float largest = 0;
    for (const Part& part : parts_) {
      const float one = run.bounds[static_cast<size_t>(part.value)];
      if (!(one <= largest)) largest = std::isfinite(one) ? one : kUnbounded;
    }
    return largest;
  }

  bool joins() const override { return true; }

  RecomputeCost recompute_cost() const override { return RecomputeCost::kCheap; }
  std::function<void(Run&)> plan_recompute(PlanBuilder& builder, const std::vector<ValueId>& sources) override {
    std::vector<Part> parts = parts_of(builder, sources);
    return [parts = std::move(parts), target = builder.new_buffer(output_)](Run& run) { join(run, parts, target); };
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
    if (!gradient_.valid()) return;
    for (const Part& part : parts_) {
      if (!part.given.buffer.valid()) continue;
      part.slice.take(run.at(gradient_), run.at(part.given.buffer), part.given.accumulate);
    }
  }

 private:
  struct Part {
    ValueId value = -1;
    BufferId data;
    Slice slice;
    PlanBuilder::Given given;
  };

  // Returns the parts of the output, one behind the other, that the values become.
  std::vector<Part> parts_of(PlanBuilder& builder, const std::vector<ValueId>& values) const {
    std::vector<Part> parts;
    int64_t first = 0;
    for (ValueId id : values) {
      const MapShape& map = builder.value(id).map;
      parts.push_back(
          {.value = id, .data = builder.data(id), .slice = {map, builder.value(output_).map, builder.dtype(), first}});
      first += map.channels;
    }
    return parts;
  }

  static void join(const Run& run, const std::vector<Part>& parts, BufferId target) {
    for (const Part& part : parts) part.slice.put(run.at(part.data), run.at(target), false);
  }

  std::vector<Part> parts_;
  ValueId output_ = -1;
  BufferId data_, gradient_;
};

class ChannelPadStep : public SingleInputStep {
 public:
  ChannelPadStep(PlanBuilder& builder, const Unit& unit)
      : SingleInputStep(builder, unit), slice_{input_map_, output_map_, dtype_, std::get<ChannelPad>(node_.op).before} {
    keeps_bound_ = true;
  }

  RecomputeCost recompute_cost() const override { return RecomputeCost::kCheap; }

 private:
  void run_forward(Run& run, BufferId input, BufferId output) override {
    slice_.put(run.at(input), run.at(output), true);
  }
  void run_backward(Run& run) override { slice_.take(run.at(gradient_), run.at(input_gradient_), accumulate_); }

  Slice slice_;
};

class ChannelSliceStep : public SingleInputStep {
 public:
  ChannelSliceStep(PlanBuilder& builder, const Unit& unit)
      : SingleInputStep(builder, unit),
        slice_{output_map_, input_map_, dtype_, std::get<ChannelSlice>(node_.op).begin} {
    keeps_bound_ = true;
  }

  RecomputeCost recompute_cost() const override { return RecomputeCost::kCheap; }

 private:
  void run_forward(Run& run, BufferId input, BufferId output) override {
    slice_.take(run.at(input), run.at(output), false);
  }
  void run_backward(Run& run) override {
    slice_.put(run.at(gradient_), run.at(input_gradient_), !accumulate_, accumulate_);
  }

  Slice slice_;
};

}  // namespace

void make_concat(PlanBuilder& builder, const Unit& unit) {
  add_step_of(builder, unit, std::make_unique<ConcatStep>(builder, unit), "concat");
}

void make_channel_pad(PlanBuilder& builder, const Unit& unit) {
  add_step_of(builder, unit, std::make_unique<ChannelPadStep>(builder, unit), "channel pad");
}

void make_channel_slice(PlanBuilder& builder, const Unit& unit) {
  add_step_of(builder, unit, std::make_unique<ChannelSliceStep>(builder, unit), "channel slice");
}

}  // namespace trainyard::nn::cpu
