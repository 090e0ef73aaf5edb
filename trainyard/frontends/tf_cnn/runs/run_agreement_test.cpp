#include "trainyard/frontends/tf_cnn/run_agreement.h"

#include <array>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/parallel/testing/on_ranks.h"

namespace trainyard::frontends::run_agreement_test {
namespace {

using ::testing::HasSubstr;
using Group = std::shared_ptr<parallel::ProcessGroup>;

TEST(RunAgreement, RanksTakeTheSizeOfTheFirstAndTheSmallestNumber) {
  parallel::on_ranks(3, [](const Group& group) {
    const int rank = group->rank();
    EXPECT_EQ(size_of_first(*group, "the size of images", [&] { return nn::Size2d(20 + rank, 24 + rank); }),
              nn::Size2d(20, 24))
        << rank;
    EXPECT_EQ(smallest_of_ranks(*group, rank == 1 ? 5 : 7 + rank), 5) << rank;
  });
}

TEST(RunAgreement, WhatDiffersIsNamed) {
  std::array<std::string, 2> errors;
  parallel::on_ranks(2, [&](const Group& group) {
    PreparedRun run;
    run.device.processes = group;
    require_same_flags(run);
    run.replicas = 1 + group->rank();
    errors.at(static_cast<size_t>(group->rank())) = core::message_of([&] { require_same_flags(run); });
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("replicas of a process (--num_gpus): rank 1: expected 1 as on rank 0, got 2"));
  }
  parallel::on_ranks(2, [&](const Group& group) {
    PreparedRun run;
    run.device.processes = group;
    run.options.mode = group->rank() == 0 ? RunMode::kTraining : RunMode::kForwardOnly;
    errors.at(static_cast<size_t>(group->rank())) = core::message_of([&] { require_same_flags(run); });
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("the mode of the run: rank 1: expected training as on rank 0, got forward only"));
  }
}

}  // namespace
}  // namespace trainyard::frontends::run_agreement_test
