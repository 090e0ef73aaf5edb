#include "trainyard/train/evaluation/image_views.h"

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/random/random.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/nn/graph/graph.h"
#include "trainyard/train/testing/initialized_model.h"
#include "trainyard/train/testing/memory_source.h"

namespace trainyard::train::image_views_test {
namespace {

using ::testing::AllOf, ::testing::HasSubstr;
using Views = TestTimeAugmentation;

// A pixel tells its row and column: 10 row + column.
at::Tensor numbered(int64_t height, int64_t width) {
  const at::Tensor image = at::zeros({1, 1, height, width});
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) image[0][0][y][x] = static_cast<double>(10 * y + x);
  }
  return image;
}

std::vector<float> pixels(const at::Tensor& image) {
  const at::Tensor flat = image.contiguous();
  return {flat.const_data_ptr<float>(), flat.const_data_ptr<float>() + flat.numel()};
}

TEST(ImageViews, AreTheCornersAndTheCentre) {
  const at::Tensor image = numbered(5, 4);
  const std::vector<std::vector<float>> crops = {
      {0, 1, 10, 11}, {2, 3, 12, 13}, {30, 31, 40, 41}, {32, 33, 42, 43}, {11, 12, 21, 22}};
  ASSERT_EQ(view_count(Views::kFlipFiveCrops), 10);
  for (int i = 0; i < 5; ++i) {
    const auto index = static_cast<size_t>(i);
    EXPECT_EQ(pixels(view_of(image, {2, 2}, Views::kFiveCrops, i)), crops[index]) << i;
    EXPECT_EQ(pixels(view_of(image, {2, 2}, Views::kFlipFiveCrops, i)), crops[index]) << i;
    const std::vector<float> mirrored = {crops[index][1], crops[index][0], crops[index][3], crops[index][2]};
    EXPECT_EQ(pixels(view_of(image, {2, 2}, Views::kFlipFiveCrops, 5 + i)), mirrored) << i;
  }
  EXPECT_EQ(pixels(view_of(image, {2, 2}, Views::kFlip, 0)), crops[4]);
  EXPECT_EQ(pixels(view_of(image, {2, 2}, Views::kFlip, 1)), (std::vector<float>{12, 11, 22, 21}));
  EXPECT_EQ(pixels(view_of(image, {5, 4}, Views::kNone, 0)), pixels(image));
}

TEST(ImageViews, HaveTheirNames) {
  std::set<std::string_view> names;
  for (const Views each : {Views::kNone, Views::kFlip, Views::kFiveCrops, Views::kFlipFiveCrops, Views::kFlipShift}) {
    names.insert(name_of(each));
  }
  EXPECT_EQ(names, (std::set<std::string_view>{"none", "flip", "five_crops", "flip_five_crops", "flip_shift"}));
}

TEST(ImageViews, RefuseImagesWithoutAMargin) {
  EXPECT_THAT(core::message_of([] {
                view_of(numbered(4, 5), {4, 4}, Views::kFiveCrops, 0);
              }),
              AllOf(HasSubstr("five_crops"), HasSubstr("5 or more"), HasSubstr("[1, 1, 4, 5]")));
  EXPECT_THAT(core::message_of([] { view_of(numbered(4, 4), {5, 4}, Views::kFlip, 0); }), HasSubstr("too small"));
}

TEST(ImageViews, AverageProbabilitiesAndNotLogits) {
  ViewAverage average(Views::kFlip);
  average.add(at::tensor({0.0F, 1.0F, -1.0F, 2000.0F, 0.0F, 0.0F}).reshape({2, 3}));
  average.add(at::tensor({3.0F, 0.0F, 0.0F, 2000.0F, 0.0F, 0.0F}).reshape({2, 3}));
  const at::Tensor log_mean = average.result();
  const double a = 1 + std::exp(1) + std::exp(-1), b = std::exp(3) + 2;
  EXPECT_NEAR(log_mean[0][0].item<double>(), std::log((1 / a + std::exp(3) / b) / 2), 1e-6);
  EXPECT_NEAR(log_mean[0][2].item<double>(), std::log((std::exp(-1) / a + 1 / b) / 2), 1e-6);
  EXPECT_EQ(log_mean[1][0].item<double>(), 0);
  EXPECT_NEAR(log_mean[1][1].item<double>(), std::log(1e-300), 1e-3) << "no minus infinity";
}

TEST(ImageViews, AViewThatIsNotFiniteMakesTheImageSo) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    ViewAverage average(Views::kFlip);
    average.add(at::tensor({0.0F, 1.0F, 0.0F, 1.0F}).reshape({2, 2}));
    average.add(at::tensor({0.0F, bad, 0.0F, 1.0F}).reshape({2, 2}));
    EXPECT_TRUE(average.result()[0].isnan().all().item<bool>());
    EXPECT_TRUE(average.result()[1].isfinite().all().item<bool>());
  }
}

// airbench's infer_mirror_translate: windows [0:3] and [2:5] of the image that torch.nn.functional.pad pads by one
// reflected pixel, and mirrors.
TEST(ImageViews, ShiftsShowTheReflectedEdge) {
  const at::Tensor image = numbered(3, 3);
  const std::vector<std::vector<float>> views = {
      {0, 1, 2, 10, 11, 12, 20, 21, 22}, {2, 1, 0, 12, 11, 10, 22, 21, 20},    {11, 10, 11, 1, 0, 1, 11, 10, 11},
      {11, 10, 11, 1, 0, 1, 11, 10, 11}, {11, 12, 11, 21, 22, 21, 11, 12, 11}, {11, 12, 11, 21, 22, 21, 11, 12, 11}};
  ASSERT_EQ(view_count(Views::kFlipShift), 6);
  for (int i = 0; i < 6; ++i)
    EXPECT_EQ(pixels(view_of(image, {3, 3}, Views::kFlipShift, i)), views[static_cast<size_t>(i)]) << i;
  // A larger image has pixels where the windows reach beyond the model's size.
  const std::vector<std::vector<float>> inside = {{11, 12, 21, 22}, {12, 11, 22, 21}, {0, 1, 10, 11},
                                                  {1, 0, 11, 10},   {22, 23, 32, 33}, {23, 22, 33, 32}};
  for (int i = 0; i < 6; ++i)
    EXPECT_EQ(pixels(view_of(numbered(4, 4), {2, 2}, Views::kFlipShift, i)), inside[static_cast<size_t>(i)]) << i;
  EXPECT_THAT(core::message_of([] { view_of(numbered(1, 4), {1, 4}, Views::kFlipShift, 2); }), HasSubstr("reflected"));
}

TEST(ImageViews, ShiftsAverageLogits) {
  ViewAverage average(Views::kFlipShift);
  for (const float logit : {1.0F, 2.0F, 4.0F, 8.0F, 16.0F, 32.0F})
    average.add(at::tensor({logit, -logit}).reshape({1, 2}));
  EXPECT_EQ(average.result()[0][0].item<float>(), 3.0F / 4 + 60.0F / 8);
  EXPECT_EQ(average.result()[0][1].item<float>(), -3.0F / 4 - 60.0F / 8);
}

// A linear model of 2 x 2 pixels and three classes.
nn::Graph linear_graph() {
  nn::GraphBuilder b({.image = {1, 2, 2}, .name = "linear"});
  return b.build(b.linear("fc", b.flatten("flat", b.input()), {.out_features = 3}));
}

// The mean of the views' probabilities by definition, in double.
std::vector<double> by_definition(InitializedModel& model, const at::Tensor& image, Views views) {
  const at::Tensor weight = model.set.value(*model.set.find("fc.weight")),
                   bias = model.set.value(*model.set.find("fc.bias"));
  std::vector<double> mean(3);
  const int count = view_count(views);
  for (int i = 0; i < count; ++i) {
    const std::vector<float> view = pixels(view_of(image, {2, 2}, views, i));
    std::vector<double> powers;
    double sum = 0;
    for (int64_t c = 0; c < 3; ++c) {
      double logit = bias[c].item<double>();
      for (int64_t p = 0; p < 4; ++p)
        logit += weight[c][p].item<double>() * static_cast<double>(view[static_cast<size_t>(p)]);
      powers.push_back(std::exp(logit));
      sum += powers.back();
    }
    for (size_t c = 0; c < 3; ++c) mean[c] += powers[c] / sum / count;
  }
  return mean;
}

TEST(ImageViews, AnEvaluationHasTheMeanOfTheViewsAsItsOutput) {
  InitializedModel model(linear_graph());
  const at::Tensor images = at::zeros({5, 1, 4, 3}), labels = at::zeros({5}, at::kLong);
  core::RandomStream stream(3, "views");
  for (int64_t i = 0; i < images.numel(); ++i) images.mutable_data_ptr<float>()[i] = 2 * stream.normal();
  for (int64_t i = 0; i < 5; ++i) labels.mutable_data_ptr<int64_t>()[i] = i % 3;
  for (const Views views : {Views::kFlip, Views::kFiveCrops, Views::kFlipFiveCrops}) {
    std::vector<at::Tensor> outputs;
    Evaluator evaluator(
        {.graph = model.graph,
         .on_output = [&](const data::Batch&, const at::Tensor& output) { outputs.push_back(output.clone()); },
         .views = views},
        model.set);
    MemorySource source(images, labels, 3, 1, false);  // the last batch is shorter
    const Evaluation result = evaluator.run(source);
    ASSERT_EQ(outputs.size(), 2U);
    double loss = 0;
    for (int64_t i = 0; i < 5; ++i) {
      const std::vector<double> expected = by_definition(model, images.narrow(0, i, 1), views);
      const at::Tensor row = outputs[static_cast<size_t>(i / 3)][i % 3];
      for (int64_t c = 0; c < 3; ++c) {
        EXPECT_NEAR(std::exp(row[c].item<double>()), expected[static_cast<size_t>(c)], 1e-6) << name_of(views) << i;
      }
      loss -= std::log(expected[static_cast<size_t>(i % 3)]) / 5;
    }
    EXPECT_NEAR(result.loss, loss, 1e-5) << name_of(views);
    EXPECT_EQ(result.samples, 5);
    EXPECT_EQ(result.not_finite, 0);
  }
}

TEST(ImageViews, AnEvaluationWeighsTheLogitsOfShifts) {
  InitializedModel model(linear_graph());
  const at::Tensor images = at::zeros({3, 1, 2, 2}), labels = at::zeros({3}, at::kLong);
  core::RandomStream stream(4, "views");
  for (int64_t i = 0; i < images.numel(); ++i) images.mutable_data_ptr<float>()[i] = 2 * stream.normal();
  std::vector<at::Tensor> outputs;
  Evaluator evaluator(
      {.graph = model.graph,
       .on_output = [&](const data::Batch&, const at::Tensor& output) { outputs.push_back(output.clone()); },
       .views = Views::kFlipShift},
      model.set);
  MemorySource source(images, labels, 3, 1, false);
  evaluator.run(source);
  ASSERT_EQ(outputs.size(), 1U);
  const at::Tensor weight = model.set.value(*model.set.find("fc.weight")),
                   bias = model.set.value(*model.set.find("fc.bias"));
  for (int64_t i = 0; i < 3; ++i) {
    for (int64_t c = 0; c < 3; ++c) {
      // Reflection puts the pixel that lies across into each place: of rows 0 1, both shifts show 1 0.
      double expected = bias[c].item<double>();
      for (int64_t y = 0; y < 2; ++y) {
        for (int64_t x = 0; x < 2; ++x) {
          const auto pixel = [&](int64_t row, int64_t column) { return images[i][0][row][column].item<double>(); };
          const double seen = 0.25 * (pixel(y, x) + pixel(y, 1 - x)) + 0.25 * (pixel(1 - y, 1 - x) + pixel(1 - y, x));
          expected += weight[c][2 * y + x].item<double>() * seen;
        }
      }
      EXPECT_NEAR(outputs[0][i][c].item<double>(), expected, 1e-5) << i << c;
    }
  }
}

TEST(ImageViews, AreSoMany) {
  EXPECT_EQ(view_count(Views::kNone), 1);
  EXPECT_EQ(view_count(Views::kFlip), 2);
  EXPECT_EQ(view_count(Views::kFiveCrops), 5);
  EXPECT_EQ(view_count(Views::kFlipFiveCrops), 10);
  EXPECT_EQ(view_count(Views::kFlipShift), 6);
  EXPECT_FALSE(crops_corners(Views::kNone));
  EXPECT_FALSE(crops_corners(Views::kFlip));
  EXPECT_TRUE(crops_corners(Views::kFiveCrops));
  EXPECT_TRUE(crops_corners(Views::kFlipFiveCrops));
  EXPECT_FALSE(crops_corners(Views::kFlipShift));
}

}  // namespace
}  // namespace trainyard::train::image_views_test
