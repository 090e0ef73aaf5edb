// Optimizers, sums and the loss scaler on a GPU against the same on the CPU.
#include <limits>

#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include "trainyard/core/random/random.h"
#include "trainyard/nn/testing/gpu.h"
#include "trainyard/optim/optimizers/optimizer.h"
#include "trainyard/optim/optimizers/regularization_loss.h"
#include "trainyard/optim/scaling/loss_scaler.h"
#include "trainyard/optim/step/segment_parts.h"
#include "trainyard/optim/testing/device_set.h"
#include "trainyard/optim/testing/numbers.h"

namespace trainyard::optim::optimizer_cuda_test {
namespace {

const at::Device kGpu(at::kCUDA, 0);

nn::ParameterSet make_set(at::Device device, at::ScalarType dtype) {
  return make_device_set({.dtype = dtype, .device = device}, kPartElements + 3);
}

void fill_gradients(nn::ParameterSet& set, int step) {
  at::Tensor host = set.gradients().cpu();
  host.zero_();
  for (const nn::Segment& segment : set.segments()) {
    core::RandomStream stream(5, segment.spec.name, {static_cast<uint64_t>(step)});
    for (int64_t i = 0; i < segment.count; ++i) host[segment.offset + i] = stream.normal();
  }
  set.gradients().copy_(host);
}

class CudaOptimizer : public testing::TestWithParam<std::string> {};

TEST_P(CudaOptimizer, FollowsTheCpu) {
  TRAINYARD_NEEDS_GPU();
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const OptimizerOptions options{
        .numbers = numbers_of(GetParam(), {{"momentum", 0.8}}), .weight_decay = 0.01, .gradient_clip = 0.75};
    nn::ParameterSet here = make_set(at::kCPU, dtype), there = make_set(kGpu, dtype);
    const auto cpu = optimizers().get(GetParam())(here, options), gpu = optimizers().get(GetParam())(there, options);
    StepState cpu_state, gpu_state(kGpu);
    for (int step = 0; step < 5; ++step) {
      const StepValues values{.learning_rate = 0.1, .inverse_loss_scale = 0.5, .step = step, .found_inf = step == 3};
      cpu_state.write(values);
      gpu_state.write(values);
      EXPECT_EQ(gpu_state.read().learning_rate, 0.1);
      fill_gradients(here, step);
      fill_gradients(there, step);
      cpu->apply(cpu_state);
      gpu->apply(gpu_state);
    }
    const double allowed = dtype == at::kFloat ? 1e-6 : 1e-14;
    const at::Tensor difference = there.values().cpu() - here.values();
    EXPECT_LE(difference.norm().item<double>(), allowed * here.values().norm().item<double>());
    const double penalty = RegularizationLoss(*cpu)().item<double>();  // 0 where the decay is the update's own
    EXPECT_NEAR(RegularizationLoss(*gpu)().item<double>(), penalty, 1e-6 * penalty);
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaOptimizer, testing::ValuesIn(optimizers().names()),
                         [](const auto& tested) { return tested.param; });

// With gradients of the update before, and clipped by norm; one step is skipped.
TEST(CudaOptimizers, FollowTheCpuWithDelayedAndClippedGradients) {
  TRAINYARD_NEEDS_GPU();
  for (const bool delayed : {false, true}) {
    for (const NormClipRule rule : {NormClipRule::kTensorFlow, NormClipRule::kPyTorch}) {
      const OptimizerOptions options{.weight_decay = 0.01,
                                     .parameters = {"a.*"},
                                     .norm_clip = NormClip{.bound = 1.5, .rule = rule},
                                     .delayed = delayed};
      nn::ParameterSet here = make_set(at::kCPU, at::kDouble), there = make_set(kGpu, at::kDouble);
      const at::Tensor start = here.values().clone();
      const auto cpu = optimizers().get("sgd")(here, options), gpu = optimizers().get("sgd")(there, options);
      StepState cpu_state, gpu_state(kGpu);
      for (int step = 0; step < 6; ++step) {
        const StepValues values{.learning_rate = 0.1, .inverse_loss_scale = 0.5, .step = step, .found_inf = step == 3};
        cpu_state.write(values);
        gpu_state.write(values);
        fill_gradients(here, step);
        fill_gradients(there, step);
        if (values.found_inf) {
          for (nn::ParameterSet* set : {&here, &there}) set->gradients().fill_(std::numeric_limits<double>::infinity());
        }
        cpu->apply(cpu_state);
        gpu->apply(gpu_state);
        const at::Tensor difference = there.values().cpu() - here.values();
        EXPECT_LE(difference.abs().max().item<double>(), 1e-14) << step << " " << delayed;
        if (!delayed) continue;
        const at::Tensor kept = gpu->slots().back().values.cpu() - cpu->slots().back().values;
        EXPECT_LE(kept.abs().max().item<double>(), 1e-14) << step;
      }
      EXPECT_GT((here.values() - start).abs().max().item<double>(), 0.01);
    }
  }
}

TEST(CudaLossScaler, SeesInfiniteGradientsWhereverTheyAre) {
  TRAINYARD_NEEDS_GPU();
  LossScaler scaler({.scale = 8, .automatic = true}, kGpu);
  StepState state(kGpu);
  nn::ParameterSet set = make_set(kGpu, at::kFloat);
  fill_gradients(set, 0);
  scaler.end_step(set.gradients(), state);
  EXPECT_FALSE(state.read().found_inf);
  for (const int64_t place : {int64_t{0}, set.total() - 1}) {
    fill_gradients(set, 0);
    set.gradients()[place] = std::numeric_limits<float>::infinity();
    const double before = scaler.scale().item<double>();
    scaler.end_step(set.gradients(), state);
    EXPECT_TRUE(state.read().found_inf);
    EXPECT_EQ(state.read().inverse_loss_scale, 1 / before);
    EXPECT_EQ(scaler.scale().item<double>(), before / 2);
  }
}

TEST(CudaLossScaler, MovesAsOnTheCpuByEachRule) {
  TRAINYARD_NEEDS_GPU();
  nn::ParameterSet here = make_set(at::kCPU, at::kFloat), there = make_set(kGpu, at::kFloat);
  for (const LossScaleRule rule : {LossScaleRule::kTensorFlow, LossScaleRule::kTorch, LossScaleRule::kPaddle}) {
    const LossScalerOptions options{.scale = 8, .automatic = true, .rule = rule, .raise_after = 2};
    LossScaler cpu(options), gpu(options, kGpu);
    StepState cpu_state, gpu_state(kGpu);
    for (const bool bad : {false, false, false, true, true, false, true, true, true, true, false, false}) {
      for (nn::ParameterSet* set : {&here, &there}) {
        set->gradients().fill_(1);
        if (bad) set->gradients()[3] = std::numeric_limits<float>::infinity();
      }
      cpu.end_step(here.gradients(), cpu_state);
      gpu.end_step(there.gradients(), gpu_state);
      EXPECT_EQ(gpu_state.read().found_inf, bad);
      EXPECT_EQ(gpu_state.read().inverse_loss_scale, cpu_state.read().inverse_loss_scale);
      EXPECT_EQ(gpu.scale().item<double>(), cpu.scale().item<double>());
      EXPECT_EQ(gpu.clean_steps().item<double>(), cpu.clean_steps().item<double>());
      EXPECT_EQ(gpu.skips_at_floor().item<double>(), cpu.skips_at_floor().item<double>());
    }
  }
}

}  // namespace
}  // namespace trainyard::optim::optimizer_cuda_test
