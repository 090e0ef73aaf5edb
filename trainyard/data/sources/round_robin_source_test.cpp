#include "trainyard/data/sources/round_robin_source.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/data/sources/function_source.h"

namespace trainyard::data::round_robin_source_test {
namespace {

std::shared_ptr<BatchSource> counted() {
  return std::make_shared<FunctionSource>(
      [](const BatchPlace& place) -> core::NamedTensors {
        return {{"number", at::full({4}, 10 * place.epoch + place.batch, at::kLong)}};
      },
      FunctionSourceOptions{.batch_size = 4, .batches_per_epoch = 3});
}

std::vector<int64_t> numbers(BatchSource& source, int steps) {
  std::vector<int64_t> all;
  for (int i = 0; i < steps; ++i) {
    for (const Batch& batch : source.next()) all.push_back(batch.tensors["number"][0].item<int64_t>());
  }
  return all;
}

// Ends after its epoch's two batches, as an evaluation's source does.
class Ending : public BatchSource {
 public:
  explicit Ending(bool last_is_empty) : last_is_empty_(last_is_empty) {}
  int64_t batch_size() const override { return 1; }
  int replicas() const override { return 1; }
  std::vector<Batch> next() override {
    if (position_.offset >= 2) {
      if (!last_is_empty_) return {};
      return {{.tensors = {{"number", at::empty({0}, at::kLong)}}}};
    }
    return {{.tensors = {{"number", at::full({1}, 10 * position_.epoch + position_.offset++, at::kLong)}}}};
  }
  double waited_seconds() const override { return 0; }
  void stop() override {}
  Position position() const override { return position_; }
  void seek(Position position) override { position_ = position; }

 private:
  bool last_is_empty_;
  Position position_;
};

TEST(RoundRobinSource, GivesEachReplicaTheNextBatch) {
  RoundRobinSource two(counted(), 2);
  EXPECT_EQ(numbers(two, 3), (std::vector<int64_t>{0, 1, 2, 10, 11, 12}));
  EXPECT_EQ(two.batch_size(), 4);
  const std::vector<Batch> next = two.next();
  EXPECT_EQ(next[0].first_sample, 0);
  EXPECT_EQ(next[1].first_sample, 4);
  EXPECT_EQ(next[0].after, two.position()) << "a position is between steps";
}

TEST(RoundRobinSource, GoesOnWhereItWasSavedWithAnyNumberOfReplicas) {
  RoundRobinSource two(counted(), 2), one(counted(), 1);
  numbers(two, 2);
  core::MemoryState state;
  two.save(state);
  one.load(state);
  EXPECT_EQ(numbers(one, 4), numbers(two, 2));
}

TEST(RoundRobinSource, BeginsASourceThatEndsAgain) {
  for (const bool last_is_empty : {false, true}) {
    RoundRobinSource source(std::make_shared<Ending>(last_is_empty), 2);
    EXPECT_EQ(numbers(source, 2), (std::vector<int64_t>{0, 1, 10, 11}));
  }
}

TEST(RoundRobinSource, SaysWhatIsWrong) {
  EXPECT_EQ(
      core::message_of([] { RoundRobinSource source(nullptr, 2); }),
      "batches cannot be dealt to replicas: expected a source of one batch at a time, and at least 1 replica, got "
      "no source, 2 replicas");
  EXPECT_EQ(core::code_of([] { RoundRobinSource source(std::make_shared<RoundRobinSource>(counted(), 2), 2); }),
            core::ErrorCode::kInvalidArgument);
  EXPECT_THAT(core::message_of([] { RoundRobinSource source(counted(), 0); }),
              core::Says("at least 1 replica, got 1 at a time, 0 replicas"));
  EXPECT_EQ(core::message_of([] { RoundRobinSource source(counted(), 1); }), "no error");
  class Empty : public Ending {
   public:
    Empty() : Ending(false) {}
    std::vector<Batch> next() override { return {}; }
  };
  RoundRobinSource none(std::make_shared<Empty>(), 1);
  EXPECT_EQ(core::problem_of([&] { none.next(); }), "a source of batches has none");
}

TEST(RoundRobinSource, EndsWithItsSourceWhereItDoesNotRepeat) {
  for (const bool last_is_empty : {false, true}) {
    RoundRobinSource one(std::make_shared<Ending>(last_is_empty), 1, /*repeat=*/false);
    EXPECT_EQ(numbers(one, 4), (std::vector<int64_t>{0, 1})) << last_is_empty;
    RoundRobinSource three(std::make_shared<Ending>(last_is_empty), 3, /*repeat=*/false);
    EXPECT_TRUE(three.next().empty()) << "the third replica would have none";
  }
}

}  // namespace
}  // namespace trainyard::data::round_robin_source_test
