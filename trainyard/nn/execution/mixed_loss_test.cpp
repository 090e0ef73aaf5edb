// Losses of mixed labels and of a teacher, in double, against PyTorch's, with their gradients (tools/golden/mix.py).
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/nn/execution/loss.h"

namespace trainyard::nn::mixed_loss_test {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSamples = 6, kClasses = 7;

using Lines = std::multimap<std::string, std::vector<double>>;

Lines golden_losses() {
  std::istringstream file(
      core::local_file_system().read_file(core::join_path(TRAINYARD_SOURCE_DIR, "trainyard/nn/testdata/losses.txt")));
  Lines lines;
  for (std::string text; std::getline(file, text);) {
    if (text.starts_with("#")) continue;
    std::istringstream words(text);
    std::string name;
    words >> name;
    std::vector<double> numbers;
    for (double number = 0; words >> number;) numbers.push_back(number);
    lines.emplace(name, numbers);
  }
  return lines;
}

at::Tensor table(const std::vector<double>& numbers, size_t first = 0) {
  return at::tensor(std::vector<double>(numbers.begin() + static_cast<ptrdiff_t>(first), numbers.end()), at::kDouble)
      .view({kSamples, kClasses});
}

struct Inputs {
  Lines lines = golden_losses();
  at::Tensor logits = table(lines.find("logits")->second), teacher = table(lines.find("teacher")->second);
  at::Tensor labels = at::tensor(lines.find("labels")->second, at::kDouble).to(at::kLong);
  at::Tensor others = at::tensor(lines.find("other_labels")->second, at::kDouble).to(at::kLong);
  at::Tensor shares = at::tensor(lines.find("shares")->second, at::kDouble);
};

void expect_near(const at::Tensor& actual, const at::Tensor& expected, double tolerance) {
  EXPECT_LE((actual.to(at::kDouble) - expected).abs().max().item<double>(), tolerance);
}

TEST(MixedLoss, IsPytorchsOfProbabilitiesWithItsGradient) {
  const Inputs in;
  ASSERT_EQ(in.lines.count("cross_entropy"), 3u);
  const auto [first, last] = in.lines.equal_range("cross_entropy");
  for (auto line = first; line != last; ++line) {
    const std::vector<double>& n = line->second;
    for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
      const double tolerance = dtype == at::kDouble ? 1e-13 : 1e-6;
      const at::Tensor logits = in.logits.clone().to(dtype).requires_grad_(true);
      const at::Tensor loss =
          mixed_softmax_cross_entropy(logits, in.labels, in.others, in.shares, {.label_smoothing = n[0]});
      EXPECT_EQ(loss.scalar_type(), dtype);
      EXPECT_NEAR(loss.item<double>(), n[1], 10 * tolerance);
      loss.backward();
      expect_near(logits.grad(), table(n, 2), tolerance);
    }
  }
}

TEST(MixedLoss, OfWholeSharesIsThatOfSingleLabels) {
  const Inputs in;
  const at::Tensor ones = at::full({kSamples}, 1.0F);
  for (const double smoothing : {0.0, 0.1}) {
    const double expected = softmax_cross_entropy(in.logits, in.labels, {smoothing}).item<double>();
    for (const at::Tensor& others : {in.others, in.labels}) {
      const at::Tensor loss = mixed_softmax_cross_entropy(in.logits, in.labels, others, ones, {smoothing});
      EXPECT_NEAR(loss.item<double>(), expected, 1e-14);
    }
    const at::Tensor halves = at::full({kSamples}, 0.5F);
    const at::Tensor loss = mixed_softmax_cross_entropy(in.logits, in.labels, in.labels, halves, {smoothing});
    EXPECT_NEAR(loss.item<double>(), expected, 1e-14);
  }
}

TEST(MixedLoss, RefusesWhatDoesNotFit) {
  const Inputs in;
  const auto message = [&](const at::Tensor& labels, const at::Tensor& others, const at::Tensor& shares) {
    return core::message_of([&] { mixed_softmax_cross_entropy(in.logits, labels, others, shares); });
  };
  EXPECT_THAT(message(in.labels, in.others + kClasses, in.shares), HasSubstr("not one of the model's classes"));
  EXPECT_THAT(message(in.labels, in.others.slice(0, 1), in.shares), HasSubstr("do not fit"));
  EXPECT_THAT(message(in.labels, in.others, in.shares + 0.5), HasSubstr("out of range"));
  EXPECT_THAT(message(in.labels, in.others, in.shares.slice(0, 1)), HasSubstr("[5]"));
  EXPECT_THAT(message(in.labels, in.others, in.labels), HasSubstr("Long"));
}

TEST(DistillationLoss, IsPytorchsWithItsGradient) {
  const Inputs in;
  ASSERT_EQ(in.lines.count("distillation"), 3u);
  const auto [first, last] = in.lines.equal_range("distillation");
  for (auto line = first; line != last; ++line) {
    const std::vector<double>& n = line->second;
    const double weight = n[0], temperature = n[1];
    const at::Tensor logits = in.logits.clone().requires_grad_(true);
    const at::Tensor teacher = in.teacher.clone().requires_grad_(true);
    const at::Tensor hard =
        mixed_softmax_cross_entropy(logits, in.labels, in.others, in.shares, {.label_smoothing = n[2]});
    const at::Tensor loss = hard * (1 - weight) + distillation_loss(logits, teacher, temperature) * weight;
    EXPECT_NEAR(loss.item<double>(), n[3], 1e-12);
    loss.backward();
    expect_near(logits.grad(), table(n, 4), 1e-12);
    EXPECT_FALSE(teacher.grad().defined()) << "a teacher does not learn";
  }
}

TEST(DistillationLoss, RefusesWhatDoesNotFit) {
  const Inputs in;
  const auto message = [&](const at::Tensor& teacher, double temperature) {
    return core::message_of([&] { distillation_loss(in.logits, teacher, temperature); });
  };
  EXPECT_THAT(message(in.teacher.slice(1, 1), 1), HasSubstr("[6, 6]"));
  EXPECT_THAT(message(in.teacher, 0), HasSubstr("temperature above 0"));
}

}  // namespace
}  // namespace trainyard::nn::mixed_loss_test
