// Whitening of patches against numpy's eigenvectors: tools/golden/patch_whitening.py.
#include "trainyard/nn/execution/patch_whitening.h"

#include <cmath>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/random/random.h"
#include "trainyard/core/testing/draw.h"
#include "trainyard/core/testing/error.h"

namespace trainyard::nn::patch_whitening_test {
namespace {

using ::testing::HasSubstr;

Graph graph_of(Convolution op, bool activation_first = false) {
  GraphBuilder b({.image = {3, 9, 7}, .name = "net"});
  auto x = b.input();
  if (activation_first) x = b.activation("relu", x);
  x = b.convolution("whiten", x, op);
  return b.build(b.linear("head", b.global_average_pool("pool", x), {.out_features = 2}));
}

const Convolution kWhiten{.out_channels = 24, .kernel = 2, .bias = true};

at::Tensor images_of_script() {
  at::Tensor images = at::empty({3, 3, 9, 7}, at::kFloat);
  const uint64_t identity = core::stable_hash("images");
  auto* const data = images.mutable_data_ptr<float>();
  for (int64_t i = 0; i < images.numel(); ++i) {
    const int64_t channel = i / 63 % 3;
    data[i] = static_cast<float>(core::draw(identity, i) / static_cast<double>(int64_t{1} << channel));
  }
  return images;
}

std::vector<at::Tensor> golden() {
  std::ifstream file(TRAINYARD_SOURCE_DIR "/trainyard/nn/testdata/patch_whitening.txt");
  std::vector<at::Tensor> lines;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::vector<double> numbers;
    for (double number = 0; words >> number;) numbers.push_back(number);
    lines.push_back(at::tensor(numbers, at::kDouble));
  }
  return lines;
}

double largest(const at::Tensor& tensor) {
  return tensor.abs().max().item<double>();
}

TEST(PatchWhitening, IsNumpys) {
  const std::vector<at::Tensor> expected = golden();
  PatchWhitening whitening(graph_of(kWhiten));
  EXPECT_EQ(whitening.weight(), "whiten.weight");
  const at::Tensor images = images_of_script();
  whitening.add(images.narrow(0, 0, 1));
  whitening.add(images.narrow(0, 1, 2));
  const at::Tensor covariance = whitening.covariance();
  EXPECT_LT(largest(covariance.flatten() - expected.at(0)), 1e-9);
  const at::Tensor filters = whitening.filters();
  ASSERT_EQ(filters.sizes(), (at::IntArrayRef{24, 3, 2, 2}));
  const at::Tensor rows = filters.reshape({24, 12});
  EXPECT_LT(largest(rows.t().matmul(rows).flatten() - expected.at(1)), 1e-9 * largest(expected.at(1)));
  // What comes out of the first half has no correlations, and variances eigenvalue / (eigenvalue + epsilon).
  const at::Tensor half = rows.narrow(0, 0, 12);
  const at::Tensor variances = expected.at(2).div(expected.at(2).add(kWhiteningEpsilon));
  EXPECT_LT(largest(half.matmul(covariance).matmul(half.t()) - at::diag(variances)), 1e-9);
  EXPECT_TRUE(at::equal(rows.narrow(0, 12, 12), half.neg()));
  // An eigenvector has a sign by rule: its number of largest magnitude is positive.
  EXPECT_TRUE(at::equal(half.amax(1), half.abs().amax(1)));
}

TEST(PatchWhitening, GivesTheSameBitsForTheSameImagesInAnyBatches) {
  PatchWhitening one(graph_of(kWhiten)), two(graph_of(kWhiten));
  const at::Tensor images = images_of_script();
  one.add(images);
  for (const at::Tensor& image : images.split(1)) two.add(image);
  EXPECT_TRUE(at::equal(one.filters(), two.filters()));
}

// A patch whose numbers are all the same has eleven eigenvalues of zero.
TEST(PatchWhitening, ConstantImagesGiveFiniteFilters) {
  PatchWhitening whitening(graph_of(kWhiten));
  whitening.add(at::ones({2, 3, 9, 7}));
  const at::Tensor filters = whitening.filters();
  EXPECT_TRUE(at::isfinite(filters).all().item<bool>());
  EXPECT_NEAR(filters[0].sum().item<double>(), 12 / std::sqrt(12.0) / std::sqrt(12 + kWhiteningEpsilon), 1e-9);
}

TEST(PatchWhitening, RefusesWhatCannotWhiten) {
  const auto refused = [](const Graph& graph) {
    return core::message_of([&] { PatchWhitening whitening(graph); }, core::ErrorCode::kInvalidArgument);
  };
  EXPECT_THAT(refused(graph_of({.out_channels = 64, .kernel = 7})), HasSubstr("patches have 147 numbers"));
  EXPECT_THAT(refused(graph_of({.out_channels = 24, .kernel = 2, .dilation = 2})), HasSubstr("cannot be whitened"));
  EXPECT_THAT(refused(graph_of({.out_channels = 24, .kernel = 2, .groups = 3})), HasSubstr("cannot be whitened"));
  EXPECT_THAT(refused(graph_of({.out_channels = 23, .kernel = 2})), HasSubstr("patches have 12 numbers"));
  EXPECT_THAT(refused(graph_of({.out_channels = 6, .form = Convolution::Form::kLinear})),
              HasSubstr("patches have 3 numbers"));
  EXPECT_THAT(refused(graph_of({.out_channels = 36, .kernel = {2, 1}})), HasSubstr("patches have 6 numbers"));
  EXPECT_EQ(PatchWhitening(graph_of({.out_channels = 12, .kernel = {2, 1}})).weight(), "whiten.weight");
  EXPECT_THAT(refused(graph_of(kWhiten, /*activation_first=*/true)), HasSubstr("they are read by relu"));
  PatchWhitening whitening(graph_of(kWhiten));
  EXPECT_THAT(core::message_of([&] { static_cast<void>(whitening.filters()); }), HasSubstr("no images"));
  EXPECT_THAT(core::message_of([&] { whitening.add(at::ones({2, 1, 9, 7})); }), HasSubstr("no patches"));
}

// An image of one patch is enough; of a kernel that is not square, height and width are told apart.
TEST(PatchWhitening, ImagesHaveOnePatchOrMore) {
  PatchWhitening whitening(graph_of({.out_channels = 36, .kernel = {2, 3}}));
  whitening.add(at::ones({1, 3, 2, 3}));
  EXPECT_EQ(whitening.covariance().sizes(), (at::IntArrayRef{18, 18}));
  EXPECT_TRUE(whitening.covariance().eq(1).all().item<bool>());
  const auto refused = [&](const std::vector<int64_t>& shape) {
    return core::message_of([&] { whitening.add(at::ones(shape)); });
  };
  const std::string problem =
      "images have no patches of the first convolution's size: whiten.weight: expected [N, 3, 2 or more, 3 or more], "
      "got ";
  EXPECT_EQ(refused({1, 3, 1, 3}), problem + "[1, 3, 1, 3]");
  EXPECT_EQ(refused({1, 3, 2, 2}), problem + "[1, 3, 2, 2]");
  EXPECT_EQ(refused({1, 4, 2, 3}), problem + "[1, 4, 2, 3]");
  EXPECT_EQ(refused({3, 2, 3}), problem + "[3, 2, 3]");
  EXPECT_TRUE(whitening.covariance().eq(1).all().item<bool>()) << "as before";
}

}  // namespace
}  // namespace trainyard::nn::patch_whitening_test
