#include "trainyard/parallel/collectives/gradient_buckets.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"

namespace trainyard::parallel::gradient_buckets_test {
namespace {

using core::ErrorCode, ::testing::ElementsAre, ::testing::HasSubstr, ::testing::IsEmpty, ::testing::SizeIs;

// Notes where each bucket begins, counts in elements, when it starts and when it is waited for.
class NotingCommunicator final : public core::Communicator {
 public:
  explicit NotingCommunicator(bool progresses_in_background = true)
      : progresses_in_background_(progresses_in_background) {}

  std::vector<int64_t> begins, ends, waited;
  int most_pending = 0;
  bool fails = false;  // at the next wait

  int rank() const override { return 0; }
  int size() const override { return 2; }
  void all_reduce(at::Tensor /*tensor*/, core::ReduceOp /*op*/) override { ADD_FAILURE() << "not in a bucket"; }
  std::unique_ptr<core::PendingCollective> start_all_reduce(at::Tensor tensor, core::ReduceOp op) override {
    EXPECT_EQ(op, core::ReduceOp::kMean);
    begins.push_back(tensor.storage_offset());
    ends.push_back(tensor.storage_offset() + tensor.numel());
    most_pending = std::max(most_pending, static_cast<int>(begins.size() - waited.size()));
    return std::make_unique<Noted>(*this, begins.back());
  }
  bool progresses_in_background() const override { return progresses_in_background_; }
  void broadcast(at::Tensor /*tensor*/, int /*root*/) override {}
  std::vector<at::Tensor> all_gather(const at::Tensor& tensor) override { return {tensor, tensor}; }
  void barrier() override {}
  void abort(const core::Error& /*error*/) override {}

 private:
  class Noted final : public core::PendingCollective {
   public:
    Noted(NotingCommunicator& all, int64_t begin) : all_(all), begin_(begin) {}
    bool poll() override { return false; }
    void wait() override {
      if (std::exchange(all_.fails, false)) throw core::Error(ErrorCode::kPeerFailed, "a peer has gone");
      all_.waited.push_back(begin_);
    }

   private:
    NotingCommunicator& all_;
    const int64_t begin_;
  };

  const bool progresses_in_background_;
};

// Four parameters; by offset "d" at 0, "c" at 16, "b" at 48, "a" at 64; 80 elements with gaps.
class GradientBucketsTest : public testing::Test {
 protected:
  GradientBucketsTest() {
    for (const auto& [name, count] : {std::pair("a", 10), std::pair("b", 16), std::pair("c", 17), std::pair("d", 1)}) {
      set_.declare({.name = name, .shape = {count}});
    }
    set_.allocate();
  }
  nn::ParameterId id(const std::string& name) const { return *set_.find(name); }
  GradientBuckets make(int64_t bytes) { return {set_, communicator_, core::ReduceOp::kMean, bytes}; }

  nn::ParameterSet set_;
  NotingCommunicator communicator_;
};

TEST_F(GradientBucketsTest, EndWithTheSegmentThatFillsThem) {
  make(1).reduce();
  EXPECT_THAT(communicator_.begins, ElementsAre(0, 16, 48, 64));
  EXPECT_THAT(communicator_.ends, ElementsAre(16, 48, 64, 80));
  communicator_.begins.clear();
  make(4 * 17).reduce();  // "d" and its gap have 16 elements
  EXPECT_THAT(communicator_.begins, ElementsAre(0, 48));
  communicator_.begins.clear();
  make(4 * 16).reduce();
  EXPECT_THAT(communicator_.begins, ElementsAre(0, 16, 48, 64));
  communicator_.begins.clear();
  communicator_.ends.clear();
  make(int64_t{1} << 40).reduce();
  EXPECT_THAT(communicator_.begins, ElementsAre(0));
  EXPECT_THAT(communicator_.ends, ElementsAre(80));
}

TEST_F(GradientBucketsTest, LeaveInTheirOrderWhenAllOfThemIsReady) {
  GradientBuckets buckets = make(4 * 17);  // {d, c} and {b, a}
  buckets.ready(id("a"));
  buckets.ready(id("b"));
  buckets.ready(id("c"));
  EXPECT_THAT(communicator_.begins, IsEmpty()) << "the second one does not overtake the first";
  buckets.ready(id("d"));
  EXPECT_THAT(communicator_.begins, ElementsAre(0, 48));
  EXPECT_EQ(buckets.left(), 2);
  EXPECT_THAT(communicator_.waited, IsEmpty());
  buckets.reduce();
  EXPECT_THAT(communicator_.begins, ElementsAre(0, 48));
  EXPECT_THAT(communicator_.waited, ElementsAre(0, 48));
}

TEST_F(GradientBucketsTest, ReduceStartsWhatHasNotLeft) {
  GradientBuckets buckets = make(1);
  for (int round = 0; round < 2; ++round) {
    communicator_.begins.clear();
    communicator_.waited.clear();
    for (const char* name : {"d", "c", "a"}) buckets.ready(id(name));
    EXPECT_THAT(communicator_.begins, ElementsAre(0, 16));
    buckets.reduce();
    EXPECT_THAT(communicator_.begins, ElementsAre(0, 16, 48, 64));
    EXPECT_THAT(communicator_.waited, ElementsAre(0, 16, 48, 64));
    EXPECT_EQ(buckets.left(), 0);
  }
}

TEST_F(GradientBucketsTest, AGradientIsReadyOnce) {
  GradientBuckets buckets = make(1);
  buckets.ready(id("b"));
  EXPECT_THAT(core::message_of([&] { buckets.ready(id("b")); }, ErrorCode::kInternal), HasSubstr(": b;"));
  buckets.reduce();
  buckets.ready(id("b"));
}

TEST_F(GradientBucketsTest, BeginAnewAfterAnError) {
  GradientBuckets buckets = make(1);
  for (const char* name : {"a", "b", "c", "d"}) buckets.ready(id(name));
  communicator_.fails = true;
  EXPECT_EQ(core::code_of([&] { buckets.reduce(); }), ErrorCode::kPeerFailed);
  EXPECT_EQ(buckets.left(), 0);
  communicator_.begins.clear();
  for (const char* name : {"a", "b", "c", "d"}) buckets.ready(id(name));
  buckets.reduce();
  EXPECT_THAT(communicator_.begins, SizeIs(4));
}

TEST_F(GradientBucketsTest, AreOneWhereNothingGoesOnMeanwhile) {
  NotingCommunicator threads(/*progresses_in_background=*/false);
  GradientBuckets buckets(set_, threads, core::ReduceOp::kMean, 1);
  for (const char* name : {"d", "c", "b", "a", "a"}) buckets.ready(id(name));
  EXPECT_EQ(buckets.left(), 0);
  buckets.reduce();
  EXPECT_THAT(threads.begins, ElementsAre(0));
  EXPECT_THAT(threads.ends, ElementsAre(80));
}

TEST_F(GradientBucketsTest, AreNotMoreThanMayBeOnTheirWay) {
  nn::ParameterSet many;
  for (int i = 0; i < 5 * core::Communicator::kMostStarted; ++i) {
    many.declare({.name = std::to_string(i), .shape = {1 + i % 40}});
  }
  many.allocate();
  GradientBuckets buckets(many, communicator_, core::ReduceOp::kMean, 1);
  EXPECT_LE(buckets.count(), size_t{core::Communicator::kMostStarted});
  EXPECT_GE(buckets.count(), size_t{core::Communicator::kMostStarted} / 4);
  buckets.reduce();
  int64_t end = 0;
  for (size_t b = 0; b < communicator_.begins.size(); ++b) {
    EXPECT_EQ(communicator_.begins[b], end);
    end = communicator_.ends[b];
  }
  EXPECT_EQ(end, many.total());
}

// Of "d" at 0, "c" at 16 to 33, "b" at 48 and "a" at 64 to 74, "c" is in the first and the second slice.
TEST_F(GradientBucketsTest, ASliceLeavesWhenAllGradientsWithAPartInItAreReady) {
  GradientBuckets buckets(set_, communicator_, core::ReduceOp::kMean, {{0, 20}, {20, 28}, {48, 32}});
  for (int round = 0; round < 2; ++round) {
    communicator_.begins.clear();
    communicator_.ends.clear();
    buckets.ready(id("d"));
    EXPECT_THAT(communicator_.begins, IsEmpty());
    buckets.ready(id("c"));
    EXPECT_THAT(communicator_.begins, ElementsAre(0, 20));
    buckets.ready(id("a"));
    EXPECT_THAT(communicator_.begins, ElementsAre(0, 20));
    buckets.ready(id("b"));
    EXPECT_THAT(communicator_.begins, ElementsAre(0, 20, 48));
    EXPECT_THAT(communicator_.ends, ElementsAre(20, 48, 80));
    buckets.reduce();
    EXPECT_THAT(communicator_.begins, ElementsAre(0, 20, 48));
  }
}

// A slice that ends in the gap after a gradient does not wait for the next one.
TEST_F(GradientBucketsTest, AGapBelongsToNoGradient) {
  GradientBuckets buckets(set_, communicator_, core::ReduceOp::kMean, {{0, 1}, {16, 17}, {48, 16}, {64, 10}});
  buckets.ready(id("d"));
  EXPECT_THAT(communicator_.begins, ElementsAre(0));
  buckets.ready(id("c"));
  buckets.ready(id("b"));
  EXPECT_THAT(communicator_.begins, ElementsAre(0, 16, 48));
  buckets.reduce();
  EXPECT_THAT(communicator_.ends, ElementsAre(1, 33, 64, 74));
}

TEST_F(GradientBucketsTest, MoreSlicesThanMayBePendingWaitForTheFirstOnes) {
  nn::ParameterSet many;
  std::vector<GradientSlice> slices;
  for (int i = 0; i < 3 * core::Communicator::kMostStarted; ++i)
    many.declare({.name = std::to_string(i), .shape = {1}});
  many.allocate();
  for (const nn::Segment& segment : many.segments()) slices.push_back({segment.offset, 1});
  GradientBuckets buckets(many, communicator_, core::ReduceOp::kMean, slices);
  for (const nn::Segment& segment : many.segments()) buckets.ready(segment.id);
  EXPECT_LE(buckets.left(), size_t{core::Communicator::kMostStarted});
  EXPECT_THAT(communicator_.waited, IsEmpty()) << "a gradient that is ready waits for nothing";
  buckets.reduce();
  EXPECT_EQ(communicator_.begins.size(), slices.size());
  EXPECT_EQ(communicator_.waited, communicator_.begins);
  EXPECT_LE(communicator_.most_pending, core::Communicator::kMostStarted);
}

TEST_F(GradientBucketsTest, OfNoParametersAreOne) {
  nn::ParameterSet none;
  none.allocate();
  GradientBuckets buckets(none, communicator_, core::ReduceOp::kMean, 1);
  buckets.reduce();
  EXPECT_THAT(communicator_.ends, ElementsAre(0));
}

}  // namespace
}  // namespace trainyard::parallel::gradient_buckets_test
