// Frozen parameters in the reference executor, held to a network that is written out with ATen in double.

#include "trainyard/nn/testing/freezing.h"

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/relu.h>
#include <gtest/gtest.h>

namespace trainyard::nn::freezing_test {
namespace {

using conformance::relative_error, conformance::Rig, freezing::Case, freezing::Step;

Rig double_rig(const Graph& graph) {
  return {"reference", graph, Mode::kTraining, at::kDouble};
}

// freezing::residual_graph() by its formulas. Gradients are PyTorch's, of leaves of which the frozen ones require none.
class WrittenOut {
 public:
  explicit WrittenOut(const ParameterSet& set) : buffers_(freezing::buffers_of(set)) {
    for (const Segment& segment : set.segments()) {
      const ParameterId id = segment.id;
      leaves_[segment.spec.name] = set.value(id).clone().requires_grad_(set.trainable(id));
    }
  }

  at::Tensor forward(const at::Tensor& images) {
    at::Tensor x = at::relu(convolution_and_norm("stem", images, 1));
    x = at::max_pool2d(x, {3, 3}, {2, 2}, {1, 1});
    at::Tensor y = at::relu(convolution_and_norm("first.a", x, 2));
    x = at::relu(convolution_and_norm("first.b", y, 1) + convolution_and_norm("first.shortcut", x, 2));
    y = at::relu(convolution_and_norm("second.a", x, 1));
    x = at::relu(x + convolution_and_norm("second.b", y, 1));
    return at::linear(x.mean(at::IntArrayRef{2, 3}), leaves_.at("fc.weight"), leaves_.at("fc.bias"));
  }

  const std::map<std::string, at::Tensor>& leaves() const { return leaves_; }
  const std::map<std::string, at::Tensor>& buffers() const { return buffers_; }

 private:
  at::Tensor convolution_and_norm(const std::string& name, const at::Tensor& x, int64_t stride) {
    const at::Tensor& weight = leaves_.at(name + ".conv.weight");
    const int64_t padding = weight.size(2) / 2;
    return norm(name + ".bn", at::conv2d(x, weight, {}, {stride, stride}, {padding, padding}));
  }

  at::Tensor norm(const std::string& name, const at::Tensor& x) {
    const at::Tensor &weight = leaves_.at(name + ".weight"), &bias = leaves_.at(name + ".bias");
    at::Tensor& running_mean = buffers_.at(name + ".running_mean");
    at::Tensor& running_var = buffers_.at(name + ".running_var");
    at::Tensor mean = running_mean, variance = running_var;
    if (weight.requires_grad() || bias.requires_grad()) {
      const double count = static_cast<double>(x.numel()) / static_cast<double>(x.size(1));
      mean = x.mean(at::IntArrayRef{0, 2, 3});
      variance = (x - of_channels(mean)).square().mean(at::IntArrayRef{0, 2, 3});
      running_mean = 0.9 * running_mean + 0.1 * mean.detach();
      running_var = 0.9 * running_var + 0.1 * count / (count - 1) * variance.detach();
    }
    return (x - of_channels(mean)) / (of_channels(variance) + 1e-5).sqrt() * of_channels(weight) + of_channels(bias);
  }

  static at::Tensor of_channels(const at::Tensor& vector) { return vector.view({1, -1, 1, 1}); }

  std::map<std::string, at::Tensor> leaves_, buffers_;
};

class WrittenOutFreezing : public ::testing::TestWithParam<Case> {};

std::vector<Case> written_out_cases() {
  std::vector<Case> cases = freezing::cases();
  std::erase_if(cases, [](const Case& c) { return c.graph.name != "residual"; });
  return cases;
}

TEST_P(WrittenOutFreezing, IsAutogradOfTheFormulas) {
  const Case& c = GetParam();
  Rig rig = double_rig(c.graph);
  freezing::freeze(rig.set, c.is_frozen);
  const at::Tensor images = freezing::images_of(c.graph, 4);
  WrittenOut written(rig.set);
  const Step actual = freezing::step(rig, {images}, true);

  at::Tensor leaf = images.clone().requires_grad_(true);
  const at::Tensor output = written.forward(leaf);
  output.backward(Rig::cotangent(output));
  EXPECT_LT(relative_error(actual.output, output), 1e-12);
  EXPECT_LT(relative_error(actual.image_gradient, leaf.grad()), 1e-11);
  for (const auto& [name, parameter] : written.leaves()) {
    const at::Tensor& gradient = actual.gradients.at(name);
    if (parameter.requires_grad()) {
      EXPECT_LT(relative_error(gradient, parameter.grad()), 1e-11) << name;
    } else {
      EXPECT_EQ(gradient.count_nonzero().item<int64_t>(), 0) << name;
    }
  }
  for (const auto& [name, buffer] : written.buffers()) {
    EXPECT_LT(relative_error(actual.buffers.at(name), buffer), 1e-12) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Reference, WrittenOutFreezing, ::testing::ValuesIn(written_out_cases()), freezing::case_name);

class ReferenceFreezing : public ::testing::TestWithParam<Case> {};

TEST_P(ReferenceFreezing, KeepsTheStatisticsOfFrozenNorms) {
  const Case& c = GetParam();
  Rig rig = double_rig(c.graph);
  freezing::freeze(rig.set, c.is_frozen);
  const auto start = freezing::buffers_of(rig.set);
  const Step actual = freezing::step(rig, {freezing::images_of(c.graph, 3)}, false);
  freezing::expect_frozen_buffers_kept(c.graph, rig.set, start, actual);
}

TEST_P(ReferenceFreezing, LeavesNoTraceOnceThawed) {
  const Case& c = GetParam();
  Rig thawed = double_rig(c.graph), never_frozen = double_rig(c.graph);
  const at::Tensor images = freezing::images_of(c.graph, 3);
  const Step actual = freezing::step_once_thawed(thawed, c.is_frozen, images, false);
  const Step expected = freezing::step(never_frozen, {images}, false);
  EXPECT_TRUE(at::equal(actual.output, expected.output));
  for (const auto& [name, gradient] : expected.gradients) {
    EXPECT_TRUE(at::equal(actual.gradients.at(name), gradient)) << name;
  }
  for (const auto& [name, buffer] : expected.buffers) EXPECT_TRUE(at::equal(actual.buffers.at(name), buffer)) << name;
}

TEST_P(ReferenceFreezing, RunsNoBackwardBelowWhatTrains) {
  const Case& c = GetParam();
  Rig rig = double_rig(c.graph);
  freezing::freeze(rig.set, c.is_frozen);
  freezing::BackwardListener listener;
  rig.executor->set_observer(&listener);
  freezing::step(rig, {freezing::images_of(c.graph, 2)}, false);
  EXPECT_EQ(listener.nodes, freezing::nodes_that_train(c.graph, rig.set));
}

INSTANTIATE_TEST_SUITE_P(Reference, ReferenceFreezing, ::testing::ValuesIn(freezing::cases()), freezing::case_name);

}  // namespace
}  // namespace trainyard::nn::freezing_test
