#include "trainyard/train/loop/error_context.h"

#include <exception>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trainyard::train::error_context_test {
namespace {

using ::testing::AllOf, ::testing::HasSubstr, ::testing::Not;

core::Error converted(const std::function<void()>& call) {
  try {
    call();
  } catch (...) {
    return as_error(std::current_exception());
  }
  return {core::ErrorCode::kInternal, "nothing was thrown"};
}

TEST(ErrorContext, AnErrorOfOursStaysAsItIs) {
  const core::Error error =
      converted([] { throw core::Error(core::ErrorCode::kIo, {.problem = "no more", .where = "disk"}); });
  EXPECT_EQ(error.code(), core::ErrorCode::kIo);
  EXPECT_STREQ(error.what(), "no more: disk");
}

// Of the host's memory and of a device's.
TEST(ErrorContext, AllocationsThatFailAskForASmallerBatch) {
  const core::Error host = converted([] { throw std::bad_alloc(); });
  EXPECT_EQ(host.code(), core::ErrorCode::kNoSpace);
  EXPECT_STREQ(host.what(), "out of memory; use a smaller batch");
  const core::Error device = converted([] { TORCH_CHECK_WITH(OutOfMemoryError, false, "the device is full"); });
  EXPECT_EQ(device.code(), core::ErrorCode::kNoSpace);
  EXPECT_THAT(device.what(), AllOf(HasSubstr("the device is full"), HasSubstr("; use a smaller batch")));
}

TEST(ErrorContext, OtherExceptionsAreInternalAndWithoutStackTraces) {
  const core::Error tensor = converted([] { TORCH_CHECK(false, "the shapes differ"); });
  EXPECT_EQ(tensor.code(), core::ErrorCode::kInternal);
  EXPECT_THAT(tensor.what(), AllOf(HasSubstr("the shapes differ"), Not(HasSubstr("frame #"))));
  const core::Error standard = converted([] { throw std::out_of_range("place 7"); });
  EXPECT_EQ(standard.code(), core::ErrorCode::kInternal);
  EXPECT_STREQ(standard.what(), "place 7");
  const core::Error unknown = converted([] { throw 7; });
  EXPECT_EQ(unknown.code(), core::ErrorCode::kInternal);
  EXPECT_STREQ(unknown.what(), "an exception of an unknown type");
}

}  // namespace
}  // namespace trainyard::train::error_context_test
