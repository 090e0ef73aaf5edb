// What each option of a detector's evaluation changes. The images' numbers follow by hand: a detector that finds each
// object has an AP of 1; one that finds one of two, without a mistake, reaches 51 of the 101 recalls.
#include "trainyard/frontends/tf_cnn/detection_measure.h"

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/cache/cached_dataset.h"
#include "trainyard/data/detection/coco_dataset.h"
#include "trainyard/data/detection/default_boxes.h"
#include "trainyard/data/testing/coco_folder.h"
#include "trainyard/frontends/tf_cnn/learning_task.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/parallel/testing/on_ranks.h"

namespace trainyard::frontends::detection_measure_test {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr int64_t kImages = 2, kLabels = 3, kFoundLabel = 1, kCategory = 7;
constexpr double kHalfFound = 51.0 / 101;

// A default box in the middle of the image for each image.
int64_t box_of(int64_t image) {
  return 38 * 19 + 17 + 3 * image;
}

class DetectionMeasureTest : public ::testing::Test {
 protected:
  DetectionMeasureTest() {
    annotations_.categories = {{.id = kCategory, .name = "cat"}};
    for (int64_t i = 0; i < kImages; ++i) {
      annotations_.images.push_back({.id = 50 - i, .file_name = "a.jpg", .width = 300, .height = 300});
      const float* const corner = &data::DefaultBoxes::ssd300().corners()[4 * static_cast<size_t>(box_of(i))];
      annotations_.boxes.push_back({.id = i + 1,
                                    .image_id = 50 - i,
                                    .category_id = kCategory,
                                    .x = corner[1] * 300.0,
                                    .y = corner[0] * 300.0,
                                    .width = (corner[3] - corner[1]) * 300.0,
                                    .height = (corner[2] - corner[0]) * 300.0,
                                    .area = 400});
    }
  }

  DetectionMeasureOptions options(int64_t images) const {
    return {.annotations = annotations_,
            .image = [this](int64_t sample) { return annotations_.images.at(static_cast<size_t>(sample)); },
            .images = images,
            .all_images = kImages,
            .default_boxes = &data::DefaultBoxes::ssd300(),
            .detection = {.categories = {0, kCategory, 8}}};
  }

  // Evaluates the first `images` images, whose objects the output finds.
  static std::string evaluate(EvaluationMeasure& measure, train::Evaluation& evaluation, int64_t images) {
    at::Tensor output = at::zeros({images, data::DefaultBoxes::ssd300().size(), 4 + kLabels});
    output.select(2, 4).fill_(20);  // the background
    data::Batch batch;
    for (int64_t i = 0; i < images; ++i) {
      output[i][box_of(i)][4].fill_(0);
      output[i][box_of(i)][4 + kFoundLabel].fill_(20);
      batch.sample_indices.push_back(i);
    }
    measure.begin();
    measure.add(batch, output);
    return measure.finish(evaluation, nullptr);
  }

  static double ap(const std::vector<std::pair<std::string, double>>& values) {
    return !values.empty() && values[0].first == "COCO/AP" ? values[0].second : -2;
  }

  data::CocoAnnotations annotations_;
};

TEST_F(DetectionMeasureTest, CountsTheImagesOfTheEvaluationAndOfTheData) {
  train::Evaluation all, half;
  const auto measure = measure_detections(options(kImages));
  const std::string text = evaluate(*measure, all, kImages);
  EXPECT_THAT(text, StartsWith("Got results for all 2 eval examples. Calculate mAP...\n"));
  EXPECT_THAT(text, EndsWith("Current AP: 1.00000"));
  EXPECT_DOUBLE_EQ(ap(all.more), 1);
  EXPECT_THAT(measure->take_late_numbers(true), IsEmpty()) << "finish() waited for them";

  const std::string one = evaluate(*measure_detections(options(1)), half, 1);
  EXPECT_THAT(one, StartsWith("Got 1 out of 2 eval examples. Calculate mAP of these...\n"));
  EXPECT_NEAR(ap(half.more), kHalfFound, 1e-12) << "the annotations name two objects";
}

// An exact evaluation leaves bad samples out.
TEST_F(DetectionMeasureTest, AnImageThatCannotBeReadDoesNotCount) {
  DetectionMeasureOptions others = options(kImages);
  others.detection.counted_if_added = {50, 49};
  train::Evaluation evaluation{.samples = 1};
  const std::string text = evaluate(*measure_detections(others), evaluation, 1);
  EXPECT_THAT(text, StartsWith("Got 1 out of 2 eval examples. Calculate mAP of these...\n"));
  EXPECT_DOUBLE_EQ(ap(evaluation.more), 1);
}

TEST_F(DetectionMeasureTest, OutputsAreOffsetsOfTheGivenDefaultBoxes) {
  DetectionMeasureOptions others = options(kImages);
  others.default_boxes = &data::DefaultBoxes::ssd300_vgg16();
  train::Evaluation evaluation;
  evaluate(*measure_detections(others), evaluation, kImages);
  EXPECT_LT(ap(evaluation.more), 0.1);
}

TEST_F(DetectionMeasureTest, LabelsAreTheGivenCategories) {
  DetectionMeasureOptions others = options(kImages);
  others.detection.categories = {0, 8, kCategory};
  train::Evaluation evaluation;
  evaluate(*measure_detections(others), evaluation, kImages);
  EXPECT_EQ(ap(evaluation.more), 0);
}

TEST_F(DetectionMeasureTest, AsynchronousNumbersComeLaterInOrder) {
  DetectionMeasureOptions later = options(kImages);
  later.asynchronous = true;
  const auto measure = measure_detections(later);
  train::Evaluation first, second;
  EXPECT_EQ(evaluate(*measure, first, kImages), "Got results for all 2 eval examples. Calculate mAP...");
  evaluate(*measure, second, 1);
  EXPECT_THAT(first.more, IsEmpty());
  const std::vector<LateNumbers> numbers = measure->take_late_numbers(true);
  ASSERT_EQ(numbers.size(), 2U);
  EXPECT_THAT((std::vector{numbers[0].evaluation, numbers[1].evaluation}), ElementsAre(0, 1));
  EXPECT_DOUBLE_EQ(ap(numbers[0].values), 1);
  EXPECT_NEAR(ap(numbers[1].values), kHalfFound, 1e-12);
  EXPECT_THAT(numbers[0].lines, EndsWith("Current AP: 1.00000"));
  EXPECT_THAT(measure->take_late_numbers(true), IsEmpty()) << "each is returned once";
}

// Each rank has one of the two images. Rank 0 computes, and all have its numbers.
TEST_F(DetectionMeasureTest, RanksHaveTheNumbersOfAllImages) {
  std::array<std::string, 2> lines;
  parallel::on_ranks(2, [&](const std::shared_ptr<parallel::ProcessGroup>& group) {
    const auto measure = measure_detections(options(kImages));
    at::Tensor output = at::zeros({1, data::DefaultBoxes::ssd300().size(), 4 + kLabels});
    output.select(2, 4).fill_(20);  // the background
    data::Batch batch;
    batch.sample_indices = {group->rank()};
    output[0][box_of(group->rank())][4].fill_(0);
    output[0][box_of(group->rank())][4 + kFoundLabel].fill_(20);
    measure->begin();
    measure->add(batch, output);
    train::Evaluation evaluation;
    lines.at(static_cast<size_t>(group->rank())) = measure->finish(evaluation, group.get());
    EXPECT_EQ(evaluation.more.size(), 12U);
    EXPECT_DOUBLE_EQ(ap(evaluation.more), 1) << group->rank();
  });
  EXPECT_THAT(lines[0], EndsWith("Current AP: 1.00000"));
  EXPECT_EQ(lines[1], lines[0]);
}

TEST_F(DetectionMeasureTest, TheNumbersOfAPartAreOfItsAnnotationsAlone) {
  const data::CocoAnnotations part = annotations_of_images(annotations_, {49, 1});
  ASSERT_EQ(part.images.size(), 1U);
  EXPECT_EQ(part.images[0].id, 49);
  ASSERT_EQ(part.boxes.size(), 1U);
  EXPECT_EQ(part.boxes[0].image_id, 49);
  EXPECT_EQ(part.categories.size(), 1U) << "all that there are";
}

TEST(DetectionTask, RefusesImagesThatAGpuDecodesByTheirFlag) {
  PreparedRun run;
  run.model = &models::find_model("ssd300", "coco");
  EXPECT_EQ(core::problem_of([&] { detection_task().check_options(run); }), "");
  run.input.decode_on_gpu = true;
  const core::Error refused = core::thrown_by([&] { detection_task().check_options(run); });
  EXPECT_EQ(refused.code(), core::ErrorCode::kUnsupported);
  EXPECT_EQ(refused.detail().problem, "--dali_mode=GPU is for images of one label");
}

// As --datasets_use_caching wraps them.
TEST(DetectionTask, MeasuresTheImagesBelowTheCachesOfTheirFiles) {
  const core::TempDir temp;
  data::write_small_coco(temp.path());
  PreparedRun run;
  run.model = &models::find_model("ssd300", "coco");
  run.eval_batch_size = run.plan.num_eval_batches = 1;
  run.validation_data = data::open_coco({.directory = temp.path(), .subset = data::Subset::kValidation});
  for (int caches = 0; caches < 3; ++caches) {
    EXPECT_EQ(core::problem_of([&] { EXPECT_NE(detection_task().make_measure(run), nullptr); }), "") << caches;
    run.validation_data = std::make_shared<data::CachedDataset>(run.validation_data, 1 << 20);
  }
  run.validation_data = nullptr;
  EXPECT_EQ(core::problem_of([&] { static_cast<void>(detection_task().make_measure(run)); }),
            "an evaluation of a detector needs images with boxes");
}

TEST_F(DetectionMeasureTest, ABatchWhoseSamplesAreNotKnownIsRefused) {
  const auto measure = measure_detections(options(kImages));
  data::Batch batch;
  batch.sample_indices = {0};
  const core::Error refused = core::thrown_by([&] {
    measure->add(batch, at::zeros({2, data::DefaultBoxes::ssd300().size(), 4 + kLabels}));
  });
  EXPECT_EQ(refused.code(), core::ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused.detail().problem, "an evaluation of detections does not know which images it sees");
  EXPECT_EQ(refused.detail().expected, "2 indices of samples");
  EXPECT_EQ(refused.detail().actual, "1");
}

}  // namespace
}  // namespace trainyard::frontends::detection_measure_test
