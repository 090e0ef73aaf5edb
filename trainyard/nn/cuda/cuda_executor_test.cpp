// The CUDA executor and its device against the reference on the CPU, on a small network with every kernel in it.
#include "trainyard/nn/cuda/cuda_executor.h"

#include <cmath>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/nn/execution/gradient_sink.h"
#include "trainyard/nn/execution/loss.h"
#include "trainyard/nn/testing/gpu.h"

namespace trainyard::nn::cuda_executor_test {
namespace {

Graph network() {
  GraphBuilder b({.image = {3, 17, 15}, .name = "network"});
  auto x = b.convolution("stem", b.input(), {.out_channels = 16, .kernel = 3, .padding = Padding::all(1)});
  x = b.activation("stem/relu", b.batch_norm("stem/norm", x));
  x = b.max_pool("pool", x, {.kernel = 3, .stride = 2, .padding = Padding::all(1)});
  auto y = b.convolution("conv", x, {.out_channels = 16, .kernel = 3, .padding = Padding::all(1)});
  x = b.activation("relu", b.add("add", {b.batch_norm("norm", y), x}));
  x = b.dropout("dropout", x, 0.25);
  x = b.activation("biased/relu", b.convolution("biased", x, {.out_channels = 12, .kernel = 1, .bias = true}));
  return b.build(b.linear("fc", b.global_average_pool("mean", x), {.out_features = 10}));
}

struct Rig {
  Rig(const std::string& executor, at::Device device, at::ScalarType dtype = at::kFloat)
      : set({.device = device}), sink(set) {
    run =
        make_executor(executor, network(), {.device = device, .dtype = dtype, .parameters = &set, .gradients = &sink});
    set.allocate();
    set.initialize(3);
  }
  double step(const at::Tensor& images, const at::Tensor& labels, double smoothing = 0, int64_t number = 0) {
    sink.begin(0, 1);
    const at::Tensor device_labels = labels.to(set.values().device());
    at::Tensor loss = softmax_cross_entropy(run->forward(images, {.seed = 1, .step = number}), device_labels,
                                            {.label_smoothing = smoothing});
    loss.backward();
    sink.finish();
    return loss.item<double>();
  }
  ParameterSet set;
  GradientSink sink;
  std::unique_ptr<Executor> run;
};

const at::Device kGpu(at::kCUDA, 0);

double relative_error(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.cpu().to(at::kDouble), y = b.cpu().to(at::kDouble);
  return (x - y).norm().item<double>() / y.norm().item<double>();
}

TEST(CudaExecutor, AStepIsTheReferencesStep) {
  TRAINYARD_NEEDS_GPU();
  const at::Tensor images = at::randn({5, 3, 17, 15}), labels = at::randint(10, {5}, at::kLong);
  Rig gpu("auto", kGpu), cpu("reference", at::kCPU);
  EXPECT_NE(dynamic_cast<CudaExecutor*>(gpu.run.get()), nullptr);
  for (int64_t step = 0; step < 3; ++step) {
    EXPECT_NEAR(gpu.step(images, labels, 0.1, step), cpu.step(images, labels, 0.1, step), 1e-5);
    EXPECT_LE(relative_error(gpu.set.gradients(), cpu.set.gradients()), 1e-4);
  }
  for (int i = 0; i < static_cast<int>(cpu.set.buffer_count()); ++i) {
    EXPECT_LE(relative_error(gpu.set.buffer(i), cpu.set.buffer(i)), 1e-5) << cpu.set.buffer_spec(i).name;
  }
}

TEST(CudaExecutor, SixteenBitsAreNear) {
  TRAINYARD_NEEDS_GPU();
  const at::Tensor images = at::randn({5, 3, 17, 15}), labels = at::randint(10, {5}, at::kLong);
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16}) {
    Rig gpu("cuda", kGpu, dtype), cpu("reference", at::kCPU);
    EXPECT_NEAR(gpu.step(images, labels), cpu.step(images, labels), 0.05) << toString(dtype);
    EXPECT_LE(relative_error(gpu.set.gradients(), cpu.set.gradients()), 0.1) << toString(dtype);
    EXPECT_EQ(gpu.set.gradients().scalar_type(), at::kFloat);
  }
}

TEST(CudaExecutor, WeightsFollowTheSet) {
  TRAINYARD_NEEDS_GPU();
  const at::Tensor images = at::randn({2, 3, 17, 15}), labels = at::randint(10, {2}, at::kLong);
  Rig gpu("cuda", kGpu);
  const double before = gpu.step(images, labels);
  gpu.set.values().mul_(0.5);
  gpu.set.values_changed();
  EXPECT_NE(gpu.step(images, labels), before);
}

TEST(CudaExecutor, ALabelThatIsNoClassMakesTheLossNotANumber) {
  TRAINYARD_NEEDS_GPU();
  const at::Tensor logits = at::randn({3, 10}).to(kGpu), labels = at::randint(10, {3}, at::kLong);
  labels[1] = 10;
  EXPECT_TRUE(std::isnan(softmax_cross_entropy(logits, labels.to(kGpu)).item<double>()));
}

TEST(CudaExecutor, RefusesDoubleAndTheCpu) {
  ParameterSet set;
  EXPECT_THROW(make_executor("cuda", network(), {.parameters = &set}), core::Error);
  ParameterSet doubles;
  EXPECT_THROW(make_executor("cuda", network(), {.device = kGpu, .dtype = at::kDouble, .parameters = &doubles}),
               core::Error);
}

// The whole step recorded and replayed: the same bits as handing it over again.
TEST(CudaAccelerator, AReplayIsTheStep) {
  TRAINYARD_NEEDS_GPU();
  at::globalContext().setDeterministicCuDNN(true);
  const auto accelerator = open_accelerator("cuda", {});
  const auto using_it = accelerator->use();
  const at::Tensor images = at::randn({5, 3, 17, 15}).to(kGpu), labels = at::randint(10, {5}, at::kLong).to(kGpu);
  Rig direct("cuda", kGpu), recorded("cuda", kGpu);
  for (int64_t step = 0; step < 3; ++step) {
    direct.step(images, labels, 0.1, step);
    recorded.step(images, labels, 0.1, step);
  }
  at::Tensor loss;
  const auto work = accelerator->record([&] {
    recorded.sink.begin(0, 1);
    loss =
        softmax_cross_entropy(recorded.run->forward(images, {.seed = 1, .step = 3}), labels, {.label_smoothing = 0.1});
    loss.backward();
    recorded.sink.finish();
  });
  for (int64_t step = 3; step < 6; ++step) {
    // Dropout's masks move on with the step.
    const double expected = direct.step(images, labels, 0.1, step);
    work->replay();
    EXPECT_EQ(loss.item<double>(), expected) << step;
    EXPECT_TRUE(recorded.set.gradients().equal(direct.set.gradients())) << step;
  }
}

TEST(CudaAccelerator, WorkThatWaitsCannotBeRecordedAndLeavesTheDeviceUsable) {
  TRAINYARD_NEEDS_GPU();
  const auto accelerator = open_accelerator("cuda", {});
  const auto using_it = accelerator->use();
  at::Tensor x = at::randn({8}).to(kGpu);
  EXPECT_ANY_THROW(accelerator->record([&] { x.sum().item<float>(); }));
  EXPECT_NO_THROW(x.sum().item<float>());
}

TEST(CudaAccelerator, MemoryHeldGrowsWithTensors) {
  TRAINYARD_NEEDS_GPU();
  const auto accelerator = open_accelerator("cuda", {});
  const DeviceMemory before = accelerator->memory();
  const at::Tensor large = at::randn({1 << 24}).to(kGpu);
  EXPECT_GE(accelerator->memory().used, before.used + (int64_t{1} << 26));
  EXPECT_GE(accelerator->memory().held, accelerator->memory().used);
  EXPECT_LE(accelerator->memory().free + accelerator->memory().held, accelerator->memory().total);
}

}  // namespace
}  // namespace trainyard::nn::cuda_executor_test
