#include "trainyard/nn/execution/loss.h"

#include <cmath>
#include <limits>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/nn/execution/device_loss.h"

namespace trainyard::nn::loss_test {
namespace {

// By definition, in double.
double cross_entropy(const at::Tensor& logits, const at::Tensor& labels, double smoothing) {
  double total = 0;
  const int64_t classes = logits.size(1);
  for (int64_t n = 0; n < logits.size(0); ++n) {
    double sum = 0;
    for (int64_t c = 0; c < classes; ++c) sum += std::exp(logits[n][c].item<double>());
    for (int64_t c = 0; c < classes; ++c) {
      const double target =
          smoothing / static_cast<double>(classes) + (labels[n].item<int64_t>() == c ? 1 - smoothing : 0);
      total -= target * (logits[n][c].item<double>() - std::log(sum));
    }
  }
  return total / static_cast<double>(logits.size(0));
}

TEST(Loss, IsTheMeanCrossEntropyWithItsGradient) {
  const at::Tensor labels = at::tensor({2, 0, 4, 4}, at::kLong);
  at::Tensor logits = at::randn({4, 5}, at::kDouble).requires_grad_(true);
  for (double smoothing : {0.0, 0.1}) {
    const auto value = [&](const at::Tensor& x) {
      return softmax_cross_entropy(x, labels, {.label_smoothing = smoothing});
    };
    EXPECT_NEAR(value(logits).item<double>(), cross_entropy(logits, labels, smoothing), 1e-12);
    EXPECT_NEAR(value(logits.to(at::kFloat)).item<double>(), cross_entropy(logits, labels, smoothing), 1e-6);
    logits.mutable_grad().reset();
    value(logits).backward();
    // d loss / d logit = (softmax - target) / N.
    const at::Tensor softmax = logits.detach().softmax(1);
    const double target = 1 - smoothing + smoothing / 5;
    EXPECT_NEAR(logits.grad()[1][0].item<double>(), (softmax[1][0].item<double>() - target) / 4, 1e-12);
    EXPECT_NEAR(logits.grad()[1][1].item<double>(), (softmax[1][1].item<double>() - smoothing / 5) / 4, 1e-12);
  }
}

TEST(Loss, SixteenBitLogitsGiveAFloatLoss) {
  const at::Tensor loss = softmax_cross_entropy(at::zeros({2, 8}, at::kBFloat16), at::tensor({1, 7}, at::kLong));
  EXPECT_EQ(loss.scalar_type(), at::kFloat);
  EXPECT_NEAR(loss.item<double>(), std::log(8.0), 1e-6);
}

// LibTorch's "meta" device has shapes and no values: nothing but the kernel registered here can have been asked.
TEST(Loss, IsADevicesOwnWhereOneIsRegistered) {
  static std::vector<double> smoothings;
  const core::Registration<DeviceCrossEntropy> registered(
      device_cross_entropies(), "meta", [](const at::Tensor& logits, const at::Tensor&, double smoothing) {
        EXPECT_EQ(logits.scalar_type(), at::kFloat);
        smoothings.push_back(smoothing);
        return at::empty({}, logits.options());
      });
  const at::Tensor labels = at::empty({2}, at::TensorOptions(at::kLong).device(at::kMeta));
  for (const at::ScalarType dtype : {at::kFloat, at::kHalf, at::kDouble}) {  // double is ATen's
    const at::Tensor logits = at::empty({2, 5}, at::TensorOptions(dtype).device(at::kMeta));
    EXPECT_EQ(softmax_cross_entropy(logits, labels, {.label_smoothing = 0.25}).dim(), 0);
  }
  EXPECT_EQ(smoothings, (std::vector<double>{0.25, 0.25}));
}

TEST(TopK, CountsTiesInAndNonFiniteOut) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor logits = at::tensor({3.f, 2.f, 1.f, 0.f,  //
                                        1.f, 1.f, 1.f, 0.f,  //
                                        nan, 2.f, 1.f, 0.f,  //
                                        inf, 2.f, 1.f, 0.f,  //
                                        0.f, 5.f, 4.f, 3.f})
                                .view({5, 4});
  const auto correct = [&](const std::vector<int64_t>& labels, int64_t k) {
    return top_k_correct(logits, at::tensor(labels, at::kLong), k).item<int64_t>();
  };
  EXPECT_EQ(correct({0, 2, 1, 1, 1}, 1), 3) << "the tie of sample 1 counts; samples 2 and 3 do not";
  EXPECT_EQ(correct({1, 3, 1, 1, 3}, 1), 0);
  EXPECT_EQ(correct({1, 3, 1, 1, 3}, 3), 2) << "three are larger than sample 1's zero";
  EXPECT_EQ(correct({2, 3, 3, 3, 0}, 4), 3);
}

TEST(Loss, RefusesWhatDoesNotFit) {
  const at::Tensor logits = at::zeros({2, 4});
  const auto message = [&](const at::Tensor& labels, CrossEntropyOptions options = {}) -> std::string {
    try {
      softmax_cross_entropy(logits, labels, options);
    } catch (const core::Error& error) {
      EXPECT_EQ(error.code(), core::ErrorCode::kInvalidArgument);
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(message(at::tensor({0, 4}, at::kLong)),
            "a label is not one of the model's classes: sample 1 of the batch: expected 0 to 3, got 4; the data set "
            "counts its classes differently: check --num_classes");
  EXPECT_EQ(message(at::tensor({-1, 0}, at::kLong)).substr(0, 41), "a label is not one of the model's classes");
  EXPECT_EQ(message(at::tensor({0}, at::kLong)).substr(0, 29), "logits and labels do not fit:");
  EXPECT_EQ(message(at::tensor({0, 1}, at::kInt)).substr(0, 29), "logits and labels do not fit:");
  EXPECT_EQ(message(at::tensor({0, 1}, at::kLong), {.label_smoothing = 1}),
            "label_smoothing is out of range: expected [0, 1), got 1");
}

// Values of PyTorch 2.11.0 (tools/golden/class_balance.py): CrossEntropyLoss(weight), cross_entropy of class
// probabilities, binary_cross_entropy_with_logits.
TEST(Loss, WeighsClassesAndIsBinaryAsPyTorch) {
  const at::Tensor values =
      at::tensor({1.0, -0.5, 0.25, 0.0, 2.0, -1.0, -0.75, 0.5, 1.5, 0.25, 0.25, -0.25}, at::kDouble).reshape({4, 3});
  const at::Tensor labels = at::tensor({0, 1, 1, 2}, at::kLong), others = at::tensor({1, 0, 2, 2}, at::kLong);
  const at::Tensor shares = at::tensor({0.75, 1.0, 0.5, 0.25}, at::kDouble);
  const at::Tensor weights = at::tensor({0.5, 2.0, 1.25}, at::kFloat);
  struct Expected {
    double smoothing, loss, gradient, mixture;
  };
  for (const Expected& expected : {Expected{0.0, 0.904554021744073, 0.0397200693511633, 1.25096691642849},
                                   Expected{0.1, 0.930620333049068, 0.035332016025857, 1.29337018791228}}) {
    const CrossEntropyOptions options{.label_smoothing = expected.smoothing, .class_weights = weights};
    at::Tensor logits = values.clone().requires_grad_(true);
    const at::Tensor loss = softmax_cross_entropy(logits, labels, options);
    loss.backward();
    EXPECT_NEAR(loss.item<double>(), expected.loss, 1e-12);
    EXPECT_NEAR(logits.grad()[1][0].item<double>(), expected.gradient, 1e-12);
    EXPECT_NEAR(mixed_softmax_cross_entropy(values, labels, others, shares, options).item<double>(), expected.mixture,
                1e-12);
    // In bfloat16 the loss is of float, as without weights.
    EXPECT_EQ(softmax_cross_entropy(values.to(at::kBFloat16), labels, options).scalar_type(), at::kFloat);
  }
  const at::Tensor targets = at::tensor({1, 0, 1, 0, 1, 0, 1, 0, 0, 0, 1, 0}, at::kLong).reshape({4, 3}).to(at::kFloat);
  EXPECT_NEAR(sigmoid_cross_entropy(values, targets).item<double>(), 0.690566208217717, 1e-12);
  EXPECT_EQ(sigmoid_cross_entropy(values.to(at::kBFloat16), targets).scalar_type(), at::kFloat);
}

TEST(Loss, RefusesWeightsAndTargetsOfAnotherForm) {
  const at::Tensor logits = at::zeros({2, 3}), labels = at::tensor({0, 1}, at::kLong);
  for (const at::Tensor& weights : {at::zeros({2}), at::zeros({3}, at::kLong), at::zeros({1, 3})}) {
    EXPECT_THROW(static_cast<void>(softmax_cross_entropy(logits, labels, {.class_weights = weights})), core::Error);
  }
  for (const at::Tensor& targets : {at::zeros({2}), at::zeros({2, 3}, at::kLong), at::zeros({3, 3})}) {
    EXPECT_THROW(static_cast<void>(sigmoid_cross_entropy(logits, targets)), core::Error);
  }
}

// Whole messages, with the shapes and numbers of what does not fit.
TEST(Loss, SaysWhatDoesNotFit) {
  const at::Tensor logits = at::zeros({2, 3}), labels = at::tensor({0, 2}, at::kLong);
  const auto message = [](const auto& loss) { return core::message_of([&] { static_cast<void>(loss()); }); };
  EXPECT_EQ(message([&] { return softmax_cross_entropy(logits, labels); }), "no error") << "2 is the last class";
  EXPECT_EQ(message([&] { return softmax_cross_entropy(logits, labels.narrow(0, 0, 1)); }),
            "logits and labels do not fit: expected [N, classes] of a float type and [N] of int64, got [2, 3] of Float "
            "and [1] of Long");
  EXPECT_EQ(message([&] {
              return softmax_cross_entropy(logits.view({2, 3, 1}), labels);
            }).substr(0, 29),
            "logits and labels do not fit:");
  EXPECT_EQ(message([&] { return softmax_cross_entropy(logits.to(at::kLong), labels); }).substr(0, 29),
            "logits and labels do not fit:");
  EXPECT_EQ(message([&] { return softmax_cross_entropy(logits, labels, {.label_smoothing = -0.125}); }),
            "label_smoothing is out of range: expected [0, 1), got -0.125");
  EXPECT_EQ(message([&] { return softmax_cross_entropy(logits, labels, {.class_weights = at::zeros({2})}); }),
            "weights of classes do not fit the logits: expected [3] of a float type, got [2] of Float");
  EXPECT_EQ(message([&] {
              return sigmoid_cross_entropy(logits, at::zeros({3, 3}));
            }),
            "logits and targets do not fit: expected two of [N, classes] of a float type, got [2, 3] of Float and [3, "
            "3] of Float");
  EXPECT_EQ(message([&] {
              return distillation_loss(logits, at::zeros({2, 4}), 2.5);
            }),
            "a student cannot be compared with its teacher: expected logits of one shape [N, classes], and a "
            "temperature above 0, got [2, 3] and [2, 4], a temperature of 2.5");
}

TEST(Loss, SharesOfLabelsAreFromZeroToOne) {
  const at::Tensor logits = at::zeros({2, 3}), labels = at::tensor({0, 2}, at::kLong);
  const auto message = [&](const at::Tensor& shares) {
    return core::message_of([&] { static_cast<void>(mixed_softmax_cross_entropy(logits, labels, labels, shares)); });
  };
  EXPECT_EQ(message(at::tensor({0.0F, 1.0F})), "no error");
  for (const at::Tensor& shares : {at::tensor({0.5F, -0.25F}), at::tensor({1.25F, 0.5F})}) {
    EXPECT_EQ(message(shares),
              "shares of labels cannot be used: expected [2] of a float type, each 0 to 1, got a share out of range");
  }
  EXPECT_EQ(message(at::tensor({0.5F})),
            "shares of labels cannot be used: expected [2] of a float type, each 0 to 1, got [1] of Float");
}

TEST(Loss, AThresholdOfTargetsIsFromZeroToBelowOne) {
  const at::Tensor logits = at::zeros({2, 3}), labels = at::tensor({0, 2}, at::kLong);
  const auto message = [&](double threshold) {
    return core::message_of(
        [&] { static_cast<void>(nn::binary_cross_entropy(logits, labels, {.target_threshold = threshold})); });
  };
  EXPECT_EQ(message(0), "no error");
  EXPECT_EQ(message(-0.5), "target_threshold is out of range: expected [0, 1), got -0.5");
}

// Losses of logits of 16 bits are those of the same numbers in float, also the mixed one and a teacher's.
TEST(Loss, OfSixteenBitsIsThatOfTheirNumbers) {
  const at::Tensor half = at::tensor({1.5F, -0.25F, 3.0F, 0.5F, 2.0F, -4.0F}).view({2, 3}).to(at::kBFloat16);
  const at::Tensor whole = half.to(at::kFloat);
  const at::Tensor teacher = at::tensor({0.5F, 2.0F, -4.0F, 1.5F, -0.25F, 3.0F}).view({2, 3});
  const at::Tensor labels = at::tensor({0, 2}, at::kLong), others = at::tensor({1, 1}, at::kLong);
  const at::Tensor shares = at::tensor({0.25F, 0.5F});
  const at::Tensor mixed = mixed_softmax_cross_entropy(half, labels, others, shares);
  EXPECT_EQ(mixed.scalar_type(), at::kFloat);
  EXPECT_EQ(mixed.item<float>(), mixed_softmax_cross_entropy(whole, labels, others, shares).item<float>());
  const at::Tensor distilled = distillation_loss(half, teacher, 2);
  EXPECT_EQ(distilled.scalar_type(), at::kFloat);
  EXPECT_EQ(distilled.item<float>(), distillation_loss(whole, teacher, 2).item<float>());
}

}  // namespace
}  // namespace trainyard::nn::loss_test
