// Which images are held out, and in which batches they come: images that count from 0.
#include "trainyard/nn/quantization/calibration_images.h"

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"

namespace trainyard::nn::calibration_images_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Graph network() {
  GraphBuilder b({.image = {2}, .name = "net"});
  return b.build(b.linear("fc", b.input(), {.out_features = 3}));
}

// [last - first, 2]: image i is i and i + 0.5.
at::Tensor counting(int64_t first, int64_t last) {
  const at::Tensor numbers = at::arange(last - first, at::TensorOptions(at::kFloat)).add(static_cast<double>(first));
  return numbers.unsqueeze(1).add(at::tensor({0.0F, 0.5F}));
}

CalibrationImages divided(const std::vector<at::Tensor>& batches) {
  return calibration_images(network(), batches);
}

std::vector<int64_t> numbers_in(const std::vector<at::Tensor>& batches) {
  std::vector<int64_t> numbers;
  for (const at::Tensor& batch : batches) {
    for (int64_t i = 0; i < batch.size(0); ++i) numbers.push_back(static_cast<int64_t>(batch[i][0].item<float>()));
  }
  return numbers;
}

std::vector<int64_t> sizes_of(const std::vector<at::Tensor>& batches) {
  std::vector<int64_t> sizes;
  for (const at::Tensor& batch : batches) sizes.push_back(batch.size(0));
  return sizes;
}

TEST(CalibrationImages, EveryFourthIsHeldOut) {
  const CalibrationImages images = divided({counting(0, 6), at::zeros({0, 2}), counting(6, 11)});
  EXPECT_THAT(numbers_in(images.held_out), ElementsAre(2, 6, 10));
  EXPECT_THAT(numbers_in(images.calibration), ElementsAre(0, 1, 3, 4, 5, 7, 8, 9));
  EXPECT_EQ(images.held_out_count, 3);
  EXPECT_EQ(images.calibration_count, 8);
  EXPECT_FALSE(images.shared);
}

TEST(CalibrationImages, NoMoreThanSixtyFourAreHeldOutAndBatchesHaveThirtyTwo) {
  const CalibrationImages images = divided({counting(0, 300)});
  EXPECT_THAT(sizes_of(images.held_out), ElementsAre(32, 32));
  EXPECT_EQ(numbers_in(images.held_out).back(), 254);
  EXPECT_THAT(sizes_of(images.calibration), ElementsAre(32, 32, 32, 32, 32, 32, 32, 12));
  std::vector<int64_t> last(45);
  std::iota(last.begin(), last.end(), 255);
  const std::vector<int64_t> calibration = numbers_in(images.calibration);
  EXPECT_EQ(std::vector<int64_t>(calibration.end() - 45, calibration.end()), last);
  EXPECT_EQ(images.held_out_count + images.calibration_count, 300);
}

TEST(CalibrationImages, OneOfFewIsHeldOut) {
  const CalibrationImages one = divided({counting(7, 8)}), two = divided({counting(0, 2)}),
                          three = divided({counting(0, 3)});
  EXPECT_TRUE(one.shared);
  EXPECT_THAT(numbers_in(one.calibration), ElementsAre(7));
  EXPECT_THAT(numbers_in(one.held_out), ElementsAre(7));
  EXPECT_EQ(one.calibration_count, 1);
  EXPECT_EQ(one.held_out_count, 1);
  EXPECT_FALSE(two.shared);
  EXPECT_THAT(numbers_in(two.calibration), ElementsAre(0));
  EXPECT_THAT(numbers_in(two.held_out), ElementsAre(1));
  EXPECT_EQ(two.calibration_count, 1);
  EXPECT_THAT(numbers_in(three.calibration), ElementsAre(0, 1));
  EXPECT_THAT(numbers_in(three.held_out), ElementsAre(2));
}

TEST(CalibrationImages, WarnOfFewAndOfAlikeImages) {
  EXPECT_THAT(divided({counting(0, 31)}).warnings, ElementsAre("only 31 calibration images: ranges are rough"));
  EXPECT_THAT(divided({counting(0, 32)}).warnings, IsEmpty());
  EXPECT_THAT(divided({counting(5, 6).expand({32, 2})}).warnings, ElementsAre("all calibration images are equal"));
  EXPECT_THAT(divided({at::full({32, 2}, 0.25F)}).warnings,
              ElementsAre("each calibration image has one value in all its pixels"));
}

TEST(CalibrationImages, ABatchThatDoesNotFitIsNamed) {
  EXPECT_EQ(core::message_of([] {
              divided({counting(0, 2), at::zeros({4, 3})});
            }),
            "a calibration batch does not fit the network: batch 1 for net: expected floats of shape [N], N images of "
            "[2], got [4, 3]");
  EXPECT_EQ(core::message_of([] {
              divided({counting(0, 2), at::zeros({2})});
            }),
            "a calibration batch does not fit the network: batch 1 for net: expected floats of shape [N], N images of "
            "[2], got [2]");
}

}  // namespace
}  // namespace trainyard::nn::calibration_images_test
