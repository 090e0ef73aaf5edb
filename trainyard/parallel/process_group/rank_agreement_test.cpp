#include "trainyard/parallel/process_group/rank_agreement.h"

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/parallel/testing/on_ranks.h"

namespace trainyard::parallel::rank_agreement_test {
namespace {

using core::StopReason;

constexpr int kRanks = 3;

// Returns "none", or why a training ends: "1 SIGTERM".
std::string text_of(const TrainingEnd& end) {
  return end ? std::to_string(static_cast<int>(end.why)) + " " + end.message : "none";
}

std::string text_of(StopReason why, const std::string& message) {
  return text_of(TrainingEnd{.why = why, .message = message});
}

// Rank 0 waits for no other, so that it may end some steps later than the rank that asks.
TEST(RankAgreement, TheWishOfAnyRankEndsAllAtOneStep) {
  for (const int asking : {0, 2}) {
    std::vector<std::string> ends(kRanks);
    std::vector<int> steps(kRanks);
    on_ranks(kRanks, [&](const std::shared_ptr<ProcessGroup>& group) {
      RankAgreement agreement(group);
      const auto own = static_cast<size_t>(group->rank());
      TrainingEnd end = agreement.agree_on_end({});
      EXPECT_FALSE(end) << "none wishes so";
      const TrainingEnd wish{.why = StopReason::kSignal, .message = "SIGTERM"};
      for (; !end && steps[own] < 5000; ++steps[own]) {
        end = agreement.agree_on_end(group->rank() == asking ? wish : TrainingEnd());
      }
      ends[own] = text_of(end);
    });
    EXPECT_EQ(ends, std::vector<std::string>(kRanks, text_of(StopReason::kSignal, "SIGTERM"))) << asking;
    EXPECT_EQ(steps, std::vector<int>(kRanks, steps[0])) << asking;
  }
}

TEST(RankAgreement, AtOnceTheWishOfTheLowestRankIsThatOfAll) {
  std::vector<std::string> ends(kRanks);
  on_ranks(kRanks, [&](const std::shared_ptr<ProcessGroup>& group) {
    RankAgreement agreement(group);
    const int rank = group->rank();
    const auto ask = [&](const TrainingEnd& wish) { return text_of(agreement.agree_at_once(wish)) + "\n"; };
    std::string& own = ends[static_cast<size_t>(rank)];
    own += ask({});
    own += ask(rank == 0 ? TrainingEnd() : TrainingEnd{StopReason::kError, "of rank " + std::to_string(rank)});
    own += ask({StopReason::kRequested, "of rank " + std::to_string(rank)});
    own += ask(rank == 2 ? TrainingEnd{StopReason::kSignal, ""} : TrainingEnd());
  });
  const std::string expected = "none\n" + text_of(StopReason::kError, "of rank 1") + "\n" +
                               text_of(StopReason::kRequested, "of rank 0") + "\n" + text_of(StopReason::kSignal, "") +
                               "\n";
  EXPECT_EQ(ends, std::vector<std::string>(kRanks, expected));
}

}  // namespace
}  // namespace trainyard::parallel::rank_agreement_test
