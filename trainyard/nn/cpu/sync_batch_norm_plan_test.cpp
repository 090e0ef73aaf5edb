// Batch norms of two replicas that normalize with the statistics of both batches: the CPU plans compute what one
// replica does with all images.
#include <array>
#include <barrier>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/communicator.h"
#include "trainyard/nn/execution/gradient_sink.h"
#include "trainyard/nn/execution/sync_batch_norm.h"
#include "trainyard/nn/testing/conformance_rig.h"

namespace trainyard::nn::sync_batch_norm_plan_test {
namespace {

using conformance::kRandom;
using conformance::relative_error;
using conformance::Rig;
using conformance::separated;

struct Meeting {
  std::barrier<> barrier{2};
  std::array<at::Tensor, 2> tensors{};
};

// One of two threads that call the same collectives.
class OneOfTwo final : public core::Communicator {
 public:
  OneOfTwo(std::shared_ptr<Meeting> meeting, int rank) : meeting_(std::move(meeting)), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return 2; }
  void all_reduce(at::Tensor tensor, core::ReduceOp op) override {
    EXPECT_EQ(op, core::ReduceOp::kSum);
    const std::vector<at::Tensor> all = all_gather(tensor);
    tensor.copy_(all[0] + all[1]);
  }
  void broadcast(at::Tensor /*tensor*/, int /*root*/) override {}
  std::vector<at::Tensor> all_gather(const at::Tensor& tensor) override {
    meeting_->tensors.at(static_cast<size_t>(rank_)) = tensor.clone();
    barrier();
    std::vector<at::Tensor> all(meeting_->tensors.begin(), meeting_->tensors.end());
    barrier();
    return all;
  }
  void barrier() override { meeting_->barrier.arrive_and_wait(); }
  void abort(const core::Error& /*error*/) override {}

 private:
  std::shared_ptr<Meeting> meeting_;
  int rank_;
};

// Norms alone, with an activation, with an addition and a ReLU, and before a depthwise convolution, which a replica
// alone would compute with it.
Graph norms() {
  const auto smooth = Activation::Function::kSilu;
  GraphBuilder b({.image = {3, 5, 6}, .name = "norms"});
  auto x = b.convolution("first", b.input(), {.out_channels = 19, .kernel = 3, .padding = Padding::all(1)});
  x = b.activation("silu1", b.batch_norm("norm1", x), smooth);
  x = b.convolution("depthwise", x, {.out_channels = 19, .kernel = 3, .padding = Padding::all(1), .groups = 19});
  x = b.activation("silu2", b.batch_norm("norm2", x), smooth);
  const auto y = b.batch_norm("norm3", b.convolution("second", x, {.out_channels = 19}));
  x = b.batch_norm("norm4", b.activation("relu", b.add("add", {y, x})));
  return b.build(b.linear("fc", b.flatten("flat", x), {.out_features = 7}));
}

struct Member {
  Member(const Graph& graph, const Rig& like, const std::shared_ptr<Meeting>& meeting, int rank)
      : sink(set), sync(std::make_unique<OneOfTwo>(meeting, rank)) {
    executor = make_executor("cpu", graph,
                             {.kernels = {.convolutions = ConvolutionPolicy::kByShape},
                              .parameters = &set,
                              .gradients = &sink,
                              .sync_batch_norm = &sync});
    set.allocate();
    set.values().copy_(like.set.values());
    for (int i = 0; i < static_cast<int>(set.buffer_count()); ++i) set.buffer(i).copy_(like.set.buffer(i));
    set.values_changed();
  }
  void step(const at::Tensor& images, const at::Tensor& cotangent) {
    sink.begin(0, 1);
    const at::Tensor leaf = images.to(at::kFloat).clone().requires_grad_(true);
    output = executor->forward(leaf, kRandom);
    output.backward(cotangent.to(at::kFloat));
    sink.finish();
    image_gradient = leaf.grad();
  }

  ParameterSet set;
  GradientSink sink;
  SyncBatchNorm sync;
  std::unique_ptr<Executor> executor;
  at::Tensor output, image_gradient;
};

TEST(SyncBatchNormPlan, ComputesWhatOneReplicaDoesWithBothBatches) {
  const Graph graph = norms();
  const int64_t batch = 5, first = 3;  // batches of different sizes
  Rig exact("reference", graph, Mode::kTraining, at::kDouble);
  const auto meeting = std::make_shared<Meeting>();
  Member one(graph, exact, meeting, 0), other(graph, exact, meeting, 1);
  for (const char* name : {"first pass", "second pass"}) {  // the second one continues the running statistics
    SCOPED_TRACE(name);
    const at::Tensor images = separated({batch, 3, 5, 6}, 2, name);
    const Rig::Result expected = exact.run(images);
    const at::Tensor cotangent = Rig::cotangent(expected.output);
    std::thread peer([&] { other.step(images.slice(0, first), cotangent.slice(0, first)); });
    one.step(images.slice(0, 0, first), cotangent.slice(0, 0, first));
    peer.join();
    EXPECT_LE(relative_error(at::cat({one.output.detach(), other.output.detach()}), expected.output), 5e-5);
    EXPECT_LE(relative_error(at::cat({one.image_gradient, other.image_gradient}), expected.gradients.at("input")),
              1e-4);
    for (const Segment& segment : one.set.segments()) {
      const at::Tensor sum = one.set.gradient(segment.id) + other.set.gradient(*other.set.find(segment.spec.name));
      EXPECT_LE(relative_error(sum, expected.gradients.at(segment.spec.name)), 1e-4) << segment.spec.name;
    }
    for (int i = 0; i < static_cast<int>(one.set.buffer_count()); ++i) {
      for (const Member* member : {&one, &other}) {
        EXPECT_LE(relative_error(member->set.buffer(i), exact.set.buffer(i)), 1e-5) << member->set.buffer_spec(i).name;
      }
    }
  }
}

}  // namespace
}  // namespace trainyard::nn::sync_batch_norm_plan_test
