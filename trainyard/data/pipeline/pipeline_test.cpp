#include "trainyard/data/pipeline/pipeline.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/data/testing/number_dataset.h"

namespace trainyard::data::pipeline_test {
namespace {

using core::Error, core::ErrorCode;

constexpr int64_t kBad = 13;  // the sample that a spoiled set cannot read

// Can be slow, and spoiled.
class SpoiledDataset : public NumberDataset {
 public:
  explicit SpoiledDataset(int64_t size, bool spoiled = false, int delay_ms = 0)
      : NumberDataset(size), spoiled_(spoiled), delay_ms_(delay_ms) {}

  core::Result<Record> read(int64_t index) const override {
    if (delay_ms_ > 0) std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms_));
    if (spoiled_ && index == kBad) {
      return Error(ErrorCode::kCorruptData, {.problem = "bad record", .where = "shard-0 at offset 13"});
    }
    if (spoiled_ && index == kBad + 1) throw std::runtime_error("worse");
    return NumberDataset::read(index);
  }

 private:
  bool spoiled_;
  int delay_ms_;
};

class CountingDataset : public NumberDataset {
 public:
  using NumberDataset::NumberDataset;
  core::Result<Record> read(int64_t index) const override {
    ++reads;
    return NumberDataset::read(index);
  }
  mutable std::atomic<int> reads{0};
};

// Writes all that a sample depends on into its image: label, epoch, sample, place.
class KeyTransform : public Transform {
 public:
  ImageSize size() const override { return {2, 2}; }
  core::Result<void> apply(const Record& record, const SampleKey& key, void* image) const override {
    auto* const out = static_cast<float*>(image);
    const float values[] = {static_cast<float>(record.label), static_cast<float>(key.epoch),
                            static_cast<float>(key.sample), static_cast<float>(key.batch_position)};
    for (int i = 0; i < 12; ++i) out[i] = values[i % 4];
    return {};
  }
};

PipelineOptions small_options() {
  return {.batch_size = 8, .height = 2, .width = 2, .worker_threads = 2, .seed = 5};
}

std::unique_ptr<Pipeline> make_pipeline(int64_t size, const PipelineOptions& options, bool spoiled = false,
                                        int delay_ms = 0) {
  return std::make_unique<Pipeline>(std::make_shared<SpoiledDataset>(size, spoiled, delay_ms),
                                    std::make_shared<KeyTransform>(), options);
}

std::vector<int64_t> labels_of(const Batch& batch) {
  const int64_t* labels = batch.labels().const_data_ptr<int64_t>();
  return {labels, labels + batch.labels().numel()};
}

// Bytes of the batches of all replicas, one behind the other.
std::vector<float> content(const std::vector<Batch>& batches) {
  std::vector<float> values;
  for (const Batch& batch : batches) {
    const float* images = batch.images().const_data_ptr<float>();
    values.insert(values.end(), images, images + batch.images().numel());
    for (int64_t label : labels_of(batch)) values.push_back(static_cast<float>(label));
  }
  return values;
}

std::vector<int64_t> next_labels(Pipeline& pipeline) {
  std::vector<int64_t> labels;
  for (const Batch& batch : pipeline.next()) {
    for (int64_t label : labels_of(batch)) labels.push_back(label);
  }
  return labels;
}

TEST(Pipeline, EachSampleOnceAnEpochInAnOrderOfItsOwn) {
  auto pipeline = make_pipeline(30, small_options());
  std::vector<std::vector<int64_t>> epochs(4);
  for (int b = 0; b < 15; ++b) {  // 120 samples; batches span epochs
    const std::vector<Batch> batches = pipeline->next();
    ASSERT_EQ(batches.size(), 1u);
    EXPECT_EQ(batches[0].images().sizes(), (at::IntArrayRef{8, 3, 2, 2}));
    const float* image = batches[0].images().const_data_ptr<float>();
    for (int64_t label : labels_of(batches[0])) {
      EXPECT_EQ(image[0], static_cast<float>(label));
      EXPECT_EQ(image[2], static_cast<float>(label));
      epochs[static_cast<int>(image[1])].push_back(label);
      image += 12;
    }
    EXPECT_EQ(batches[0].after, (Position{(b + 1) * 8 / 30, (b + 1) * 8 % 30}));
    EXPECT_EQ(pipeline->position(), batches[0].after);
  }
  for (const auto& epoch : epochs) {
    EXPECT_EQ(epoch.size(), 30u);
    EXPECT_EQ(std::set<int64_t>(epoch.begin(), epoch.end()).size(), 30u);
  }
  EXPECT_NE(epochs[0], epochs[1]);
}

TEST(Pipeline, SameBytesForAnyThreadsAndPrefetch) {
  std::vector<std::vector<float>> expected;
  for (int threads : {1, 2, 4}) {
    for (int prefetch : {1, 2, 7}) {
      PipelineOptions options = small_options();
      options.worker_threads = threads;
      options.prefetch_batches = prefetch;
      auto pipeline = make_pipeline(50, options);
      std::vector<std::vector<float>> batches;
      for (int b = 0; b < 20; ++b) batches.push_back(content(pipeline->next()));
      if (expected.empty()) expected = batches;
      EXPECT_EQ(batches, expected) << threads << " threads, prefetch " << prefetch;
    }
  }
}

TEST(Pipeline, ReplicasShareOneGlobalBatch) {
  std::vector<std::vector<int64_t>> expected;
  for (int replicas : {1, 2, 4}) {
    PipelineOptions options = small_options();
    options.batch_size = 16 / replicas;
    options.local_replicas = options.total_replicas = replicas;
    auto pipeline = make_pipeline(50, options);
    std::vector<std::vector<int64_t>> batches;
    for (int b = 0; b < 10; ++b) batches.push_back(next_labels(*pipeline));
    if (expected.empty()) expected = batches;
    EXPECT_EQ(batches, expected) << replicas;
  }
  // The same from four processes with one replica each.
  for (int replica = 0; replica < 4; ++replica) {
    PipelineOptions options = small_options();
    options.batch_size = 4;
    options.first_replica = replica;
    options.total_replicas = 4;
    auto pipeline = make_pipeline(50, options);
    for (int b = 0; b < 10; ++b) {
      const std::vector<Batch> batches = pipeline->next();
      EXPECT_EQ(batches[0].first_sample, 4 * replica);
      const std::vector<int64_t> slice(expected[b].begin() + 4 * replica, expected[b].begin() + 4 * replica + 4);
      EXPECT_EQ(labels_of(batches[0]), slice);
    }
  }
}

TEST(Pipeline, BatchPositionIsThePlaceInTheDevicesBatch) {
  PipelineOptions options = small_options();
  options.local_replicas = options.total_replicas = 2;
  auto pipeline = make_pipeline(50, options);
  for (const Batch& batch : pipeline->next()) {
    for (int64_t i = 0; i < 8; ++i)
      EXPECT_EQ(batch.images().const_data_ptr<float>()[12 * i + 3], static_cast<float>(i));
  }
}

TEST(Pipeline, ResumesInMidEpochWithOtherThreads) {
  PipelineOptions options = small_options();
  auto whole = make_pipeline(50, options);
  std::vector<std::vector<float>> expected;
  Position middle;
  for (int b = 0; b < 12; ++b) {
    expected.push_back(content(whole->next()));
    if (b == 3) middle = whole->position();
  }
  EXPECT_EQ(middle, (Position{0, 32}));

  options.worker_threads = 4;
  options.prefetch_batches = 3;
  auto resumed = make_pipeline(50, options);
  resumed->seek(middle);
  EXPECT_EQ(resumed->position(), middle);
  for (int b = 4; b < 12; ++b) EXPECT_EQ(content(resumed->next()), expected[b]) << b;
  // And back, which throws away what was made ahead.
  resumed->seek({0, 0});
  EXPECT_EQ(content(resumed->next()), expected[0]);
}

// The global batches of a run of one replica, gone on with by two and by four.
TEST(Pipeline, ResumesInMidEpochWithOtherReplicas) {
  PipelineOptions options = small_options();
  options.batch_size = 16;
  auto whole = make_pipeline(50, options);
  for (int b = 0; b < 4; ++b) whole->next();
  core::MemoryState state;
  whole->save(state);
  std::vector<std::vector<int64_t>> expected;
  for (int b = 0; b < 6; ++b) expected.push_back(next_labels(*whole));
  for (int replicas : {2, 4}) {
    options.batch_size = 16 / replicas;
    options.local_replicas = options.total_replicas = replicas;
    auto resumed = make_pipeline(50, options);
    resumed->load(state);
    for (int b = 0; b < 6; ++b) EXPECT_EQ(next_labels(*resumed), expected[b]) << replicas << " replicas, batch " << b;
  }
}

TEST(Pipeline, ShuffledDiffersFromTheFilesOrderAndFromTheNextEpoch) {
  PipelineOptions options = small_options();
  options.batch_size = 50;
  auto shuffled = make_pipeline(50, options);
  options.order.shuffle = false;
  auto plain = make_pipeline(50, options);
  const std::vector<int64_t> files = next_labels(*plain), first = next_labels(*shuffled),
                             second = next_labels(*shuffled);
  EXPECT_NE(first, files);
  EXPECT_NE(first, second);
  EXPECT_THAT(first, ::testing::UnorderedElementsAreArray(files));
  EXPECT_THAT(second, ::testing::UnorderedElementsAreArray(files));
  EXPECT_EQ(next_labels(*plain), files);
}

TEST(Pipeline, CountsWhatItsThreadsDo) {
  auto pipeline = make_pipeline(1000, small_options(), false, 5);
  for (int b = 0; b < 3; ++b) pipeline->next();
  const PipelineStatistics statistics = pipeline->statistics();
  EXPECT_GE(statistics.samples, 24);
  EXPECT_GE(statistics.seconds[Stage::kRead], 24 * 0.005);
  EXPECT_EQ(statistics.bytes, 0);  // numbers have no bytes
}

TEST(Pipeline, CountsTheSamplesAndBytesOfAnEpoch) {
  class TenBytes : public NumberDataset {
   public:
    using NumberDataset::NumberDataset;
    core::Result<Record> read(int64_t index) const override {
      core::Result<Record> record = NumberDataset::read(index);
      record.value().bytes.resize(10);
      return record;
    }
  };
  PipelineOptions options = small_options();
  options.repeat = false;
  Pipeline pipeline(std::make_shared<TenBytes>(20), std::make_shared<KeyTransform>(), options);
  for (int b = 0; b < 3; ++b) EXPECT_EQ(pipeline.next().size(), 1U);
  EXPECT_TRUE(pipeline.next().empty());
  EXPECT_EQ(pipeline.statistics().samples, 20);
  EXPECT_EQ(pipeline.statistics().bytes, 200);
}

TEST(Pipeline, OneEpochEndsWithAShorterBatch) {
  PipelineOptions options = small_options();
  options.repeat = false;
  options.order.shuffle = false;
  options.local_replicas = options.total_replicas = 2;
  auto pipeline = make_pipeline(37, options);
  std::vector<int64_t> seen = next_labels(*pipeline);
  for (int64_t label : next_labels(*pipeline)) seen.push_back(label);
  const std::vector<Batch> last = pipeline->next();
  ASSERT_EQ(last.size(), 2u);
  EXPECT_EQ(last[0].labels().numel(), 5);
  EXPECT_EQ(last[1].images().sizes(), (at::IntArrayRef{0, 3, 2, 2}));
  for (int64_t label : labels_of(last[0])) seen.push_back(label);
  std::vector<int64_t> all(37);
  for (int64_t i = 0; i < 37; ++i) all[i] = i;
  EXPECT_EQ(seen, all);
  EXPECT_TRUE(pipeline->next().empty());
  EXPECT_TRUE(pipeline->next().empty());
  pipeline->seek({0, 32});  // once more
  EXPECT_EQ(next_labels(*pipeline), (std::vector<int64_t>{32, 33, 34, 35, 36}));
  EXPECT_TRUE(pipeline->next().empty());
  pipeline->seek({0, 37});
  EXPECT_EQ(pipeline->position(), (Position{0, 37}));
  EXPECT_TRUE(pipeline->next().empty()) << "the end stays the end";
}

// A replica that gets nothing of the last global batch still takes part in it.
TEST(Pipeline, LaterReplicaSeesAsManyBatches) {
  PipelineOptions options = small_options();
  options.repeat = false;
  options.first_replica = 1;
  options.total_replicas = 2;
  auto pipeline = make_pipeline(20, options);
  EXPECT_EQ(pipeline->next()[0].labels().numel(), 8);
  EXPECT_EQ(pipeline->next()[0].labels().numel(), 0);
  EXPECT_TRUE(pipeline->next().empty());
}

TEST(Pipeline, BadSampleComesOutInOrder) {
  for (int threads : {1, 4}) {
    PipelineOptions options = small_options();
    options.order.shuffle = false;
    options.worker_threads = threads;
    options.prefetch_batches = 4;
    auto pipeline = make_pipeline(64, options, true);
    EXPECT_EQ(next_labels(*pipeline).size(), 8u);
    // Two samples of the second batch are bad: the first of them is told, however often one asks.
    for (int again = 0; again < 3; ++again) {
      try {
        pipeline->next();
        FAIL() << "no error";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
        EXPECT_EQ(error.detail().problem, "bad record");
        EXPECT_EQ(error.detail().where, "shard-0 at offset 13");
      }
    }
    EXPECT_EQ(pipeline->position(), (Position{0, 8}));
    pipeline->seek({0, 16});
    EXPECT_EQ(next_labels(*pipeline)[0], 16);
  }
}

TEST(Pipeline, OtherExceptionsComeOutToo) {
  PipelineOptions options = small_options();
  options.order.shuffle = false;
  auto pipeline = make_pipeline(64, options, true);
  pipeline->seek({0, kBad + 1});
  EXPECT_THROW(pipeline->next(), std::runtime_error);
}

TEST(Pipeline, StopWakesNextAndEndsSoon) {
  auto pipeline = make_pipeline(1000, small_options(), false, 50);  // 8 x 50 ms a batch over two threads
  std::exception_ptr error;
  std::thread consumer([&] {
    try {
      for (;;) pipeline->next();
    } catch (...) {
      error = std::current_exception();
    }
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  const auto start = std::chrono::steady_clock::now();
  pipeline->stop();
  consumer.join();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
  try {
    std::rethrow_exception(error);
  } catch (const Error& cancelled) {
    EXPECT_EQ(cancelled.code(), ErrorCode::kCancelled);
  }
  pipeline->stop();
  EXPECT_THROW(pipeline->next(), Error);
  EXPECT_GT(pipeline->waited_seconds(), 0.03);
}

TEST(Pipeline, RepeatedCachedSampleIsReadOnce) {
  auto dataset = std::make_shared<CountingDataset>(10);
  PipelineOptions options = small_options();
  options.repeat_cached_sample = true;
  options.label_offset = 3;
  Pipeline pipeline(dataset, std::make_shared<KeyTransform>(), options);
  for (int i = 0; i < 5; ++i) EXPECT_THAT(next_labels(pipeline), ::testing::Each(3));
  EXPECT_EQ(dataset->reads, 1);
}

TEST(Pipeline, HasTheThreadsThatAreAskedForAtEveryBatch) {
  class ReadByThreads : public NumberDataset {
   public:
    using NumberDataset::NumberDataset;
    core::Result<Record> read(int64_t index) const override {
      {
        const std::lock_guard lock(mutex_);
        threads_.insert(std::this_thread::get_id());
      }
      return NumberDataset::read(index);
    }
    size_t threads() const {
      const std::lock_guard lock(mutex_);
      return threads_.size();
    }

   private:
    mutable std::mutex mutex_;
    mutable std::set<std::thread::id> threads_;
  };
  const auto dataset = std::make_shared<ReadByThreads>(1000);
  Pipeline pipeline(dataset, std::make_shared<KeyTransform>(), small_options());
  for (int i = 0; i < 50; ++i) pipeline.next();
  EXPECT_LE(dataset->threads(), 2U);
}

// The memory of the second replica's images is missing: nothing is read into that of the first one.
TEST(Pipeline, ABatchWithoutAllItsMemoryIsNotMade) {
  const auto dataset = std::make_shared<CountingDataset>(100);
  PipelineOptions options = small_options();
  options.local_replicas = options.total_replicas = 2;
  options.prefetch_batches = 1;
  std::atomic<int> asked = 0;
  options.allocate = [&asked](at::IntArrayRef sizes, at::ScalarType dtype) {
    if (++asked > 6) throw Error(ErrorCode::kNoSpace, "no memory for a batch");
    return at::empty(sizes, dtype);
  };
  Pipeline pipeline(dataset, std::make_shared<KeyTransform>(), options);
  EXPECT_EQ(pipeline.next().size(), 2U);
  EXPECT_EQ(core::message_of([&] { pipeline.next(); }, ErrorCode::kNoSpace), "no memory for a batch");
  EXPECT_EQ(dataset->reads, 16);
  EXPECT_EQ(pipeline.position(), (Position{0, 16}));
}

TEST(Pipeline, LabelOffset) {
  PipelineOptions options = small_options();
  options.order.shuffle = false;
  options.label_offset = -1;
  auto pipeline = make_pipeline(20, options);
  EXPECT_THAT(core::message_of([&] { pipeline->next(); }, ErrorCode::kCorruptData),
              core::Says("label is negative: expected at least 1, got 0"));
  pipeline->seek({0, 1});
  EXPECT_EQ(next_labels(*pipeline), (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(Pipeline, SavesThePlaceOfTheConsumerNotOfTheWorkers) {
  auto pipeline = make_pipeline(50, small_options());
  for (int b = 0; b < 8; ++b) pipeline->next();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // workers run ahead
  core::MemoryState state;
  pipeline->save(state);
  EXPECT_THAT(state.names(), ::testing::UnorderedElementsAre("epoch", "offset"));
  EXPECT_EQ(state.integer("epoch"), 1);
  EXPECT_EQ(state.integer("offset"), 14);
  const std::vector<float> expected = content(pipeline->next());
  auto resumed = make_pipeline(50, small_options());
  resumed->load(state);
  EXPECT_EQ(content(resumed->next()), expected);
}

// The run that has saved them compared the class names in its records.
TEST(Pipeline, SavedClassNamesAreLeftAloneWhereNoneAreCompared) {
  const auto pipeline = make_pipeline(50, small_options());
  pipeline->next();
  core::MemoryState state;
  pipeline->save(state);
  state.text("label_texts", "7 seven\n");
  const auto resumed = make_pipeline(50, small_options());
  resumed->load(state);
  EXPECT_EQ(resumed->position(), (Position{0, 8}));
  EXPECT_EQ(content(resumed->next()), content(pipeline->next()));
}

TEST(Pipeline, BatchesLieInTheMemoryThatItIsGiven) {
  std::atomic<int> asked = 0;
  const auto plain = content(make_pipeline(20, small_options())->next());
  PipelineOptions options = small_options();
  options.allocate = [&asked](at::IntArrayRef sizes, at::ScalarType dtype) {
    ++asked;
    return at::empty(sizes, dtype);
  };
  const auto pipeline = make_pipeline(20, options);
  EXPECT_EQ(content(pipeline->next()), plain);
  pipeline->stop();
  EXPECT_GE(asked, 2);
  EXPECT_EQ(asked % 2, 0);  // images and labels
}

TEST(Pipeline, RefusesPlacesOutsideTheDataSet) {
  auto pipeline = make_pipeline(50, small_options());
  for (const Position position : {Position{0, 51}, Position{-1, 0}, Position{0, -1}}) {
    EXPECT_THROW(pipeline->seek(position), Error);
  }
  EXPECT_THAT(core::message_of([&] {
                pipeline->seek({1, 51});
              }),
              core::Says("expected an offset in [0, 50], got epoch 1, offset 51"));
  pipeline->seek({2, 50});
  EXPECT_EQ(pipeline->position(), (Position{3, 0}));
}

// It would write each image into the ones around it.
TEST(Pipeline, RefusesATransformOfAnotherSize) {
  for (const auto& [height, width] : {std::pair{1, 2}, std::pair{2, 3}, std::pair{4, 1}}) {
    PipelineOptions options = small_options();
    options.height = height;
    options.width = width;
    const Error error = core::thrown_by([&] { make_pipeline(10, options); });
    EXPECT_EQ(error.code(), core::ErrorCode::kInvalidArgument);
    EXPECT_TRUE(core::says(error, fmt::format("expected {} x {}, got 2 x 2", height, width))) << error.what();
  }
}

TEST(Pipeline, OptionsOutOfRangeAreTold) {
  const auto refusal = [](void (*change)(PipelineOptions&)) {
    PipelineOptions options = small_options();
    change(options);
    return core::message_of([&] { options.validate(); });
  };
  const std::string begin = "pipeline option ";
  EXPECT_EQ(refusal([](PipelineOptions& o) { o.local_replicas = 0; }),
            begin + "local_replicas is out of range: expected at least 1, got 0");
  EXPECT_EQ(refusal([](PipelineOptions& o) { o.first_replica = -1; }),
            begin + "first_replica is out of range: expected at least 0, got -1");
  EXPECT_EQ(refusal([](PipelineOptions& o) {
              o.first_replica = 2;
              o.local_replicas = 3;
              o.total_replicas = 4;
            }),
            begin + "total_replicas is out of range: expected at least first_replica + local_replicas = 5, got 4");
  EXPECT_EQ(refusal([](PipelineOptions& o) { o.width = 0; }),
            begin + "width is out of range: expected at least 1 pixel, got 0");
  EXPECT_EQ(refusal([](PipelineOptions& o) { o.height = 1'048'577; }),
            begin + "height is out of range: expected at most 1048576 pixels, got 1048577");
  EXPECT_EQ(refusal([](PipelineOptions& o) { o.width = 1'048'577; }),
            begin + "width is out of range: expected at most 1048576 pixels, got 1048577");
  EXPECT_EQ(refusal([](PipelineOptions& o) { o.height = 1'048'576; }), "no error");
  EXPECT_EQ(refusal([](PipelineOptions& o) { o.repeated_augmentation = 0; }),
            begin + "repeated_augmentation is out of range: expected 1 to 1024, got 0");
  EXPECT_EQ(refusal([](PipelineOptions& o) { o.repeated_augmentation = 1025; }),
            begin + "repeated_augmentation is out of range: expected 1 to 1024, got 1025");
  EXPECT_EQ(refusal([](PipelineOptions& o) { o.label_set_size = -1; }),
            begin + "label_set_size is out of range: expected 0 to 16777216, got -1");
  EXPECT_EQ(refusal([](PipelineOptions& o) { o.label_set_size = 16'777'217; }),
            begin + "label_set_size is out of range: expected 0 to 16777216, got 16777217");
  EXPECT_EQ(refusal([](PipelineOptions& o) { o.label_set_size = 16'777'216; }), "no error");
  EXPECT_EQ(refusal([](PipelineOptions& o) {
              o.label_set_size = 3;
              o.repeat_cached_sample = true;
            }),
            begin + "label_set_size is out of range: expected 0, because one cached sample has one label, got 3");
  EXPECT_EQ(refusal([](PipelineOptions& o) {
              o.label_set_size = 3;
              o.mix.mixup_alpha = 1;
            }),
            begin + "label_set_size is out of range: expected 0, because images of one label are mixed, got 3");
  EXPECT_EQ(refusal([](PipelineOptions& o) { o.mix.mixup_alpha = -1; }),
            "mixup_alpha is out of range: expected 0 or more, got -1");
  EXPECT_EQ(refusal([](PipelineOptions& o) { o.worker_threads = 0; }),
            begin + "worker_threads is out of range: expected at least 1, got 0");
  EXPECT_EQ(refusal([](PipelineOptions& o) { o.prefetch_batches = 0; }),
            begin + "prefetch_batches is out of range: expected at least 1, got 0");
  EXPECT_EQ(refusal([](PipelineOptions& o) {
              o.balanced_labels = std::make_shared<std::vector<int64_t>>(4);
              o.order.shuffle = true;
              o.repeat = true;
              o.repeated_augmentation = 2;
            }),
            begin +
                "repeated_augmentation is out of range: expected 1, because balanced classes repeat samples, "
                "got 2");
}

// 2^47 bytes hold 5,592,405 images of 1024 x 2048 float pixels, and two replicas share them.
TEST(Pipeline, AGlobalBatchFitsIntoTheAddressesOfAProcess) {
  PipelineOptions options = small_options();
  options.height = 1024;
  options.width = 2048;
  options.total_replicas = 2;
  options.batch_size = 2'796'202;
  EXPECT_NO_THROW(options.validate());
  ++options.batch_size;
  EXPECT_EQ(core::message_of([&] { options.validate(); }),
            "pipeline option batch_size is out of range: expected at most 2796202 images of 1024 x 2048, got 2796203");
}

TEST(Pipeline, RefusesBadOptions) {
  const auto refused = [](void (*change)(PipelineOptions&)) {
    PipelineOptions options = small_options();
    change(options);
    EXPECT_THROW(make_pipeline(10, options), Error);
  };
  refused([](PipelineOptions& o) { o.batch_size = 0; });
  refused([](PipelineOptions& o) { o.total_replicas = 0; });
  refused([](PipelineOptions& o) { o.first_replica = 1; });
  refused([](PipelineOptions& o) { o.worker_threads = 0; });
  refused([](PipelineOptions& o) { o.prefetch_batches = 0; });
  refused([](PipelineOptions& o) { o.height = 0; });
  refused([](PipelineOptions& o) { o.order.shuffle_buffer = 0; });
  refused([](PipelineOptions& o) { o.order.shift_ratio = 1; });
  refused([](PipelineOptions& o) { o.batch_size = int64_t{1} << 62; });
  refused([](PipelineOptions& o) { o.width = int64_t{1} << 62; });
  EXPECT_THROW(make_pipeline(0, small_options()), Error);
}

TEST(Pipeline, RefusesLabelsThatAreNotTheDataSets) {
  PipelineOptions balanced = small_options();
  balanced.balanced_labels = std::make_shared<std::vector<int64_t>>(4);
  EXPECT_THAT(core::message_of([&] { make_pipeline(10, balanced); }),
              core::Says("labels to balance are not those of the data set", "expected 10, got 4"));
  PipelineOptions with_sets = small_options();
  with_sets.label_set_size = 3;
  EXPECT_THAT(core::message_of([&] { make_pipeline(10, with_sets); }),
              ::testing::HasSubstr("expected any number of labels a sample"));
  class Sets : public NumberDataset {
   public:
    Sets() : NumberDataset(10) {}
    bool has_label_sets() const override { return true; }
  };
  EXPECT_THAT(
      core::message_of([] { Pipeline(std::make_shared<Sets>(), std::make_shared<KeyTransform>(), small_options()); }),
      ::testing::HasSubstr("expected one label a sample"));
  EXPECT_EQ(core::message_of([] { make_pipeline(0, small_options()); }), "data set holds no samples");
}

TEST(Pipeline, TransformsOfEpochsMakeImagesOfOneKind) {
  class OfForm : public KeyTransform {
   public:
    explicit OfForm(const ImageForm& form) : form_(form) {}
    ImageForm form() const override { return form_; }

   private:
    ImageForm form_;
  };
  class WithTargets : public KeyTransform {
   public:
    const std::vector<SampleTensor>* targets() const override { return &targets_; }

   private:
    std::vector<SampleTensor> targets_;
  };
  class OfSize : public KeyTransform {
   public:
    explicit OfSize(ImageSize size) : size_(size) {}
    ImageSize size() const override { return size_; }

   private:
    ImageSize size_;
  };
  const auto refusal = [](const std::shared_ptr<const Transform>& transform, bool cached = false) {
    PipelineOptions options = small_options();
    options.transforms_by_epoch = {{.from_epoch = 2, .transform = transform}};
    options.repeat_cached_sample = cached;
    return core::message_of([&] { make_pipeline(10, options); });
  };
  EXPECT_EQ(refusal(std::make_shared<KeyTransform>()), "no error");
  EXPECT_THAT(refusal(nullptr), core::Says("images of an epoch have no transform: the images from epoch 2 on"));
  for (const ImageForm& other : {ImageForm{.dtype = at::kByte}, ImageForm{.device = at::kCUDA},
                                 ImageForm{.layout = at::MemoryFormat::ChannelsLast}}) {
    EXPECT_THAT(refusal(std::make_shared<OfForm>(other)),
                core::Says("images of an epoch have another form: the images from epoch 2 on"));
  }
  constexpr int kTooLong = 1'048'577;
  EXPECT_EQ(refusal(std::make_shared<OfSize>(ImageSize{kTooLong, 3})),
            "pipeline option height is out of range: expected at most 1048576 pixels, got 1048577");
  EXPECT_EQ(refusal(std::make_shared<OfSize>(ImageSize{3, kTooLong})),
            "pipeline option width is out of range: expected at most 1048576 pixels, got 1048577");
  EXPECT_THAT(refusal(std::make_shared<WithTargets>()),
              core::Says("images of an epoch have other targets: the images from epoch 2 on"));
  EXPECT_THAT(refusal(std::make_shared<KeyTransform>(), true),
              core::Says("one cached sample cannot be repeated at several sizes"));
}

}  // namespace
}  // namespace trainyard::data::pipeline_test
