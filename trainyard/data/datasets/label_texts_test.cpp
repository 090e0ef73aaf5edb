// What records call their classes, within a data set, between two, over a resume; and through the pipeline.
#include "trainyard/data/datasets/label_texts.h"

#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/data/pipeline/pipeline.h"

namespace trainyard::data::label_texts_test {
namespace {

using core::ErrorCode;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(LabelTexts, OneLabelWithTwoTextsNamesBothRecords) {
  LabelTexts texts;
  texts.add(3, "cat", "train-0 at offset 5");
  texts.add(3, "cat", "train-0 at offset 9");
  texts.add(4, "dog", "train-0 at offset 12");
  EXPECT_THAT(core::message_of([&] { texts.add(3, "dog", "train-1 at offset 7"); }, ErrorCode::kInvalidArgument),
              AllOf(HasSubstr("label 3 stands for two classes"), HasSubstr("train-0 at offset 5"),
                    HasSubstr("train-1 at offset 7"), HasSubstr("'cat'"), HasSubstr("'dog'")));
  EXPECT_THAT(core::message_of([&] { texts.check(4, "cat", "val-0"); }, ErrorCode::kInvalidArgument),
              AllOf(HasSubstr("val-0"), HasSubstr("train-0 at offset 12")));
}

// ImageNet has two classes "crane": which of them was read so far says nothing.
TEST(LabelTexts, OneTextWithTwoLabelsIsAContradictionWhenAllIsKnown) {
  LabelTexts texts;
  texts.add(135, "crane", "train-0");
  EXPECT_NO_THROW(texts.check(518, "crane", "val-0"));
  texts.set_complete();
  EXPECT_THAT(core::message_of([&] { texts.check(518, "crane", "val-0"); }, ErrorCode::kInvalidArgument),
              AllOf(HasSubstr("class 'crane' has two labels"), HasSubstr("val-0"), HasSubstr("train-0")));
  EXPECT_NO_THROW(texts.check(7, "something new", "val-0"));
  ::testing::internal::CaptureStderr();
  texts.add(518, "crane", "train-1");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("'crane' is the name of label 135 in train-0"));
  EXPECT_NO_THROW(texts.check(518, "crane", "val-0"));
}

TEST(LabelTexts, NamesOfClassesStandFirst) {
  LabelTexts texts;
  texts.set_names(std::vector<std::string>{"cat", "dog"}, 1, "the training images");
  EXPECT_NO_THROW(texts.check(2, "dog", "val"));
  EXPECT_EQ(core::code_of([&] { texts.check(1, "dog", "val"); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(core::code_of([&] { texts.check(3, "dog", "val"); }), ErrorCode::kInvalidArgument);
  core::MemoryState state;
  texts.save(state);
  EXPECT_TRUE(state.names().empty()) << "the checkpoint has them elsewhere";
}

TEST(LabelTexts, SavedOnesComeBack) {
  LabelTexts texts, empty, loaded;
  core::MemoryState nothing, state;
  empty.save(nothing);
  EXPECT_TRUE(nothing.names().empty());
  EXPECT_FALSE(loaded.load(nothing, ""));
  texts.add(2, "a b\nc", "x");
  texts.add(-1, "y", "x");
  texts.set_complete();
  texts.save(state);
  EXPECT_TRUE(loaded.load(state, "the checkpoint"));
  EXPECT_EQ(loaded.all(), texts.all());
  EXPECT_EQ(loaded.text_of(2), "a b\nc");
  EXPECT_EQ(core::code_of([&] { loaded.check(9, "y", ""); }), ErrorCode::kInvalidArgument) << "complete, too";
}

TEST(LabelTexts, SavedInTheMiddleOfAnEpochTheyAreNotAll) {
  LabelTexts texts, loaded;
  core::MemoryState state;
  texts.add(135, "crane", "train-0");
  texts.save(state);
  EXPECT_TRUE(loaded.load(state, "the checkpoint"));
  EXPECT_EQ(loaded.text_of(135), "crane");
  EXPECT_NO_THROW(loaded.check(518, "crane", "val-0"));
}

TEST(LabelTexts, SavedOnesDoNotReplaceNamesOfClasses) {
  LabelTexts texts, named;
  core::MemoryState state;
  texts.add(1, "tom cat", "train-0");
  texts.save(state);
  named.set_names(std::vector<std::string>{"cat", "dog"}, 1, "the training images");
  EXPECT_TRUE(named.load(state, "the checkpoint"));
  EXPECT_EQ(named.text_of(1), "cat");
}

// Sample i has label i % 3 and says so, but for one.
class Told : public Dataset {
 public:
  explicit Told(int64_t wrong = -1) : wrong_(wrong) {}
  int64_t size() const override { return 30; }
  int64_t label_count() const override { return 3; }
  core::Result<Record> read(int64_t index) const override {
    Record record{.label = index % 3, .where = "sample " + std::to_string(index)};
    record.label_text = index == wrong_ ? "another" : "class " + std::to_string(index % 3);
    return record;
  }

 private:
  int64_t wrong_;
};

class Zeros : public Transform {
 public:
  ImageSize size() const override { return {1, 1}; }
  core::Result<void> apply(const Record&, const SampleKey&, void* image) const override {
    std::memset(image, 0, 3 * sizeof(float));
    return {};
  }
};

PipelineOptions options_of(const std::shared_ptr<LabelTexts>& texts, int threads) {
  PipelineOptions options{.batch_size = 2, .height = 1, .width = 1, .worker_threads = threads, .prefetch_batches = 5};
  options.label_offset = 1;
  options.order.shuffle = false;
  options.label_texts = texts;
  return options;
}

// What is ahead of the consumer does not count: a checkpoint is the same however many threads read.
TEST(LabelTexts, APipelineKnowsWhatItGaveOut) {
  for (const int threads : {1, 4}) {
    const auto texts = std::make_shared<LabelTexts>();
    Pipeline pipeline(std::make_shared<Told>(), std::make_shared<Zeros>(), options_of(texts, threads));
    pipeline.next();
    EXPECT_EQ(texts->all(), (std::map<int64_t, std::string>{{1, "class 0"}, {2, "class 1"}})) << "by output";
    EXPECT_NO_THROW(texts->check(7, "class 0", ""));
    for (int i = 0; i < 15; ++i) pipeline.next();
    EXPECT_EQ(texts->all().size(), 3u);
    EXPECT_EQ(core::code_of([&] { texts->check(7, "class 0", ""); }), ErrorCode::kInvalidArgument) << "an epoch";
  }
}

// What was read before a checkpoint that has no texts is unknown.
TEST(LabelTexts, AResumedPipelineKnowsAllOnlyWithTheTextsBefore) {
  for (const bool with_texts : {true, false}) {
    Pipeline first(std::make_shared<Told>(), std::make_shared<Zeros>(),
                   options_of(with_texts ? std::make_shared<LabelTexts>() : nullptr, 2));
    for (int i = 0; i < 3; ++i) first.next();
    core::MemoryState state;
    first.save(state);
    const auto texts = std::make_shared<LabelTexts>();
    Pipeline resumed(std::make_shared<Told>(), std::make_shared<Zeros>(), options_of(texts, 2));
    resumed.load(state);
    for (int i = 0; i < 15; ++i) resumed.next();
    EXPECT_EQ(resumed.position(), (Position{1, 6}));
    EXPECT_EQ(core::error_of([&] { texts->check(7, "class 0", ""); }).has_value(), with_texts);
  }
}

// The other process may have read what this one has not.
TEST(LabelTexts, AProcessWithAPartOfTheGlobalBatchDoesNotKnowAll) {
  const auto texts = std::make_shared<LabelTexts>();
  PipelineOptions options = options_of(texts, 2);
  options.total_replicas = 2;
  Pipeline pipeline(std::make_shared<Told>(), std::make_shared<Zeros>(), options);
  for (int i = 0; i < 15; ++i) pipeline.next();
  EXPECT_EQ(pipeline.position(), (Position{2, 0}));
  EXPECT_NO_THROW(texts->check(7, "class 0", ""));
}

TEST(LabelTexts, APipelineEndsAtAContradiction) {
  const auto texts = std::make_shared<LabelTexts>();
  Pipeline within(std::make_shared<Told>(8), std::make_shared<Zeros>(), options_of(texts, 3));
  for (int i = 0; i < 4; ++i) within.next();
  EXPECT_THAT(core::message_of([&] { within.next(); }, ErrorCode::kInvalidArgument),
              AllOf(HasSubstr("label 3 stands for two classes: sample 8"), HasSubstr("as in sample 2")));
  const auto known = std::make_shared<LabelTexts>();
  known->add(1, "class 0", "training");
  known->add(2, "class 2", "training");
  PipelineOptions options = options_of(std::make_shared<LabelTexts>(), 1);
  options.known_texts = known;
  Pipeline between(std::make_shared<Told>(), std::make_shared<Zeros>(), options);
  EXPECT_THAT(core::message_of([&] { between.next(); }, ErrorCode::kInvalidArgument),
              AllOf(HasSubstr("label 2 stands for two classes: sample 1"), HasSubstr("'class 2', as in training")));
}

TEST(LabelTexts, TwoLabelsOfOneNameAreSaidOnce) {
  LabelTexts texts;
  ::testing::internal::CaptureStderr();
  texts.add(1, "cat", "a");
  texts.add(2, "dog", "b");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  ::testing::internal::CaptureStderr();
  texts.add(3, "cat", "c");
  texts.add(4, "dog", "d");
  EXPECT_THAT(
      ::testing::internal::GetCapturedStderr(),
      AllOf(HasSubstr("'cat' is the name of label 1 in a, and of label 3 in c"), ::testing::Not(HasSubstr("'dog'"))));
}

TEST(LabelTexts, LinesThatNameNoLabelArePassedOver) {
  LabelTexts texts;
  texts.load(std::string("partial\n7\nx y\n c\n99999999999999999999 d\n8 \n9 a b\n"), "the checkpoint");
  EXPECT_EQ(texts.all(), (std::map<int64_t, std::string>{{8, ""}, {9, "a b"}}));
  EXPECT_THAT(core::message_of([&] { texts.check(9, "c", "val"); }), HasSubstr("expected 'a b', as in the checkpoint"));
}

}  // namespace
}  // namespace trainyard::data::label_texts_test
