// Maximum, average and global average pooling.
#include <algorithm>

#include "trainyard/nn/cpu/plan/single_input_step.h"
#include "trainyard/nn/cpu/simd/kernels.h"

namespace trainyard::nn::cpu {
namespace {

constexpr int64_t kMostPixels = 255;  // of a window of max pooling, whose indexes are bytes

Padding padding_of(const Node& node, const Shape& image) {
  const auto& op = std::get<Pool>(node.op);
  return resolve_padding(op.padding, {image[1], image[2]}, op.kernel, op.stride);
}

Window window_of(const Pool& op, const Padding& padding) {
  return {.kernel_height = op.kernel.height,
          .kernel_width = op.kernel.width,
          .stride_height = op.stride.height,
          .stride_width = op.stride.width,
          .top = padding.top,
          .left = padding.left};
}

class MaxPoolStep : public SingleInputStep {
 public:
  MaxPoolStep(PlanBuilder& builder, const Unit& unit, const Padding& padding)
      : SingleInputStep(builder, unit), window_(window_of(std::get<Pool>(node_.op), padding)) {
    keeps_bound_ = true;
    if (builder.needs_gradient(output_)) argmax_ = builder.acquire(output_map_.elements());
  }

  RecomputeCost recompute_cost() const override { return RecomputeCost::kCheap; }

 private:
  void run_forward(Run& run, BufferId input, BufferId output) override {
    max_pool_forward({.input_shape = input_map_,
                      .output_shape = output_map_,
                      .dtype = dtype_,
                      .window = window_,
                      .input = run.at(input),
                      .output = run.at(output),
                      .argmax = run.at<uint8_t>(argmax_)});
  }

  void plan_more(PlanBuilder& builder) override { builder.use(argmax_); }
  void plan_more_recompute(PlanBuilder& builder) override { builder.use(argmax_); }

  void run_backward(Run& run) override {
    max_pool_backward({.input_shape = input_map_,
                       .output_shape = output_map_,
                       .dtype = dtype_,
                       .window = window_,
                       .gradient = run.at(gradient_),
                       .argmax = run.at<uint8_t>(argmax_),
                       .input_gradient = run.at(input_gradient_),
                       .accumulate = accumulate_});
  }

  Window window_;
  BufferId argmax_;
};

class AveragePoolStep : public SingleInputStep {
 public:
  AveragePoolStep(PlanBuilder& builder, const Unit& unit, const Padding& padding) : SingleInputStep(builder, unit) {
    keeps_bound_ = true;
    const auto& op = std::get<Pool>(node_.op);
    pool_ = {.input_shape = input_map_,
             .output_shape = output_map_,
             .dtype = dtype_,
             .window = window_of(op, padding),
             .bottom = padding.bottom,
             .right = padding.right,
             .count_padding = op.count_padding};
  }

  RecomputeCost recompute_cost() const override { return RecomputeCost::kCheap; }

 private:
  void run_forward(Run& run, BufferId input, BufferId output) override {
    AveragePool a = pool_;
    a.input = run.at(input);
    a.output = run.at(output);
    average_pool_forward(a);
  }

  void run_backward(Run& run) override {
    AveragePool a = pool_;
    a.input = run.at(gradient_);
    a.output = run.at(input_gradient_);
    a.accumulate = accumulate_;
    average_pool_backward(a);
  }

  AveragePool pool_;
};

class GlobalAverageStep : public SingleInputStep {
 public:
  GlobalAverageStep(PlanBuilder& builder, const Unit& unit)
      : SingleInputStep(builder, unit, Value::Kind::kMap, Value::Kind::kPlain) {
    keeps_bound_ = true;
  }

  RecomputeCost recompute_cost() const override { return RecomputeCost::kCheap; }

 private:
  void run_forward(Run& run, BufferId input, BufferId output) override {
    global_average_forward(
        {.shape = input_map_, .dtype = dtype_, .input = run.at(input), .output = run.at<float>(output)});
  }

  void run_backward(Run& run) override {
    global_average_backward({.shape = input_map_,
                             .dtype = dtype_,
                             .gradient = run.at<float>(gradient_),
                             .input_gradient = run.at(input_gradient_),
                             .accumulate = accumulate_});
  }
};

}  // namespace

void make_pool(PlanBuilder& builder, const Unit& unit) {
  const Node& node = builder.graph().nodes[static_cast<size_t>(unit.head())];
  const auto& op = std::get<Pool>(node.op);
  const Padding padding = padding_of(node, builder.graph().nodes[static_cast<size_t>(node.inputs[0])].shape);
  if (op.kind == Pool::Kind::kAverage) {
    add_step_of(builder, unit, std::make_unique<AveragePoolStep>(builder, unit, padding), "average pool");
  } else if (op.kernel.height * op.kernel.width <= kMostPixels) {
    add_step_of(builder, unit, std::make_unique<MaxPoolStep>(builder, unit, padding), "max pool");
  } else {
    make_plain(builder, unit);
  }
}

void make_global_average(PlanBuilder& builder, const Unit& unit) {
  add_step_of(builder, unit, std::make_unique<GlobalAverageStep>(builder, unit), "global average pool");
}

}  // namespace trainyard::nn::cpu
