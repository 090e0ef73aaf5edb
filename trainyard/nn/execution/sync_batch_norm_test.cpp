// How the moments of several batches become those of all their values, against sums by hand. Executors that use it are
// in parallel/variable_update/synchronized_norm_test.cpp.
#include "trainyard/nn/execution/sync_batch_norm.h"

#include <memory>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

namespace trainyard::nn::sync_batch_norm_test {
namespace {

// The second of three ranks, whose peers have already given their tensors.
class SecondOfThree final : public core::Communicator {
 public:
  SecondOfThree(at::Tensor first, at::Tensor third) : first_(std::move(first)), third_(std::move(third)) {}
  int rank() const override { return 1; }
  int size() const override { return 3; }
  void all_reduce(at::Tensor tensor, core::ReduceOp op) override {
    EXPECT_EQ(op, core::ReduceOp::kSum);
    tensor.add_(first_).add_(third_);
  }
  void broadcast(at::Tensor /*tensor*/, int /*root*/) override { ADD_FAILURE() << "nothing to broadcast"; }
  std::vector<at::Tensor> all_gather(const at::Tensor& tensor) override { return {first_, tensor.clone(), third_}; }
  void barrier() override {}
  void abort(const core::Error& /*error*/) override {}
  double waiting_seconds() const override { return 2.5; }

 private:
  at::Tensor first_, third_;
};

// Two channels: means, biased variances, and the number of values.
at::Tensor moments(const std::vector<double>& numbers) {
  return at::tensor(numbers, at::kDouble);
}

SyncBatchNorm exchange() {
  // Of {1, 3} and {0, 4}, and of {2, 2, 8} and {1, 1, 1}.
  return SyncBatchNorm(std::make_unique<SecondOfThree>(moments({2, 2, 1, 4, 2}), moments({4, 1, 8, 0, 3})));
}

TEST(SyncBatchNorm, MomentsAreThoseOfAllValues) {
  SyncBatchNorm sync = exchange();
  const at::Tensor own = moments({5, -1, 0, 0, 1});  // of {5} and {-1}
  sync.all_reduce_moments(own);
  // Of {1, 3, 5, 2, 2, 8} and {0, 4, -1, 1, 1, 1}.
  const std::vector<double> expected = {3.5, 1, 107 / 6.0 - 3.5 * 3.5, 20 / 6.0 - 1, 6};
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(own.const_data_ptr<double>()[i], expected[i], 1e-12) << i;
  }
  EXPECT_GT(sync.seconds(), 0);
  EXPECT_EQ(sync.waiting_seconds(), 2.5);
}

TEST(SyncBatchNorm, SumsAreThoseOfAllReplicas) {
  SyncBatchNorm sync = exchange();
  const at::Tensor own = moments({10, 20, 30, 40, 50});
  sync.all_reduce_sum(own);
  EXPECT_TRUE(at::equal(own, moments({16, 23, 39, 44, 55})));
  EXPECT_GT(sync.seconds(), 0);
}

TEST(SyncBatchNorm, DoesNothingWhileItIsPaused) {
  SyncBatchNorm sync = exchange();
  const at::Tensor own = moments({5, -1, 0, 0, 1});
  sync.set_paused(true);
  sync.all_reduce_moments(own);
  sync.all_reduce_sum(own);
  EXPECT_TRUE(at::equal(own, moments({5, -1, 0, 0, 1})));
  EXPECT_EQ(sync.seconds(), 0);
  sync.set_paused(false);
  sync.all_reduce_sum(own);
  EXPECT_TRUE(at::equal(own, moments({11, 2, 9, 4, 6})));
}

}  // namespace
}  // namespace trainyard::nn::sync_batch_norm_test
