// NCCL on one GPU, alone in its world: all that one GPU can show. More ranks: nccl_communicator_test.cpp, on a fake.
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/nn/execution/accelerator.h"
#include "trainyard/nn/testing/gpu.h"
#include "trainyard/parallel/collectives/nccl/nccl_communicator.h"

namespace trainyard::parallel::nccl_cuda_test {
namespace {

class CudaNccl : public testing::Test {
 protected:
  void SetUp() override {
    TRAINYARD_NEEDS_GPU();
    gpu_ = nn::open_accelerator("cuda", {});
    library_ = open_nccl();
    communicators_ = make_nccl_communicators(library_, {.id = library_->unique_id(), .devices = {gpu_->device()}});
  }
  DeviceCommunicator& own() { return dynamic_cast<DeviceCommunicator&>(*communicators_[0]); }
  at::Tensor full(double value, at::ScalarType type = at::kFloat) {
    return at::full({1000}, value, at::TensorOptions(gpu_->device()).dtype(type));
  }

  std::shared_ptr<nn::Accelerator> gpu_;
  std::shared_ptr<NcclLibrary> library_;
  std::vector<std::unique_ptr<core::Communicator>> communicators_;
};

TEST_F(CudaNccl, AloneNothingChanges) {
  const auto using_it = gpu_->use();
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kInt}) {
    for (const core::ReduceOp op : {core::ReduceOp::kSum, core::ReduceOp::kMax, core::ReduceOp::kMin}) {
      at::Tensor tensor = full(3, type);
      own().all_reduce(tensor, op);
      EXPECT_TRUE(tensor.equal(full(3, type))) << c10::toString(type);
    }
  }
  at::Tensor tensor = full(0.1);
  own().all_reduce(tensor, core::ReduceOp::kMean);
  own().broadcast(tensor, 0);
  EXPECT_TRUE(tensor.equal(full(0.1)));
  EXPECT_TRUE(own().all_gather(tensor)[0].equal(tensor));
  own().barrier();
}

TEST_F(CudaNccl, IsRecordedAndReplayed) {
  const auto using_it = gpu_->use();
  at::Tensor tensor = full(1);
  own().all_reduce(tensor, core::ReduceOp::kSum);  // connects
  own().wait();
  const auto recorded = gpu_->record([&] {
    tensor.add_(1);
    own().all_reduce(tensor, core::ReduceOp::kSum);
    tensor.mul_(2);
  });
  for (int replay = 0; replay < 2; ++replay) {
    recorded->replay();
    own().replayed();
  }
  own().wait();
  EXPECT_TRUE(tensor.equal(full(10)));  // ((1 + 1) * 2 + 1) * 2
}

TEST_F(CudaNccl, AnAbortEndsIt) {
  const auto using_it = gpu_->use();
  own().abort({core::ErrorCode::kIo, "a replica has failed"});
  EXPECT_THROW(own().all_reduce(full(1), core::ReduceOp::kSum), core::Error);
}

TEST_F(CudaNccl, TwoRanksOnOneGpuAreRefused) {
  EXPECT_THROW(make_nccl_communicators(
                   library_, {.id = library_->unique_id(), .size = 2, .devices = {gpu_->device(), gpu_->device()}}),
               core::Error);
}

}  // namespace
}  // namespace trainyard::parallel::nccl_cuda_test
