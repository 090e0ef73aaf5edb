#include "trainyard/core/base/communicator.h"

#include <chrono>
#include <memory>
#include <vector>

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

namespace trainyard::core::communicator_test {
namespace {

// Has only what a communicator must have. An all-reduce multiplies by the size, and notes what was asked for.
class PlainCommunicator final : public Communicator {
 public:
  int rank() const override { return 1; }
  int size() const override { return 3; }
  void all_reduce(at::Tensor tensor, ReduceOp op) override {
    ops.push_back(op);
    tensor.mul_(size());
  }
  void broadcast(at::Tensor /*tensor*/, int /*root*/) override {}
  std::vector<at::Tensor> all_gather(const at::Tensor& tensor) override { return {tensor}; }
  void barrier() override {}
  void abort(const Error& /*error*/) override {}

  std::vector<ReduceOp> ops{};
};

TEST(Communicator, AStartedAllReduceIsDoneInItsFirstWait) {
  PlainCommunicator communicator;
  const at::Tensor tensor = at::full({2}, 5.0F);
  const std::unique_ptr<PendingCollective> pending = communicator.start_all_reduce(tensor, ReduceOp::kMax);
  EXPECT_FALSE(pending->poll());
  EXPECT_TRUE(communicator.ops.empty());
  EXPECT_EQ(tensor.sum().item<float>(), 10);
  for (int i = 0; i < 2; ++i) {
    pending->wait();
    EXPECT_TRUE(pending->poll());
    ASSERT_EQ(communicator.ops.size(), 1U);
    EXPECT_EQ(communicator.ops[0], ReduceOp::kMax);
    EXPECT_EQ(tensor.sum().item<float>(), 30);
  }
}

TEST(Communicator, HasDefaults) {
  PlainCommunicator communicator;
  EXPECT_FALSE(communicator.progresses_in_background());
  EXPECT_FALSE(communicator.new_exchanged(4, at::kFloat).defined());
  EXPECT_TRUE(communicator.peer_views(at::zeros({1})).empty());
  EXPECT_EQ(communicator.waiting_seconds(), 0);
  EXPECT_EQ(communicator.deadline(), std::chrono::minutes(10));
  communicator.set_deadline(std::chrono::seconds(3));
  EXPECT_EQ(communicator.deadline(), std::chrono::seconds(3));
}

}  // namespace
}  // namespace trainyard::core::communicator_test
