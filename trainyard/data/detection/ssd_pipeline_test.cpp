// Batches of images with boxes out of the pipeline: what they hold, that threads, resumes and replicas do not change
// them, and what becomes of bad samples.
#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/codecs/jpeg.h"
#include "trainyard/data/codecs/png_writer.h"
#include "trainyard/data/detection/coco_dataset.h"
#include "trainyard/data/detection/default_boxes.h"
#include "trainyard/data/detection/ssd_transform.h"
#include "trainyard/data/pipeline/pipeline.h"
#include "trainyard/data/testing/coco_folder.h"

namespace trainyard::data::ssd_pipeline_test {
namespace {

using ::testing::ElementsAre;

// Sample i has i % 3 + 1 boxes of label i + 1; `bad` cannot be read.
class BoxedImages : public Dataset {
 public:
  explicit BoxedImages(int64_t bad = -1) : bad_(bad) {}
  int64_t size() const override { return 10; }
  int64_t label_count() const override { return 81; }
  core::Result<Record> read(int64_t index) const override {
    if (index == bad_) return core::Error(core::ErrorCode::kCorruptData, "bad sample");
    Record record{.bytes = encode_jpeg(noisy_image(40 + static_cast<int>(index), 60, static_cast<uint64_t>(index)))};
    for (int64_t i = 0; i <= index % 3; ++i) {
      const auto place = 0.1F + 0.2F * static_cast<float>(i);
      record.boxes.push_back({place, 0.2F, place + 0.3F, 0.7F});
      record.box_labels.push_back(index + 1);
    }
    return record;
  }

 private:
  const int64_t bad_;
};

PipelineOptions boxed_options(int threads = 2) {
  return {.batch_size = 4, .height = 300, .width = 300, .worker_threads = threads, .seed = 7};
}

std::unique_ptr<Pipeline> boxed_pipeline(const PipelineOptions& options, bool training = true, int64_t bad = -1) {
  return std::make_unique<Pipeline>(std::make_shared<BoxedImages>(bad),
                                    transforms().get("coco")(ssd300_input(training)), options);
}

// All bytes of all tensors.
std::string content(const Batch& batch) {
  std::string bytes;
  for (const auto& [name, tensor] : batch.tensors) {
    bytes += name;
    bytes.append(static_cast<const char*>(tensor.const_data_ptr()), tensor.numel() * tensor.element_size());
  }
  return bytes;
}

std::vector<std::string> contents(Pipeline& pipeline, int batches) {
  std::vector<std::string> all;
  for (int i = 0; i < batches; ++i) {
    for (const Batch& batch : pipeline.next()) all.push_back(content(batch));
  }
  return all;
}

TEST(SsdPipeline, TrainingBatchesHoldEncodedBoxes) {
  const auto pipeline = boxed_pipeline(boxed_options());
  const Batch batch = pipeline->next().at(0);
  EXPECT_THAT(batch.tensors.names(), ElementsAre("images", "boxes", "classes", "num_matched"));
  EXPECT_EQ(batch.images().sizes(), at::IntArrayRef({4, 3, 300, 300}));
  const at::Tensor &boxes = batch.tensors["boxes"], &classes = batch.tensors["classes"],
                   &matched = batch.tensors["num_matched"];
  EXPECT_EQ(boxes.sizes(), at::IntArrayRef({4, 8732, 4}));
  EXPECT_EQ(classes.sizes(), at::IntArrayRef({4, 8732}));
  EXPECT_EQ(matched.sizes(), at::IntArrayRef({4}));
  EXPECT_EQ(boxes.scalar_type(), at::kFloat);
  EXPECT_EQ(classes.scalar_type(), at::kLong);
  EXPECT_EQ(matched.scalar_type(), at::kLong);
  const BoxedImages images;
  for (int64_t i = 0; i < 4; ++i) {
    const int64_t sample = batch.sample_indices.at(static_cast<size_t>(i));
    const SampleKey key{.seed = 7, .epoch = 0, .sample = sample, .batch_position = i};
    const SsdDraw draw = draw_ssd(ssd300_input(true), images.read(sample).value(), key).value();
    const EncodedBoxes expected = DefaultBoxes::ssd300().encode(draw.boxes, draw.labels);
    EXPECT_TRUE(boxes.select(0, i).equal(expected.offsets));
    EXPECT_TRUE(classes.select(0, i).equal(expected.labels));
    EXPECT_EQ(matched.const_data_ptr<int64_t>()[i], expected.matched);
    EXPECT_GT(expected.matched, 0);
    EXPECT_EQ(classes.select(0, i).max().item<int64_t>(), sample + 1);
  }
}

TEST(SsdPipeline, EvaluationBatchesHoldImages) {
  PipelineOptions options = boxed_options();
  options.repeat = false;
  options.order.shuffle = false;
  const auto pipeline = boxed_pipeline(options, false);
  std::vector<int64_t> samples;
  for (std::vector<Batch> batches = pipeline->next(); !batches.empty(); batches = pipeline->next()) {
    EXPECT_THAT(batches[0].tensors.names(), ElementsAre("images"));
    EXPECT_EQ(batches[0].samples(), std::ssize(batches[0].sample_indices));
    samples.insert(samples.end(), batches[0].sample_indices.begin(), batches[0].sample_indices.end());
  }
  EXPECT_THAT(samples, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
}

TEST(SsdPipeline, ThreadsDoNotChangeBatches) {
  const std::vector<std::string> one = contents(*boxed_pipeline(boxed_options(1)), 6);
  EXPECT_EQ(contents(*boxed_pipeline(boxed_options(2)), 6), one);
  EXPECT_EQ(contents(*boxed_pipeline(boxed_options(5)), 6), one);
  EXPECT_NE(one[0], one[1]);
  PipelineOptions other = boxed_options();
  other.seed = 8;
  EXPECT_NE(contents(*boxed_pipeline(other), 1)[0], one[0]);
}

// The second epoch shows the same samples in other parts.
TEST(SsdPipeline, ResumesInTheMiddleOfAnEpoch) {
  const auto whole = boxed_pipeline(boxed_options());
  const std::vector<std::string> all = contents(*whole, 8);
  const auto first = boxed_pipeline(boxed_options());
  contents(*first, 4);
  EXPECT_EQ(first->position(), (Position{1, 6}));
  core::MemoryState state;
  first->save(state);
  const auto resumed = boxed_pipeline(boxed_options(1));
  resumed->load(state);
  EXPECT_EQ(contents(*resumed, 4), std::vector<std::string>(all.begin() + 4, all.end()));
}

TEST(SsdPipeline, ReplicasTakeTheSlicesOfTheGlobalBatch) {
  PipelineOptions two = boxed_options();
  two.batch_size = 2;
  two.local_replicas = two.total_replicas = 2;
  const auto replicas = boxed_pipeline(two)->next();
  const Batch whole = boxed_pipeline(boxed_options())->next().at(0);
  ASSERT_EQ(replicas.size(), 2U);
  for (const char* name : {"boxes", "classes", "num_matched", "images"}) {
    for (int64_t i = 0; i < 4; ++i) {
      EXPECT_TRUE(
          replicas[static_cast<size_t>(i / 2)].tensors[name].select(0, i % 2).equal(whole.tensors[name].select(0, i)))
          << name;
    }
  }
}

TEST(SsdPipeline, BadSamplesFollowThePolicy) {
  PipelineOptions options = boxed_options();
  options.repeat = false;
  options.order.shuffle = false;
  EXPECT_EQ(core::code_of([&] { contents(*boxed_pipeline(options, true, 2), 3); }), core::ErrorCode::kCorruptData);
  options.bad_samples.policy = OnBadSample::kSkip;
  const Batch good = boxed_pipeline(options)->next().at(0);
  const Batch left = boxed_pipeline(options, true, 2)->next().at(0);
  EXPECT_THAT(left.sample_indices, ElementsAre(0, 1, 3));
  for (const char* name : {"boxes", "classes", "num_matched", "images"}) {
    ASSERT_EQ(left.tensors[name].size(0), 3) << name;
    EXPECT_TRUE(left.tensors[name].select(0, 2).equal(good.tensors[name].select(0, 3))) << name;
  }
  options.repeat = true;
  options.bad_samples.policy = OnBadSample::kSubstitute;
  const Batch substituted = boxed_pipeline(options, true, 2)->next().at(0);
  EXPECT_EQ(substituted.tensors["boxes"].size(0), 4);
  EXPECT_NE(substituted.sample_indices[2], 2);
}

TEST(SsdPipeline, OneCachedSampleIsRepeatedWithItsBoxes) {
  PipelineOptions options = boxed_options();
  options.repeat_cached_sample = true;
  const Batch batch = boxed_pipeline(options)->next().at(0);
  for (const char* name : {"boxes", "classes", "num_matched", "images"}) {
    EXPECT_TRUE(batch.tensors[name].select(0, 3).equal(batch.tensors[name].select(0, 0))) << name;
  }
  EXPECT_GT(batch.tensors["num_matched"].const_data_ptr<int64_t>()[3], 0);
}

TEST(SsdPipeline, RefusesWhatDoesNotKeepBoxes) {
  PipelineOptions options = boxed_options();
  options.mix.mixup_alpha = 0.2;
  EXPECT_EQ(core::code_of([&] { boxed_pipeline(options); }), core::ErrorCode::kInvalidArgument);
  const auto refuses = [](const std::function<void(TransformOptions&)>& change) {
    TransformOptions changed = ssd300_input(true);
    change(changed);
    return core::code_of([&] { transforms().get("coco")(changed); }) == core::ErrorCode::kInvalidArgument;
  };
  EXPECT_TRUE(refuses([](TransformOptions& o) { o.auto_augment.policy = AutoAugmentPolicy::kTrivial; }));
  EXPECT_TRUE(refuses([](TransformOptions& o) { o.random_erasing.probability = 0.5F; }));
  EXPECT_TRUE(refuses([](TransformOptions& o) { o.resize_method = "crop"; }));
  const auto problem = [](const std::function<void(TransformOptions&)>& change) {
    TransformOptions changed = ssd300_input(true);
    change(changed);
    return core::problem_of([&] { transforms().get("coco")(changed); });
  };
  const std::string end = " cannot be used for images with boxes";
  EXPECT_EQ(problem([](TransformOptions& o) { o.flip = Flip::kNone; }), "a choice of flips" + end);
  EXPECT_EQ(problem([](TransformOptions& o) { o.translate = 2; }), "translation" + end);
  EXPECT_EQ(problem([](TransformOptions& o) { o.cutout = 8; }), "cutout" + end);
  EXPECT_EQ(problem([](TransformOptions& o) { o.resize_method = "round_robin"; }), "this resize method" + end);
}

TEST(SsdPipeline, BoxesWithoutLabelsAreABadSample) {
  Record record = BoxedImages().read(1).value();
  record.box_labels.pop_back();
  const auto draw = draw_ssd(ssd300_input(true), record, {});
  ASSERT_FALSE(draw.ok());
  EXPECT_THAT(std::string(draw.error().what()),
              core::Says("the record's boxes have no labels", "expected 2 labels, got 1"));
}

// The reference is an evaluation of the part that training draws, with its rows reversed where the draw mirrors them.
TEST(SsdPipeline, ImagesThatAreNotSquareAreMirroredRowByRow) {
  TransformOptions options = ssd300_input(true);
  options.set_size(20, 30);
  options.distortions = false;
  TransformOptions whole = options;
  whole.training = false;
  const auto training = transforms().get("coco")(options), evaluation = transforms().get("coco")(whole);
  EXPECT_EQ(training->size(), (ImageSize{20, 30}));
  const Image image = noisy_image(40, 60);
  const Record record{.bytes = encode_png(image), .boxes = {{0.2F, 0.3F, 0.7F, 0.6F}}, .box_labels = {1}};
  std::vector<float> made(size_t{3} * 20 * 30), expected(made.size());
  int mirrored = 0;
  for (int64_t sample = 0; sample < 20; ++sample) {
    const SampleKey key{.seed = 1, .sample = sample};
    const SsdDraw draw = draw_ssd(options, record, key).value();
    training->apply(record, key, made.data()).value();
    const Record part{.bytes = encode_png(part_of(image, draw.window))};
    evaluation->apply(part, key, expected.data()).value();
    if (draw.mirrored) {
      ++mirrored;
      for (auto row = expected.begin(); row != expected.end(); row += 30) std::reverse(row, row + 30);
    }
    EXPECT_EQ(made, expected) << sample;
  }
  EXPECT_GT(mirrored, 0);
}

// Decoding only the window gives the pixels of decoding all.
TEST(SsdPipeline, DecodesTheWindowAlone) {
  const BoxedImages images;
  TransformOptions options = ssd300_input(true);
  const auto fused = transforms().get("coco")(options);
  options.fuse_decode_and_crop = false;
  const auto whole = transforms().get("coco")(options);
  std::vector<float> a(size_t{3} * 300 * 300), b(a.size());
  for (int64_t i = 0; i < 10; ++i) {
    const Record record = images.read(i).value();
    fused->apply(record, {.seed = 1, .sample = i}, a.data()).value();
    whole->apply(record, {.seed = 1, .sample = i}, b.data()).value();
    EXPECT_EQ(a, b) << i;
  }
}

}  // namespace
}  // namespace trainyard::data::ssd_pipeline_test
