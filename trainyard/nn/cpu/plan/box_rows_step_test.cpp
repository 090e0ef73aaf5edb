// The gradients of predictions for boxes, lane by lane.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "trainyard/nn/cpu/plan/plan.h"
#include "trainyard/nn/cpu/simd/isa.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/execution/gradient_sink.h"
#include "trainyard/nn/execution/value_observer.h"

namespace trainyard::nn::cpu::box_rows_step_test {
namespace {

constexpr int64_t kBatch = 2, kHeight = 3, kWidth = 4, kBoxes = 3, kCoordinates = 4, kClasses = 7;

// Keeps the gradients that the step gives.
struct GradientListener : ValueObserver {
  void made(const NodeRun& run, std::span<const at::Tensor> values) override {
    if (run.phase != NodeRun::Phase::kBackward || run.kernel != "box rows") return;
    for (const at::Tensor& value : values) gradients.push_back(value.to(at::kFloat).clone());
  }
  std::vector<at::Tensor> gradients;
};

// Expects ones in all channels of a map, and zeros in its pad lanes.
void expect_ones(const at::Tensor& map, int64_t channels) {
  const int64_t block = channel_block(), blocks = (channels + block - 1) / block, pixels = kHeight * kWidth;
  ASSERT_EQ(map.numel(), kBatch * blocks * block * pixels);
  int wrong = 0;
  for (int64_t i = 0; i < map.numel(); ++i) {
    const int64_t channel = i / (block * pixels) % blocks * block + i % block;
    const float expected = channel < channels ? 1 : 0;
    if (map.const_data_ptr<float>()[i] != expected) ++wrong;
  }
  EXPECT_EQ(wrong, 0) << "of " << map.numel();
}

// The memory is full of NaN before the backward, which the step does not read.
TEST(BoxRowsStep, GivesGradientsWithZerosInPadLanes) {
  for (const BoxRows::Order order : {BoxRows::Order::kByBox, BoxRows::Order::kByPixel}) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      GraphBuilder b({.image = {16, kHeight, kWidth}, .name = "boxes"});
      const auto coordinates = b.convolution("coordinates", b.input(), {.out_channels = kBoxes * kCoordinates});
      const auto scores = b.convolution("scores", b.input(), {.out_channels = kBoxes * kClasses});
      const Graph graph = b.build(b.box_rows("boxes", {coordinates, scores},
                                             {.coordinates = kCoordinates, .classes = kClasses, .order = order}));
      ParameterSet set;
      GradientSink sink(set);
      const auto executor = make_executor("cpu", graph,
                                          {.dtype = dtype,
                                           .mode = Mode::kTraining,
                                           .kernels = {.convolutions = ConvolutionPolicy::kDirect},
                                           .parameters = &set,
                                           .gradients = &sink});
      set.allocate();
      set.initialize(3);
      Plan::Layers layers;
      for (const Node& node : executor->graph().nodes) {
        layers.push_back(std::make_unique<BoundLayer>(node, executor->context()));
      }
      const Plan plan(executor->graph(), executor->context(), layers, {.batch = kBatch, .gradients = true});
      cpu::Run run;
      GradientListener listener;
      sink.begin(0, 1);
      const std::vector<at::Tensor> rows =
          plan.forward(run, {at::ones({kBatch, 16, kHeight, kWidth}, at::kFloat)}, {.seed = 3}, nullptr);
      run.arena.fill_(0xFF);
      plan.backward(run, {at::ones(rows.front().sizes(), at::kFloat)}, &listener);
      sink.finish();
      ASSERT_EQ(listener.gradients.size(), 2U);
      expect_ones(listener.gradients[0], kBoxes * kCoordinates);
      expect_ones(listener.gradients[1], kBoxes * kClasses);
    }
  }
}

}  // namespace
}  // namespace trainyard::nn::cpu::box_rows_step_test
