#include <atomic>
#include <chrono>
#include <thread>

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/data/sources/function_source.h"

namespace trainyard::data::generator_source_test {
namespace {

using core::ErrorCode;
using core::StopToken;
using std::chrono::milliseconds;

core::NamedTensors number(int64_t value) {
  return {{"number", at::full({}, value, at::kLong)}};
}

// The numbers 100 epoch + 0, 1, ..., `items` - 1.
MakeGenerator counting(int64_t items) {
  return [items](int64_t epoch, const StopToken&) -> Generator {
    return [items, epoch, next = int64_t{0}]() mutable -> std::optional<core::NamedTensors> {
      if (next == items) return std::nullopt;
      return number(100 * epoch + next++);
    };
  };
}

// -1: a batch without tensors.
std::vector<int64_t> taken(BatchSource& source, int count) {
  std::vector<int64_t> all;
  for (int i = 0; i < count; ++i) {
    for (const Batch& batch : source.next()) {
      all.push_back(batch.tensors.empty() ? -1 : batch.tensors["number"].item<int64_t>());
    }
  }
  return all;
}

TEST(GeneratorSource, ReplicasTakeBatchesInTurn) {
  GeneratorSource source(counting(5), {.batch_size = 8, .replicas = 2});
  const std::vector<Batch> first = source.next();
  EXPECT_EQ(first[1].tensors["number"].item<int64_t>(), 1);
  EXPECT_EQ(first[1].first_sample, 8);
  EXPECT_EQ(first[0].after, (Position{0, 16}));
  EXPECT_EQ(taken(source, 3), (std::vector<int64_t>{2, 3, 4, 100, 101, 102}));
  EXPECT_EQ(source.position(), (Position{1, 24}));
}

TEST(GeneratorSource, EndsWhereItsGeneratorEnds) {
  GeneratorSource source(counting(3), {.replicas = 2, .repeat = false});
  EXPECT_EQ(taken(source, 2), (std::vector<int64_t>{0, 1, 2, -1}));
  EXPECT_TRUE(source.next().empty());
  EXPECT_TRUE(source.next().empty());
  EXPECT_EQ(source.position(), (Position{0, 3}));
  source.seek({0, 2});
  EXPECT_EQ(taken(source, 1), (std::vector<int64_t>{2, -1}));
  GeneratorSource none(counting(0), {.repeat = false});
  EXPECT_TRUE(none.next().empty());
}

TEST(GeneratorSource, GoesOnWhereItWasSaved) {
  // The 10th batch is the last of the second epoch: a new generator ends at once.
  for (const int steps : {7, 10}) {
    GeneratorSource first(counting(5), {.batch_size = 4}), second(counting(5), {.batch_size = 4});
    taken(first, steps);
    core::MemoryState state;
    first.save(state);
    taken(second, 2);  // and what it made ahead is thrown away
    second.load(state);
    EXPECT_EQ(taken(second, 8), taken(first, 8)) << steps;
    EXPECT_EQ(second.position(), first.position());
  }
}

TEST(GeneratorSource, AnErrorComesBehindTheBatchesBeforeIt) {
  std::atomic<bool> bad = true;
  GeneratorSource source(
      [&](int64_t, const StopToken&) -> Generator {
        return [&, next = int64_t{0}]() mutable -> std::optional<core::NamedTensors> {
          if (next == 3 && bad) throw core::Error(ErrorCode::kCorruptData, "the third is bad");
          return number(next++);
        };
      },
      {.prefetch_batches = 5});
  EXPECT_EQ(taken(source, 3), (std::vector<int64_t>{0, 1, 2}));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(core::message_of([&] { source.next(); }, ErrorCode::kCorruptData), "the third is bad");
  }
  bad = false;
  source.seek(source.position());
  EXPECT_EQ(taken(source, 2), (std::vector<int64_t>{3, 4}));
}

TEST(GeneratorSource, MakesNoMoreAheadThanItMay) {
  std::atomic<int64_t> made = 0;
  GeneratorSource source(
      [&](int64_t, const StopToken&) -> Generator {
        return [&]() -> std::optional<core::NamedTensors> { return number(made++); };
      },
      {.replicas = 2, .prefetch_batches = 3});
  taken(source, 1);
  // Two are taken, six wait, and one more is made for when there is room.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (made < 9 && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(milliseconds(1));
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(made, 9);
  // The destructor ends a thread that waits for room.
}

// Waits for `stop` before item `last`, as who waits for the network does.
MakeGenerator stuck_before(int64_t last, std::atomic<int>& alive) {
  return [last, &alive](int64_t, const StopToken& stop) -> Generator {
    ++alive;
    const auto guard = std::shared_ptr<void>(&alive, [&alive](void*) { --alive; });
    return [last, stop, guard, next = int64_t{0}]() mutable -> std::optional<core::NamedTensors> {
      if (next == last) stop.wait_for(std::chrono::hours(1));
      return number(next++);
    };
  };
}

TEST(GeneratorSource, StopEndsAGeneratorThatWaits) {
  std::atomic<int> alive = 0;
  GeneratorSource source(stuck_before(2, alive), {});
  taken(source, 2);
  EXPECT_EQ(alive, 1);
  std::thread stopper([&] {
    std::this_thread::sleep_for(milliseconds(20));
    source.stop();
  });
  EXPECT_EQ(core::code_of([&] { source.next(); }), ErrorCode::kCancelled);
  stopper.join();
  EXPECT_EQ(alive, 0) << "its generator is destroyed";
  source.stop();
  EXPECT_EQ(core::code_of([&] { source.next(); }), ErrorCode::kCancelled);
  { GeneratorSource destroyed(stuck_before(0, alive), {}); }  // whose thread never began
  GeneratorSource sought(stuck_before(1, alive), {});
  taken(sought, 1);
  sought.seek({});
  EXPECT_EQ(alive, 0);
  EXPECT_EQ(taken(sought, 1), (std::vector<int64_t>{0}));
}

TEST(GeneratorSource, CountsTheSecondsThatItWaited) {
  GeneratorSource source(
      [](int64_t, const StopToken& stop) -> Generator {
        return [stop]() -> std::optional<core::NamedTensors> {
          stop.wait_for(milliseconds(40));
          return number(0);
        };
      },
      {});
  EXPECT_EQ(source.waited_seconds(), 0.0);
  taken(source, 2);
  EXPECT_GE(source.waited_seconds(), 0.07);
}

TEST(GeneratorSource, RefusesWhatCannotBe) {
  const auto with = [](const GeneratorSourceOptions& options) {
    return core::problem_of([&] { GeneratorSource(counting(1), options); });
  };
  EXPECT_EQ(with({.batch_size = 0}), "the batch size of a source cannot be used");
  EXPECT_EQ(with({.replicas = 0}), "the number of replicas of a source cannot be used");
  EXPECT_EQ(with({.prefetch_batches = 0}), "the number of batches made ahead of a source cannot be used");
  EXPECT_EQ(core::problem_of([] { GeneratorSource(nullptr, {}); }), "a source of generated batches needs a generator");

  GeneratorSource empty(counting(0), {});
  EXPECT_EQ(core::problem_of([&] { empty.next(); }), "a generator ended without a batch");
  GeneratorSource no_generator([](int64_t, const StopToken&) { return Generator(); }, {});
  EXPECT_EQ(core::problem_of([&] { no_generator.next(); }), "no generator was made for an epoch");
  GeneratorSource shorter(counting(3), {});
  shorter.seek({1, 4});
  EXPECT_EQ(core::problem_of([&] { shorter.next(); }),
            "a generator ended before the position at which the run should go on");
  shorter.seek({1, 4});
  EXPECT_THAT(core::message_of([&] { shorter.next(); }), core::Says("expected at least 4 samples in epoch 1, got 3"));
  EXPECT_EQ(core::problem_of([&] { shorter.seek({0, -1}); }), "no source has such a position");
  const auto sought = [&](const Position& position) {
    return std::string(core::thrown_by([&] { shorter.seek(position); }).detail().actual);
  };
  EXPECT_EQ(sought({3, -1}), "epoch 3, offset -1");
  EXPECT_EQ(sought({-2, 5}), "epoch -2, offset 5");
  GeneratorSource none(counting(0), {});
  EXPECT_EQ(std::string(core::thrown_by([&] { none.next(); }).detail().where), "epoch 0");
}

}  // namespace
}  // namespace trainyard::data::generator_source_test
