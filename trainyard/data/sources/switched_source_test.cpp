#include "trainyard/data/sources/switched_source.h"

#include <memory>
#include <utility>
#include <vector>

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/data/sources/function_source.h"
#include "trainyard/data/sources/retried_source.h"

namespace trainyard::data::switched_source_test {
namespace {

std::shared_ptr<FunctionSource> numbers(int64_t first) {
  return std::make_shared<FunctionSource>(
      [first](const BatchPlace& place) -> core::NamedTensors {
        return {{"x", at::full({1}, static_cast<double>(first + place.batch))}};
      },
      FunctionSourceOptions{.batch_size = 1, .batches_per_epoch = 100});
}

double value(BatchSource& source) {
  return source.next().at(0).tensors["x"].item<double>();
}

TEST(SwitchedSource, TakesBatchesByHandAndFromSources) {
  SwitchedSource source(1, 1);
  EXPECT_EQ(core::problem_of([&] { source.next(); }), "there is no batch");
  source.hand({{.tensors = {{"x", at::full({1}, 7.0)}}}});
  EXPECT_EQ(value(source), 7);
  EXPECT_EQ(core::problem_of([&] { source.next(); }), "there is no batch") << "each is taken once";

  source.seek({0, 3});
  source.attach(numbers(0));
  EXPECT_EQ(value(source), 3) << "the position waited for its source";
  source.hand({{.tensors = {{"x", at::full({1}, 9.0)}}}});
  EXPECT_EQ(value(source), 9);
  EXPECT_EQ(source.position(), (Position{0, 4}));
  source.attach(numbers(1000));
  EXPECT_EQ(value(source), 1004);

  EXPECT_EQ(core::message_of([&] { source.hand({}); }), "the input must give one batch a replica: expected 1, got 0");
  EXPECT_EQ(core::message_of([&] { source.attach(nullptr); }),
            "the input must give one batch a replica: expected 1, got 0");
}

// Fails as often as it is told to, then goes on.
class Failing : public FunctionSource {
 public:
  Failing(int failures, core::ErrorCode code)
      : FunctionSource(
            [](const BatchPlace& place) -> core::NamedTensors {
              return {{"x", at::full({1}, static_cast<double>(place.batch))}};
            },
            FunctionSourceOptions{.batch_size = 1}),
        failures_(failures),
        code_(code) {}
  std::vector<Batch> next() override {
    std::vector<Batch> batches = FunctionSource::next();  // a failed read has moved on, as a reader's would
    if (failures_-- > 0) throw core::Error(code_, "a bad read");
    return batches;
  }

 private:
  int failures_;
  core::ErrorCode code_;
};

TEST(RetriedSource, TriesABadReadOnceMore) {
  ::testing::internal::CaptureStderr();
  const auto once = retried(std::make_shared<Failing>(1, core::ErrorCode::kIo));
  EXPECT_EQ(value(*once), 0) << "from the same position";
  EXPECT_EQ(value(*once), 1);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("reading a batch failed and is tried once more: a bad read"), std::string::npos) << log;

  const auto twice = retried(std::make_shared<Failing>(2, core::ErrorCode::kCorruptData));
  const core::Error bad = core::thrown_by([&] { twice->next(); });
  EXPECT_EQ(bad.code(), core::ErrorCode::kCorruptData);
  EXPECT_EQ(bad.detail().problem, "a bad read");
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(value(*retried(std::make_shared<Failing>(1, core::ErrorCode::kNotFound))), 0);
  ::testing::internal::GetCapturedStderr();
  const auto stopped = retried(std::make_shared<Failing>(1, core::ErrorCode::kCancelled));
  EXPECT_EQ(core::thrown_by([&] { stopped->next(); }).code(), core::ErrorCode::kCancelled) << "not tried once more";
}

class Stoppable : public SourceDecorator {
 public:
  explicit Stoppable(std::shared_ptr<BatchSource> source) : SourceDecorator(std::move(source)) {}
  std::vector<Batch> next() override { return source()->next(); }
  void stop() override { ++stops; }
  void seek(Position position) override {
    ++seeks;
    SourceDecorator::seek(position);
  }
  int stops = 0, seeks = 0;
};

TEST(SwitchedSource, StopsAndSeeksTheSourceThatIsAttached) {
  SwitchedSource source(1, 1);
  EXPECT_EQ(source.batch_size(), 1);
  EXPECT_EQ(source.replicas(), 1);
  source.stop();
  const auto first = std::make_shared<Stoppable>(numbers(0));
  source.attach(first);
  EXPECT_EQ(first->seeks, 0) << "it is at the position already";
  source.stop();
  EXPECT_EQ(first->stops, 1);
  source.seek({0, 5});
  EXPECT_EQ(first->seeks, 1);
  EXPECT_EQ(value(source), 5);
  source.attach(first);
  EXPECT_EQ(first->seeks, 1) << "the same one";
  const auto second = std::make_shared<Stoppable>(numbers(100));
  source.attach(second);
  EXPECT_EQ(value(source), 106);
  source.stop();
  EXPECT_EQ(first->stops, 1);
  EXPECT_EQ(second->stops, 1);
}

}  // namespace
}  // namespace trainyard::data::switched_source_test
