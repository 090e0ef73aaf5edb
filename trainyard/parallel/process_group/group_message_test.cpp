#include "trainyard/parallel/process_group/group_message.h"

#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"

namespace trainyard::parallel::group_message_test {
namespace {

using core::Error;
using core::ErrorCode;
using core::thrown_by;

// Each byte less is refused, and each more.
template <typename Decode>
void expect_only_whole(const std::string& body, Decode decode) {
  for (size_t size = 0; size < body.size(); ++size) {
    EXPECT_EQ(thrown_by([&] { decode(std::string_view(body).substr(0, size)); }).code(), ErrorCode::kCorruptData);
  }
  EXPECT_EQ(thrown_by([&] { decode(body + "x"); }).code(), ErrorCode::kCorruptData);
}

TEST(GroupMessage, AHelloComesBack) {
  const std::string body = encode(Hello{.token = "abc", .rank = 2, .size = 5});
  const Hello hello = decode_hello(body);
  EXPECT_EQ(hello.token, "abc");
  EXPECT_EQ(hello.rank, 2);
  EXPECT_EQ(hello.size, 5);
  expect_only_whole(body, decode_hello);
}

TEST(GroupMessage, TextsComeBack) {
  const std::string bytes("a\0b", 3);
  const std::string body = encode(SharedTexts{.call = 7, .what = "ids", .from_all = true, .texts = {bytes, ""}});
  const SharedTexts texts = decode_texts(body);
  EXPECT_EQ(texts.call, 7);
  EXPECT_EQ(texts.what, "ids");
  EXPECT_TRUE(texts.from_all);
  EXPECT_EQ(texts.texts, (std::vector<std::string>{bytes, ""}));
  expect_only_whole(body, decode_texts);
}

TEST(GroupMessage, AnActivityComesBack) {
  const Activity activity{.operation = "save", .step = 12, .begun = 4, .done = 3, .elsewhere = 2};
  EXPECT_EQ(decode_activity(encode(activity)), activity);
  expect_only_whole(encode(activity), decode_activity);
}

TEST(GroupMessage, AnErrorComesBack) {
  const Error error(ErrorCode::kNoSpace, {.problem = "p", .where = "w", .expected = "e", .actual = "a", .remedy = "r"});
  const Error back = decode_error(encode(error));
  EXPECT_EQ(back.code(), ErrorCode::kNoSpace);
  EXPECT_STREQ(back.what(), error.what());
  expect_only_whole(encode(error), decode_error);
  for (const ErrorCode code : {ErrorCode::kInvalidArgument, ErrorCode::kInternal}) {
    EXPECT_EQ(decode_error(encode(Error(code, "the first code and the last one"))).code(), code);
  }
  std::string unknown = encode(error);
  unknown[0] = 100;
  EXPECT_EQ(core::message_of([&] { decode_error(unknown); }, ErrorCode::kCorruptData),
            "an error has a code that does not exist: got 100");
}

}  // namespace
}  // namespace trainyard::parallel::group_message_test
