// Binary cross-entropy of labels, in double, against timm's with its gradient (tools/golden/binary_loss.py).
#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/golden_lines.h"
#include "trainyard/nn/execution/loss.h"

namespace trainyard::nn::binary_loss_test {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSamples = 5, kClasses = 7;

at::Tensor golden_logits() {
  std::vector<double> values;
  for (int n = 0; n < kSamples; ++n) {
    for (int c = 0; c < kClasses; ++c) values.push_back(2 * std::sin(7.0 * n + 1.3 * c));
  }
  return at::tensor(values, at::kDouble).view({kSamples, kClasses});
}

const std::vector<int64_t> kLabels = {0, 3, 6, 2, 6}, kOthers = {1, 2, 3, 4, 6};

at::Tensor shares() {
  return at::tensor({1.0, 2.0, 3.0, 4.0, 5.0}, at::kDouble) / 5;
}

at::Tensor class_weights() {
  std::vector<double> weights;
  for (int c = 0; c < kClasses; ++c) weights.push_back(0.5 + c / 4.0);
  return at::tensor(weights, at::kDouble);
}

at::Tensor loss_of(const at::Tensor& logits, bool mixed, const BinaryCrossEntropyOptions& options) {
  const at::Tensor labels = at::tensor(kLabels, at::kLong);
  if (!mixed) return nn::binary_cross_entropy(logits, labels, options);
  return nn::mixed_binary_cross_entropy(logits, labels, at::tensor(kOthers, at::kLong), shares(), options);
}

TEST(BinaryLoss, IsTimmsWithItsGradient) {
  int cases = 0;
  for (const std::string& line : core::golden_lines("trainyard/nn/testdata/binary_loss.txt")) {
    std::istringstream words(line);
    double smoothing = 0, threshold = 0, expected = 0;
    bool summed = false, weighted = false, mixed = false;
    words >> smoothing >> threshold >> summed >> weighted >> mixed >> expected;
    std::vector<double> gradient;
    for (double number = 0; words >> number;) gradient.push_back(number);
    ASSERT_EQ(gradient.size(), static_cast<size_t>(kSamples * kClasses)) << line;
    BinaryCrossEntropyOptions options{.label_smoothing = smoothing, .sum_classes = summed};
    if (threshold >= 0) options.target_threshold = threshold;
    if (weighted) options.class_weights = class_weights();
    const at::Tensor logits = golden_logits().requires_grad_();
    const at::Tensor loss = loss_of(logits, mixed, options);
    loss.backward();
    EXPECT_NEAR(loss.item<double>(), expected, 1e-14 * expected) << line.substr(0, 20);
    const at::Tensor wanted = at::tensor(gradient, at::kDouble).view({kSamples, kClasses});
    EXPECT_LE((logits.grad() - wanted).abs().max().item<double>(), 1e-15 * kClasses) << line.substr(0, 20);
    ++cases;
  }
  EXPECT_EQ(cases, 64);
}

// By definition, from probabilities in double, and by central differences of it.
TEST(BinaryLoss, IsTheDefinitionOfEachClassByItself) {
  const auto by_definition = [](const at::Tensor& logits, double smoothing) {
    double sum = 0;
    for (int64_t n = 0; n < kSamples; ++n) {
      for (int64_t c = 0; c < kClasses; ++c) {
        const double probability = 1 / (1 + std::exp(-logits[n][c].item<double>()));
        const double target = (c == kLabels[static_cast<size_t>(n)] ? 1 - smoothing : 0) + smoothing / kClasses;
        sum -= target * std::log(probability) + (1 - target) * std::log(1 - probability);
      }
    }
    return sum / (kSamples * kClasses);
  };
  const at::Tensor logits = golden_logits().requires_grad_();
  const at::Tensor loss = loss_of(logits, false, {.label_smoothing = 0.1});
  loss.backward();
  EXPECT_NEAR(loss.item<double>(), by_definition(logits.detach(), 0.1), 1e-12);
  constexpr double kStep = 1e-5;
  for (int64_t c = 0; c < kClasses; ++c) {
    at::Tensor up = logits.detach().clone(), down = logits.detach().clone();
    up[1][c] += kStep;
    down[1][c] -= kStep;
    const double slope = (by_definition(up, 0.1) - by_definition(down, 0.1)) / (2 * kStep);
    EXPECT_NEAR(logits.grad()[1][c].item<double>(), slope, 1e-9);
  }
}

TEST(BinaryLoss, OfHalfPrecisionIsComputedInFloat) {
  const at::Tensor half = golden_logits().to(at::kBFloat16);
  const at::Tensor loss = loss_of(half, true, {.target_threshold = 0.2});
  EXPECT_EQ(loss.scalar_type(), at::kFloat);
  EXPECT_EQ(loss.item<float>(), loss_of(half.to(at::kFloat), true, {.target_threshold = 0.2}).item<float>());
}

TEST(BinaryLoss, RefusesWhatDoesNotFit) {
  const at::Tensor logits = golden_logits(), labels = at::tensor(kLabels, at::kLong);
  const auto message = [&](const BinaryCrossEntropyOptions& options) {
    return core::message_of([&] { (void)nn::binary_cross_entropy(logits, labels, options); });
  };
  EXPECT_THAT(message({.label_smoothing = 1}), HasSubstr("label_smoothing is out of range"));
  EXPECT_THAT(message({.target_threshold = 1}), HasSubstr("target_threshold is out of range"));
  EXPECT_THAT(message({.target_threshold = std::nan("")}), HasSubstr("target_threshold"));
  EXPECT_THAT(message({.class_weights = at::zeros({3})}), HasSubstr("weights of classes do not fit"));
  EXPECT_THAT(core::message_of([&] { (void)nn::binary_cross_entropy(logits, labels + 2); }),
              HasSubstr("not one of the model's classes"));
  EXPECT_THAT(core::message_of([&] { (void)nn::mixed_binary_cross_entropy(logits, labels, labels, shares() + 1); }),
              HasSubstr("shares of labels"));
}

}  // namespace
}  // namespace trainyard::nn::binary_loss_test
