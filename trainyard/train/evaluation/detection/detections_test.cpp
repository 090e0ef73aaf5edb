#include "trainyard/train/evaluation/detection/detections.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/golden_lines.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/detection/default_boxes.h"
#include "trainyard/formats/tensors/onnx.h"
#include "trainyard/nn/export/onnx_detections.h"
#include "trainyard/nn/export/onnx_model.h"
#include "trainyard/nn/graph/graph.h"
#include "trainyard/train/evaluation/detection/onnx_detection_options.h"
#include "trainyard/train/evaluation/detection/write_detector.h"
#include "trainyard/train/testing/initialized_model.h"

namespace trainyard::train::detections_test {
namespace {

constexpr int64_t kClasses = 6;

// The numbers of made_output() in tools/golden/detections.py. [D, 4 + kClasses]
at::Tensor made_output(int64_t picture) {
  const int64_t boxes = data::DefaultBoxes::ssd300().size(), columns = 4 + kClasses;
  at::Tensor output = at::empty({boxes, columns}, at::kFloat);
  auto* const value = output.mutable_data_ptr<float>();
  for (int64_t i = 0; i < boxes * columns; i++) {
    const uint64_t mixed =
        (static_cast<uint64_t>(i + picture * 1'000'003) * 2'654'435'761U + 12'345) % (uint64_t{1} << 32);
    const double unit = static_cast<double>(mixed) / 4'294'967'296.0;
    const int64_t column = i % columns;
    const bool rare = mixed / 64 % 64 == 0 || (column == 5 && mixed / 64 % 16 == 0);
    value[i] = static_cast<float>(column < 4 ? unit * 2 - 1 : column == 4 ? 5 + unit : rare ? 3 + 6 * unit : unit);
  }
  return output;
}

at::Tensor made_outputs() {
  return at::stack({made_output(0), made_output(1)});
}

// An output that detects nothing.
at::Tensor background() {
  at::Tensor output = at::zeros({1, data::DefaultBoxes::ssd300().size(), 4 + kClasses});
  output.select(2, 4).fill_(20);
  return output;
}

void expect_near(const Detection& actual, const Detection& expected, double tolerance) {
  EXPECT_EQ(actual.label, expected.label);
  EXPECT_NEAR(actual.score, expected.score, tolerance);
  EXPECT_NEAR(actual.ymin, expected.ymin, tolerance);
  EXPECT_NEAR(actual.xmin, expected.xmin, tolerance);
  EXPECT_NEAR(actual.ymax, expected.ymax, tolerance);
  EXPECT_NEAR(actual.xmax, expected.xmax, tolerance);
}

TEST(Detect, EqualsTheFormulasOfTfCnnBenchmarks) {
  const auto detected = detect(made_outputs(), data::DefaultBoxes::ssd300(), DetectOptions::tf_cnn());
  ASSERT_EQ(detected.size(), 2U);
  std::array<size_t, 2> next{};
  for (const std::string& line : core::golden_lines("trainyard/train/testdata/detections.txt")) {
    std::istringstream words(line);
    size_t picture = 0;
    Detection expected;
    words >> picture >> expected.label >> expected.score >> expected.ymin >> expected.xmin >> expected.ymax >>
        expected.xmax;
    ASSERT_LT(next[picture], detected[picture].size());
    SCOPED_TRACE(line);
    expect_near(detected[picture][next[picture]++], expected, 2e-6);
  }
  for (size_t picture = 0; picture < 2; picture++) EXPECT_EQ(next[picture], detected[picture].size());
}

// Softmax, decoding and suppression by their definition, one class and one pair of boxes after the other.
std::vector<Detection> by_definition(const at::Tensor& output, const DetectOptions& options) {
  const data::DefaultBoxes& defaults = data::DefaultBoxes::ssd300();
  const auto value = output.accessor<float, 2>();
  struct Box {
    double score, ymin, xmin, ymax, xmax;
  };
  std::vector<Detection> all;
  for (int64_t label = 1; label < kClasses; label++) {
    std::vector<Box> waiting;
    for (int64_t d = 0; d < defaults.size(); d++) {
      double sum = 0;
      for (int64_t c = 0; c < kClasses; c++) sum += std::exp(static_cast<double>(value[d][4 + c]));
      const double score = std::exp(static_cast<double>(value[d][4 + label])) / sum;
      if (score <= static_cast<double>(options.min_score)) continue;
      const float* const center = &defaults.centers()[4 * static_cast<size_t>(d)];
      const double cy = center[0] + value[d][0] * 0.1 * center[2], cx = center[1] + value[d][1] * 0.1 * center[3];
      const double height = center[2] * std::exp(value[d][2] * 0.2), width = center[3] * std::exp(value[d][3] * 0.2);
      Box box{score, cy - height / 2, cx - width / 2, cy + height / 2, cx + width / 2};
      if (options.clip)
        for (double* side : {&box.ymin, &box.xmin, &box.ymax, &box.xmax}) *side = std::clamp(*side, 0.0, 1.0);
      waiting.push_back(box);
    }
    std::stable_sort(waiting.begin(), waiting.end(), [](const Box& a, const Box& b) { return a.score > b.score; });
    if (waiting.size() > static_cast<size_t>(options.candidates))
      waiting.resize(static_cast<size_t>(options.candidates));
    while (!waiting.empty()) {
      const Box best = waiting.front();
      all.push_back({static_cast<float>(best.ymin), static_cast<float>(best.xmin), static_cast<float>(best.ymax),
                     static_cast<float>(best.xmax), static_cast<float>(best.score), label});
      waiting.erase(waiting.begin());
      std::erase_if(waiting, [&](const Box& other) {
        const double height = std::max(0.0, std::min(best.ymax, other.ymax) - std::max(best.ymin, other.ymin));
        const double width = std::max(0.0, std::min(best.xmax, other.xmax) - std::max(best.xmin, other.xmin));
        const double both = height * width;
        return both / ((best.ymax - best.ymin) * (best.xmax - best.xmin) +
                       (other.ymax - other.ymin) * (other.xmax - other.xmin) - both) >
               static_cast<double>(options.overlap_threshold);
      });
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.score > b.score; });
  if (all.size() > static_cast<size_t>(options.detections)) all.resize(static_cast<size_t>(options.detections));
  return all;
}

TEST(Detect, EqualsTheDefinitionInDoublePrecision) {
  for (const DetectOptions& options : {DetectOptions{}, DetectOptions::torchvision()}) {
    const auto detected = detect(made_outputs(), data::DefaultBoxes::ssd300(), options);
    for (int64_t picture = 0; picture < 2; picture++) {
      const std::vector<Detection> expected = by_definition(made_output(picture), options);
      const std::vector<Detection>& actual = detected[static_cast<size_t>(picture)];
      ASSERT_EQ(actual.size(), expected.size());
      EXPECT_GT(actual.size(), 100U);
      for (size_t i = 0; i < actual.size(); i++) {
        SCOPED_TRACE(i);
        expect_near(actual[i], expected[i], 2e-6);
      }
    }
  }
}

TEST(Detect, TheOriginalsOverlapIsNotTheUsualOne) {
  const auto usual = detect(made_outputs(), data::DefaultBoxes::ssd300(), {});
  const auto original = detect(made_outputs(), data::DefaultBoxes::ssd300(), DetectOptions::tf_cnn());
  EXPECT_NE(usual[0].back().score, original[0].back().score);
}

TEST(Detect, OneBoxAndItsDuplicate) {
  at::Tensor output = background();
  EXPECT_TRUE(detect(output, data::DefaultBoxes::ssd300(), {})[0].empty());
  const int64_t last = output.size(1) - 4;  // the square of the largest scale: 0.5 +- 261 / 600
  output[0][last][4 + 2] = 22;
  auto detected = detect(output, data::DefaultBoxes::ssd300(), {})[0];
  ASSERT_EQ(detected.size(), 1U);
  expect_near(detected[0], {0.065F, 0.065F, 0.935F, 0.935F, static_cast<float>(1 / (1 + std::exp(-2.0))), 2}, 1e-6);
  EXPECT_TRUE(detect(output, data::DefaultBoxes::ssd300(), {.min_score = 0.9F})[0].empty());

  output[0][last + 1][4 + 2] = 21;  // a square 1.1 times as large
  EXPECT_EQ(detect(output, data::DefaultBoxes::ssd300(), {})[0].size(), 1U) << "suppressed";
  EXPECT_EQ(detect(output, data::DefaultBoxes::ssd300(), {.overlap_threshold = 0.9F})[0].size(), 2U);
  EXPECT_EQ(detect(output, data::DefaultBoxes::ssd300(), {.overlap_threshold = 0.9F, .candidates = 1})[0].size(), 1U);
  output[0][last + 1][4 + 3] = 21;
  EXPECT_EQ(detect(output, data::DefaultBoxes::ssd300(), {})[0].size(), 2U) << "another class";
  EXPECT_EQ(detect(output, data::DefaultBoxes::ssd300(), {.detections = 1})[0].size(), 1U);
  output[0][last][0] = 3;  // lower by 0.3 of its height
  const auto clipped = detect(output, data::DefaultBoxes::ssd300(), {.clip = true})[0];
  EXPECT_EQ(clipped[0].ymax, 1);
  EXPECT_NEAR(clipped[0].ymin, 0.065 + 0.3 * 0.87, 1e-6);
}

TEST(Detect, EqualScoresAreTakenInTheOrderOfTheBoxes) {
  at::Tensor output = background();
  output[0][100][4 + 3] = 25;
  output[0][700][4 + 3] = 25;
  output[0][40][4 + 5] = 25;
  const auto detected = detect(output, data::DefaultBoxes::ssd300(), {})[0];
  ASSERT_EQ(detected.size(), 3U);
  EXPECT_EQ(detected[0].label, 3);
  EXPECT_LT(detected[0].ymin, detected[1].ymin);
  EXPECT_EQ(detected[1].label, 3);
  EXPECT_EQ(detected[2].label, 5);
}

TEST(Detect, DoesNotDependOnThreadsAndTypes) {
  const at::Tensor outputs = made_outputs().repeat({3, 1, 1});
  const auto one = detect(outputs, data::DefaultBoxes::ssd300(), {.threads = 1});
  const auto four = detect(outputs, data::DefaultBoxes::ssd300(), {.threads = 4});
  for (size_t n = 0; n < one.size(); n++) {
    ASSERT_EQ(one[n].size(), four[n].size());
    for (size_t i = 0; i < one[n].size(); i++) expect_near(one[n][i], four[n][i], 0);
  }
  const auto half = detect(outputs.to(at::kBFloat16), data::DefaultBoxes::ssd300(), {});
  const auto same = detect(outputs.to(at::kBFloat16).to(at::kFloat), data::DefaultBoxes::ssd300(), {});
  EXPECT_EQ(half[0].size(), same[0].size());
  expect_near(half[0][0], same[0][0], 0);
}

TEST(Detect, WhatIsNotFiniteDetectsNothing) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  at::Tensor output = background();
  for (const int64_t box : {100, 200, 300}) output[0][box][4 + 3] = 25;
  EXPECT_EQ(detect(output, data::DefaultBoxes::ssd300(), {})[0].size(), 3U);
  output[0][100][4 + 1] = nan;
  output[0][200][1] = infinity;
  EXPECT_EQ(detect(output, data::DefaultBoxes::ssd300(), {})[0].size(), 1U);
  output.fill_(nan);
  EXPECT_TRUE(detect(output, data::DefaultBoxes::ssd300(), {})[0].empty());
}

TEST(Detect, RefusesWrongShapesAndOptions) {
  const data::DefaultBoxes& boxes = data::DefaultBoxes::ssd300();
  EXPECT_THROW(detect(background()[0], boxes, {}), core::Error);
  EXPECT_THROW(detect(background().narrow(1, 0, 8731), boxes, {}), core::Error);
  EXPECT_THROW(detect(background().narrow(2, 0, 5), boxes, {}), core::Error);
  EXPECT_THROW(detect(background().to(at::kInt), boxes, {}), core::Error);
  EXPECT_THROW(detect(background(), boxes, {.min_score = -1}), core::Error);
  EXPECT_THROW(detect(background(), boxes, {.overlap_threshold = 1.5F}), core::Error);
  EXPECT_THROW(detect(background(), boxes, {.candidates = 0}), core::Error);
  EXPECT_THROW(detect(background(), boxes, {.detections = 0}), core::Error);
  EXPECT_THROW(detect(background(), boxes, {.threads = -1}), core::Error);
}

// Each number is another one.
TEST(OnnxDetectionOptions, AreThoseOfDetect) {
  for (const data::DefaultBoxes* boxes : {&data::DefaultBoxes::ssd300(), &data::DefaultBoxes::ssd300_vgg16()}) {
    const nn::OnnxDetectionOptions options = onnx_detection_options(
        *boxes, {.min_score = 0.25F, .overlap_threshold = 0.375F, .candidates = 7, .detections = 5, .clip = true});
    EXPECT_EQ(options.default_boxes.data(), boxes->centers().data());
    EXPECT_EQ(static_cast<int64_t>(options.default_boxes.size()), 4 * boxes->size());
    EXPECT_EQ(options.x_first, boxes->x_first());
    EXPECT_EQ(options.center_scale, 0.1F);
    EXPECT_EQ(options.size_scale, 0.2F);
    EXPECT_EQ(options.largest_log, static_cast<float>(boxes->largest_log()));
    EXPECT_EQ(options.min_score, 0.25F);
    EXPECT_EQ(options.overlap_threshold, 0.375F);
    EXPECT_EQ(options.candidates, 7);
    EXPECT_EQ(options.detections, 5);
    EXPECT_TRUE(options.clip);
  }
  EXPECT_EQ(core::code_of([] {
              static_cast<void>(onnx_detection_options(data::DefaultBoxes::ssd300(), DetectOptions::tf_cnn()));
            }),
            core::ErrorCode::kUnsupported);
  EXPECT_EQ(core::message_of(
                [] { static_cast<void>(onnx_detection_options(data::DefaultBoxes::ssd300(), {.candidates = 0})); }),
            "detections cannot be made: the candidates of a class: expected 1 or more, got 0");
}

TEST(DetectOptions, NameTheNumbersThatCannotBe) {
  const auto message = [](const DetectOptions& options) { return core::message_of([&] { options.validate(); }); };
  const std::string none = "detections cannot be made: ";
  EXPECT_EQ(message({}), "no error");
  EXPECT_EQ(message({.min_score = -0.5F}), none + "the least score: expected 0 or more, got -0.5");
  EXPECT_EQ(message({.overlap_threshold = 1.5F}), none + "the threshold of overlaps: expected 0 to 1, got 1.5");
  EXPECT_EQ(message({.overlap_threshold = -0.5F}), none + "the threshold of overlaps: expected 0 to 1, got -0.5");
  EXPECT_EQ(message({.candidates = 0}), none + "the candidates of a class: expected 1 or more, got 0");
  EXPECT_EQ(message({.detections = 0}), none + "the detections of a picture: expected 1 or more, got 0");
  EXPECT_EQ(message({.threads = -1}), none + "the threads: expected 0 or more, got -1");
  EXPECT_EQ(message({.min_score = 0, .overlap_threshold = 0, .candidates = 1, .detections = 1, .threads = 0}),
            "no error");
  EXPECT_EQ(message({.overlap_threshold = 1}), "no error");
}

TEST(DetectOptions, OfTfCnnBenchmarksAndTorchvision) {
  const DetectOptions first = DetectOptions::tf_cnn(), second = DetectOptions::torchvision();
  EXPECT_EQ(first.min_score, 0.05F);
  EXPECT_EQ(first.overlap_threshold, 0.5F);
  EXPECT_EQ(first.candidates, 200);
  EXPECT_EQ(first.detections, 200);
  EXPECT_EQ(first.overlap, BoxOverlap::kTfCnn);
  EXPECT_FALSE(first.clip);
  EXPECT_EQ(first.threads, 0);
  EXPECT_EQ(second.min_score, 0.01F);
  EXPECT_EQ(second.overlap_threshold, 0.45F);
  EXPECT_EQ(second.candidates, 400);
  EXPECT_EQ(second.detections, 200);
  EXPECT_EQ(second.overlap, BoxOverlap::kIntersectionOverUnion);
  EXPECT_TRUE(second.clip);
  EXPECT_EQ(second.threads, 0);
}

// A network whose weights alone make all rows: of one pixel, each channel of two convolutions is a number of a box.
TEST(WriteDetector, WritesTheModelWithItsDetectionsBehindIt) {
  const data::DefaultBoxes& boxes = data::DefaultBoxes::ssd300();
  constexpr int64_t kLabels = 3;
  nn::GraphBuilder b({.image = {3, 1, 1}, .name = "tiny"});
  const auto head = [&](const char* name, int64_t columns) {
    return b.convolution(name, b.input(), {.out_channels = boxes.size() * columns, .kernel = 1, .bias = true});
  };
  InitializedModel model(b.build(
      b.box_rows("rows", {head("offsets", 4), head("scores", kLabels)}, {.coordinates = 4, .classes = kLabels})));
  const core::TempDir temp;
  const std::string path = temp.file("detector.onnx"), expected = temp.file("expected.onnx");
  const DetectOptions options = DetectOptions::torchvision();
  write_detector(path, model.graph, model.set, boxes, options);
  formats::OnnxModel by_hand = nn::to_onnx(model.graph, model.set);
  nn::add_detections(by_hand, onnx_detection_options(boxes, options));
  formats::write_onnx(expected, by_hand);
  core::FileSystem& files = core::local_file_system();
  const std::string written = files.read_file(path);
  EXPECT_TRUE(written == files.read_file(expected));
  for (const char* part : {"NonMaxSuppression", "boxes", "scores", "labels"}) {
    EXPECT_NE(written.find(part), std::string::npos) << part;
  }
  const std::string refused = temp.file("refused.onnx");
  EXPECT_EQ(core::code_of([&] { write_detector(refused, model.graph, model.set, boxes, DetectOptions::tf_cnn()); }),
            core::ErrorCode::kUnsupported);
  EXPECT_FALSE(files.exists(refused));
}

}  // namespace
}  // namespace trainyard::train::detections_test
