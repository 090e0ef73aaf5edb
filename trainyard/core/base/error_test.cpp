#include "trainyard/core/base/error.h"

#include <cerrno>
#include <cstring>
#include <set>
#include <string>
#include <type_traits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"

namespace trainyard::core::error_test {
namespace {

TEST(ErrorTest, ReadsAsTheHeaderShows) {
  const Error error(ErrorCode::kCorruptData, {.problem = "record checksum differs",
                                              .where = "train-00000-of-00002 at offset 512",
                                              .expected = "crc32c 0x1234abcd",
                                              .actual = "0x00000000",
                                              .remedy = "write the file again, or pass --on_bad_sample=skip"});
  EXPECT_STREQ(
      error.what(),
      "record checksum differs: train-00000-of-00002 at offset 512: expected crc32c 0x1234abcd, got 0x00000000; "
      "write the file again, or pass --on_bad_sample=skip");
  EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
}

TEST(ErrorTest, LeavesOutThePartsThatAreEmpty) {
  EXPECT_STREQ(Error(ErrorCode::kIo, "disk is on fire").what(), "disk is on fire");
  EXPECT_STREQ(Error(ErrorCode::kIo, {.problem = "p", .actual = "a"}).what(), "p: got a");
  EXPECT_STREQ(Error(ErrorCode::kIo, {.problem = "p", .expected = "e"}).what(), "p: expected e");
  EXPECT_STREQ(Error(ErrorCode::kIo, {.problem = "p", .where = "w", .remedy = "r"}).what(), "p: w; r");
}

TEST(ErrorTest, NamesCannotDriveTheTerminal) {
  EXPECT_STREQ(Error(ErrorCode::kIo, {.problem = "p", .where = "a\x1b[31m\nerror b"}).what(), "p: a?[31m?error b");
  EXPECT_STREQ(Error(ErrorCode::kIo, {.problem = "p", .expected = "e\x7f ~", .actual = "a\x1f"}).what(),
               "p: expected e? ~, got a?");
}

TEST(ErrorTest, InPutsAnOuterPlaceInFront) {
  const Error inner(ErrorCode::kIo, {.problem = "write failed", .where = "step 7", .remedy = "free some space"});
  const Error outer = inner.in("epoch 3");
  EXPECT_STREQ(outer.what(), "write failed: epoch 3: step 7; free some space");
  EXPECT_EQ(outer.code(), ErrorCode::kIo);
  EXPECT_STREQ(inner.what(), "write failed: step 7; free some space");
  EXPECT_STREQ(Error(ErrorCode::kIo, "p").in("w").what(), "p: w");
}

TEST(ErrorTest, EachCodeHasItsOwnName) {
  std::set<std::string_view> names;
  for (int code = 0; code <= static_cast<int>(ErrorCode::kInternal); ++code)
    names.insert(error_code_name(static_cast<ErrorCode>(code)));
  EXPECT_EQ(names.size(), static_cast<size_t>(ErrorCode::kInternal) + 1);
  EXPECT_EQ(error_code_name(ErrorCode::kPeerFailed), "peer_failed");
}

TEST(ErrorTest, NamesEachCodeAndItsExitCode) {
  std::string text;
  for (int code = 0; code <= static_cast<int>(ErrorCode::kInternal); ++code) {
    text += std::string(error_code_name(static_cast<ErrorCode>(code))) + " " +
            std::to_string(exit_code(static_cast<ErrorCode>(code))) + "\n";
  }
  EXPECT_EQ(text,
            "invalid_argument 2\nnot_found 1\ncorrupt_data 1\nio 1\nno_space 1\ntimeout 1\ncancelled 1\n"
            "peer_failed 1\nunsupported 2\ninternal 1\n");
}

TEST(ErrorTest, ExitCodeTellsTheUsersMistakeFromAFailure) {
  EXPECT_EQ(exit_code(ErrorCode::kInvalidArgument), 2);
  EXPECT_EQ(exit_code(ErrorCode::kUnsupported), 2);
  EXPECT_EQ(exit_code(ErrorCode::kIo), 1);
  EXPECT_EQ(exit_code(ErrorCode::kInternal), 1);
}

TEST(SystemErrorTest, TellsAFullDiskAndAMissingFileFromOtherFailures) {
  EXPECT_EQ(system_error(ENOSPC, "write", "/a").code(), ErrorCode::kNoSpace);
  EXPECT_EQ(system_error(EDQUOT, "write", "/a").code(), ErrorCode::kNoSpace);
  EXPECT_EQ(system_error(ENOENT, "open", "/a").code(), ErrorCode::kNotFound);
  EXPECT_EQ(system_error(EACCES, "open", "/a").code(), ErrorCode::kIo);
  EXPECT_EQ(system_error(EIO, "read", "/a").code(), ErrorCode::kIo);
}

TEST(SystemErrorTest, NamesOperationPathReasonAndRemedy) {
  EXPECT_EQ(std::string(system_error(EIO, "read", "/data/x").what()),
            std::string("read failed: /data/x: got ") + std::strerror(EIO));
  EXPECT_EQ(system_error(EROFS, "write", "/a").detail().remedy, "check the permissions, or choose another place");
  EXPECT_EQ(system_error(ENOSPC, "write", "/a").detail().remedy, "free some space, or choose another place");
  EXPECT_EQ(system_error(ENOENT, "open", "/a").detail().remedy, "check the path");
}

TEST(ResultTest, HoldsAValueOrThrowsItsError) {
  Result<std::string> good = std::string("pixels");
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(good.value(), "pixels");
  EXPECT_EQ(std::move(good).value(), "pixels");

  Result<std::string> bad = Error(ErrorCode::kCorruptData, "no image");
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().code(), ErrorCode::kCorruptData);
  EXPECT_THROW(bad.value(), Error);
  EXPECT_THROW(std::move(bad).value(), Error);
}

TEST(ResultTest, OfNoValueIsSuccessOrThrowsItsError) {
  const auto check = [](bool good) -> Result<void> {
    if (good) return {};
    return Error(ErrorCode::kCorruptData, "no image");
  };
  const Result<void> good = check(true);
  EXPECT_TRUE(good.ok());
  EXPECT_NO_THROW(good.value());

  const Result<void> bad = check(false);
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().code(), ErrorCode::kCorruptData);
  EXPECT_THROW(bad.value(), Error);
}

// A truth value would read as an answer: of "is the image good?" or of "did the check run?".
TEST(ResultTest, OfNoValueIsNotMadeFromATruthValue) {
  EXPECT_FALSE((std::is_convertible_v<bool, Result<void>>));
}

TEST(Says, MatchesATextOfWhichItTellsAllNumbers) {
  using ::testing::Not;
  const std::string text = "conv2 of fp16 ends early: /a/0001.jpg at offset -12: expected 8 bytes, got 5.5";
  EXPECT_THAT(text, Says("offset -12", "8 bytes", "5.5"));
  EXPECT_THAT(text, Not(Says("offset -12", "8 bytes"))) << "5.5 is in no part";
  EXPECT_THAT(text, Not(Says("8 bytes", "offset -12", "5.5"))) << "another order";
  EXPECT_THAT(text, Not(Says("offset -12", "9 bytes", "5.5")));
  EXPECT_THAT(text, Not(Says("offset -12", "8 bytes", "8 bytes", "5.5"))) << "8 is there once";
  EXPECT_THAT("model.ckpt-5 of run_2 is 3x3", Says("is"));
  EXPECT_THAT("[2, 3] at 1e-3", Says("[2, 3]", "1e-3"));
  EXPECT_THAT("[2, 3]", Not(Says("[2, ")));
  EXPECT_THAT("[2, 3]", Not(Says("3]")));
  EXPECT_THAT("1e-3", Not(Says("e")));
  EXPECT_THAT("crc32c 0x00ff", Says("0x00ff"));
  EXPECT_THAT("crc32c 0x00ff", Not(Says("crc32c")));
}

TEST(SystemErrorTest, EachNumberHasItsCodeAndRemedy) {
  const std::string space = "free some space, or choose another place",
                    permissions = "check the permissions, or choose another place";
  const struct {
    int number;
    ErrorCode code;
    std::string remedy;
  } rows[] = {{ENOSPC, ErrorCode::kNoSpace, space},  {EDQUOT, ErrorCode::kNoSpace, space},
              {ENOMEM, ErrorCode::kNoSpace, space},  {ENOENT, ErrorCode::kNotFound, "check the path"},
              {EACCES, ErrorCode::kIo, permissions}, {EPERM, ErrorCode::kIo, permissions},
              {EROFS, ErrorCode::kIo, permissions},  {EIO, ErrorCode::kIo, ""},
              {ENOTDIR, ErrorCode::kIo, ""}};
  for (const auto& row : rows) {
    const Error error = system_error(row.number, "write", "/a");
    EXPECT_EQ(error.code(), row.code) << row.number;
    EXPECT_EQ(error.detail().remedy, row.remedy) << row.number;
  }
}

}  // namespace
}  // namespace trainyard::core::error_test
