// Blocked maps to plain tensors and back, and flattening.
#include <algorithm>
#include <utility>

#include "trainyard/nn/cpu/plan/steps.h"
#include "trainyard/nn/cpu/simd/kernels.h"

namespace trainyard::nn::cpu {
namespace {

// Both values have the same elements; `map` is the one in blocked layout.
class ConversionStep : public PlanStep {
 public:
  ConversionStep(ValueId from, ValueId to, bool to_map, const Value& map, BufferId from_data, BufferId to_data)
      : from_(from),
        to_(to),
        to_map_(to_map),
        shape_(map.map),
        dtype_(map.dtype),
        source_(from_data),
        target_(to_data) {}

  ValueId output() const override { return to_; }
  std::vector<ValueId> inputs() const override { return {from_}; }

  void forward(Run& run) override { convert(run, to_map_, source_, target_); }
  float bound(const Run& run) const override { return run.bounds[static_cast<size_t>(from_)] * kRoundingUp; }

  RecomputeCost recompute_cost() const override { return RecomputeCost::kCheap; }
  std::function<void(Run&)> plan_recompute(PlanBuilder& builder, const std::vector<ValueId>& sources) override {
    const BufferId source = builder.data(sources[0]);
    return [this, source, target = builder.new_buffer(to_)](Run& run) { convert(run, to_map_, source, target); };
  }

  void plan_backward(PlanBuilder& builder) override {
    const std::vector<BufferId> gradients = builder.take_gradients(to_, 1);
    if (gradients.empty() || !builder.needs_gradient(from_)) return;
    gradient_ = gradients[0];
    given_ = builder.give_gradient(from_, false).buffer;
  }

  void backward(Run& run) override {
    if (given_.valid()) convert(run, !to_map_, gradient_, given_);
  }

 private:
  void convert(const Run& run, bool to_map, BufferId source, BufferId target) const {
    if (!to_map) {
      to_plain({.shape = shape_, .dtype = dtype_, .map = run.at(source), .plain = run.at<float>(target)});
      return;
    }
    const int64_t pixels = shape_.pixels();
    to_blocked({.shape = shape_,
                .dtype = dtype_,
                .plain = run.at<float>(source),
                .strides = {shape_.channels * pixels, pixels, shape_.width, 1},
                .map = run.at(target)});
  }

  ValueId from_, to_;
  bool to_map_;
  MapShape shape_;
  DataType dtype_;
  BufferId source_, target_, gradient_, given_;
};

ValueId add_conversion(PlanBuilder& builder, ValueId id, ValueId result, bool to_map, std::vector<int> nodes) {
  builder.use_value(id);
  const Value& map = builder.value(to_map ? result : id);
  builder.add_step(
      std::make_unique<ConversionStep>(id, result, to_map, map, builder.value(id).data, builder.value(result).data),
      std::move(nodes), to_map ? "to blocked layout" : "to plain layout");
  return result;
}

}  // namespace

ValueId make_conversion(PlanBuilder& builder, ValueId id, Value::Kind kind, int node) {
  const Shape& shape = builder.graph().nodes[static_cast<size_t>(node)].shape;
  const bool needs_gradient = builder.needs_gradient(id);
  const ValueId result =
      kind == Value::Kind::kMap ? builder.new_map(shape, needs_gradient) : builder.new_plain(shape, needs_gradient);
  return add_conversion(builder, id, result, kind == Value::Kind::kMap, {});
}

// Flattening is a conversion: a plain image has the elements of the vector in order.
void make_flatten(PlanBuilder& builder, const Unit& unit) {
  const Node& node = builder.graph().nodes[static_cast<size_t>(unit.head())];
  const ValueId id = builder.value_of(node.inputs[0]);
  if (builder.value(id).kind == Value::Kind::kPlain) return make_plain(builder, unit);
  const ValueId result = builder.new_plain(node.shape, builder.needs_gradient(id));
  builder.set_value(node.id, add_conversion(builder, id, result, false, unit.nodes));
}

}  // namespace trainyard::nn::cpu
