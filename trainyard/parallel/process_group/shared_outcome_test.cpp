#include "trainyard/parallel/process_group/shared_outcome.h"

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/parallel/testing/on_ranks.h"

namespace trainyard::parallel::shared_outcome_test {
namespace {

using core::Error;
using core::ErrorCode;

// What each rank threw, and their codes.
std::vector<std::string> errors_of(int size, const std::function<void(ProcessGroup&)>& work) {
  std::vector<std::string> errors(static_cast<size_t>(size));
  on_ranks(size, [&](const std::shared_ptr<ProcessGroup>& group) {
    std::string& own = errors[static_cast<size_t>(group->rank())];
    try {
      work(*group);
    } catch (const Error& error) {
      own = std::string(core::error_code_name(error.code())) + " " + error.what();
    }
    group->gather("they can go on talking", "");
  });
  return errors;
}

TEST(Together, TheErrorOfTheLowestRankIsThatOfAll) {
  const std::vector<std::string> errors = errors_of(3, [](ProcessGroup& group) {
    together(group, "reading", [&] {
      if (group.rank() == 0) return;
      throw Error(ErrorCode::kNoSpace, {.problem = "the disk is full",
                                        .where = "disk " + std::to_string(group.rank()),
                                        .expected = "1",
                                        .actual = "2",
                                        .remedy = "buy one"});
    });
  });
  for (const std::string& error : errors) {
    EXPECT_EQ(error, "no_space the disk is full: rank 1: disk 1: expected 1, got 2; buy one");
  }
}

TEST(Together, WhereAllSucceedNothingIsThrown) {
  for (const std::string& error : errors_of(2, [](ProcessGroup& group) { together(group, "nothing", [] {}); })) {
    EXPECT_EQ(error, "");
  }
}

TEST(OnFirst, GivesAllItsTextOrItsError) {
  const std::vector<std::string> errors = errors_of(2, [](ProcessGroup& group) {
    for (const std::string text : {"", "=", "!x", "a text"}) {
      EXPECT_EQ(on_first(group, "a text",
                         [&] {
                           EXPECT_EQ(group.rank(), 0);
                           return text;
                         }),
                text);
    }
    on_first(group, "an error", []() -> std::string { throw std::runtime_error("not one of ours"); });
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "internal not one of ours: rank 0");
}

std::string thrown_text(const std::function<void()>& call) {
  const std::optional<Error> error = core::error_of(call);
  return error ? std::string(core::error_code_name(error->code())) + " " + error->what() : "";
}

struct Failure {
  std::string thrown;  // by rank 1 of 2, which does the work
  std::string heard;   // by rank 0, which waits for rank 1; empty: nothing
};

// `reported`: rank 0 hears of what the work throws; else it meets rank 1 behind the work.
Failure failure_of(const std::function<void()>& work, bool reported = false) {
  Failure failure;
  on_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    const auto meet = [&] { group->gather("behind the work", ""); };
    if (group->rank() == 0) {
      failure.heard = thrown_text(meet);
    } else {
      failure.thrown = thrown_text([&] { report_what_fails(*group, work); });
      if (!reported) meet();  // else rank 0 might hear this before the report
    }
  });
  return failure;
}

TEST(ReportWhatFails, TellsTheOthersAndSaysWhichRankItWas) {
  const Failure failure = failure_of(
      [] { throw Error(ErrorCode::kNoSpace, {.problem = "the disk is full", .where = "disk 7", .remedy = "buy one"}); },
      /*reported=*/true);
  EXPECT_EQ(failure.thrown, "no_space the disk is full: rank 1 of 2: disk 7; buy one");
  EXPECT_EQ(failure.heard, "peer_failed another rank has failed: got rank 1: the disk is full: disk 7; buy one");
}

TEST(ReportWhatFails, NamesARankOnce) {
  const Failure failure = failure_of(
      [] { throw Error(ErrorCode::kCorruptData, {.problem = "a record is damaged", .where = "rank 5, shard 3"}); },
      /*reported=*/true);
  EXPECT_EQ(failure.thrown, "corrupt_data a record is damaged: rank 5, shard 3");
  EXPECT_EQ(failure.heard, "peer_failed another rank has failed: got rank 1: a record is damaged: rank 5, shard 3");
}

TEST(ReportWhatFails, LeavesTheErrorOfAnotherRankAsItIs) {
  const Failure failure = failure_of(
      [] { throw Error(ErrorCode::kPeerFailed, {.problem = "the exchange has ended", .where = "all-reduce"}); });
  EXPECT_EQ(failure.thrown, "peer_failed the exchange has ended: all-reduce");
  EXPECT_EQ(failure.heard, "");
}

TEST(ReportWhatFails, SaysNothingOfWorkThatSucceeds) {
  int runs = 0;
  const Failure failure = failure_of([&runs] { ++runs; });
  EXPECT_EQ(failure.thrown, "");
  EXPECT_EQ(failure.heard, "");
  EXPECT_EQ(runs, 1);
}

}  // namespace
}  // namespace trainyard::parallel::shared_outcome_test
