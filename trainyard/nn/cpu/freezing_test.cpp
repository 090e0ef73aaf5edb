// Frozen parameters in the CPU plan: the reference's numbers, no work below what trains, and thawing without a trace.

#include "trainyard/nn/testing/freezing.h"

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "trainyard/nn/graph/fusion.h"

namespace trainyard::nn::freezing_test {
namespace {

using conformance::relative_error, conformance::Rig, freezing::Case, freezing::Step;

constexpr double kFloatError = 2e-5;  // relative, in norm, behind a dozen layers

Rig cpu_rig(const Graph& graph, Recomputation recomputation = Recomputation::kNone, at::ScalarType dtype = at::kFloat) {
  return {"cpu",
          graph,
          Mode::kTraining,
          dtype,
          at::kCPU,
          false,
          {.convolutions = ConvolutionPolicy::kByShape, .recomputation = recomputation}};
}
Rig double_rig(const Graph& graph) {
  return {"reference", graph, Mode::kTraining, at::kDouble};
}

// Expects the same numbers of both, and exact zeros for frozen parameters.
void expect_near(const Step& actual, const Step& expected, const ParameterSet& set, double bound) {
  EXPECT_LT(relative_error(actual.output, expected.output), bound);
  ASSERT_EQ(actual.image_gradient.defined(), expected.image_gradient.defined());
  if (expected.image_gradient.defined()) {
    EXPECT_LT(relative_error(actual.image_gradient, expected.image_gradient), bound);
  }
  for (const auto& [name, gradient] : expected.gradients) {
    if (set.trainable(*set.find(name))) {
      EXPECT_LT(relative_error(actual.gradients.at(name), gradient), bound) << name;
      EXPECT_GT(gradient.norm().item<double>(), 0) << name;
    } else {
      EXPECT_EQ(actual.gradients.at(name).count_nonzero().item<int64_t>(), 0) << name;
      EXPECT_EQ(gradient.count_nonzero().item<int64_t>(), 0) << name;
    }
  }
  for (const auto& [name, buffer] : expected.buffers) {
    EXPECT_LT(relative_error(actual.buffers.at(name), buffer), bound) << name;
  }
}

void expect_same_bits(const Step& a, const Step& b) {
  EXPECT_TRUE(at::equal(a.output, b.output));
  ASSERT_EQ(a.image_gradient.defined(), b.image_gradient.defined());
  if (a.image_gradient.defined()) {
    EXPECT_TRUE(at::equal(a.image_gradient, b.image_gradient));
  }
  for (const auto& [name, gradient] : a.gradients) EXPECT_TRUE(at::equal(gradient, b.gradients.at(name))) << name;
  for (const auto& [name, buffer] : a.buffers) EXPECT_TRUE(at::equal(buffer, b.buffers.at(name))) << name;
}

class CpuFreezing : public ::testing::TestWithParam<Case> {};

TEST_P(CpuFreezing, AgreesWithTheReference) {
  const Case& c = GetParam();
  for (const bool image_gradient : {false, true}) {
    SCOPED_TRACE(image_gradient);
    Rig cpu = cpu_rig(c.graph), reference = double_rig(c.graph);
    freezing::freeze(cpu.set, c.is_frozen);
    freezing::freeze(reference.set, c.is_frozen);
    const auto start = freezing::buffers_of(cpu.set);
    const at::Tensor images = freezing::images_of(c.graph, 4);
    const Step actual = freezing::step(cpu, {images}, image_gradient);
    expect_near(actual, freezing::step(reference, {images}, image_gradient), cpu.set, kFloatError);
    freezing::expect_frozen_buffers_kept(c.graph, cpu.set, start, actual);
  }
}

TEST_P(CpuFreezing, AddsUpMicroSteps) {
  const Case& c = GetParam();
  Rig cpu = cpu_rig(c.graph), reference = double_rig(c.graph);
  freezing::freeze(cpu.set, c.is_frozen);
  freezing::freeze(reference.set, c.is_frozen);
  const std::vector<at::Tensor> images = {freezing::images_of(c.graph, 3, "first"),
                                          freezing::images_of(c.graph, 3, "second"),
                                          freezing::images_of(c.graph, 2, "third")};
  const Step expected = freezing::step(reference, images, false);
  expect_near(freezing::step(cpu, images, false), expected, cpu.set, kFloatError);
}

TEST_P(CpuFreezing, LeavesNoTraceOnceThawed) {
  const Case& c = GetParam();
  Rig thawed = cpu_rig(c.graph), never_frozen = cpu_rig(c.graph);
  const at::Tensor images = freezing::images_of(c.graph, 3);
  expect_same_bits(freezing::step_once_thawed(thawed, c.is_frozen, images, true),
                   freezing::step(never_frozen, {images}, true));
}

// All nodes of a unit run their backward if one does.
TEST_P(CpuFreezing, RunsNoBackwardBelowWhatTrains) {
  const Case& c = GetParam();
  Rig cpu = cpu_rig(c.graph);
  freezing::freeze(cpu.set, c.is_frozen);
  const std::set<int> training = freezing::nodes_that_train(c.graph, cpu.set);
  std::set<int> expected;
  for (const Unit& unit : fuse(c.graph)) {
    for (int node : unit.nodes) {
      if (training.contains(node)) expected.insert(unit.nodes.begin(), unit.nodes.end());
    }
  }
  freezing::BackwardListener listener;
  cpu.executor->set_observer(&listener);
  freezing::step(cpu, {freezing::images_of(c.graph, 2)}, false);
  EXPECT_EQ(listener.nodes, expected);
}

TEST_P(CpuFreezing, MakesForgottenValuesAgainWithTheSameBits) {
  const Case& c = GetParam();
  const at::Tensor images = freezing::images_of(c.graph, 3);
  // Without the image's gradient, values are recomputed of steps that have no backward.
  for (const bool image_gradient : {true, false}) {
    SCOPED_TRACE(image_gradient);
    Rig keeping = cpu_rig(c.graph);
    freezing::freeze(keeping.set, c.is_frozen);
    const Step expected = freezing::step(keeping, {images}, image_gradient);
    for (const Recomputation recomputation : {Recomputation::kElementwise, Recomputation::kBlocks}) {
      Rig recomputing = cpu_rig(c.graph, recomputation);
      freezing::freeze(recomputing.set, c.is_frozen);
      expect_same_bits(freezing::step(recomputing, {images}, image_gradient), expected);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, CpuFreezing, ::testing::ValuesIn(freezing::cases()), freezing::case_name);

bool is_below_the_head(std::string_view name) {
  return !name.starts_with("fc.");
}

// Bf16 rounds each layer's result, and the reference in bf16 is as far from double. Most of the error is of pixels
// whose rounding takes them to the other side of a ReLU's zero: many images make it a matter of averages.
TEST(CpuFreezing, RunsInBfloat16) {
  const Graph graph = freezing::residual_graph();
  const at::Tensor images = freezing::images_of(graph, 256).to(at::kBFloat16).to(at::kDouble);
  Rig cpu = cpu_rig(graph, Recomputation::kNone, at::kBFloat16), exact = double_rig(graph);
  Rig sixteen("reference", graph, Mode::kTraining, at::kBFloat16);
  const auto norms = [](std::string_view name) { return name.find(".bn.") != std::string_view::npos; };
  for (Rig* rig : {&cpu, &exact, &sixteen}) freezing::freeze(rig->set, norms);
  const Step expected = freezing::step(exact, {images}, false);
  const Step actual = freezing::step(cpu, {images}, false), reference = freezing::step(sixteen, {images}, false);
  // The convolutions' errors on the mean are 0.063 by direct kernels, 0.067 by F(2x2, 3x3), 0.085 by F(3x3, 3x3), and
  // 0.078 in the reference, up to 1.7 times its own for one of them.
  for (const auto& [name, gradient] : expected.gradients) {
    EXPECT_LE(relative_error(actual.gradients.at(name), gradient),
              2 * relative_error(reference.gradients.at(name), gradient))
        << name;
  }
}

// A frozen norm takes what the set holds at each forward, whoever changed it.
TEST(CpuFreezing, FrozenNormsFollowTheirStatisticsAndParameters) {
  const Graph graph = freezing::residual_graph();
  const at::Tensor images = freezing::images_of(graph, 2);
  Rig cpu = cpu_rig(graph), reference = double_rig(graph);
  for (Rig* rig : {&cpu, &reference}) {
    freezing::freeze(rig->set, is_below_the_head);
    freezing::step(*rig, {images}, false);
    rig->set.buffer(*rig->set.find_buffer("stem.bn.running_mean")).add_(0.5);
    rig->set.value(*rig->set.find("first.b.bn.weight")).mul_(-0.75);
    rig->set.values_changed();
  }
  expect_near(freezing::step(cpu, {images}, false), freezing::step(reference, {images}, false), cpu.set, kFloatError);
}

// A frozen norm runs as in inference also in a training that wants no gradients now.
TEST(CpuFreezing, KeepsStatisticsWithoutGradientsToo) {
  const Graph graph = freezing::residual_graph();
  Rig cpu = cpu_rig(graph);
  freezing::freeze(cpu.set, is_below_the_head);
  const auto start = freezing::buffers_of(cpu.set);
  const at::Tensor images = freezing::images_of(graph, 2).to(at::kFloat);
  const at::Tensor with_gradients = cpu.executor->forward(images, {}).detach();
  const at::NoGradGuard no_grad;
  EXPECT_LT(relative_error(cpu.executor->forward(images, {}), with_gradients), kFloatError);
  for (const auto& [name, buffer] : freezing::buffers_of(cpu.set)) EXPECT_TRUE(at::equal(buffer, start.at(name)));
}

TEST(CpuFreezing, NeedsLessMemoryAndNoBackwardForAFrozenBody) {
  const Graph graph = freezing::residual_graph();
  Rig cpu = cpu_rig(graph);
  const int64_t training = cpu.executor->prepare(8)->activations;
  freezing::freeze(cpu.set, is_below_the_head);
  EXPECT_LT(4 * cpu.executor->prepare(8)->activations, 3 * training);
  freezing::freeze(cpu.set, [](std::string_view) { return true; });
  EXPECT_FALSE(cpu.executor->forward(freezing::images_of(graph, 8).to(at::kFloat), {}).requires_grad());
}

}  // namespace
}  // namespace trainyard::nn::freezing_test
