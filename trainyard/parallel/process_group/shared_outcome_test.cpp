#include "trainyard/parallel/process_group/shared_outcome.h"

#include <mutex>
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

}  // namespace
}  // namespace trainyard::parallel::shared_outcome_test
