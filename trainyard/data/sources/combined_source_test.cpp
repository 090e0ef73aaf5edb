#include "trainyard/data/sources/combined_source.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/data/sources/retried_source.h"
#include "trainyard/data/sources/tensor_source.h"

namespace trainyard::data::combined_source_test {
namespace {

using Sources = std::vector<std::shared_ptr<BatchSource>>;

// Samples 100 `tag`, 100 `tag` + 1, ... of a tensor "x", shuffled.
std::shared_ptr<BatchSource> tagged(int64_t tag, int64_t samples, TensorSourceOptions options,
                                    const std::string& name = "x") {
  at::Tensor values = at::full({samples}, 100 * tag, at::kLong);
  for (int64_t i = 0; i < samples; ++i) values[i] += i;
  options.shuffle = true;
  return std::make_shared<TensorSource>(core::NamedTensors{{name, values}}, options);
}

// All samples of the next `count` global batches, in order; an empty batch is -1.
std::vector<int64_t> values_of(BatchSource& source, int count) {
  std::vector<int64_t> all;
  for (int i = 0; i < count; ++i) {
    for (const Batch& batch : source.next()) {
      for (int64_t s = 0; s < batch.samples(); ++s) all.push_back(batch.tensors["x"][s].item<int64_t>());
      if (batch.samples() == 0) all.push_back(-1);
    }
  }
  return all;
}

std::vector<int64_t> tags_of(BatchSource& source, int count) {
  std::vector<int64_t> all = values_of(source, count);
  for (int64_t& value : all) value /= 100;
  return all;
}

MixedSource mix(std::vector<double> weights, const MixedSourceOptions& options,
                const TensorSourceOptions& of_each = {.batch_size = 1}) {
  std::vector<MixedPart> parts;
  for (size_t i = 0; i < weights.size(); ++i) {
    parts.push_back({tagged(static_cast<int64_t>(i), 20, of_each), weights[i]});
  }
  return {parts, options};
}

TEST(MixedSource, DrawsByWeight) {
  MixedSource source = mix({1, 3, 0.5}, {.seed = 4});
  constexpr int kBatches = 9000;
  const std::vector<int64_t> tags = tags_of(source, kBatches);
  const std::vector<double> shares = {1 / 4.5, 3 / 4.5, 0.5 / 4.5};
  for (int64_t tag = 0; tag < 3; ++tag) {
    const double share = shares[tag];
    const auto times = static_cast<double>(std::count(tags.begin(), tags.end(), tag));
    EXPECT_NEAR(times / kBatches, share, 4 * std::sqrt(share * (1 - share) / kBatches)) << tag;
  }
}

TEST(MixedSource, TheDrawIsAFunctionOfSeedAndBatch) {
  MixedSource one = mix({1, 1}, {.seed = 1}), again = mix({1, 1}, {.seed = 1}), other = mix({1, 1}, {.seed = 2});
  const std::vector<int64_t> tags = tags_of(one, 40);
  EXPECT_EQ(tags_of(again, 40), tags);
  EXPECT_NE(tags_of(other, 40), tags);
  again.seek({});
  EXPECT_EQ(tags_of(again, 40), tags);
  // Other batches of the same sources are drawn alike.
  MixedSource two_replicas = mix({1, 1}, {.seed = 1}, {.batch_size = 1, .replicas = 2});
  const std::vector<int64_t> twice = tags_of(two_replicas, 40);
  for (size_t i = 0; i < tags.size(); ++i) {
    EXPECT_EQ(twice[2 * i], tags[i]);
    EXPECT_EQ(twice[2 * i + 1], tags[i]);
  }
}

TEST(MixedSource, EachPartGivesAllItsSamples) {
  MixedSource source = mix({1, 2}, {.continue_without_ended = true}, {.batch_size = 3, .replicas = 2, .repeat = false});
  std::vector<int64_t> all;
  for (int i = 0; i < 100; ++i) {
    for (const int64_t value : values_of(source, 1)) all.push_back(value);
  }
  EXPECT_TRUE(source.next().empty());
  EXPECT_EQ(source.position(), (Position{0, 40}));
  std::erase(all, -1);
  std::sort(all.begin(), all.end());
  std::vector<int64_t> expected;
  for (int64_t i = 0; i < 40; ++i) expected.push_back(i < 20 ? i : 80 + i);
  EXPECT_EQ(all, expected);
}

TEST(MixedSource, ASourceThatEndsEndsTheMix) {
  MixedSource source = mix({1, 1}, {.seed = 3}, {.batch_size = 5, .repeat = false});
  int batches = 0;
  while (!source.next().empty()) ++batches;
  EXPECT_GE(batches, 4);
  EXPECT_LE(batches, 8);
  EXPECT_TRUE(source.next().empty());
  source.seek({});
  for (int i = 0; i < batches; ++i) EXPECT_FALSE(source.next().empty());
  EXPECT_TRUE(source.next().empty());
}

TEST(MixedSource, GoesOnWhereItWasSaved) {
  const TensorSourceOptions endless{.batch_size = 3}, short_one{.batch_size = 3, .repeat = false};
  const auto make = [&] {
    return MixedSource({{tagged(0, 20, endless), 1}, {tagged(1, 7, short_one), 2}, {tagged(2, 11, endless), 1}},
                       {.seed = 8, .continue_without_ended = true});
  };
  for (const int batches : {0, 1, 5, 30}) {
    MixedSource first = make(), second = make();
    values_of(first, batches);
    core::MemoryState state;
    first.save(state);
    second.load(state);
    EXPECT_EQ(second.position(), first.position());
    EXPECT_EQ(values_of(second, 20), values_of(first, 20)) << batches;
  }
}

TEST(MixedSource, RefusesWhatCannotBe) {
  const auto with = [](const std::vector<MixedPart>& parts) {
    return core::problem_of([&] { MixedSource(parts, {}); });
  };
  EXPECT_EQ(with({}), "there is no source to combine");
  EXPECT_EQ(with({{tagged(0, 4, {})}, {nullptr}}), "source 1 of a combination is null");
  EXPECT_EQ(with({{tagged(0, 4, {})}, {tagged(0, 4, {.replicas = 2})}}),
            "source 1 of a combination has another number of replicas than source 0");
  for (const double weight :
       {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(with({{tagged(0, 4, {})}, {tagged(0, 4, {}), weight}}), "source 1 cannot be mixed by its weight");
  }
  MixedSource source = mix({1, 1}, {});
  EXPECT_EQ(core::code_of([&] { source.seek({0, 7}); }), core::ErrorCode::kUnsupported);
  core::MemoryState state;
  source.save(state);
  MixedSource larger = mix({1, 1, 1}, {});
  EXPECT_EQ(core::problem_of([&] { larger.load(state); }), "a run goes on with another number of combined sources");
}

std::shared_ptr<BatchSource> squares(int64_t side, int64_t batch_size) {
  return std::make_shared<TensorSource>(core::NamedTensors{{"images", at::zeros({10, 3, side, side})}},
                                        TensorSourceOptions{.batch_size = batch_size});
}

TEST(JoinedSource, EachReplicaHasASourceOfItsOwn) {
  JoinedSource source({squares(48, 2), squares(32, 5)});
  EXPECT_EQ(source.replicas(), 2);
  EXPECT_EQ(source.batch_size(), 5);
  const std::vector<Batch> batches = source.next();
  ASSERT_EQ(batches.size(), 2U);
  EXPECT_EQ(batches[0].images().sizes(), (at::IntArrayRef{2, 3, 48, 48}));
  EXPECT_EQ(batches[1].images().sizes(), (at::IntArrayRef{5, 3, 32, 32}));
  EXPECT_EQ(batches[0].first_sample, 0);
  EXPECT_EQ(batches[1].first_sample, 2);
  EXPECT_EQ(batches[0].after, (Position{0, 7}));
}

TEST(JoinedSource, EndsWithItsLastSource) {
  const TensorSourceOptions once{.batch_size = 4, .repeat = false};
  JoinedSource source(Sources{tagged(0, 4, once), tagged(1, 9, once)});
  EXPECT_EQ(source.next()[0].samples(), 4);
  const std::vector<Batch> second = source.next();
  EXPECT_TRUE(second[0].tensors.empty());
  EXPECT_EQ(second[1].samples(), 4);
  EXPECT_EQ(source.next()[1].samples(), 1);
  EXPECT_TRUE(source.next().empty());
  EXPECT_EQ(source.position(), (Position{0, 13}));
}

TEST(JoinedSource, GoesOnWhereItWasSaved) {
  const auto make = [] {
    return JoinedSource(Sources{tagged(0, 7, {.batch_size = 2}), tagged(1, 9, {.batch_size = 3})});
  };
  JoinedSource first = make(), second = make();
  values_of(first, 6);
  core::MemoryState state;
  first.save(state);
  second.load(state);
  EXPECT_EQ(values_of(second, 9), values_of(first, 9));
  EXPECT_EQ(core::problem_of([] {
              JoinedSource(Sources{squares(4, 1), tagged(0, 4, {.replicas = 2})});
            }),
            "source 1 makes batches for several replicas, and is joined as one's");
}

TEST(ZippedSource, BatchesHoldTheTensorsOfAll) {
  const TensorSourceOptions options{.batch_size = 2, .replicas = 2, .repeat = false};
  const auto make = [&] { return ZippedSource(Sources{tagged(0, 8, options), tagged(5, 6, options, "y")}); };
  ZippedSource source = make();
  const std::vector<Batch> batches = source.next();
  ASSERT_EQ(batches.size(), 2U);
  EXPECT_EQ(batches[1].tensors.names(), (std::vector<std::string>{"x", "y"}));
  EXPECT_GE(batches[1].tensors["y"].min().item<int64_t>(), 500);
  EXPECT_EQ(batches[1].first_sample, 2);
  EXPECT_EQ(batches[1].after, (Position{0, 4}));
  core::MemoryState state;
  source.save(state);
  ZippedSource resumed = make();
  resumed.load(state);
  const Batch one = source.next()[0], other = resumed.next()[0];
  EXPECT_TRUE(one.tensors["x"].equal(other.tensors["x"]));
  EXPECT_TRUE(one.tensors["y"].equal(other.tensors["y"]));
  EXPECT_TRUE(source.next().empty()) << "the second source has ended";

  ZippedSource same_names(Sources{tagged(0, 8, {}), tagged(0, 8, {})});
  EXPECT_EQ(core::problem_of([&] { same_names.next(); }), "two sources side by side give a tensor named 'x'");
  EXPECT_NE(core::problem_of([] { ZippedSource(Sources{tagged(0, 8, {}), tagged(0, 8, {.replicas = 2})}); }), "");
}

class Waiting : public SourceDecorator {
 public:
  Waiting(double seconds, int64_t bad) : SourceDecorator(tagged(0, 4, {})), seconds_(seconds), bad_(bad) {}
  std::vector<Batch> next() override { return source()->next(); }
  double waited_seconds() const override { return seconds_; }
  int64_t bad_samples() const override { return bad_; }
  void stop() override { stopped = true; }
  bool stopped = false;

 private:
  double seconds_;
  int64_t bad_;
};

TEST(CombinedSource, StopsItsSourcesAndSumsWhatTheyCount) {
  const auto first = std::make_shared<Waiting>(1.5, 2), second = std::make_shared<Waiting>(0.25, 5);
  ZippedSource source(Sources{first, second});
  EXPECT_EQ(source.waited_seconds(), 1.75);
  EXPECT_EQ(source.bad_samples(), 7);
  source.stop();
  EXPECT_TRUE(first->stopped);
  EXPECT_TRUE(second->stopped);
}

// Cannot read its second batch at first.
class FailingOnce : public SourceDecorator {
 public:
  explicit FailingOnce(std::shared_ptr<BatchSource> source) : SourceDecorator(std::move(source)) {}
  std::vector<Batch> next() override {
    if (++calls_ == 2) throw core::Error(core::ErrorCode::kIo, "the disk is away");
    return source()->next();
  }

 private:
  int calls_ = 0;
};

// An image must not get the label of the image behind it.
TEST(ZippedSource, StaysSideBySideWhereAnErrorIsRetried) {
  const TensorSourceOptions options{.batch_size = 2};
  const auto failing = std::make_shared<FailingOnce>(tagged(5, 8, options, "y"));
  const auto source = retried(std::make_shared<ZippedSource>(Sources{tagged(0, 8, options), failing}));
  for (int i = 0; i < 4; ++i) {
    const Batch batch = source->next()[0];
    EXPECT_TRUE(batch.tensors["y"].equal(batch.tensors["x"].add(500))) << i;
    EXPECT_EQ(batch.after, (Position{0, 2 * (i + 1)}));
  }
}

TEST(JoinedSource, LosesNoBatchWhereAnErrorIsRetried) {
  const TensorSourceOptions options{.batch_size = 2};
  JoinedSource sound(Sources{tagged(0, 8, options), tagged(1, 8, options)});
  const auto failing = std::make_shared<FailingOnce>(tagged(1, 8, options));
  const auto source = retried(std::make_shared<JoinedSource>(Sources{tagged(0, 8, options), failing}));
  EXPECT_EQ(values_of(*source, 5), values_of(sound, 5));
  // From the beginning, or from a saved place, nothing is left of an error.
  core::MemoryState begin;
  sound.seek({});
  sound.save(begin);
  for (const bool loads : {false, true}) {
    JoinedSource broken(Sources{tagged(0, 8, options), std::make_shared<FailingOnce>(tagged(1, 8, options))});
    values_of(broken, 1);
    EXPECT_EQ(core::code_of([&] { broken.next(); }), core::ErrorCode::kIo);
    loads ? broken.load(begin) : broken.seek({});
    sound.seek({});
    EXPECT_EQ(values_of(broken, 3), values_of(sound, 3)) << loads;
  }
}

// What is saved behind an error has all sources at the same batch.
TEST(ZippedSource, IsSavedSideBySideBehindAnError) {
  const TensorSourceOptions options{.batch_size = 2};
  ZippedSource broken(Sources{tagged(0, 8, options), std::make_shared<FailingOnce>(tagged(5, 8, options, "y"))});
  values_of(broken, 1);
  EXPECT_EQ(core::code_of([&] { broken.next(); }), core::ErrorCode::kIo);
  core::MemoryState state;
  broken.save(state);
  ZippedSource continued(Sources{tagged(0, 8, options), tagged(5, 8, options, "y")});
  continued.load(state);
  ZippedSource sound(Sources{tagged(0, 8, options), tagged(5, 8, options, "y")});
  values_of(sound, 1);
  for (int i = 1; i < 4; ++i) {
    const Batch expected = sound.next()[0], loaded = continued.next()[0], again = broken.next()[0];
    for (const char* name : {"x", "y"}) {
      EXPECT_TRUE(loaded.tensors[name].equal(expected.tensors[name])) << name << i;
      EXPECT_TRUE(again.tensors[name].equal(expected.tensors[name])) << name << i;
    }
  }
}

TEST(CombinedSource, SaysWhichNumbersDoNotFit) {
  const auto detail = [](const std::function<void()>& call) {
    return core::ErrorDetail(core::thrown_by(call).detail());
  };
  MixedSource source = mix({1, 1}, {});
  EXPECT_EQ(detail([&] { source.seek({2, 7}); }).actual, "epoch 2, offset 7");
  core::MemoryState state;
  source.save(state);
  MixedSource larger = mix({1, 1, 1}, {});
  const core::ErrorDetail other_size = detail([&] { larger.load(state); });
  EXPECT_EQ(other_size.expected, "2");
  EXPECT_EQ(other_size.actual, "3");
  const core::ErrorDetail replicas = detail([] {
    MixedSource({{tagged(0, 4, {})}, {tagged(0, 4, {.replicas = 2})}}, {});
  });
  EXPECT_EQ(replicas.expected, "1");
  EXPECT_EQ(replicas.actual, "2");
  const core::ErrorDetail weight = detail([] { MixedSource({{tagged(0, 4, {})}, {tagged(0, 4, {}), -1.5}}, {}); });
  EXPECT_EQ(weight.actual, "-1.5");
  const core::ErrorDetail joined = detail([] { JoinedSource(Sources{squares(4, 1), tagged(0, 4, {.replicas = 2})}); });
  EXPECT_EQ(joined.expected, "1 replica");
  EXPECT_EQ(joined.actual, "2");
  ZippedSource same_names(Sources{tagged(0, 8, {}), tagged(0, 8, {}, "y"), tagged(0, 8, {})});
  EXPECT_EQ(detail([&] { same_names.next(); }).where, "source 2, replica 0");
  EXPECT_EQ(core::problem_of([] { retried(nullptr); }), "there is no source to retry");
}

TEST(MixedSource, SavesWhichSourcesHaveEnded) {
  MixedSource source = mix({1, 1, 1}, {.continue_without_ended = true}, {.batch_size = 20, .repeat = false});
  const auto ended = [&] {
    core::MemoryState state;
    source.save(state);
    std::vector<int64_t> all;
    for (const char* name : {"ended/0", "ended/1", "ended/2"}) all.push_back(state.integer(name));
    return all;
  };
  EXPECT_EQ(ended(), (std::vector<int64_t>{0, 0, 0}));
  EXPECT_EQ(values_of(source, 4).size(), 60U) << "and then it is at its end";
  EXPECT_EQ(ended(), (std::vector<int64_t>{1, 1, 1}));
  source.seek({});
  EXPECT_EQ(ended(), (std::vector<int64_t>{0, 0, 0}));
}

}  // namespace
}  // namespace trainyard::data::combined_source_test
