#include "trainyard/parallel/process_group/start_agreement.h"

#include <chrono>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/parallel/testing/on_ranks.h"

namespace trainyard::parallel::start_agreement_test {
namespace {

// What each of three ranks threw.
std::vector<std::string> refusals(const std::vector<std::vector<StartFact>>& facts) {
  std::vector<std::string> errors(facts.size());
  const auto began = std::chrono::steady_clock::now();
  on_ranks(static_cast<int>(facts.size()), [&](const std::shared_ptr<ProcessGroup>& group) {
    const auto rank = static_cast<size_t>(group->rank());
    try {
      require_same_facts(*group, facts[rank]);
    } catch (const core::Error& error) {
      EXPECT_EQ(error.code(), core::ErrorCode::kInvalidArgument);
      errors[rank] = error.what();
    }
  });
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
  return errors;
}

const std::vector<StartFact> kFacts = {{"--batch_size", "32"}, {"parameter fc.weight", "[10, 64]"}, {"classes", ""}};

TEST(StartAgreement, TheSameFactsPass) {
  EXPECT_EQ(refusals({kFacts, kFacts, kFacts}), std::vector<std::string>(3));
  EXPECT_EQ(refusals({{}, {}, {}}), std::vector<std::string>(3));
}

TEST(StartAgreement, ADifferenceIsRefusedByAllInTheSameWords) {
  std::vector<StartFact> other = kFacts;
  other[1].value = "[11, 64]";
  const std::vector<std::string> errors = refusals({kFacts, kFacts, other});
  for (const std::string& error : errors) {
    EXPECT_EQ(error,
              "ranks begin differently: parameter fc.weight: rank 2: expected [10, 64] as on rank 0, got [11, 64]; "
              "start all ranks with the same program, flags and data");
  }
}

TEST(StartAgreement, TheLowestRankAndTheFirstItemAreNamed) {
  std::vector<StartFact> one = kFacts, two = kFacts;
  one[0].value = "64";
  one[2].value = "cat";
  two[1].value = "[11, 64]";
  EXPECT_NE(refusals({kFacts, one, two})[0].find("--batch_size and 1 more: rank 1: expected 32 as on rank 0, got 64"),
            std::string::npos);
}

// The facts of all ranks together are more than the 64 MiB that a message may hold.
TEST(StartAgreement, LongFactsAreComparedToo) {
  std::vector<StartFact> facts = {{"classes", std::string(size_t{22} << 20, 'x')}, {"--batch_size", "32"}};
  std::vector<StartFact> other = facts;
  other[1].value = "64";
  for (const std::string& error : refusals({facts, facts, other})) {
    EXPECT_NE(error.find("ranks begin differently: --batch_size: rank 2: expected 32 as on rank 0, got 64"),
              std::string::npos)
        << error;
  }
}

TEST(StartAgreement, WhatOneRankAloneHasIsADifference) {
  std::vector<StartFact> less = kFacts, more = kFacts;
  less.pop_back();
  more.push_back({"a fourth", "4"});
  EXPECT_NE(refusals({kFacts, less})[1].find("classes: rank 1: expected  as on rank 0, got nothing of that name"),
            std::string::npos);
  EXPECT_NE(refusals({kFacts, more})[1].find("a fourth: rank 1: expected nothing of that name as on rank 0, got 4"),
            std::string::npos);
}

TEST(StartAgreement, TheOrderCounts) {
  std::vector<StartFact> turned = kFacts;
  std::swap(turned[0], turned[1]);
  EXPECT_NE(refusals({kFacts, turned})[0].find("the order of what ranks begin with"), std::string::npos);
}

}  // namespace
}  // namespace trainyard::parallel::start_agreement_test
