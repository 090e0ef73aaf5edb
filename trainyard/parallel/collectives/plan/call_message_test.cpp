#include "trainyard/parallel/collectives/plan/call_message.h"

#include <cstring>
#include <string>

#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"

namespace trainyard::parallel::chain_message_test::call_message_test {
namespace {

using core::Error;
using core::ErrorCode;
using ::testing::HasSubstr;

TEST(CallMessage, SaysWhatWasCalled) {
  const CollectiveCall call = CollectiveCall::all_reduce(at::ones({2, 3, 5}, at::kBFloat16), core::ReduceOp::kMax);
  const CallMessage message = CallMessage::of(call, 7, 0);
  EXPECT_NO_THROW(message.validate(7));
  EXPECT_TRUE(agree(message.call(), call));
  EXPECT_FALSE(message.refusal());
  EXPECT_LT(message.bytes(), 200U);  // without the text
  for (const CollectiveCall& other :
       {CollectiveCall::all_reduce(at::ones({2, 3, 5}, at::kBFloat16), core::ReduceOp::kMin),
        CollectiveCall::all_reduce(at::ones({2, 3, 5}, at::kHalf), core::ReduceOp::kMax),
        CollectiveCall::all_reduce(at::ones({2, 15}, at::kBFloat16), core::ReduceOp::kMax),
        CollectiveCall::all_gather(at::ones({2, 3, 5}, at::kBFloat16)), CollectiveCall{}}) {
    EXPECT_FALSE(agree(message.call(), other)) << describe(other);
  }
}

TEST(CallMessage, CarriesWhyACallCannotBeDone) {
  CallMessage message = CallMessage::of({}, 1, 0);
  message.refuse(
      {ErrorCode::kInvalidArgument,
       {.problem = "ranks differ", .where = "here", .expected = "a", .actual = "", .remedy = "make them equal"}});
  ASSERT_TRUE(message.refusal());
  const core::ErrorDetail& detail = message.refusal()->detail();
  EXPECT_EQ(detail.problem, "ranks differ");
  EXPECT_EQ(detail.where, "here");
  EXPECT_EQ(detail.expected, "a");
  EXPECT_EQ(detail.actual, "");
  EXPECT_EQ(detail.remedy, "make them equal");
  EXPECT_EQ(message.bytes(), sizeof(CallMessage));
}

TEST(CallMessage, LongTextsAreCut) {
  const std::string text(5000, 'x');
  CallMessage message = CallMessage::of({}, 1, 0);
  message.refuse({ErrorCode::kInvalidArgument,
                  {.problem = text, .where = text, .expected = text, .actual = text, .remedy = text}});
  const core::ErrorDetail detail = message.refusal()->detail();
  for (const std::string* part : {&detail.problem, &detail.where, &detail.expected, &detail.actual, &detail.remedy}) {
    EXPECT_EQ(*part, text.substr(0, CallMessage::kText / 5 - 1));
  }
  // What a stranger sends need not end.
  std::memset(message.text, 'y', sizeof message.text);
  EXPECT_EQ(message.refusal()->detail().problem.size(), CallMessage::kText);
  EXPECT_EQ(message.refusal()->detail().remedy, "");
}

TEST(CallMessage, ATensorOfTooManyDimensionsIsRefused) {
  const CollectiveCall call = CollectiveCall::all_gather(at::ones(std::vector<int64_t>(17, 1)));
  const CallMessage message = CallMessage::of(call, 1, 3);
  ASSERT_TRUE(message.refusal());
  EXPECT_THAT(message.refusal()->what(), HasSubstr("at most 16 dimensions, got 17"));
  EXPECT_THAT(message.refusal()->what(), HasSubstr("rank 3, all_gather of"));
}

TEST(CallMessage, ATensorMayHave16Dimensions) {
  const CollectiveCall call = CollectiveCall::all_gather(at::ones(std::vector<int64_t>(16, 1)));
  const CallMessage message = CallMessage::of(call, 1, 3);
  EXPECT_FALSE(message.refusal());
  EXPECT_NO_THROW(message.validate(1));
  EXPECT_TRUE(agree(message.call(), call));
}

TEST(CallMessage, OfAnotherCallSaysWhich) {
  CallMessage message = CallMessage::of(CollectiveCall::all_gather(at::ones({3})), 6, 0);
  message.magic = 0x1234;
  EXPECT_THAT(core::message_of([&] { message.validate(5); }, ErrorCode::kCorruptData),
              HasSubstr("expected magic 0x54594331, call 5, got magic 0x1234, call 6, kind 2;"));
}

TEST(CallMessage, WhatIsNoneIsCorrupt) {
  const CallMessage good = CallMessage::of(CollectiveCall::all_reduce(at::ones({3}), core::ReduceOp::kSum), 5, 0);
  const auto expect_corrupt = [&](auto change) {
    CallMessage message = good;
    change(message);
    EXPECT_THAT(core::message_of([&] { message.validate(5); }, ErrorCode::kCorruptData),
                HasSubstr("no message of this"));
  };
  EXPECT_NO_THROW(good.validate(5));
  expect_corrupt([](CallMessage& message) { message.magic = 0; });
  expect_corrupt([](CallMessage& message) { message.sequence = 6; });
  expect_corrupt([](CallMessage& message) { message.dimensions = -1; });
  expect_corrupt([](CallMessage& message) { message.dimensions = 17; });
  expect_corrupt([](CallMessage& message) { message.kind = 4; });
  expect_corrupt([](CallMessage& message) { message.kind = -1; });
  expect_corrupt([](CallMessage& message) { message.argument = 4; });
  expect_corrupt([](CallMessage& message) { message.argument = -1; });
}

}  // namespace
}  // namespace trainyard::parallel::chain_message_test::call_message_test
