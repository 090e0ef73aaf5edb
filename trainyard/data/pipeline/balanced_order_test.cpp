#include "trainyard/data/pipeline/balanced_order.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/data/pipeline/pipeline.h"
#include "trainyard/data/pipeline/sample_sequence.h"

namespace trainyard::data::balanced_order_test {
namespace {

using ::testing::HasSubstr;

// Seven samples of class 0, two of class 1, none of class 2, one of class 3, and one that is never drawn.
const std::vector<int64_t> kLabels = {0, 0, 1, 0, 3, 0, 0, -1, 0, 1, 0};

TEST(BalancedOrder, DrawsEachClassOnceARound) {
  BalancedOrder order(kLabels, 1);
  constexpr int64_t kRounds = 70;
  const std::vector<RepeatedSample> draws = order.draws(0, 3 * kRounds);
  std::set<std::vector<int64_t>> class_orders;
  for (int64_t round = 0; round < kRounds; ++round) {
    std::vector<int64_t> classes;
    for (int64_t i = 0; i < 3; ++i) classes.push_back(kLabels[draws[3 * round + i].sample]);
    class_orders.insert(classes);
    std::sort(classes.begin(), classes.end());
    EXPECT_EQ(classes, (std::vector<int64_t>{0, 1, 3})) << round;
  }
  EXPECT_EQ(class_orders.size(), 6U);  // of three classes
  // Within a class each sample comes equally often: 70 / 7, 70 / 2 and 70 / 1 times.
  std::map<int64_t, int64_t> counts;
  for (const RepeatedSample& draw : draws) ++counts[draw.sample];
  for (size_t i = 0; i < kLabels.size(); ++i) {
    const int64_t expected = kLabels[i] == 0 ? 10 : kLabels[i] == 1 ? 35 : kLabels[i] == 3 ? 70 : 0;
    EXPECT_EQ(counts[static_cast<int64_t>(i)], expected) << i;
  }
}

TEST(BalancedOrder, EachPassOfAClassHasAnOrderOfItsOwn) {
  BalancedOrder order(std::vector<int64_t>(50, 4), 3);
  std::vector<std::vector<int64_t>> passes(4);
  const std::vector<RepeatedSample> draws = order.draws(0, 200);
  for (size_t i = 0; i < draws.size(); ++i) {
    EXPECT_EQ(draws[i].copy, static_cast<int64_t>(i) / 50);
    passes[i / 50].push_back(draws[i].sample);
  }
  EXPECT_NE(passes[0], passes[1]);
  EXPECT_NE(passes[1], passes[2]);
  EXPECT_FALSE(std::is_sorted(passes[0].begin(), passes[0].end()));
  for (std::vector<int64_t>& pass : passes) {
    std::sort(pass.begin(), pass.end());
    EXPECT_EQ(std::set<int64_t>(pass.begin(), pass.end()).size(), 50U);
  }
}

TEST(BalancedOrder, IsAFunctionOfPlaceAndSeed) {
  BalancedOrder order(kLabels, 1);
  const std::vector<RepeatedSample> all = order.draws(0, 300);
  for (const int64_t first : {250, 1, 100, 299, 0}) {
    const std::vector<RepeatedSample> some = BalancedOrder(kLabels, 1).draws(first, 300 - first);
    EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin() + first)) << first;
    const std::vector<RepeatedSample> again = order.draws(first, 300 - first);
    EXPECT_TRUE(std::equal(again.begin(), again.end(), all.begin() + first)) << first;
  }
  EXPECT_NE(BalancedOrder(kLabels, 2).draws(0, 300), all);
}

TEST(BalancedOrder, NeedsASampleWithALabel) {
  EXPECT_EQ(core::code_of([] { BalancedOrder({-1, -1}, 1); }), core::ErrorCode::kInvalidArgument);
}

TEST(BalancedOrder, IsTheSequenceOfAllEpochs) {
  const auto size = static_cast<int64_t>(kLabels.size());
  SampleSequence sequence(size, {}, 5, 1, &kLabels);
  const std::vector<RepeatedSample> all = BalancedOrder(kLabels, 5).draws(0, 4 * size);
  for (const int64_t place : {40, 3, 11, 12, 0, 43, 21}) {
    EXPECT_EQ(sequence.repeated_sample_at({place / size, place % size}), all[place]) << place;
  }
}

// A data set whose samples know their labels, and an image that shows the index and the random numbers of a sample.
class KnownLabels : public Dataset {
 public:
  explicit KnownLabels(std::vector<int64_t> labels, bool sets = false) : labels_(std::move(labels)), sets_(sets) {}
  int64_t size() const override { return std::ssize(labels_); }
  core::Result<Record> read(int64_t index) const override {
    Record record{.label = labels_[index], .where = "sample"};
    if (sets_ && index % 4 != 3) record.labels = {index % 4, 4};
    if (sets_ && labels_[index] == 9) record.labels = {5};
    return record;
  }
  int64_t label_count() const override { return 5; }
  std::optional<int64_t> known_label(int64_t index) const override { return labels_[index]; }
  bool has_label_sets() const override { return sets_; }

 private:
  std::vector<int64_t> labels_;
  bool sets_;
};

class KeyTransform : public Transform {
 public:
  ImageSize size() const override { return {1, 1}; }
  core::Result<void> apply(const Record&, const SampleKey& key, void* output) const override {
    auto* pixels = static_cast<float*>(output);
    pixels[0] = static_cast<float>(key.sample);
    pixels[1] = static_cast<float>(key.seed % 65'536);
    pixels[2] = static_cast<float>(key.epoch);
    return {};
  }
};

PipelineOptions balanced_options() {
  return {.batch_size = 6,
          .height = 1,
          .width = 1,
          .seed = 5,
          .balanced_labels = std::make_shared<const std::vector<int64_t>>(kLabels)};
}

std::vector<int64_t> samples_of(const Batch& batch) {
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < batch.samples(); ++i) samples.push_back(batch.images()[i][0][0][0].item<int64_t>());
  return samples;
}

std::unique_ptr<Pipeline> make_pipeline(const PipelineOptions& options) {
  return std::make_unique<Pipeline>(std::make_shared<KnownLabels>(kLabels), std::make_shared<KeyTransform>(), options);
}

TEST(BalancedPipeline, BatchesHoldEachClassEquallyOften) {
  const auto pipeline = make_pipeline(balanced_options());
  for (int step = 0; step < 20; ++step) {
    const Batch batch = pipeline->next()[0];
    std::map<int64_t, int> counts;
    for (int64_t i = 0; i < 6; ++i) ++counts[batch.labels()[i].item<int64_t>()];
    EXPECT_EQ(counts, (std::map<int64_t, int>{{0, 2}, {1, 2}, {3, 2}})) << step;
  }
}

// ImageNet's TFRecords count the background as 0, for which a model of 1,000 classes has no output. As a class of its
// own it took a third of these draws, for which others stood in, and its bad samples ended the run.
TEST(BalancedPipeline, AClassWithoutAnOutputTakesNoTurn) {
  PipelineOptions options = balanced_options();
  options.label_offset = -1;
  options.bad_samples.policy = OnBadSample::kSkip;
  const auto pipeline = make_pipeline(options);
  for (int step = 0; step < 20; ++step) {
    const Batch batch = pipeline->next()[0];
    std::map<int64_t, int> counts;
    for (int64_t i = 0; i < 6; ++i) ++counts[batch.labels()[i].item<int64_t>()];
    EXPECT_EQ(counts, (std::map<int64_t, int>{{0, 3}, {2, 3}})) << step;
  }
  EXPECT_EQ(pipeline->bad_samples(), 0);
  options.bad_samples.policy = OnBadSample::kFail;
  EXPECT_THAT(core::message_of([&] { make_pipeline(options)->next(); }, core::ErrorCode::kCorruptData),
              HasSubstr("label is negative"))
      << "as without balance";
}

TEST(BalancedPipeline, RepeatedSamplesHaveRandomNumbersOfTheirOwn) {
  const auto pipeline = make_pipeline(balanced_options());
  std::set<std::vector<float>> seen;
  for (int step = 0; step < 10; ++step) {
    const Batch batch = pipeline->next()[0];
    for (int64_t i = 0; i < 6; ++i) {
      const at::Tensor image = batch.images()[i].reshape({3}).contiguous();
      const auto* const pixels = image.const_data_ptr<float>();
      EXPECT_TRUE(seen.insert({pixels, pixels + 3}).second) << step;
    }
  }
}

TEST(BalancedPipeline, ResumesExactlyAndIsSharedByRanksWithoutOverlap) {
  const auto whole = make_pipeline(balanced_options());
  std::vector<std::vector<int64_t>> batches;
  std::vector<Position> after;
  for (int step = 0; step < 8; ++step) {
    const Batch batch = whole->next()[0];
    batches.push_back(samples_of(batch));
    after.push_back(batch.after);
  }
  const auto resumed = make_pipeline(balanced_options());
  resumed->seek(after[4]);
  for (int step = 5; step < 8; ++step) EXPECT_EQ(samples_of(resumed->next()[0]), batches[step]) << step;
  // Two ranks with batches of 3 have the slices of the same global batch.
  PipelineOptions half = balanced_options();
  half.batch_size = 3;
  half.total_replicas = 2;
  const auto first = make_pipeline(half);
  half.first_replica = 1;
  half.worker_threads = 3;
  const auto second = make_pipeline(half);
  for (int step = 0; step < 8; ++step) {
    std::vector<int64_t> both = samples_of(first->next()[0]);
    const std::vector<int64_t> rest = samples_of(second->next()[0]);
    both.insert(both.end(), rest.begin(), rest.end());
    EXPECT_EQ(both, batches[step]) << step;
  }
}

TEST(BalancedPipeline, RefusesWhatContradictsIt) {
  const auto refusal = [](auto change) {
    PipelineOptions options = balanced_options();
    change(options);
    return core::message_of([&] { make_pipeline(options); });
  };
  EXPECT_THAT(refusal([](PipelineOptions& o) { o.repeated_augmentation = 2; }), HasSubstr("repeated_augmentation"));
  EXPECT_THAT(refusal([](PipelineOptions& o) { o.repeat = false; }), HasSubstr("balanced_labels"));
  EXPECT_THAT(refusal([](PipelineOptions& o) { o.order.shuffle = false; }), HasSubstr("balanced_labels"));
  EXPECT_THAT(refusal([](PipelineOptions& o) {
                o.balanced_labels = std::make_shared<const std::vector<int64_t>>(std::vector<int64_t>{0, 1});
              }),
              HasSubstr("not those of the data set"));
}

TEST(LabelSetPipeline, BatchesHoldARowOfEachSample) {
  const PipelineOptions options{
      .batch_size = 8, .height = 1, .width = 1, .repeat = false, .order = {.shuffle = false}, .label_set_size = 6};
  Pipeline pipeline(std::make_shared<KnownLabels>(std::vector<int64_t>(11), true), std::make_shared<KeyTransform>(),
                    options);
  int64_t sample = 0;
  for (const int64_t size : {8, 3}) {
    const Batch batch = pipeline.next()[0];
    ASSERT_EQ(batch.labels().sizes(), (std::vector<int64_t>{size, 6}));
    EXPECT_EQ(batch.labels().scalar_type(), at::kFloat);
    for (int64_t i = 0; i < size; ++i, ++sample) {
      for (int64_t c = 0; c < 6; ++c) {
        const bool has = sample % 4 != 3 && (c == sample % 4 || c == 4);
        EXPECT_EQ(batch.labels()[i][c].item<float>(), has ? 1.0F : 0.0F) << sample << " " << c;
      }
    }
  }
}

TEST(LabelSetPipeline, LeavesOutBadSamplesAndRefusesLabelsOutOfRange) {
  PipelineOptions options{
      .batch_size = 4, .height = 1, .width = 1, .repeat = false, .order = {.shuffle = false}, .label_set_size = 5};
  const auto dataset = std::make_shared<KnownLabels>(std::vector<int64_t>{0, 9, 0, 0}, true);
  Pipeline failing(dataset, std::make_shared<KeyTransform>(), options);
  EXPECT_THAT(core::message_of([&] { failing.next(); }, core::ErrorCode::kCorruptData),
              core::Says("a label is not one of the model's outputs: sample: expected 0 to 4, got 5"));
  options.bad_samples = {.policy = OnBadSample::kSkip, .budget = 1};
  Pipeline skipping(dataset, std::make_shared<KeyTransform>(), options);
  const Batch batch = skipping.next()[0];
  EXPECT_EQ(samples_of(batch), (std::vector<int64_t>{0, 2, 3}));
  EXPECT_EQ(batch.labels()[0][0].item<float>(), 1);
  EXPECT_EQ(batch.labels()[1][2].item<float>(), 1);
  EXPECT_EQ(batch.labels()[2].sum().item<float>(), 0);
}

TEST(LabelSetPipeline, IsAskedForWhereTheDataHaveSets) {
  const PipelineOptions one{.batch_size = 2, .height = 1, .width = 1};
  PipelineOptions sets = one;
  sets.label_set_size = 5;
  const auto open = [](bool has_sets, const PipelineOptions& options) {
    Pipeline pipeline(std::make_shared<KnownLabels>(std::vector<int64_t>(4), has_sets),
                      std::make_shared<KeyTransform>(), options);
  };
  EXPECT_THAT(core::message_of([&] { open(true, one); }), HasSubstr("another kind of labels"));
  EXPECT_THAT(core::message_of([&] { open(false, sets); }), HasSubstr("another kind of labels"));
  sets.mix.mixup_alpha = 1;
  EXPECT_THAT(core::message_of([&] { open(true, sets); }), HasSubstr("label_set_size"));
}

}  // namespace
}  // namespace trainyard::data::balanced_order_test
