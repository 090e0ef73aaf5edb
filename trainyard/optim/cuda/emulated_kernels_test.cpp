// The optimizers' kernels for GPUs run on the CPU (tests/cuda_emulation), as they are registered, against the CPU's own
// loops.
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "trainyard/optim/optimizers/formula_optimizer.h"
#include "trainyard/optim/optimizers/optimizer.h"
#include "trainyard/optim/optimizers/regularization_loss.h"
#include "trainyard/optim/scaling/loss_scaler.h"
#include "trainyard/optim/step/device_kernels.h"
#include "trainyard/optim/testing/device_set.h"
#include "trainyard/optim/testing/numbers.h"

namespace trainyard::optim::cuda::emulated_kernels_test {
namespace {

const DeviceKernels& kernels() {
  return *all_device_kernels().get("cuda");
}

// Segments that end within a pack, a part of one element, and one of several parts.
nn::ParameterSet make_set(at::ScalarType dtype) {
  return make_device_set({.dtype = dtype}, kPartElements + 1);
}

void expect_follows_the_cpu(const std::string& name, OptimizerOptions options, at::ScalarType dtype) {
  options.numbers = numbers_of(name, options.numbers);
  options.weight_decay = 0.01;
  options.gradient_clip = 0.75;
  nn::ParameterSet here = make_set(dtype), there = make_set(dtype);
  const auto optimizer = optimizers().get(name)(here, options);
  const SegmentPartTable parts = segment_part_table(there.segments(), at::kCPU);
  std::vector<at::Tensor> slots;
  for (const auto& slot : optimizer->slots()) slots.push_back(slot.values.clone());
  const at::Tensor& count = optimizer->update_count();
  const at::Tensor own_count = count.defined() ? count.clone() : at::Tensor();
  const bool coupled = optimizer->decay_form() == Optimizer::DecayForm::kCoupled;
  StepState state;
  for (int step = 0; step < 4; ++step) {
    state.write({.learning_rate = 0.1, .inverse_loss_scale = 0.5, .step = step, .found_inf = step == 2});
    here.gradients().copy_(at::randn({here.total()}));
    there.gradients().copy_(here.gradients());
    optimizer->apply(state);
    kernels().flat_update({.values = there.values(),
                           .gradients = there.gradients(),
                           .slots = slots,
                           .parts = &parts,
                           .segments = static_cast<int>(there.segments().size()),
                           .fields = state.tensor(),
                           .count = own_count,
                           .decay = coupled ? 0.01 : 0.0,
                           .update_decay = coupled ? 0.0 : 0.01,
                           .clip = 0.75,
                           .adapt_undecayed = optimizer->adapts_undecayed()},
                          optimizer_formulas().get(name).make(optimizer->options().numbers));
    const double allowed = dtype == at::kFloat ? 2e-6 : 1e-14;
    EXPECT_LE((there.values() - here.values()).abs().max().item<double>(), allowed) << name << " " << step;
    for (size_t s = 0; s < slots.size(); ++s) {
      EXPECT_LE((slots[s] - optimizer->slots()[s].values).abs().max().item<double>(), allowed) << name << " " << step;
    }
    if (count.defined()) {
      EXPECT_LE((own_count - count).abs().max().item<double>(), 1e-15) << name << " " << step;
    }
  }
}

TEST(CudaEmulation, UpdatesFollowTheCpu) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    for (const std::string& name : optimizers().names()) {
      if (optimizer_formulas().get(name).construct) continue;  // more than the formula: not on a device
      expect_follows_the_cpu(name, {.numbers = {{"momentum", 0.8}, {"dampening", 0.25}}}, dtype);
      expect_follows_the_cpu(
          name,
          {.numbers = {{"momentum", 0.8}, {"nesterov", 1}, {"centered", 1}, {"epsilon", 0.1}}, .decoupled_decay = true},
          dtype);
    }
    expect_follows_the_cpu("lars", {.numbers = {{"adapt_undecayed", 1}}}, dtype);
    expect_follows_the_cpu("lamb", {.numbers = {{"bias_correction", 0}, {"adapt_undecayed", 1}}}, dtype);
  }
}

TEST(CudaEmulation, SumsOfSquaresAreTheRegularizationLosss) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    nn::ParameterSet set = make_set(dtype);
    const double total =
        kernels().sum_of_decayed_squares(set.values(), segment_part_table(set.segments(), at::kCPU)).item<double>();
    const auto optimizer = optimizers().get("sgd")(set, {.weight_decay = 1.0});
    EXPECT_NEAR(total / 2, RegularizationLoss(*optimizer)().item<double>(), 1e-9 * total);
  }
}

TEST(CudaEmulation, InfiniteGradientsAreSeenWhereverTheyAre) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    // More than the blocks of one launch hold at a time, and few.
    for (const int64_t count : {int64_t{16}, int64_t{4144}, int64_t{1024 * 256 * 4 + 16}}) {
      const at::Tensor gradients = at::full({count}, 1.0, dtype);
      const auto found = [&] {
        const at::Tensor result = at::full({1}, -1, at::kInt);
        kernels().find_non_finite(gradients, result);
        return result.item<int>();
      };
      EXPECT_EQ(found(), 0);
      for (const auto& [place, bad] :
           {std::pair{int64_t{0}, infinity}, std::pair{count / 2 + 3, -infinity}, std::pair{count - 1, std::nan("")}}) {
        gradients[place] = bad;
        EXPECT_EQ(found(), 1) << place << " of " << count;
        gradients[place] = 1.0;
      }
    }
  }
}

TEST(CudaEmulation, TheLossScaleMovesByItsRule) {
  const at::Tensor clean = at::zeros({1}, at::kInt), bad = at::ones({1}, at::kInt);
  for (const LossScaleRule name : {LossScaleRule::kTensorFlow, LossScaleRule::kTorch, LossScaleRule::kPaddle}) {
    const LossScaleSteps rule = LossScalerOptions{.rule = name, .raise_after = 2}.steps();
    const at::Tensor scale = at::tensor({8.0, 0.0, 0.0, 0.0}, at::kDouble);
    LossScale expected{.scale = 8};
    StepState state;
    for (const bool infinite : {false, false, false, true, true, false, true, true, true, true, false, false}) {
      kernels().apply_loss_scale(scale, infinite ? bad : clean, rule, state.tensor());
      EXPECT_EQ(state.read().inverse_loss_scale, 1.0 / expected.scale);
      EXPECT_EQ(state.read().found_inf, infinite);
      expected = next_loss_scale(expected, infinite, rule);
      EXPECT_EQ(scale[0].item<double>(), expected.scale);
      EXPECT_EQ(scale[1].item<double>(), expected.clean_steps);
      EXPECT_EQ(scale[2].item<double>(), expected.bad_steps);
      EXPECT_EQ(scale[3].item<double>(), expected.skips_at_floor);
    }
    kernels().apply_loss_scale(scale, {}, rule, state.tensor());
    EXPECT_FALSE(state.read().found_inf) << "a fixed scale";
    EXPECT_EQ(scale[0].item<double>(), expected.scale);
  }
}

TEST(CudaEmulation, AStepsNumbersArrive) {
  const at::Tensor fields = at::full({3}, NAN, at::kDouble);
  kernels().write_fields(fields, std::array{1.0, 2.0});
  EXPECT_EQ(fields[0].item<double>(), 1);
  EXPECT_EQ(fields[1].item<double>(), 2);
  EXPECT_TRUE(fields[2].isnan().item<bool>());
}

}  // namespace
}  // namespace trainyard::optim::cuda::emulated_kernels_test
