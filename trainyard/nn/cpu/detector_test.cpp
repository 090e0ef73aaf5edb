// A small SSD: predictions from maps of two sizes, the multibox loss, and the gradients of all parameters. The
// reference in double is held to central differences, executors in float and bfloat16 to it.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "trainyard/core/random/random.h"
#include "trainyard/nn/execution/multibox_loss.h"
#include "trainyard/nn/testing/conformance_rig.h"

namespace trainyard::nn::detector_test {
namespace {

using conformance::kRandom;
using conformance::relative_error;
using conformance::Rig;
using conformance::separated;

constexpr int64_t kBatch = 3, kClasses = 7;
constexpr int64_t kBoxes = 2 * 10 * 10 + 3 * 5 * 5;

// By box as in tf_cnn_benchmarks' SSD300, or by pixel as in torchvision's, whose first map has its length normalized.
Graph small_ssd(BoxRows::Order order) {
  GraphBuilder b({.image = {3, 19, 19}, .name = "small ssd"});
  const auto smooth = Activation::Function::kSilu;  // whose gradient does not jump where rounding decides
  const Convolution halving{.out_channels = 20, .kernel = 3, .stride = 2, .padding = Padding::same()};
  auto x = b.activation("act1", b.batch_norm("norm1", b.convolution("conv1", b.input(), halving)), smooth);
  const auto normed =
      order == BoxRows::Order::kByPixel ? b.l2_norm("length", x, {.init = Initializer::constant(3)}) : x;
  x = b.activation("act2", b.convolution("conv2", x, halving), smooth);
  std::vector<GraphBuilder::Value> predictions;
  for (const auto& [map, boxes] : {std::pair(normed, 2), std::pair(x, 3)}) {
    for (const int64_t columns : {int64_t{4}, kClasses}) {
      predictions.push_back(b.convolution("head" + std::to_string(predictions.size()), map,
                                          {.out_channels = boxes * columns,
                                           .kernel = 3,
                                           .padding = Padding::all(1),
                                           .bias = true,
                                           .bias_init = Initializer::normal(0.5)}));
    }
  }
  return b.build(b.box_rows("boxes", predictions, {.coordinates = 4, .classes = kClasses, .order = order}));
}

struct Targets {
  at::Tensor offsets = separated({kBatch, kBoxes, 4}, 1, "offsets");
  at::Tensor classes = at::zeros({kBatch, kBoxes}, at::kLong), matched = at::zeros({kBatch}, at::kLong);

  Targets() {
    core::RandomStream stream(3, "classes");
    for (int64_t i = 0; i < kBatch * kBoxes; ++i) {
      if (stream.below(12) != 0) continue;
      classes.data_ptr<int64_t>()[i] = 1 + static_cast<int64_t>(stream.below(kClasses - 1));
      ++matched.data_ptr<int64_t>()[i / kBoxes];
    }
  }
};

double loss_of(Rig& rig, const Targets& targets, bool with_gradients, double factor = 1) {
  const at::ScalarType dtype = rig.set.dtype();
  const at::Tensor images = separated({kBatch, 3, 19, 19}, 2, "images").to(at::kBFloat16).to(dtype).mul(factor);
  const at::AutoGradMode autograd(with_gradients);
  if (with_gradients) rig.sink.begin(0, 1);
  const at::Tensor output = rig.executor->forward(images, kRandom);
  EXPECT_EQ(output.sizes(), (std::vector<int64_t>{kBatch, kBoxes, 4 + kClasses}));
  const at::Tensor loss = multibox_loss(output, targets.offsets.to(dtype), targets.classes, targets.matched);
  if (with_gradients) {
    loss.backward();
    rig.sink.finish();
  }
  return loss.item<double>();
}

struct Step {
  double loss = 0;
  std::map<std::string, at::Tensor> gradients;
};

Step step_of(Rig& rig, const Targets& targets) {
  Step step{.loss = loss_of(rig, targets, true)};
  for (const Segment& segment : rig.set.segments()) {
    step.gradients[segment.spec.name] = rig.set.gradient(segment.id).to(at::kDouble).clone();
  }
  return step;
}

class SmallSsd : public ::testing::TestWithParam<BoxRows::Order> {
 protected:
  const Graph graph_ = small_ssd(GetParam());
  const Targets targets_{};
};

TEST_P(SmallSsd, GradientsAreDerivativesOfTheLoss) {
  Rig rig("reference", graph_, Mode::kTraining, at::kDouble);
  const Step step = step_of(rig, targets_);
  for (const Segment& segment : rig.set.segments()) {
    const at::Tensor values = rig.set.value(segment.id).flatten();
    const at::Tensor gradient = step.gradients.at(segment.spec.name).flatten();
    for (int64_t i = 0; i < values.numel(); i += std::max<int64_t>(1, values.numel() / 5)) {
      const double difference = conformance::central_difference(values, i, [&] {
        rig.set.values_changed();
        return loss_of(rig, targets_, false);
      });
      EXPECT_NEAR(gradient[i].item<double>(), difference, 1e-6 * std::max(1.0, std::abs(difference)))
          << segment.spec.name << " " << i;
    }
  }
}

TEST_P(SmallSsd, ExecutorsAgreeWithDouble) {
  Rig exact("reference", graph_, Mode::kTraining, at::kDouble);
  const Step expected = step_of(exact, targets_);
  struct Case {
    const char* executor;
    at::ScalarType dtype;
    double loss, gradient;
  };
  for (const Case& tested : {Case{"reference", at::kFloat, 1e-5, 1e-5}, Case{"cpu", at::kFloat, 1e-5, 1e-5},
                             Case{"cpu", at::kBFloat16, 0.02, 0.05}}) {
    SCOPED_TRACE(std::string(tested.executor) + " in " + toString(tested.dtype));
    // What is measured to be the fastest is another kernel each time, with other errors in 16 bits.
    Rig rig(tested.executor, graph_, Mode::kTraining, tested.dtype, at::kCPU, false,
            {.convolutions = ConvolutionPolicy::kByShape});
    rig.set.values().copy_(exact.set.values());
    rig.set.values_changed();
    // What a step leaves in memory must not reach the next: lanes beyond the channels of a map, too.
    EXPECT_TRUE(std::isnan(loss_of(rig, targets_, true, std::numeric_limits<double>::quiet_NaN())));
    const Step step = step_of(rig, targets_);
    EXPECT_NEAR(step.loss, expected.loss, tested.loss * expected.loss);
    for (const auto& [name, gradient] : expected.gradients) {
      EXPECT_LE(relative_error(step.gradients.at(name), gradient), tested.gradient) << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Orders, SmallSsd, ::testing::Values(BoxRows::Order::kByBox, BoxRows::Order::kByPixel),
                         [](const auto& order) { return order.param == BoxRows::Order::kByBox ? "ByBox" : "ByPixel"; });

}  // namespace
}  // namespace trainyard::nn::detector_test
