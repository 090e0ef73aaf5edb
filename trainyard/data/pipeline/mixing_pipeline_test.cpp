// Batches as training recipes change them: images mixed in pairs, samples that come several times, sizes by epoch. All
// are functions of the seed and of the place in the order.
#include <array>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/random/random.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/data/augment/mixing.h"
#include "trainyard/data/pipeline/pipeline.h"
#include "trainyard/data/pipeline/sample_sequence.h"
#include "trainyard/data/testing/number_dataset.h"

namespace trainyard::data::mixing_pipeline_test {
namespace {

using ::testing::HasSubstr;

// Each pixel is a function of the sample, of what is drawn for it, and of its place.
class DrawnTransform : public Transform {
 public:
  explicit DrawnTransform(int side, at::ScalarType dtype = at::kFloat) : side_(side), form_{.dtype = dtype} {}
  ImageForm form() const override { return form_; }
  ImageSize size() const override { return {side_, side_}; }
  core::Result<void> apply(const Record& record, const SampleKey& key, void* image) const override {
    core::RandomStream random(key.seed, "drawn", {static_cast<uint64_t>(key.epoch), static_cast<uint64_t>(key.sample)});
    auto* const out = static_cast<float*>(image);
    for (int i = 0; i < 3 * side_ * side_; ++i) out[i] = static_cast<float>(record.label) + random.uniform();
    return {};
  }

 private:
  int side_;
  ImageForm form_;
};

PipelineOptions options_of(int64_t batch_size) {
  return {.batch_size = batch_size, .height = 4, .width = 4, .worker_threads = 2, .seed = 5};
}

std::unique_ptr<Pipeline> pipeline_of(const PipelineOptions& options, int64_t samples = 30) {
  return std::make_unique<Pipeline>(std::make_shared<NumberDataset>(samples), std::make_shared<DrawnTransform>(4),
                                    options);
}

// What batches hold, of all replicas one behind the other, sample by sample.
struct Samples {
  std::vector<std::vector<float>> images;
  std::vector<int64_t> labels, others;
  std::vector<float> shares;
  bool operator==(const Samples&) const = default;
};

void add(const std::vector<Batch>& batches, Samples& samples) {
  for (const Batch& batch : batches) {
    const float* image = batch.images().const_data_ptr<float>();
    for (int64_t i = 0; i < batch.samples(); ++i) {
      const int64_t pixels = batch.images()[i].numel();
      samples.images.emplace_back(image, image + pixels);
      image += pixels;
      samples.labels.push_back(batch.labels()[i].item<int64_t>());
      if (!batch.tensors.has("labels_mixed")) continue;
      samples.others.push_back(batch.tensors["labels_mixed"][i].item<int64_t>());
      samples.shares.push_back(batch.tensors["label_shares"][i].item<float>());
    }
  }
}

Samples taken(Pipeline& pipeline, int batches) {
  Samples samples;
  for (int b = 0; b < batches; ++b) add(pipeline.next(), samples);
  return samples;
}

PipelineOptions mixing_options(int64_t batch_size) {
  PipelineOptions options = options_of(batch_size);
  options.mix = {.mixup_alpha = 0.4, .cutmix_alpha = 1, .probability = 0.8};
  return options;
}

TEST(MixingPipeline, MixesNeighboursAndTheirLabelsAlike) {
  const Samples plain = taken(*pipeline_of(options_of(8)), 30);
  const Samples mixed = taken(*pipeline_of(mixing_options(8)), 30);
  std::map<Mix::Kind, int> seen;
  for (size_t i = 0; i < plain.images.size(); i += 2) {
    // Offsets count from the epoch that the pair's first sample is in.
    core::RandomStream random = mixing_stream(5, static_cast<int64_t>(i) / 30, static_cast<int64_t>(i) % 30);
    const Mix mix = draw_mix(mixing_options(8).mix, {4, 4}, random);
    ++seen[mix.kind];
    std::array<std::vector<float>, 2> expected = {plain.images[i], plain.images[i + 1]};
    mix_pair(mix, {}, {4, 4}, expected[0].data(), expected[1].data());
    for (const size_t place : {i, i + 1}) {
      EXPECT_EQ(mixed.images[place], expected[place - i]);
      const int64_t own = plain.labels[place], other = plain.labels[2 * i + 1 - place];
      std::map<int64_t, double> target;  // by label
      target[own] += mix.share;
      target[other] += 1 - mix.share;
      std::map<int64_t, double> actual;
      actual[mixed.labels[place]] += mixed.shares[place];
      actual[mixed.others[place]] += 1 - static_cast<double>(mixed.shares[place]);
      EXPECT_GE(mixed.shares[place], 0.5F) << "the label of the larger share comes first";
      for (const auto& [label, share] : target) EXPECT_NEAR(actual[label], share, 1e-7);
    }
  }
  EXPECT_GT(seen[Mix::Kind::kNone], 5);
  EXPECT_GT(seen[Mix::Kind::kMixup], 10);
  EXPECT_GT(seen[Mix::Kind::kCutmix], 10);
}

TEST(MixingPipeline, IsTheSameForAnyThreadsReplicasBatchesAndProcesses) {
  const Samples expected = taken(*pipeline_of(mixing_options(16)), 12);
  for (const int threads : {1, 3, 5}) {
    PipelineOptions options = mixing_options(16);
    options.worker_threads = threads;
    options.prefetch_batches = threads;
    EXPECT_EQ(taken(*pipeline_of(options), 12), expected) << threads;
  }
  for (const int replicas : {2, 4, 8}) {
    PipelineOptions options = mixing_options(16 / replicas);
    options.local_replicas = options.total_replicas = replicas;
    EXPECT_EQ(taken(*pipeline_of(options), 12), expected) << replicas;
  }
  EXPECT_EQ(taken(*pipeline_of(mixing_options(4)), 48), expected) << "in micro-steps";
  Samples second_half;
  PipelineOptions options = mixing_options(8);
  options.first_replica = 1;
  options.total_replicas = 2;
  auto process = pipeline_of(options);
  for (int b = 0; b < 12; ++b) {
    Samples own;
    add(process->next(), own);
    for (size_t i = 0; i < 8; ++i) EXPECT_EQ(own.images[i], expected.images[static_cast<size_t>(b) * 16 + 8 + i]);
  }
}

TEST(MixingPipeline, GoesOnInTheMiddleOfAnEpoch) {
  PipelineOptions options = mixing_options(8);
  options.repeated_augmentation = 3;
  options.transforms_by_epoch = {{.from_epoch = 0, .transform = std::make_shared<DrawnTransform>(2)},
                                 {.from_epoch = 2, .transform = std::make_shared<DrawnTransform>(4)}};
  const Samples expected = taken(*pipeline_of(options), 20);
  for (const int before : {1, 5, 9}) {
    auto first = pipeline_of(options);
    Samples samples = taken(*first, before);
    core::MemoryState state;
    first->save(state);
    auto second = pipeline_of(options);
    second->load(state);
    for (int b = before; b < 20; ++b) add(second->next(), samples);
    EXPECT_EQ(samples, expected) << before;
  }
}

TEST(MixingPipeline, RefusesWhatHasNoPartner) {
  EXPECT_THAT(core::message_of([] { pipeline_of(mixing_options(7)); }), HasSubstr("an even number"));
  PipelineOptions exact = mixing_options(8);
  exact.repeat = false;
  EXPECT_THAT(core::message_of([&] { pipeline_of(exact); }), HasSubstr("partner"));
  EXPECT_THAT(core::message_of(
                  [] {
                    Pipeline(std::make_shared<NumberDataset>(9), std::make_shared<DrawnTransform>(4, at::kByte),
                             mixing_options(8));
                  },
                  core::ErrorCode::kUnsupported),
              HasSubstr("Byte"));
}

TEST(RepeatedAugmentation, GivesEachSampleItsTimesAndNeverBesideItself) {
  for (const int64_t repeats : {2, 3, 5}) {
    for (const int64_t size : {30, 31}) {
      SampleSequence sequence(size, {}, 5, repeats);
      std::vector<RepeatedSample> samples;
      for (int64_t k = 0; k < repeats * size; ++k) {
        samples.push_back(sequence.repeated_sample_at({k / size, k % size}));
      }
      std::map<int64_t, std::set<int64_t>> copies;
      for (const RepeatedSample& each : samples) copies[each.sample].insert(each.copy);
      EXPECT_EQ(std::ssize(copies), size) << "as many epochs as copies are one pass";
      int64_t complete = 0;
      for (const auto& [sample, own] : copies) complete += std::ssize(own) == repeats ? 1 : 0;
      EXPECT_GE(complete, size - 1);  // the last one of an odd set has its other copies in the next epoch
      for (size_t i = 1; i < samples.size(); ++i) EXPECT_NE(samples[i].sample, samples[i - 1].sample) << i;
      std::set<int64_t> in_first_epoch;
      for (int64_t k = 0; k < size; ++k) in_first_epoch.insert(samples[static_cast<size_t>(k)].sample);
      EXPECT_NEAR(static_cast<double>(in_first_epoch.size()), static_cast<double>(size) / static_cast<double>(repeats),
                  2);
    }
  }
}

// Without a shuffle buffer as large as the set, an epoch's order begins with its first records: all must come anyway.
TEST(RepeatedAugmentation, SmallShuffleBuffersHideNothing) {
  PipelineOptions options = options_of(10);
  options.order.shuffle_buffer = 4;
  options.repeated_augmentation = 3;
  const Samples three_epochs = taken(*pipeline_of(options), 9);
  EXPECT_EQ(std::set<int64_t>(three_epochs.labels.begin(), three_epochs.labels.end()).size(), 30u);
}

TEST(RepeatedAugmentation, DrawsAnewForEachCopyAndKeepsTheEpochs) {
  PipelineOptions options = options_of(12);
  options.repeated_augmentation = 3;
  auto pipeline = pipeline_of(options);
  const Samples samples = taken(*pipeline, 5);  // two epochs of 30 places
  EXPECT_EQ(pipeline->position(), (Position{2, 0}));
  std::set<std::vector<float>> images(samples.images.begin(), samples.images.end());
  EXPECT_EQ(images.size(), samples.images.size()) << "no image comes twice";
  EXPECT_EQ(std::set<int64_t>(samples.labels.begin(), samples.labels.begin() + 12).size(), 4u);
  // The copies are in one batch where it is a multiple of twice as many.
  for (size_t batch = 0; batch < 5; ++batch) {
    std::map<int64_t, int> times;
    for (size_t i = 0; i < 12; ++i) ++times[samples.labels[12 * batch + i]];
    for (const auto& [label, count] : times) EXPECT_EQ(count, 3) << label;
  }
  options.repeated_augmentation = 0;
  EXPECT_THAT(core::message_of([&] { pipeline_of(options); }), HasSubstr("repeated_augmentation"));
}

TEST(RepeatedAugmentation, TheFirstCopyIsTheSampleAsItIsWithout) {
  const Samples plain = taken(*pipeline_of(options_of(10)), 3);  // an epoch
  for (size_t i = 0; i < plain.labels.size(); ++i) {
    Record record;
    record.label = plain.labels[i];
    std::vector<float> drawn(plain.images[i].size());
    ASSERT_TRUE(DrawnTransform(4).apply(record, {.seed = 5, .epoch = 0, .sample = record.label}, drawn.data()).ok());
    EXPECT_EQ(plain.images[i], drawn) << "a sample is drawn by the pipeline's own seed";
  }
  PipelineOptions options = options_of(12);
  options.repeated_augmentation = 3;
  const Samples repeated = taken(*pipeline_of(options), 2);  // all copies of eight samples, in the same epoch
  for (size_t i = 0; i < plain.labels.size(); ++i) {
    int copies = 0, as_plain = 0;
    for (size_t k = 0; k < repeated.labels.size(); ++k) {
      if (repeated.labels[k] != plain.labels[i]) continue;
      ++copies;
      as_plain += repeated.images[k] == plain.images[i] ? 1 : 0;
    }
    EXPECT_EQ(as_plain, copies > 0 ? 1 : 0) << plain.labels[i];
  }
}

TEST(RepeatedAugmentation, OnceIsAsWithout) {
  PipelineOptions options = options_of(8);
  const Samples expected = taken(*pipeline_of(options), 9);
  options.repeated_augmentation = 1;
  EXPECT_EQ(taken(*pipeline_of(options), 9), expected);
}

PipelineOptions growing_options(int replicas) {
  PipelineOptions options = options_of(8 / replicas);
  options.local_replicas = options.total_replicas = replicas;
  options.transforms_by_epoch = {{.from_epoch = 1, .transform = std::make_shared<DrawnTransform>(2)},
                                 {.from_epoch = 2, .transform = std::make_shared<DrawnTransform>(6)}};
  return options;
}

TEST(SizesByEpoch, FollowTheFirstSampleOfTheGlobalBatch) {
  for (const int replicas : {1, 2, 4}) {
    auto pipeline = pipeline_of(growing_options(replicas));
    for (int b = 0; b < 12; ++b) {  // epochs of 30 samples: batches 3 and 7 straddle two
      const int64_t epoch = b * 8 / 30;
      const int64_t side = epoch == 0 ? 4 : epoch == 1 ? 2 : 6;
      for (const Batch& batch : pipeline->next()) {
        EXPECT_EQ(batch.images().sizes(), (at::IntArrayRef{8 / replicas, 3, side, side})) << b;
      }
    }
  }
}

TEST(SizesByEpoch, HoldTheSamplesOfTheirPlaces) {
  const Samples samples = taken(*pipeline_of(growing_options(1)), 12), plain = taken(*pipeline_of(options_of(8)), 12);
  EXPECT_EQ(samples.labels, plain.labels);
  for (size_t i = 0; i < samples.images.size(); ++i) {
    for (const float pixel : samples.images[i]) {
      EXPECT_EQ(static_cast<int64_t>(pixel), samples.labels[i]) << "no image reaches into its neighbour";
    }
  }
}

TEST(SizesByEpoch, RefusesOthers) {
  PipelineOptions options = growing_options(1);
  std::swap(options.transforms_by_epoch[0], options.transforms_by_epoch[1]);
  EXPECT_THAT(core::message_of([&] { pipeline_of(options); }),
              core::Says("do not ascend: the images from epoch 1 on: expected at least 3"));
  options.transforms_by_epoch[0].from_epoch = 1;
  EXPECT_THAT(core::message_of([&] { pipeline_of(options); }), core::Says("epoch 1 on: expected at least 2"));
  options.transforms_by_epoch[0].from_epoch = -1;
  EXPECT_THAT(core::message_of([&] { pipeline_of(options); }), core::Says("epoch -1 on: expected at least 0"));
  options.transforms_by_epoch = {{.from_epoch = 1, .transform = nullptr}};
  EXPECT_THAT(core::message_of([&] { pipeline_of(options); }), HasSubstr("no transform"));
  options.transforms_by_epoch = {{.from_epoch = 1, .transform = std::make_shared<DrawnTransform>(4, at::kHalf)}};
  EXPECT_THAT(core::message_of([&] { pipeline_of(options); }), HasSubstr("another form"));
  options = growing_options(1);
  options.repeat_cached_sample = true;
  EXPECT_THAT(core::message_of([&] { pipeline_of(options); }), HasSubstr("several sizes"));
}

}  // namespace
}  // namespace trainyard::data::mixing_pipeline_test
