#include "trainyard/train/evaluation/detection/detection_evaluation.h"

#include <random>
#include <span>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/data/detection/default_boxes.h"
#include "trainyard/parallel/testing/on_ranks.h"

namespace trainyard::train::detection_evaluation_test {
namespace {

using ::testing::ElementsAreArray;

constexpr int64_t kLabels = 3, kImages = 12;

const data::DefaultBoxes& defaults() {
  return data::DefaultBoxes::ssd300();
}

// Images with annotated boxes, which are default boxes, and outputs that find some of them, some twice and some that
// are not there.
class Evaluated : public ::testing::Test {
 protected:
  Evaluated() : outputs_(at::zeros({kImages, defaults().size(), 4 + kLabels})) {
    std::mt19937_64 random(7);
    const auto draw = [&](int64_t most) { return static_cast<int64_t>(random() % static_cast<uint64_t>(most)); };
    outputs_.select(2, 4).fill_(20);
    annotations_.categories = {{.id = 1, .name = "cat"}, {.id = 2, .name = "dog"}};
    for (int64_t i = 0; i < kImages; i++) {
      const data::CocoImage image{
          .id = 1000 - 7 * i, .file_name = "a.jpg", .width = 640, .height = static_cast<int>(400 + i)};
      annotations_.images.push_back(image);
      for (int b = 0; b < 5; b++) {
        const int64_t box = draw(defaults().size()), label = 1 + draw(2);
        const float* const corner = &defaults().corners()[4 * static_cast<size_t>(box)];
        annotations_.boxes.push_back({.id = i * 100 + b + 1,
                                      .image_id = image.id,
                                      .category_id = label,
                                      .x = corner[1] * 640.0,
                                      .y = corner[0] * image.height,
                                      .width = (corner[3] - corner[1]) * 640.0,
                                      .height = (corner[2] - corner[0]) * image.height,
                                      .area = 2000});
        for (const int64_t found : {box, box ^ 1, draw(defaults().size())}) {
          outputs_[i][found][4 + label] = static_cast<float>(19 + draw(5));
        }
      }
    }
  }

  // Adds images [first, end).
  void add(DetectionEvaluation& evaluation, int64_t first, int64_t end) const {
    evaluation.add(
        outputs_.narrow(0, first, end - first),
        std::span(annotations_.images).subspan(static_cast<size_t>(first), static_cast<size_t>(end - first)));
  }

  // All images' numbers by detect() and coco_metric() alone.
  CocoMetric expected() const {
    std::vector<data::CocoDetection> all;
    const auto detected = detect(outputs_, defaults(), DetectOptions::tf_cnn());
    for (int64_t i = kImages; i-- > 0;) {  // ids descend
      const auto of_image =
          coco_detections(detected[static_cast<size_t>(i)], annotations_.images[static_cast<size_t>(i)], {0, 1, 2});
      all.insert(all.end(), of_image.begin(), of_image.end());
    }
    return coco_metric(annotations_, all);
  }

  data::CocoAnnotations annotations_;
  at::Tensor outputs_;
};

TEST_F(Evaluated, BatchesOfAnySizeHaveTheSameNumbers) {
  const CocoMetric numbers = expected();
  EXPECT_GT(numbers.ap(), 0.2);
  EXPECT_LT(numbers.ap(), 0.95);
  for (const int64_t batch : {1, 5, 12}) {
    DetectionEvaluation evaluation(annotations_, defaults(), {.waiting_batches = 1});
    for (int64_t first = 0; first < kImages; first += batch) add(evaluation, first, std::min(first + batch, kImages));
    evaluation.finish(70);
    const std::vector<DetectionResult> results = evaluation.wait();
    ASSERT_EQ(results.size(), 1U);
    EXPECT_EQ(results[0].global_step, 70);
    EXPECT_EQ(results[0].images, kImages);
    EXPECT_THAT(results[0].metric.values, ElementsAreArray(numbers.values)) << batch;
    EXPECT_EQ(results[0].detections.front().image_id, 1000 - 7 * (kImages - 1));
    EXPECT_TRUE(evaluation.wait().empty()) << "each result is returned once";
  }
}

TEST_F(Evaluated, ResultsComeLaterAndInOrder) {
  DetectionEvaluation evaluation(annotations_, defaults(), {});
  EXPECT_TRUE(evaluation.take_results().empty());
  for (int64_t step = 1; step <= 3; step++) {
    add(evaluation, 0, 6);
    add(evaluation, 4, 12);  // two images come twice
    evaluation.finish(step);
  }
  evaluation.finish(4);  // without images
  std::vector<DetectionResult> results = evaluation.take_results();
  for (DetectionResult& later : evaluation.wait()) results.push_back(std::move(later));
  ASSERT_EQ(results.size(), 4U);
  for (size_t i = 0; i < 3; i++) {
    EXPECT_EQ(results[i].global_step, static_cast<int64_t>(i) + 1);
    EXPECT_EQ(results[i].images, kImages);
    EXPECT_THAT(results[i].metric.values, ElementsAreArray(expected().values));
  }
  EXPECT_EQ(results[3].images, 0);
  EXPECT_EQ(results[3].metric.ap(), 0);
}

// Images that cannot be read are not missed objects.
TEST_F(Evaluated, ImagesThatCountIfAddedAreLeftOutOtherwise) {
  std::vector<int64_t> ids;
  for (const data::CocoImage& image : annotations_.images) ids.push_back(image.id);
  const auto numbers = [&](const data::CocoAnnotations& annotations, const std::vector<int64_t>& counted_if_added,
                           int64_t images) {
    DetectionEvaluation evaluation(annotations, defaults(), {.counted_if_added = counted_if_added});
    add(evaluation, 0, images);
    evaluation.finish(1);
    return evaluation.wait().at(0).metric.values;
  };
  data::CocoAnnotations first_half = annotations_;
  first_half.images.resize(6);
  std::erase_if(first_half.boxes, [&](const data::CocoBox& box) { return box.image_id < ids[5]; });  // ids descend
  const auto half = numbers(first_half, {}, 6);
  EXPECT_THAT(numbers(annotations_, ids, 6), ElementsAreArray(half));
  EXPECT_THAT(numbers(annotations_, {ids.begin() + 6, ids.end()}, 6), ElementsAreArray(half));
  EXPECT_LT(numbers(annotations_, {}, 6)[0], half[0]) << "annotations of all other images count";
  EXPECT_LT(numbers(annotations_, {ids.begin(), ids.begin() + 6}, 6)[0], half[0]);
  EXPECT_THAT(numbers(annotations_, ids, kImages), ElementsAreArray(expected().values));
}

TEST_F(Evaluated, TheOutputMayChangeAfterwards) {
  DetectionEvaluation evaluation(annotations_, defaults(), {});
  at::Tensor output = outputs_.clone();
  evaluation.add(output, annotations_.images);
  output.zero_();
  evaluation.finish(1);
  EXPECT_THAT(evaluation.wait()[0].metric.values, ElementsAreArray(expected().values));
}

TEST_F(Evaluated, RanksHaveTheNumbersOfOneProcess) {
  for (const int ranks : {1, 2, 3}) {
    parallel::on_ranks(ranks, [&](const std::shared_ptr<parallel::ProcessGroup>& group) {
      DetectionEvaluation evaluation(annotations_, defaults(), {});
      for (int64_t i = group->rank(); i < kImages; i += ranks) add(evaluation, i, i + 1);
      evaluation.finish(1, group.get());
      const std::vector<DetectionResult> results = evaluation.wait();
      EXPECT_EQ(results.size(), group->rank() == 0 ? 1U : 0U);
      if (group->rank() == 0) {
        EXPECT_EQ(results[0].images, kImages);
        EXPECT_THAT(results[0].metric.values, ElementsAreArray(expected().values)) << ranks;
      }
    });
  }
}

TEST_F(Evaluated, RefusesWhatDoesNotFit) {
  DetectionEvaluation evaluation(annotations_, defaults(), {});
  EXPECT_THROW(evaluation.add(outputs_[0], annotations_.images), core::Error);
  EXPECT_THROW(evaluation.add(outputs_.narrow(0, 0, 3), annotations_.images), core::Error) << "more images than rows";
  EXPECT_THROW(evaluation.add(outputs_.narrow(1, 0, 99), annotations_.images), core::Error);
  add(evaluation, 0, 1);
  EXPECT_THROW(evaluation.add(outputs_.narrow(2, 0, 4 + kLabels - 1), annotations_.images), core::Error)
      << "another model";
  const std::vector<data::CocoImage> other = {{.id = 5, .file_name = "b.jpg", .width = 10, .height = 10}};
  EXPECT_THROW(evaluation.add(outputs_, other), core::Error);
  EXPECT_THROW(DetectionEvaluation(annotations_, defaults(), {.waiting_batches = 0}), core::Error);
}

// Before the first batch, what all detection models have is known: the boxes, their offsets and two labels or more.
TEST_F(Evaluated, WhatIsRefusedDecidesNothing) {
  DetectionEvaluation evaluation(annotations_, defaults(), {});
  const auto refusal = [&](const at::Tensor& output) {
    return core::message_of([&] { evaluation.add(output, std::span(annotations_.images).first(2)); });
  };
  const auto expects = [](const std::string& columns) {
    return fmt::format("the output is not that of the evaluated detection model: expected [2 or more, {}, {}], got ",
                       defaults().size(), columns);
  };
  const int64_t boxes = defaults().size();
  EXPECT_EQ(refusal(outputs_[0]), expects("6 or more") + fmt::format("[{}, 7]", boxes));
  EXPECT_EQ(refusal(outputs_.narrow(2, 0, 5)), expects("6 or more") + fmt::format("[12, {}, 5]", boxes));
  EXPECT_EQ(refusal(outputs_.narrow(2, 0, 6).narrow(1, 0, 99)), expects("6 or more") + "[12, 99, 6]");
  add(evaluation, 0, kImages);
  EXPECT_EQ(refusal(outputs_.narrow(2, 0, 6)), expects("7") + fmt::format("[12, {}, 6]", boxes));
  EXPECT_EQ(refusal(outputs_.narrow(1, 0, 99)), expects("7") + "[12, 99, 7]");
  evaluation.finish(1);
  EXPECT_THAT(evaluation.wait().at(0).metric.values, ElementsAreArray(expected().values));

  DetectionEvaluation least(annotations_, defaults(), {});
  EXPECT_NO_THROW(least.add(outputs_.narrow(2, 0, 6).contiguous(), annotations_.images)) << "two labels";
  DetectionEvaluation one(annotations_, defaults(), {.categories = {1}});
  EXPECT_THROW(one.add(outputs_, annotations_.images), core::Error) << "more labels than categories";
}

// COCO's 81 labels, whose categories have gaps, unless the caller has others.
TEST_F(Evaluated, AnOutputOfCocosLabelsHasItsCategories) {
  annotations_.categories.push_back({.id = 13, .name = "stop sign"});
  at::Tensor output = at::zeros({1, defaults().size(), 4 + 81});
  output.select(2, 4).fill_(20);
  output[0][defaults().size() - 1][4 + 12] = 25.0F;
  const auto category = [&](const std::vector<int64_t>& categories) {
    DetectionEvaluation evaluation(annotations_, defaults(), {.categories = categories});
    evaluation.add(output, std::span(annotations_.images).first(1));
    evaluation.finish(1);
    return evaluation.wait().at(0).detections.at(0).category_id;
  };
  EXPECT_EQ(category({}), 13);
  EXPECT_EQ(category(std::vector<int64_t>(81, 2)), 2);
}

TEST(CocoCategories, FollowTheNumberOfLabels) {
  EXPECT_EQ(coco_categories_of_labels(81)[80], 90);
  EXPECT_EQ(coco_categories_of_labels(81)[12], 13);
  EXPECT_EQ(coco_categories_of_labels(91)[12], 12);
  EXPECT_EQ(coco_categories_of_labels(3).size(), 3U);
}

// What fails on the evaluation's own thread is thrown by each later call.
TEST_F(Evaluated, AnErrorOfTheMeasurementIsThrownOnTheCallersThread) {
  annotations_.boxes[1].id = annotations_.boxes[0].id;
  DetectionEvaluation evaluation(annotations_, defaults(), {});
  add(evaluation, 0, kImages);
  evaluation.finish(3);
  const std::string problem = "two annotated boxes have the id 1: give each box an id of its own";
  EXPECT_EQ(core::message_of([&] { static_cast<void>(evaluation.wait()); }), problem);
  EXPECT_EQ(core::message_of([&] { static_cast<void>(evaluation.take_results()); }), problem);
  EXPECT_EQ(core::message_of([&] { add(evaluation, 0, 1); }), problem);
  EXPECT_EQ(core::message_of([&] { evaluation.finish(4); }), problem);
}

}  // namespace
}  // namespace trainyard::train::detection_evaluation_test
