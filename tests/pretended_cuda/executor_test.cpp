// The CUDA executor on the pretended GPU: what it hands over in a step, and what a recording leaves behind. What the
// kernels compute: nn/cuda/cuda_conformance_test.cpp, on a GPU.
#include "trainyard/nn/execution/executor.h"

#include <map>
#include <string>

#include "tests/pretended_cuda/pretended_cuda.h"
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "trainyard/nn/execution/accelerator.h"
#include "trainyard/nn/execution/gradient_sink.h"
#include "trainyard/nn/execution/loss.h"
#include "trainyard/nn/graph/graph.h"

namespace trainyard::nn {
namespace {

const at::Device kGpu(at::kCUDA, 0);

// Every kernel of ours, and layers that run through ATen.
Graph network() {
  GraphBuilder b({.image = {3, 17, 15}, .name = "network"});
  auto x = b.convolution("stem", b.input(), {.out_channels = 16, .kernel = 3, .padding = Padding::all(1)});
  x = b.activation("stem/relu", b.batch_norm("stem/norm", x));
  x = b.max_pool("pool", x, {.kernel = 3, .stride = 2, .padding = Padding::all(1)});
  auto y = b.convolution("conv", x, {.out_channels = 16, .kernel = 3, .padding = Padding::all(1), .groups = 16});
  x = b.activation("relu", b.add("add", {b.batch_norm("norm", y), x}));
  y = b.average_pool("average", x, {.kernel = 3, .stride = 1, .padding = Padding::all(1)});
  x = b.activation("sum/relu", b.add("sum", {x, y}));
  x = b.dropout("dropout", b.concat("concat", {x, y}), 0.25);
  x = b.activation("biased/relu", b.convolution("biased", x, {.out_channels = 12, .kernel = 1, .bias = true}));
  return b.build(b.linear("fc", b.global_average_pool("mean", x), {.out_features = 10}));
}

struct Rig {
  explicit Rig(at::ScalarType dtype) : set({.device = kGpu}), sink(set) {
    run = make_executor("auto", network(), {.device = kGpu, .dtype = dtype, .parameters = &set, .gradients = &sink});
    set.allocate();
    set.initialize(3);
    images = at::zeros({4, 3, 17, 15}, at::TensorOptions(at::kFloat).device(kGpu));
    labels = at::zeros({4}, at::TensorOptions(at::kLong).device(kGpu));
  }
  at::Tensor step() {
    sink.begin(0, 1);
    const at::Tensor output = run->forward(images, {.seed = 1, .step = number++});
    EXPECT_EQ(output.scalar_type(), at::kFloat);
    EXPECT_EQ(output.device(), kGpu);
    const at::Tensor loss = softmax_cross_entropy(output, labels, {.label_smoothing = 0.1});
    loss.backward();
    sink.finish();
    return loss.detach();
  }
  std::shared_ptr<Accelerator> gpu = open_accelerator("cuda", {});
  AcceleratorScope using_it = gpu->use();
  ParameterSet set;
  GradientSink sink;
  std::unique_ptr<Executor> run;
  at::Tensor images, labels;
  int64_t number = 0;
};

std::map<std::string, int64_t> waits() {
  std::map<std::string, int64_t> counts;
  for (const char* name : {"cudaStreamSynchronize", "cudaEventSynchronize", "cudaDeviceSynchronize", "cudaMemcpy",
                           "cudaMalloc", "cudaFree", "pageable copies", "pinned copies", "mistakes",
                           "launches on the default stream", "launches beside a capture"}) {
    counts[name] = pretended_cuda_count(name);
  }
  return counts;
}

class PretendedExecutor : public testing::TestWithParam<at::ScalarType> {};

TEST_P(PretendedExecutor, AStepWaitsForNothingAndStaysOnItsStream) {
  Rig rig(GetParam());
  for (int warm = 0; warm < 3; ++warm) rig.step();
  const auto before = waits();
  const int64_t launches = pretended_cuda_count("launches");
  for (int step = 0; step < 3; ++step) rig.step();
  EXPECT_EQ(waits(), before);
  EXPECT_GT(pretended_cuda_count("launches"), launches + 100);
  // No gradient goes through a layout that cuDNN would have to change: each direction is a plan of its own.
  EXPECT_GE(pretended_cuda_launches("cudnnBackendExecute"), 3 * 6);
}

TEST_P(PretendedExecutor, AStepIsRecordedWhole) {
  Rig rig(GetParam());
  for (int warm = 0; warm < 3; ++warm) rig.step();
  at::Tensor loss;
  const auto recorded = rig.gpu->record([&] { loss = rig.step(); });
  const auto before = waits();
  const int64_t launches = pretended_cuda_count("launches");
  recorded->replay();
  EXPECT_EQ(waits(), before);
  EXPECT_EQ(pretended_cuda_count("launches"), launches);
  EXPECT_EQ(loss.device(), kGpu);
  rig.gpu->wait();
}

INSTANTIATE_TEST_SUITE_P(Dtypes, PretendedExecutor, testing::Values(at::kFloat, at::kHalf, at::kBFloat16),
                         [](const auto& tested) { return std::string(c10::toString(tested.param)); });

// Copies of weights that were only recorded are not there.
TEST(PretendedWeights, AreCopiedInEachRecordingAndAgainAfterIt) {
  Rig rig(at::kFloat);
  const auto copies = [] { return pretended_cuda_launches("copy_weights"); };
  rig.step();
  EXPECT_EQ(copies(), 1);
  rig.step();
  EXPECT_EQ(copies(), 1);  // no value has changed
  EXPECT_THROW(rig.gpu->record([&] {
    rig.step();
    throw std::runtime_error("cannot be recorded");
  }),
               std::runtime_error);
  EXPECT_EQ(copies(), 2);
  rig.step();
  EXPECT_EQ(copies(), 3);
}

}  // namespace
}  // namespace trainyard::nn
