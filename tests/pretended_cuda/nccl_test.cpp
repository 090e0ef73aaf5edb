// NCCL's calls as we make them, on the pretended GPU: a world of one rank.
#include <map>
#include <string>

#include "tests/pretended_cuda/pretended_cuda.h"
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/nn/execution/accelerator.h"
#include "trainyard/parallel/collectives/nccl/nccl_communicator.h"

namespace trainyard::parallel {
namespace {

class Nccl : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name :
         {"launches on the default stream", "mistakes", "ncclAllGather", "ncclAllReduce", "ncclBroadcast",
          "ncclCommAbort", "ncclCommDestroy", "ncclCommFinalize", "ncclCommInitRankConfig"}) {
      before_[name] = pretended_cuda_count(name);
    }
    gpu_ = nn::open_accelerator("cuda", {});
    library_ = open_nccl();
    communicators_ = make_nccl_communicators(library_, {.id = library_->unique_id(), .devices = {gpu_->device()}});
    const auto using_it = gpu_->use();
    tensor_ = at::full({1000}, 1, at::TensorOptions(gpu_->device()).dtype(at::kFloat));
  }
  void TearDown() override { EXPECT_EQ(count("mistakes"), 0); }
  // Counts the calls since this test began.
  int64_t count(const std::string& name) const { return pretended_cuda_count(name.c_str()) - before_.at(name); }
  DeviceCommunicator& own() { return dynamic_cast<DeviceCommunicator&>(*communicators_[0]); }

  std::shared_ptr<nn::Accelerator> gpu_;
  std::shared_ptr<NcclLibrary> library_;
  std::vector<std::unique_ptr<core::Communicator>> communicators_;
  at::Tensor tensor_;

 private:
  std::map<std::string, int64_t> before_;
};

TEST_F(Nccl, CallsGoToTheReplicasStreamOneAtATime) {
  const auto using_it = gpu_->use();
  const int64_t before = count("launches on the default stream");
  own().all_reduce(tensor_, core::ReduceOp::kMean);
  own().broadcast(tensor_, 0);
  EXPECT_EQ(own().all_gather(tensor_).size(), 1U);
  own().barrier();
  EXPECT_EQ(count("ncclAllReduce"), 2);
  EXPECT_EQ(count("ncclBroadcast"), 1);
  EXPECT_EQ(count("ncclAllGather"), 1);
  EXPECT_EQ(count("launches on the default stream"), before);
  EXPECT_FALSE(library_->version().empty());
}

TEST_F(Nccl, ACommunicatorEndsWell) {
  communicators_.clear();
  EXPECT_EQ(count("ncclCommFinalize"), 1);
  EXPECT_EQ(count("ncclCommDestroy"), 1);
  EXPECT_EQ(count("ncclCommAbort"), 0);
}

TEST_F(Nccl, AnAbortedOneIsNotEndedTwice) {
  own().abort({core::ErrorCode::kIo, "a replica has failed"});
  communicators_.clear();
  EXPECT_EQ(count("ncclCommAbort"), 1);
  EXPECT_EQ(count("ncclCommFinalize") + count("ncclCommDestroy"), 0);
}

TEST_F(Nccl, CollectivesAreRecorded) {
  const auto using_it = gpu_->use();
  const auto recorded = gpu_->record([&] { own().all_reduce(tensor_, core::ReduceOp::kSum); });
  EXPECT_EQ(count("ncclAllReduce"), 1);
  recorded->replay();
  own().replayed();
  own().wait();
  EXPECT_EQ(count("ncclAllReduce"), 1);  // a replay asks NCCL for nothing
}

TEST_F(Nccl, TwoRanksOnOneGpuAreRefused) {
  EXPECT_THROW(make_nccl_communicators(
                   library_, {.id = library_->unique_id(), .size = 2, .devices = {gpu_->device(), gpu_->device()}}),
               core::Error);
  EXPECT_EQ(count("ncclCommInitRankConfig"), 1);
}

}  // namespace
}  // namespace trainyard::parallel
