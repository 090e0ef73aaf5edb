#include "trainyard/data/sources/function_source.h"

#include <chrono>
#include <thread>

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"

namespace trainyard::data::function_source_test {
namespace {

// A scalar that tells its place, without a batch dimension.
core::NamedTensors told(const BatchPlace& place) {
  return {{"place", at::full({}, 100 * place.epoch + 10 * place.batch + place.replica, at::kLong)}};
}

std::vector<int64_t> places(FunctionSource& source, int count) {
  std::vector<int64_t> all;
  for (int i = 0; i < count; ++i) {
    for (const Batch& batch : source.next()) all.push_back(batch.tensors["place"].item<int64_t>());
  }
  return all;
}

TEST(FunctionSource, TellsEachReplicaItsPlace) {
  FunctionSource source(told, {.replicas = 2, .batch_size = 8, .batches_per_epoch = 2});
  EXPECT_EQ(places(source, 3), (std::vector<int64_t>{0, 1, 10, 11, 100, 101}));
  const std::vector<Batch> next = source.next();
  EXPECT_EQ(next[1].first_sample, 8);
  EXPECT_EQ(next[1].after, (Position{2, 0}));
}

TEST(FunctionSource, GoesOnWhereItWasSaved) {
  FunctionSource first(told, {.batch_size = 4, .batches_per_epoch = 5}),
      second(told, {.batch_size = 4, .batches_per_epoch = 5});
  places(first, 7);
  core::MemoryState state;
  first.save(state);
  second.load(state);
  EXPECT_EQ(places(second, 4), places(first, 4));
}

// A position of a run with other batches: the batch that has its sample, in the epoch that has the batch.
TEST(FunctionSource, GoesToTheBatchOfASample) {
  FunctionSource source(told, {.replicas = 2, .batch_size = 4, .batches_per_epoch = 3});
  source.seek({2, 37});
  EXPECT_EQ(source.position(), (Position{3, 8}));
  EXPECT_EQ(places(source, 2), (std::vector<int64_t>{310, 311, 320, 321}));
  FunctionSource endless(told, {.batch_size = 4});
  endless.seek({0, 11});
  EXPECT_EQ(places(endless, 1), (std::vector<int64_t>{20}));
}

TEST(FunctionSource, AnEpochWithoutAnEndStaysTheFirst) {
  FunctionSource source(told, {.batch_size = 3});
  places(source, 1000);
  EXPECT_EQ(source.position(), (Position{0, 3000}));
}

TEST(FunctionSource, RefusesWhatCannotBe) {
  const auto with = [](const FunctionSourceOptions& options) {
    return core::problem_of([&] { FunctionSource(told, options); });
  };
  EXPECT_EQ(with({.replicas = 0}), "the number of replicas of a source cannot be used");
  EXPECT_EQ(with({.batch_size = 0}), "the batch size of a source cannot be used");
  EXPECT_EQ(with({.batches_per_epoch = -1}), "the number of batches in an epoch of a source cannot be used");
  EXPECT_NE(core::problem_of([] { FunctionSource(nullptr, {}); }), "");
}

TEST(FunctionSource, SaysWhichNumberIsTooSmall) {
  const auto message = [](const FunctionSourceOptions& options) {
    return core::message_of([&] { FunctionSource(told, options); });
  };
  EXPECT_THAT(message({.replicas = -1}), core::Says("the number of replicas", "expected at least 1, got -1"));
  EXPECT_THAT(message({.batch_size = -2}), core::Says("the batch size", "expected at least 1, got -2"));
  EXPECT_THAT(message({.batches_per_epoch = -3}), core::Says("batches in an epoch", "expected at least 0, got -3"));
}

TEST(FunctionSource, AnEpochMayHaveOneBatch) {
  FunctionSource source(told, {.batch_size = 3, .batches_per_epoch = 1});
  EXPECT_EQ(places(source, 3), (std::vector<int64_t>{0, 100, 200}));
  EXPECT_EQ(source.position(), (Position{3, 0}));
}

TEST(FunctionSource, CountsTheSecondsThatItWaited) {
  const auto slow = [](const BatchPlace& place) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return told(place);
  };
  FunctionSource source(slow, {.batch_size = 3});
  EXPECT_EQ(source.waited_seconds(), 0);
  source.next();
  const double once = source.waited_seconds();
  EXPECT_GE(once, 0.02);
  source.next();
  EXPECT_GE(source.waited_seconds(), once + 0.02);
}

}  // namespace
}  // namespace trainyard::data::function_source_test
