// The pipeline as a run uses it, with all that can happen at once: caches that fill up, bad samples and their
// stand-ins, seeks and stops while samples are in work, batches that outlive what made them. Run it under the
// sanitizers.
#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/random/random.h"
#include "trainyard/data/cache/cached_dataset.h"
#include "trainyard/data/cache/decoded_dataset.h"
#include "trainyard/data/pipeline/pipeline.h"
#include "trainyard/data/testing/jpeg_dataset.h"

namespace trainyard::data::pipeline_stress_test {
namespace {

constexpr int64_t kSide = 12;

// Encoded once: the stress is on what comes behind.
class KeptJpegs : public Dataset {
 public:
  explicit KeptJpegs(bool broken) {
    const JpegDataset source(broken);
    for (int64_t i = 0; i < JpegDataset::kSize; ++i) records_.push_back(source.read(i).value());
  }
  int64_t size() const override { return JpegDataset::kSize; }
  core::Result<Record> read(int64_t index) const override { return records_[static_cast<size_t>(index)]; }
  int64_t label_count() const override { return JpegDataset::kSize + 1; }

 private:
  std::vector<Record> records_;
};

enum class Cache { kNone, kRecords, kDecoded, kBoth };

// Too small for all: some samples are found, some are read again.
std::shared_ptr<const Dataset> cached(std::shared_ptr<const Dataset> source, Cache cache) {
  constexpr int64_t kSomeRecords = 8'000, kSomeImages = 12'000;
  if (cache == Cache::kRecords || cache == Cache::kBoth) {
    source = std::make_shared<CachedDataset>(std::move(source), kSomeRecords);
  }
  if (cache == Cache::kDecoded || cache == Cache::kBoth) {
    source = std::make_shared<DecodedDataset>(std::move(source), DecodedCacheOptions{.memory_bytes = kSomeImages});
  }
  return source;
}

PipelineOptions options(int threads, int ahead) {
  return {.batch_size = 3,
          .local_replicas = 2,
          .total_replicas = 2,
          .height = kSide,
          .width = kSide,
          .worker_threads = threads,
          .prefetch_batches = ahead,
          .seed = 7,
          .bad_samples = {.policy = OnBadSample::kSubstitute, .budget = 1}};
}

std::unique_ptr<Pipeline> make(const std::shared_ptr<const Dataset>& source, Cache cache, int threads, int ahead) {
  return std::make_unique<Pipeline>(
      cached(source, cache), transforms().get("imagenet")({.height = kSide, .width = kSide}), options(threads, ahead));
}

std::vector<float> numbers(const std::vector<Batch>& batches) {
  std::vector<float> values;
  for (const Batch& batch : batches) {
    const float* images = batch.images().const_data_ptr<float>();
    values.insert(values.end(), images, images + batch.images().numel());
    for (int64_t i = 0; i < batch.labels().numel(); ++i) {
      values.push_back(static_cast<float>(batch.labels().const_data_ptr<int64_t>()[i]));
    }
  }
  return values;
}

TEST(PipelineStress, SeeksStopsAndEndsWhileSamplesAreInWork) {
  constexpr int kSteps = 12, kRounds = 24;
  const auto source = std::make_shared<KeptJpegs>(true);
  // One thread, nothing kept, nothing ahead: what every other way must give.
  std::vector<std::vector<float>> expected;
  std::vector<Position> places = {{}};
  const auto plain = make(source, Cache::kNone, 1, 1);
  for (int i = 0; i < kSteps; ++i) {
    expected.push_back(numbers(plain->next()));
    places.push_back(plain->position());
  }

  core::RandomStream random(11, "stress");
  for (int round = 0; round < kRounds; ++round) {
    const auto cache = static_cast<Cache>(round % 4);
    auto pipeline = make(source, cache, 1 + round % 7, 1 + round % 3);
    std::vector<std::vector<Batch>> held;
    std::vector<size_t> steps;
    for (int i = 0; i < 8; ++i) {
      if (random.below(3) == 0) pipeline->seek(places[random.below(kSteps)]);
      const Position before = pipeline->position();
      const size_t step = static_cast<size_t>(std::find(places.begin(), places.end(), before) - places.begin());
      held.push_back(pipeline->next());
      steps.push_back(step);
      if (step + 1 >= kSteps) pipeline->seek({});
    }
    // Half of them end in the middle of work, stopped by another thread.
    std::unique_ptr<std::jthread> stopper;
    if (round % 2 == 0) stopper = std::make_unique<std::jthread>([&] { pipeline->stop(); });
    stopper.reset();
    pipeline.reset();
    for (size_t i = 0; i < held.size(); ++i) {
      ASSERT_LT(steps[i], expected.size());
      EXPECT_EQ(numbers(held[i]), expected[steps[i]]) << "round " << round << ", step " << steps[i];
    }
  }
}

// Whoever stops joins the workers while the consumer asks for more.
TEST(PipelineStress, StopsBesideAConsumerThatGoesOn) {
  const auto source = std::make_shared<KeptJpegs>(false);
  for (int round = 0; round < 150; ++round) {
    auto pipeline = make(source, Cache::kNone, 4, 2);
    pipeline->next();
    const std::jthread stopper([&] { pipeline->stop(); });
    try {
      for (;;) pipeline->next();
    } catch (const core::Error& error) {
      EXPECT_EQ(error.code(), core::ErrorCode::kCancelled);
    }
  }
}

// Readers of a cache of records that is full all the time.
TEST(PipelineStress, ManyThreadsFillOneMemoryOfRecords) {
  const auto source = std::make_shared<KeptJpegs>(false);
  const auto dataset = cached(source, Cache::kBoth);
  std::vector<std::jthread> readers;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 8; ++t) {
    readers.emplace_back([&, t] {
      for (int i = 0; i < 60; ++i) {
        const int64_t index = (i * 5 + t) % dataset->size();
        core::Result<Record> record = dataset->read(index);
        if (!record.ok() || record.value().label != index + 1 || record.value().image == nullptr ||
            record.value().image->height != 20 + index) {
          ++wrong;
        }
      }
    });
  }
  readers.clear();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace trainyard::data::pipeline_stress_test
