// What happens to bad samples, by a pipeline over numbers of which some are spoiled.
#include "trainyard/data/pipeline/bad_samples.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/data/pipeline/pipeline.h"

namespace trainyard::data::bad_samples_test {
namespace {

using core::Error, core::ErrorCode;

// Numbers as images: label i, no pixels. Half of the bad ones cannot be read, the others not be decoded.
class SpoiledNumbers : public Dataset {
 public:
  SpoiledNumbers(int64_t size, std::set<int64_t> bad) : size_(size), bad_(std::move(bad)) {}
  int64_t size() const override { return size_; }
  int64_t label_count() const override { return size_; }
  core::Result<Record> read(int64_t index) const override {
    const bool bad = bad_.contains(index);
    if (bad && index % 2 == 0) return spoiled(fmt::format("shard-0 at offset {}", index));
    return Record{.height = bad ? -1 : 1, .label = index, .where = fmt::format("shard-1 at offset {}", index)};
  }
  static Error spoiled(std::string where) {
    return {ErrorCode::kCorruptData, {.problem = "spoiled", .where = std::move(where)}};
  }

 private:
  int64_t size_;
  std::set<int64_t> bad_;
};

// Image: label and the first number of the augmentation's stream.
class StreamTransform : public Transform {
 public:
  ImageSize size() const override { return {1, 1}; }
  core::Result<void> apply(const Record& record, const SampleKey& key, void* image) const override {
    auto* const out = static_cast<float*>(image);
    if (record.height < 0) return SpoiledNumbers::spoiled(record.where);
    core::RandomStream random(key.seed, "augment", {static_cast<uint64_t>(key.epoch)});
    std::fill(out, out + 3, static_cast<float>(record.label));
    out[2] = random.uniform();
    return {};
  }
};

struct Sample {
  int64_t label;
  float augmentation;
  auto operator<=>(const Sample&) const = default;
};

PipelineOptions options(OnBadSample policy, double budget = 0.5) {
  return {.batch_size = 8,
          .height = 1,
          .width = 1,
          .worker_threads = 2,
          .seed = 3,
          .bad_samples = {.policy = policy, .budget = budget}};
}

std::unique_ptr<Pipeline> pipeline_of(const PipelineOptions& options, std::set<int64_t> bad, int64_t size = 40) {
  return std::make_unique<Pipeline>(std::make_shared<SpoiledNumbers>(size, std::move(bad)),
                                    std::make_shared<StreamTransform>(), options);
}

std::vector<Sample> next_samples(Pipeline& pipeline) {
  std::vector<Sample> samples;
  for (const Batch& batch : pipeline.next()) {
    EXPECT_EQ(batch.images().size(0), batch.labels().size(0));
    for (int64_t i = 0; i < batch.labels().numel(); ++i) {
      const float* image = batch.images().const_data_ptr<float>() + 3 * i;
      const int64_t label = batch.labels().const_data_ptr<int64_t>()[i];
      EXPECT_EQ(image[0], static_cast<float>(label));
      samples.push_back({label, image[2]});
    }
  }
  return samples;
}

std::vector<std::vector<Sample>> take(Pipeline& pipeline, int batches) {
  std::vector<std::vector<Sample>> all;
  for (int b = 0; b < batches; ++b) all.push_back(next_samples(pipeline));
  return all;
}

const std::set<int64_t> kBad = {4, 5, 17, 30};

TEST(BadSamples, ARunFailsAtThemByDefault) {
  EXPECT_EQ(PipelineOptions().bad_samples.policy, OnBadSample::kFail);
  PipelineOptions in_order = options(OnBadSample::kFail);
  in_order.order.shuffle = false;
  EXPECT_EQ(core::message_of([&] { pipeline_of(in_order, kBad)->next(); }, ErrorCode::kCorruptData),
            "spoiled: shard-0 at offset 4; trainyard data verify lists all bad samples, --on_bad_sample=skip goes on "
            "without them");
}

TEST(BadSamples, SkippingPutsTheNextOfTheOrderInTheirPlace) {
  PipelineOptions in_order = options(OnBadSample::kSkip);
  in_order.order.shuffle = false;
  auto pipeline = pipeline_of(in_order, {4, 5, 39});
  std::vector<int64_t> expected(40);
  for (int64_t i = 0; i < 40; ++i) expected[i] = i;
  expected[4] = expected[5] = 6;
  expected[39] = 0;  // the order of this epoch goes on at its beginning
  std::vector<Sample> epoch;
  for (const auto& batch : take(*pipeline, 5)) epoch.insert(epoch.end(), batch.begin(), batch.end());
  ASSERT_EQ(epoch.size(), 40U);
  for (size_t i = 0; i < 40; ++i) EXPECT_EQ(epoch[i].label, expected[i]) << i;
  EXPECT_NE(epoch[4].augmentation, epoch[6].augmentation);
  EXPECT_NE(epoch[4].augmentation, epoch[5].augmentation);
  EXPECT_EQ(pipeline->position(), (Position{1, 0}));
  EXPECT_EQ(pipeline->bad_samples(), 3);
}

TEST(BadSamples, AllElseComesOnceAnEpochAsWithoutThem) {
  for (const OnBadSample policy : {OnBadSample::kSkip, OnBadSample::kSubstitute}) {
    auto whole = pipeline_of(options(policy), {});
    auto spoiled = pipeline_of(options(policy), kBad);
    for (int b = 0; b < 20; ++b) {
      const auto expected = next_samples(*whole), actual = next_samples(*spoiled);
      ASSERT_EQ(actual.size(), 8U);
      for (size_t i = 0; i < 8; ++i) {
        if (!kBad.contains(expected[i].label)) {
          EXPECT_EQ(actual[i], expected[i]);
        }
        EXPECT_FALSE(kBad.contains(actual[i].label));
      }
      EXPECT_EQ(whole->position(), spoiled->position());
    }
    EXPECT_EQ(spoiled->bad_samples(), 4) << "each is counted once, in however many epochs it is met";
  }
}

TEST(BadSamples, SubstitutesDifferFromEpochToEpoch) {
  PipelineOptions in_order = options(OnBadSample::kSubstitute);
  in_order.order.shuffle = false;
  auto pipeline = pipeline_of(in_order, {0});
  std::set<int64_t> substitutes;
  for (int epoch = 0; epoch < 10; ++epoch) substitutes.insert(take(*pipeline, 5)[0][0].label);
  EXPECT_GT(substitutes.size(), 5U);
}

TEST(BadSamples, TheSameBatchesForAnyThreadsPrefetchAndReplicas) {
  for (const OnBadSample policy : {OnBadSample::kSkip, OnBadSample::kSubstitute}) {
    const auto expected = take(*pipeline_of(options(policy), kBad), 12);
    for (const int threads : {1, 2, 4}) {
      for (const int replicas : {1, 2, 4}) {
        PipelineOptions changed = options(policy);
        changed.worker_threads = threads;
        changed.prefetch_batches = threads;
        changed.batch_size = 8 / replicas;
        changed.local_replicas = changed.total_replicas = replicas;
        EXPECT_EQ(take(*pipeline_of(changed, kBad), 12), expected) << threads << " threads, " << replicas;
      }
    }
    // A process of its own a replica, which meets the bad samples of its slice only.
    for (int replica = 0; replica < 4; ++replica) {
      PipelineOptions changed = options(policy);
      changed.batch_size = 2;
      changed.first_replica = replica;
      changed.total_replicas = 4;
      auto pipeline = pipeline_of(changed, kBad);
      for (const auto& batch : expected) {
        EXPECT_EQ(next_samples(*pipeline), std::vector(batch.begin() + 2 * replica, batch.begin() + 2 * replica + 2));
      }
    }
  }
}

TEST(BadSamples, ARunGoesOnInMidEpochWithItsCount) {
  for (const OnBadSample policy : {OnBadSample::kSkip, OnBadSample::kSubstitute}) {
    auto whole = pipeline_of(options(policy), kBad);
    take(*whole, 6);
    core::MemoryState state;
    whole->save(state);
    auto resumed = pipeline_of(options(policy), kBad);
    resumed->load(state);
    EXPECT_EQ(resumed->bad_samples(), whole->bad_samples());
    EXPECT_EQ(take(*resumed, 6), take(*whole, 6));
    // Runs that met none save what they always saved.
    core::MemoryState clean;
    pipeline_of(options(policy), {})->save(clean);
    EXPECT_EQ(clean.names(), (std::vector<std::string>{"epoch", "offset"}));
  }
}

TEST(BadSamples, AnExactEvaluationLeavesThemOut) {
  PipelineOptions exact = options(OnBadSample::kSkip);
  exact.order.shuffle = exact.repeat = false;
  exact.local_replicas = exact.total_replicas = 2;
  auto pipeline = pipeline_of(exact, {0, 3, 9, 15, 36});
  std::vector<int64_t> labels, sizes;
  for (auto batches = pipeline->next(); !batches.empty(); batches = pipeline->next()) {
    for (const Batch& batch : batches) {
      sizes.push_back(batch.labels().numel());
      EXPECT_EQ(batch.images().size(0), batch.labels().numel());
      for (int64_t i = 0; i < batch.labels().numel(); ++i) {
        labels.push_back(batch.labels()[i].item<int64_t>());
        EXPECT_EQ(batch.images()[i][0].item<float>(), static_cast<float>(labels.back()));
      }
    }
  }
  std::vector<int64_t> expected;
  for (int64_t i = 0; i < 40; ++i) {
    if (i != 0 && i != 3 && i != 9 && i != 15 && i != 36) expected.push_back(i);
  }
  EXPECT_EQ(labels, expected);
  EXPECT_EQ(sizes, (std::vector<int64_t>{6, 6, 8, 8, 7, 0}));
  EXPECT_EQ(pipeline->bad_samples(), 5);
  exact.bad_samples.policy = OnBadSample::kSubstitute;  // keeps the count instead
  auto substituted = pipeline_of(exact, {0, 3});
  EXPECT_EQ(take(*substituted, 3)[2].size(), 8U);
}

// The batch that fails is the same for any threads: samples are told in the order of the batches.
TEST(BadSamples, TheRunFailsWhenTheBudgetIsUsedUp) {
  for (const int threads : {1, 4}) {
    PipelineOptions in_order = options(OnBadSample::kSkip, 0.05);  // 2 of 40
    in_order.order.shuffle = false;
    in_order.worker_threads = in_order.prefetch_batches = threads;
    auto pipeline = pipeline_of(in_order, {4, 12, 28, 29});
    take(*pipeline, 3);
    for (int again = 0; again < 2; ++again) {
      EXPECT_EQ(core::message_of([&] { pipeline->next(); }, ErrorCode::kCorruptData),
                "too many bad samples: the last of them: shard-0 at offset 28: expected at most 2 of 40 "
                "(--bad_sample_budget=0.05), got 3; list them with trainyard data verify and write the files again, or "
                "raise --bad_sample_budget");
    }
    EXPECT_EQ(pipeline->position(), (Position{0, 24}));
  }
}

// Two of 40 are allowed, and the third one ends the run: the bad samples behind it are not tried.
TEST(BadSamples, NoMoreAreTriedThanEndTheRun) {
  PipelineOptions in_order = options(OnBadSample::kSkip, 0.05);
  in_order.order.shuffle = false;
  auto pipeline = pipeline_of(in_order, {4, 5, 6, 7, 8});
  EXPECT_EQ(core::code_of([&] { pipeline->next(); }), ErrorCode::kCorruptData);
  EXPECT_EQ(pipeline->bad_samples(), 3);
}

// The first sample is bad, so that each place holds the one that is in its stead.
TEST(BadSamples, ACachedSampleIsNamedByTheOneThatWasRead) {
  PipelineOptions cached = options(OnBadSample::kSkip);
  cached.repeat_cached_sample = true;
  auto pipeline = pipeline_of(cached, {0});
  const std::vector<Batch> batches = pipeline->next();
  ASSERT_EQ(batches.size(), 1U);
  const int64_t label = batches[0].labels().const_data_ptr<int64_t>()[0];
  EXPECT_NE(label, 0);
  EXPECT_EQ(batches[0].sample_indices, std::vector<int64_t>(8, label));
  EXPECT_EQ(pipeline->bad_samples(), 1);
}

TEST(BadSamples, TheBudgetOfSmallSets) {
  EXPECT_EQ(BadSampleOptions().allowed(1281167), 128);
  EXPECT_EQ((BadSampleOptions{.budget = 0.0001}.allowed(300)), 1);
  EXPECT_EQ((BadSampleOptions{.budget = 0.2}.allowed(26)), 5);
  EXPECT_EQ((BadSampleOptions{.budget = 1}.allowed(26)), 26);
  EXPECT_EQ((BadSampleOptions{.budget = 3}.allowed(26)), 3) << "a number";
  EXPECT_EQ(BadSampleOptions{.budget = 0}.allowed(1281167), 0);
  auto none = pipeline_of(options(OnBadSample::kSkip, 0), {4});
  EXPECT_EQ(core::code_of([&] { take(*none, 5); }), ErrorCode::kCorruptData);
}

// Whoever asks for bad samples to be skipped means more than a single one.
TEST(BadSamples, WithoutABudgetASmallSetMaySkipTen) {
  EXPECT_EQ(BadSampleOptions().allowed(300), 10);
  EXPECT_EQ(BadSampleOptions().allowed(26), 10);
  EXPECT_EQ(BadSampleOptions().allowed(12), 6);
  EXPECT_EQ(BadSampleOptions().allowed(1), 1);
  PipelineOptions unset = options(OnBadSample::kSkip);
  unset.bad_samples.budget.reset();
  unset.batch_size = 13;
  auto pipeline = pipeline_of(unset, {1, 3, 5, 7, 9, 11, 13, 15, 17, 19}, 26);
  take(*pipeline, 4);
  EXPECT_EQ(pipeline->bad_samples(), 10);
  auto one_more = pipeline_of(unset, {1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21}, 26);
  const std::string why = core::message_of([&] { take(*one_more, 2); }, ErrorCode::kCorruptData);
  EXPECT_NE(why.find("at most 10 of 26 (--bad_sample_budget is not given)"), std::string::npos) << why;
}

TEST(BadSamples, ASetWithoutAGoodSampleEnds) {
  for (const OnBadSample policy : {OnBadSample::kSkip, OnBadSample::kSubstitute}) {
    auto pipeline = pipeline_of(options(policy, 1), {0, 1, 2}, 3);
    EXPECT_EQ(core::code_of([&] { pipeline->next(); }), ErrorCode::kCorruptData);
  }
}

// An epoch of repeated samples, or of balanced classes, never has as many different ones as would be enough.
TEST(BadSamples, AnEpochOfFewerSamplesWithoutAGoodOneEnds) {
  std::set<int64_t> all;
  for (int64_t i = 0; i < 12; ++i) all.insert(i);
  PipelineOptions repeated = options(OnBadSample::kSkip, 1);
  repeated.repeated_augmentation = 3;
  PipelineOptions without_budget = repeated;
  without_budget.bad_samples.budget.reset();
  PipelineOptions balanced = options(OnBadSample::kSkip, 1);
  std::vector<int64_t> labels(12, 1);
  labels[0] = 0;
  balanced.balanced_labels = std::make_shared<const std::vector<int64_t>>(labels);
  for (const PipelineOptions& each : {repeated, without_budget, balanced}) {
    EXPECT_EQ(core::code_of([&] { pipeline_of(each, all, 12)->next(); }), ErrorCode::kCorruptData);
  }
}

TEST(BadSamples, TheFirstTenAreLogged) {
  std::set<int64_t> bad;
  for (int64_t i = 0; i < 12; ++i) bad.insert(3 * i);
  auto pipeline = pipeline_of(options(OnBadSample::kSkip), bad);
  ::testing::internal::CaptureStderr();
  take(*pipeline, 10);
  const std::string log = ::testing::internal::GetCapturedStderr();
  size_t lines = 0;
  for (size_t at = log.find("bad sample skipped: spoiled: shard-"); at != std::string::npos;
       at = log.find("bad sample skipped", at + 1)) {
    ++lines;
  }
  EXPECT_EQ(lines, 10U) << log;
  EXPECT_NE(log.find("further bad samples are counted"), std::string::npos) << log;
  EXPECT_EQ(pipeline->bad_samples(), 12);
}

// What the operating system reports is no matter of a sample.
TEST(BadSamples, ThrownErrorsAreNotSkipped) {
  class Failing : public SpoiledNumbers {
   public:
    using SpoiledNumbers::SpoiledNumbers;
    core::Result<Record> read(int64_t index) const override {
      if (index == 7) throw Error(ErrorCode::kIo, "disk is broken");
      return SpoiledNumbers::read(index);
    }
  };
  Pipeline pipeline(std::make_shared<Failing>(40, std::set<int64_t>{}), std::make_shared<StreamTransform>(),
                    options(OnBadSample::kSkip));
  EXPECT_EQ(core::code_of([&] { take(pipeline, 5); }), ErrorCode::kIo);
}

// As a run that goes back to its last checkpoint.
TEST(BadSamples, ATallyThatIsLoadedForgetsWhatCameAfter) {
  const auto bad = [](int64_t sample) {
    return std::vector<BadSample>{BadSample{sample, SpoiledNumbers::spoiled("shard-0")}};
  };
  BadSampleTally tally({.policy = OnBadSample::kSkip, .budget = 2}, 40);
  core::MemoryState nothing, state;
  tally.add(bad(7));
  tally.save(state);
  tally.add(bad(8));
  EXPECT_EQ(core::code_of([&] { tally.add(bad(9)); }), ErrorCode::kCorruptData);
  tally.load(state);
  EXPECT_EQ(tally.count(), 1);
  EXPECT_EQ(core::code_of([&] { tally.add(bad(8)); }), std::nullopt) << "the budget is what it was";
  EXPECT_EQ(tally.count(), 2);
  tally.load(nothing);
  EXPECT_EQ(tally.count(), 0);
}

TEST(BadSamples, PoliciesByName) {
  EXPECT_EQ(on_bad_sample("fail"), OnBadSample::kFail);
  EXPECT_EQ(on_bad_sample("skip"), OnBadSample::kSkip);
  EXPECT_EQ(on_bad_sample("substitute"), OnBadSample::kSubstitute);
  EXPECT_EQ(core::code_of([] { on_bad_sample("skp"); }), ErrorCode::kNotFound);
  for (const double budget : {1.5, -0.1, 1e300}) {
    EXPECT_EQ(core::code_of([&] { BadSampleOptions{.budget = budget}.validate(); }), ErrorCode::kInvalidArgument);
  }
  for (const double budget : {1.0, 5.0, 1e15}) EXPECT_NO_THROW((BadSampleOptions{.budget = budget}.validate()));
}

}  // namespace
}  // namespace trainyard::data::bad_samples_test
