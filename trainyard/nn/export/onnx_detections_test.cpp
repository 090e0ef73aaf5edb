// Detections of an ONNX model against numbers by hand.
#include "trainyard/nn/export/onnx_detections.h"

#include <cmath>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/nn/testing/onnx_evaluation.h"

namespace trainyard::nn::onnx_detections_test {
namespace {

// cy, cx, h, w. The second lies on the first, the fourth hangs over the lower left corner.
const std::vector<float> kBoxes{0.30F, 0.40F, 0.20F, 0.40F, 0.32F, 0.40F, 0.20F, 0.40F,
                                0.70F, 0.70F, 0.20F, 0.20F, 0.95F, 0.10F, 0.30F, 0.30F};

// A model whose output is its input, [batch, 4, 4 + 3].
formats::OnnxModel detector(const OnnxDetectionOptions& options) {
  formats::OnnxModel model{.graph = {.name = "tiny", .inputs = {{"x", {-1, 4, 7}}}}};
  model.graph.nodes.push_back({.op_type = "Identity", .name = "same", .inputs = {"x"}, .outputs = {"y"}});
  model.graph.outputs = {{"y", {-1, 4, 7}}};
  add_detections(model, options);
  return model;
}

// Images of four boxes: offsets and probabilities of the background and two classes.
struct Box {
  std::vector<double> offsets{0, 0, 0, 0};
  std::vector<double> probabilities{0.98, 0.01, 0.01};
};
at::Tensor outputs_of(const std::vector<std::vector<Box>>& images) {
  std::vector<float> numbers;
  for (const std::vector<Box>& image : images) {
    for (const Box& box : image) {
      for (const double offset : box.offsets) numbers.push_back(static_cast<float>(offset));
      // The softmax does not see what all logits have in common.
      for (const double each : box.probabilities) numbers.push_back(static_cast<float>(std::log(each) + 3));
    }
  }
  return at::tensor(at::ArrayRef<float>(numbers)).reshape({-1, 4, 7});
}

struct Found {
  std::vector<double> box;  // ymin, xmin, ymax, xmax
  double score = 0;
  int64_t label = 0;
};
void expect_found(const OnnxValues& values, int64_t image, const std::vector<Found>& expected) {
  const at::Tensor boxes = values.at("boxes")[image], scores = values.at("scores")[image],
                   labels = values.at("labels")[image];
  ASSERT_EQ(labels.scalar_type(), at::kLong);
  ASSERT_EQ(scores.size(0), static_cast<int64_t>(expected.size()));
  for (size_t i = 0; i < expected.size(); ++i) {
    SCOPED_TRACE(i);
    const auto row = static_cast<int64_t>(i);
    EXPECT_NEAR(scores[row].item<double>(), expected[i].score, 1e-6);
    EXPECT_EQ(labels[row].item<int64_t>(), expected[i].label);
    for (int64_t side = 0; side < 4; ++side) {
      EXPECT_NEAR(boxes[row][side].item<double>(), expected[i].box[static_cast<size_t>(side)], 1e-6) << side;
    }
  }
}

const std::vector<double> kNowhere{0, 0, 0, 0};

// In the first image the second box hides the first in class 1, and is not among the three candidates of class 2.
TEST(OnnxDetections, AreTheBestOfEachClassThatNoOtherHides) {
  const formats::OnnxModel model = detector({.default_boxes = kBoxes,
                                             .min_score = 0.05F,
                                             .overlap_threshold = 0.5F,
                                             .candidates = 3,
                                             .detections = 4,
                                             .clip = true});
  ASSERT_EQ(model.graph.outputs.size(), 3U);
  EXPECT_EQ(model.graph.outputs[0].shape, (std::vector<int64_t>{-1, 4, 4}));
  EXPECT_EQ(model.graph.outputs[1].shape, (std::vector<int64_t>{-1, 4}));
  EXPECT_EQ(model.graph.outputs[2].shape, (std::vector<int64_t>{-1, 4}));
  EXPECT_TRUE(model.graph.outputs[2].is_int64);
  EXPECT_FALSE(model.graph.outputs[1].is_int64);
  const Box faint{};
  const OnnxValues values =
      evaluate_onnx(model, {{"x", outputs_of({{{.probabilities = {0.1, 0.6, 0.3}},
                                               {.probabilities = {0.1, 0.7, 0.2}},
                                               {.probabilities = {0.5, 0.04, 0.46}},
                                               {.probabilities = {0.35, 0.25, 0.4}}},
                                              {faint, {.probabilities = {0.2, 0.02, 0.78}}, faint, faint}})}});
  const std::vector<double> first{0.2, 0.2, 0.4, 0.6}, second{0.22, 0.2, 0.42, 0.6}, third{0.6, 0.6, 0.8, 0.8},
      fourth{0.8, 0, 1, 0.25};
  expect_found(values, 0, {{second, 0.7, 1}, {third, 0.46, 2}, {fourth, 0.4, 2}, {first, 0.3, 2}});
  expect_found(values, 1, {{second, 0.78, 2}, {kNowhere, 0, 0}, {kNowhere, 0, 0}, {kNowhere, 0, 0}});
}

// Offsets dy, dx, dh and dw of the third box, whose center and size they change.
TEST(OnnxDetections, BoxesAreDecodedFromTheirOffsets) {
  const Box faint{};
  const auto decoded = [&](const std::vector<double>& offsets, const OnnxDetectionOptions& options) {
    const Box box{.offsets = offsets, .probabilities = {0.1, 0.8, 0.1}};
    const OnnxValues values = evaluate_onnx(detector(options), {{"x", outputs_of({{faint, faint, box, faint}})}});
    const at::Tensor corners = values.at("boxes")[0][0];
    EXPECT_NEAR(values.at("scores")[0][0].item<double>(), 0.8, 1e-6);
    std::vector<double> result;
    for (int64_t side = 0; side < 4; ++side) result.push_back(corners[side].item<double>());
    return result;
  };
  const auto corners_of = [](double cy, double cx, double h, double w) {
    return std::vector<double>{cy - h / 2, cx - w / 2, cy + h / 2, cx + w / 2};
  };
  const auto expect_near = [](const std::vector<double>& actual, const std::vector<double>& expected) {
    EXPECT_THAT(actual, ::testing::Pointwise(::testing::DoubleNear(1e-6), expected));
  };
  OnnxDetectionOptions options{.default_boxes = kBoxes, .detections = 3};
  // A tenth of an offset is in sizes of the default box, a fifth is a logarithm.
  const std::vector<double> expected =
      corners_of(0.7 + 0.1 * 0.2, 0.7 - 0.2 * 0.2, 0.2 * std::exp(0.2), 0.2 * std::exp(-0.3));
  expect_near(decoded({1, -2, 1, -1.5}, options), expected);
  options.x_first = true;
  expect_near(decoded({-2, 1, -1.5, 1}, options), expected);
  options.x_first = false;
  options.center_scale = 0.5F;
  options.size_scale = 0.25F;
  options.largest_log = 0.5F;
  const std::vector<double> cut = corners_of(0.7 + 0.5 * 0.2, 0.7, 0.2 * std::exp(0.5), 0.2 * std::exp(0.25));
  expect_near(decoded({1, 0, 1000, 1}, options), cut);
  options.clip = true;
  std::vector<double> inside = corners_of(0.7 + 0.5 * 0.2 * 4, 0.7, 0.2, 0.2);
  inside[0] = inside[2] = 1;  // it lies below the image
  expect_near(decoded({4, 0, 0, 0}, options), inside);
}

TEST(OnnxDetections, AreAtMostAsManyAsAModelCanHave) {
  const auto most = [](int64_t candidates, int64_t detections) {
    return detector({.default_boxes = kBoxes, .candidates = candidates, .detections = detections})
        .graph.outputs[1]
        .shape[1];
  };
  EXPECT_EQ(most(200, 200), 2 * 4) << "two classes of four boxes";
  EXPECT_EQ(most(3, 200), 2 * 3);
  EXPECT_EQ(most(3, 5), 5);
}

TEST(OnnxDetections, RefuseAModelWithAnotherOutput) {
  const auto refused = [](const std::vector<formats::OnnxValue>& outputs) {
    formats::OnnxModel model{.graph = {.name = "tiny", .outputs = outputs}};
    return core::message_of([&] { add_detections(model, {.default_boxes = kBoxes}); });
  };
  const std::string problem =
      "an ONNX model's output is not that of a detector: tiny: expected one output [batch, 4, 4 + classes], got ";
  EXPECT_EQ(refused({}), problem + "0 outputs, []");
  EXPECT_EQ(refused({{"y", {-1, 4, 7}}, {"z", {-1, 4, 7}}}), problem + "2 outputs, [-1, 4, 7]");
  EXPECT_EQ(refused({{"y", {-1, 3, 7}}}), problem + "1 outputs, [-1, 3, 7]");
  EXPECT_EQ(refused({{"y", {-1, 4, 5}}}), problem + "1 outputs, [-1, 4, 5]");
  EXPECT_EQ(refused({{"y", {-1, 28}}}), problem + "1 outputs, [-1, 28]");
  EXPECT_EQ(refused({{"y", {-1, 4, 6}}}), "no error") << "one class beside the background";
}

}  // namespace
}  // namespace trainyard::nn::onnx_detections_test
