#include "trainyard/parallel/process_group/state_broadcast.h"

#include <cmath>
#include <limits>
#include <string>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/base/scoped_state.h"
#include "trainyard/parallel/testing/on_ranks.h"

namespace trainyard::parallel::state_broadcast_test {
namespace {

TEST(StateBroadcast, EachEntryComesAsItIs) {
  core::MemoryState state;
  // More than twenty pieces, one that ends within them, and none at all.
  const at::Tensor large = at::arange(int64_t{22} << 20, at::kFloat), bytes = at::full({5}, 7, at::kByte);
  state.tensor("a large one", large);
  state.tensor("bytes", bytes);
  state.tensor("empty", at::empty({0, 3}, at::kDouble));
  state.tensor("scalar", at::full({}, -0.0, at::kDouble));
  state.integer("step", std::numeric_limits<int64_t>::min());
  state.real("rate", std::numeric_limits<double>::denorm_min());
  state.text("text", std::string("with \0 and \xff", 12));
  state.text("no text", "");
  on_ranks(3, [&](const std::shared_ptr<ProcessGroup>& group) {
    const auto copy = broadcast_state(*group, group->rank() == 0 ? &state : nullptr);
    group->gather("done", "");
    ASSERT_EQ(copy == nullptr, group->rank() == 0);
    if (copy == nullptr) return;
    EXPECT_EQ(copy->names(), state.names());
    EXPECT_TRUE(at::equal(copy->tensor("a large one"), large));
    EXPECT_TRUE(at::equal(copy->tensor("bytes"), bytes));
    EXPECT_EQ(copy->tensor("empty").sizes(), (std::vector<int64_t>{0, 3}));
    EXPECT_TRUE(std::signbit(copy->tensor("scalar").item<double>()));
    EXPECT_EQ(copy->integer("step"), std::numeric_limits<int64_t>::min());
    EXPECT_EQ(copy->real("rate"), std::numeric_limits<double>::denorm_min());
    EXPECT_EQ(copy->text("text"), state.text("text"));
    EXPECT_EQ(copy->text("no text"), "");
  });
}

TEST(StateBroadcast, PiecesOfManyRanksAreShort) {
  EXPECT_EQ(state_piece_bytes(2), size_t{4} << 20);
  for (const int ranks : {3, 9, 65}) {
    EXPECT_LE(16 * static_cast<size_t>(ranks - 1) * state_piece_bytes(ranks), size_t{64} << 20) << ranks;
  }
  EXPECT_EQ(state_piece_bytes(1025), size_t{64} << 10);
}

// A file that cannot be read on in its middle.
class Damaged : public core::ScopedReader {
 public:
  using ScopedReader::ScopedReader;
  void copy(const std::string& name, core::StateWriter& writer, const std::string& as) const override {
    if (name == "b") throw core::Error(core::ErrorCode::kCorruptData, {.problem = "a bad checksum", .where = "b"});
    ScopedReader::copy(name, writer, as);
  }
};

TEST(StateBroadcast, WhatRank0CannotReadIsTheErrorOfAll) {
  core::MemoryState state;
  for (const char* name : {"a", "b", "c"}) state.tensor(name, at::full({100}, 1, at::kFloat));
  const Damaged damaged(state, "");
  on_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    try {
      broadcast_state(*group, group->rank() == 0 ? &damaged : nullptr);
      ADD_FAILURE() << "rank " << group->rank();
    } catch (const core::Error& error) {
      EXPECT_EQ(error.code(), core::ErrorCode::kCorruptData);
      EXPECT_STREQ(error.what(), "a bad checksum: rank 0: b");
    }
    group->gather("they can go on talking", "");
  });
}

// The error ends near the end of the first piece, so that the end of the stream is, in one of these sizes, in the next.
TEST(StateBroadcast, AnErrorIsTakenToItsEndWhereverPiecesEnd) {
  const auto piece = static_cast<int64_t>(state_piece_bytes(2));
  on_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    for (int64_t behind = 72; behind <= 200; behind += 8) {
      core::MemoryState state;
      state.tensor("a", at::full({piece - behind}, 1, at::kByte));
      state.tensor("b", at::full({1}, 1, at::kByte));
      const Damaged damaged(state, "");
      EXPECT_THROW(broadcast_state(*group, group->rank() == 0 ? &damaged : nullptr), core::Error) << behind;
      EXPECT_EQ(group->from_first("the next", "text"), "text") << behind;
    }
  });
}

}  // namespace
}  // namespace trainyard::parallel::state_broadcast_test
