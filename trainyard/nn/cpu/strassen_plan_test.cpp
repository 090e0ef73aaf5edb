// Trainings whose 1x1 convolutions multiply by Strassen's algorithm: what they compute, and what becomes of numbers
// that are not finite.

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/nn/testing/conformance_rig.h"
#include "trainyard/nn/testing/kernel_names.h"

namespace trainyard::nn::strassen_plan_test {
namespace {

using conformance::Rig, conformance::separated;
using ::testing::Contains, ::testing::HasSubstr;

constexpr int64_t kBatch = 2, kChannels = 512, kHeight = 9, kWidth = 10;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();

// Two convolutions, so that gradients come to one and go on from the other, with a ReLU that might hide NaN.
Graph wide_graph() {
  GraphBuilder b({.image = {kChannels, kHeight, kWidth}, .name = "wide"});
  const auto wide = [&](const std::string& name, GraphBuilder::Value x, int64_t outputs) {
    return b.convolution(name, x, {.out_channels = outputs, .kernel = {1, 1}, .bias = true});
  };
  const auto x = b.activation("relu", wide("first", b.input(), 544), Activation::Function::kRelu);
  return b.build(b.flatten("logits", wide("second", x, kChannels)));
}

const KernelOptions kByRule{.convolutions = ConvolutionPolicy::kByShape};

at::Tensor images() {
  return separated({kBatch, kChannels, kHeight, kWidth}, 1, "images");
}

// The outputs and all gradients of a pass whose output has this gradient.
std::map<std::string, at::Tensor> results_of(Rig& rig, const at::Tensor& images, const at::Tensor& output_gradient) {
  at::Tensor leaf = images.to(rig.executor->context().dtype).requires_grad_(true);
  rig.sink.begin(0, 1);
  const at::Tensor output = rig.executor->forward(leaf, conformance::kRandom);
  output.backward(output_gradient.to(output.options()));
  rig.sink.finish();
  std::map<std::string, at::Tensor> results{{"output", output.detach()}, {"gradient of input", leaf.grad()}};
  for (const Segment& segment : rig.set.segments()) {
    results["gradient of " + segment.spec.name] = rig.set.gradient(segment.id).clone();
  }
  return results;
}

at::Tensor output_gradient() {
  return separated({kBatch, kChannels * kHeight * kWidth}, 1, "cotangent");
}

TEST(StrassenPlan, TrainsAsTheDefinitionSays) {
  const Graph graph = wide_graph();
  Rig cpu("cpu", graph, Mode::kTraining, at::kFloat, at::kCPU, false, kByRule);
  Rig exact("reference", graph, Mode::kTraining, at::kDouble);
  testing::KernelNames kernels;
  cpu.executor->set_observer(&kernels);
  const auto actual = results_of(cpu, images(), output_gradient());
  EXPECT_THAT(kernels.names, Contains(HasSubstr("strassen")).Times(::testing::Ge(2)));
  for (const auto& [name, expected] : results_of(exact, images(), output_gradient())) {
    EXPECT_LE(conformance::relative_error(actual.at(name), expected), 2e-6) << name;
  }
}

// What is not finite reaches what depends on it and no more, as in PyTorch's operators, although numbers of different
// pixels, inputs and outputs are added before they are multiplied. Twice 2e38 is more than the largest float.
TEST(StrassenPlan, WhatIsNotFiniteStaysWhereItBelongs) {
  const Graph graph = wide_graph();
  Rig cpu("cpu", graph, Mode::kTraining, at::kFloat, at::kCPU, false, kByRule);
  Rig plain("reference", graph, Mode::kTraining, at::kFloat);
  for (const float spoiler : {kNan, kInfinity, -kInfinity, 2e38F}) {
    for (const char* place : {"input", "output gradient", "first.weight", "second.weight"}) {
      const bool is_weight = std::string_view(place).ends_with("weight");
      // Whether sums over a map of numbers near the largest float overflow depends on their order.
      if (is_weight && std::isfinite(spoiler)) continue;
      at::Tensor x = images(), gradient = output_gradient();
      // Of the first sample, in halves that are added: of pixels, and of channels.
      const auto spoil = [&](at::Tensor map) {
        map = map.view({kBatch, kChannels, kHeight * kWidth});
        map[0][3][4] = spoiler;
        map[0][kChannels / 2 + 3][kHeight * kWidth / 2 + 4] = spoiler;
      };
      if (!is_weight) spoil(place == std::string("input") ? x : gradient);
      std::map<std::string, at::Tensor> results[2];
      for (Rig* rig : {&cpu, &plain}) {
        const at::Tensor before = rig->set.values().clone();
        if (is_weight) rig->set.value(*rig->set.find(place)).view({-1})[1000] = spoiler;
        rig->set.values_changed();
        results[rig == &plain ? 1 : 0] = results_of(*rig, x, gradient);
        rig->set.values().copy_(before);
        rig->set.values_changed();
      }
      for (const auto& [name, expected] : results[1]) {
        const at::Tensor& actual = results[0].at(name);
        EXPECT_TRUE(at::equal(actual.isnan(), expected.isnan())) << spoiler << " in " << place << ": " << name;
        EXPECT_TRUE(at::equal(actual.isinf(), expected.isinf())) << spoiler << " in " << place << ": " << name;
      }
    }
  }
}

}  // namespace
}  // namespace trainyard::nn::strassen_plan_test
