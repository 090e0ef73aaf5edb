// The multibox loss against its definition in double, against the values of TensorFlow with the original's formulas
// (tools/golden/multibox_loss.py), and the loops of the CPU against ATen's operators.
#include "trainyard/nn/execution/multibox_loss.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "trainyard/core/random/random.h"
#include "trainyard/core/testing/draw.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/nn/execution/multibox_rows.h"

namespace trainyard::nn::multibox_loss_test {
namespace {

at::Tensor drawn(const std::string& name, at::IntArrayRef shape, double factor = 1) {
  const at::Tensor tensor = at::empty(shape, at::kDouble);
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    tensor.data_ptr<double>()[i] = static_cast<float>(factor * core::draw(core::stable_hash(name), i));
  }
  return tensor;
}

struct Batch {
  at::Tensor output, target_offsets, classes, num_matched;

  at::Tensor loss(MultiboxParts* parts = nullptr) const {
    return multibox_loss(output, target_offsets, classes, num_matched, parts);
  }
};

// Images whose boxes are positive where a drawn number is above the image's threshold.
Batch batch_of(const std::vector<double>& thresholds, int64_t boxes, int64_t classes) {
  const auto images = static_cast<int64_t>(thresholds.size());
  Batch batch{.output = drawn("multibox output", {images, boxes, 4 + classes}, 3),
              .target_offsets = drawn("multibox targets", {images, boxes, 4}),
              .classes = at::zeros({images, boxes}, at::kLong),
              .num_matched = at::zeros({images}, at::kLong)};
  const at::Tensor numbers = drawn("multibox classes", {images, boxes});
  for (int64_t i = 0; i < images * boxes; ++i) {
    const double threshold = thresholds[static_cast<size_t>(i / boxes)];
    const double part = (numbers.data_ptr<double>()[i] - threshold) / (1 - threshold);
    if (part <= 0) continue;
    batch.classes.data_ptr<int64_t>()[i] = 1 + static_cast<int64_t>(part * static_cast<double>(classes - 1));
    ++batch.num_matched.data_ptr<int64_t>()[i / boxes];
  }
  return batch;
}
Batch batch_of_golden() {
  return batch_of({0.7, 0.1, 0.85}, 40, 7);
}

struct Expected {
  double class_loss = 0, box_loss = 0;
  at::Tensor gradient;  // [N, D, 4 + C]
};

// By definition, in double: the hardest boxes are found by sorting all.
Expected by_definition(const Batch& batch) {
  const at::Tensor output = batch.output.to(at::kDouble), targets = batch.target_offsets.to(at::kDouble);
  const int64_t images = output.size(0), boxes = output.size(1), classes = output.size(2) - 4;
  Expected expected{.gradient = at::zeros_like(output)};
  for (int64_t n = 0; n < images; ++n) {
    const auto matched = batch.num_matched[n].item<int64_t>();
    if (matched == 0) continue;
    const double share = 1.0 / static_cast<double>(matched) / static_cast<double>(images);
    std::vector<double> entropy(static_cast<size_t>(boxes)), hard, counts(static_cast<size_t>(boxes), 0);
    for (int64_t d = 0; d < boxes; ++d) {
      const auto* const z = output[n][d].const_data_ptr<double>() + 4;
      const double largest = *std::max_element(z, z + classes);
      double sum = 0;
      for (int64_t c = 0; c < classes; ++c) sum += std::exp(z[c] - largest);
      const auto label = batch.classes[n][d].item<int64_t>();
      entropy[static_cast<size_t>(d)] = std::log(sum) + largest - z[label];
      hard.push_back(label > 0 ? 0 : entropy[static_cast<size_t>(d)]);
      counts[static_cast<size_t>(d)] = label > 0 ? 1 : 0;
    }
    std::vector<size_t> order(static_cast<size_t>(boxes));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return hard[a] > hard[b]; });
    for (int64_t i = 0; i < std::min(3 * matched, boxes); ++i) counts[order[static_cast<size_t>(i)]] += 1;
    for (int64_t d = 0; d < boxes; ++d) {
      const auto label = batch.classes[n][d].item<int64_t>();
      const double count = counts[static_cast<size_t>(d)];
      expected.class_loss += count * entropy[static_cast<size_t>(d)] * share;
      auto* const gradient = expected.gradient.data_ptr<double>() + (n * boxes + d) * (4 + classes);
      const auto* const row = output.const_data_ptr<double>() + (n * boxes + d) * (4 + classes);
      for (int64_t c = 0; c < classes; ++c) {
        // softmax = exp(-cross entropy) of each class.
        const double softmax = std::exp(row[4 + c] - row[4 + label] - entropy[static_cast<size_t>(d)]);
        gradient[4 + c] = count * share * (softmax - (c == label ? 1 : 0));
      }
      for (int64_t k = 0; k < 4 && label > 0; ++k) {
        const double difference = row[k] - targets[n][d][k].item<double>(), size = std::abs(difference);
        expected.box_loss += share * (size <= 1 ? difference * difference / 2 : size - 0.5);
        gradient[k] = share * (size <= 1 ? difference : std::copysign(1, difference));
      }
    }
  }
  return expected;
}

void expect_loss(Batch batch, const Expected& expected, double tolerance) {
  batch.output = batch.output.detach().requires_grad_(true);
  MultiboxParts parts;
  const at::Tensor loss = batch.loss(&parts);
  EXPECT_NEAR(parts.class_loss.item<double>(), expected.class_loss, tolerance * expected.class_loss);
  EXPECT_NEAR(parts.box_loss.item<double>(), expected.box_loss, tolerance * expected.box_loss);
  EXPECT_NEAR(loss.item<double>(), expected.class_loss + expected.box_loss, tolerance * loss.item<double>());
  loss.mul(2).backward();
  const at::Tensor gradient = batch.output.grad().to(at::kDouble) / 2;
  EXPECT_LE((gradient - expected.gradient).abs().max().item<double>(),
            tolerance * expected.gradient.abs().max().item<double>());
}

Batch with(Batch batch, at::ScalarType type) {
  batch.output = batch.output.to(type);
  batch.target_offsets = batch.target_offsets.to(at::kFloat);
  return batch;
}

TEST(MultiboxLoss, IsItsDefinition) {
  // Many objects, few, more than a quarter (so that positive boxes count twice), none, a single one; 100 classes.
  for (const Batch& batch : {batch_of_golden(), batch_of({0.9, 1, -1, 0.5, 0.999}, 701, 5), batch_of({0.8}, 33, 100)}) {
    const Expected expected = by_definition(batch);
    expect_loss(batch, expected, 1e-12);
    expect_loss(with(batch, at::kFloat), expected, 1e-6);
  }
}

TEST(MultiboxLoss, SixteenBitsAreComputedInFloat) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    Batch batch = with(batch_of_golden(), type);
    EXPECT_EQ(batch.loss().scalar_type(), at::kFloat);
    const Expected expected = by_definition(batch);
    EXPECT_NEAR(batch.loss().item<double>(), expected.class_loss + expected.box_loss, 1e-5);
    batch.output.requires_grad_(true);
    batch.loss().backward();
    const at::Tensor gradient = batch.output.grad();
    EXPECT_EQ(gradient.scalar_type(), type);
    EXPECT_LE((gradient.to(at::kDouble) - expected.gradient).abs().max().item<double>(),
              expected.gradient.abs().max().item<double>() / 256);
  }
}

TEST(MultiboxLoss, IsTensorFlowsByTheOriginalsFormulas) {
  std::ifstream file(std::string(TRAINYARD_SOURCE_DIR) + "/trainyard/nn/testdata/multibox_loss.txt");
  const Batch batch = batch_of_golden();
  Expected expected{.gradient = at::zeros_like(batch.output)};
  std::string word;
  file >> word >> expected.class_loss >> expected.box_loss >> word;
  for (int64_t i = 0; i < batch.output.numel(); ++i) ASSERT_TRUE(file >> expected.gradient.data_ptr<double>()[i]) << i;
  expect_loss(batch, expected, 1e-5);
  expect_loss(with(batch, at::kFloat), expected, 1e-5);
}

TEST(MultiboxLoss, TheFirstOfEquallyHardBoxesCounts) {
  // One object, so three of five boxes without one that are all alike.
  Batch batch{.output = at::zeros({1, 6, 7}).requires_grad_(true),
              .target_offsets = at::zeros({1, 6, 4}),
              .classes = at::tensor({0, 0, 2, 0, 0, 0}, at::kLong).view({1, 6}),
              .num_matched = at::tensor({1}, at::kLong)};
  batch.loss().backward();
  const at::Tensor counted = batch.output.grad().abs().sum(2).gt(0).to(at::kLong);
  EXPECT_TRUE(counted.equal(at::tensor({1, 1, 1, 1, 0, 0}, at::kLong).view({1, 6}))) << counted;
}

TEST(MultiboxLoss, ImagesWithoutMatchesAddNothing) {
  Batch batch = batch_of({1, 1}, 20, 3);
  batch.output.requires_grad_(true);
  const at::Tensor loss = batch.loss();
  EXPECT_EQ(loss.item<double>(), 0);
  loss.backward();
  EXPECT_EQ(batch.output.grad().abs().max().item<double>(), 0);
}

// Targets need not fit each other: the original's synthetic ones do not.
TEST(MultiboxLoss, TheNumberOfMatchesIsTakenAsItIs) {
  Batch batch = batch_of({0.5}, 20, 3);
  batch.num_matched.fill_(int64_t{1} << 62);
  EXPECT_NEAR(batch.loss().item<double>(), 0, 1e-15);
  batch.num_matched.fill_(7);
  batch.classes.zero_();
  expect_loss(batch, by_definition(batch), 1e-12);
}

TEST(MultiboxLoss, OperatorsAndThreadsMakeNoDifference) {
  const Batch batch = with(batch_of({0.9, 1, -1, 0.5, 0.999}, 701, 9), at::kFloat);
  const int threads = at::get_num_threads();
  std::vector<at::Tensor> losses, gradients;
  for (const int count : {1, 2, 5, 0}) {
    const at::Tensor output = batch.output.detach().requires_grad_(true);
    at::set_num_threads(std::max(count, 1));
    MultiboxParts parts;
    const at::Tensor loss =
        count > 0 ? multibox_loss(output, batch.target_offsets, batch.classes, batch.num_matched, &parts)
                  : multibox_of_operators(output, batch.target_offsets, batch.classes, batch.num_matched, &parts);
    EXPECT_NEAR((parts.class_loss + parts.box_loss).item<double>(), loss.item<double>(), 1e-5);
    loss.backward();
    losses.push_back(loss.detach());
    gradients.push_back(output.grad());
  }
  at::set_num_threads(threads);
  for (size_t i = 1; i + 1 < losses.size(); ++i) {
    EXPECT_TRUE(losses[i].equal(losses[0]));
    EXPECT_TRUE(gradients[i].equal(gradients[0]));
  }
  EXPECT_TRUE(losses.back().allclose(losses[0], 1e-6));
  EXPECT_TRUE(gradients.back().allclose(gradients[0], 1e-5, 1e-8));
}

TEST(MultiboxLoss, TwoTensorsAreAsGoodAsOne) {
  const Batch batch = batch_of_golden();
  at::Tensor offsets = batch.output.narrow(2, 0, 4).clone().requires_grad_(true);
  at::Tensor logits = batch.output.narrow(2, 4, 7).clone().requires_grad_(true);
  const at::Tensor loss = multibox_loss(offsets, logits, batch.target_offsets, batch.classes, batch.num_matched);
  EXPECT_EQ(loss.item<double>(), batch.loss().item<double>());
  loss.backward();
  const Expected expected = by_definition(batch);
  EXPECT_TRUE(offsets.grad().allclose(expected.gradient.narrow(2, 0, 4)));
  EXPECT_TRUE(logits.grad().allclose(expected.gradient.narrow(2, 4, 7)));
}

// Whatever is not finite must not make a loss that looks sound; what is large must not overflow.
TEST(MultiboxLoss, NumbersThatAreNotFiniteAreSeen) {
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    for (int64_t box = 0; box < 40; ++box) {
      Batch batch = with(batch_of_golden(), at::kFloat);
      batch.output[0][box][5] = bad;
      EXPECT_FALSE(std::isfinite(batch.loss().item<double>())) << bad << " as a score of box " << box;
      batch = with(batch_of_golden(), at::kFloat);
      batch.output[0][box][0] = bad;
      // An offset counts where the box is positive.
      const bool counts = batch.classes[0][box].item<int64_t>() > 0;
      EXPECT_EQ(std::isfinite(batch.loss().item<double>()), !counts) << bad << " as an offset of box " << box;
    }
  }
  Batch large = batch_of_golden();
  large.output.mul_(1000);
  expect_loss(with(large, at::kFloat), by_definition(large), 1e-5);
}

TEST(MultiboxLoss, RefusesWhatDoesNotFit) {
  const Batch good = batch_of_golden();
  const auto problem = [&](const auto& change) {
    Batch batch = good;
    batch.classes = good.classes.clone();
    batch.num_matched = good.num_matched.clone();
    change(batch);
    return core::message_of([&] { (void)batch.loss(); }, core::ErrorCode::kInvalidArgument);
  };
  EXPECT_EQ(problem([](Batch& b) { b.classes[1][3] = 7; }),
            "the class of box 3 is not one of the model's: image 1 of the batch: expected 0 to 6, got 7");
  EXPECT_EQ(problem([](Batch& b) { b.num_matched[2] = -1; }),
            "the number of matched boxes is negative: image 2 of the batch: expected 0 or more, got -1");
  const std::string unfit = "predictions and targets of boxes do not fit";
  EXPECT_EQ(problem([](Batch& b) { b.classes = b.classes.to(at::kInt); }).substr(0, unfit.size()), unfit);
  EXPECT_EQ(problem([](Batch& b) { b.output = b.output.narrow(1, 0, 39); }).substr(0, unfit.size()), unfit);
  EXPECT_EQ(problem([](Batch& b) { b.output = b.output.narrow(2, 0, 4); }).substr(0, unfit.size()), unfit);
  EXPECT_EQ(problem([](Batch& b) { b.target_offsets = b.target_offsets.narrow(2, 0, 3); }).substr(0, unfit.size()),
            unfit);
  EXPECT_EQ(problem([](Batch& b) { b.num_matched = b.num_matched.narrow(0, 0, 2); }).substr(0, unfit.size()), unfit);
  EXPECT_EQ(problem([](Batch& b) { b.num_matched = b.num_matched.to(at::kInt); }).substr(0, unfit.size()), unfit);
  EXPECT_EQ(problem([](Batch& b) { b.target_offsets = b.target_offsets.to(at::kLong); }).substr(0, unfit.size()),
            unfit);
  EXPECT_EQ(problem([](Batch& b) { b.output = b.output.to(at::kLong); }).substr(0, unfit.size()), unfit);
  EXPECT_EQ(problem([](Batch& b) { b.target_offsets = b.target_offsets.narrow(1, 0, 39); }),
            "predictions and targets of boxes do not fit: expected output [N, D, 4 + C] and target offsets [N, D, 4] "
            "of float types, classes [N, D] and numbers of matched boxes [N] of int64, got [3, 40, 11] of Double, [3, "
            "39, 4] of Double, [3, 40] of Long and [3] of Long");
  EXPECT_EQ(problem([](Batch& b) { b.classes[0][39] = -1; }),
            "the class of box 39 is not one of the model's: image 0 of the batch: expected 0 to 6, got -1");
  const auto of_two = [&](const at::Tensor& offsets, const at::Tensor& logits) {
    return core::message_of(
        [&] { (void)multibox_loss(offsets, logits, good.target_offsets, good.classes, good.num_matched); });
  };
  const at::Tensor offsets = good.output.narrow(2, 0, 4), logits = good.output.narrow(2, 4, 7);
  EXPECT_EQ(of_two(offsets, logits), "no error");
  EXPECT_EQ(of_two(offsets, logits.narrow(1, 0, 39)),
            "offsets and logits of boxes do not fit: expected [N, D, 4] and [N, D, C] of one float type, got [3, 40, "
            "4] of Double and [3, 39, 7] of Double");
  const std::string two = "offsets and logits of boxes do not fit";
  EXPECT_EQ(of_two(offsets.narrow(2, 0, 3), logits).substr(0, two.size()), two);
  EXPECT_EQ(of_two(offsets.to(at::kFloat), logits).substr(0, two.size()), two);
}

}  // namespace
}  // namespace trainyard::nn::multibox_loss_test
