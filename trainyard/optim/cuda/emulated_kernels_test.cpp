// The optimizers' kernels run on the CPU (tests/cuda_emulation) against the CPU's own loops.
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "trainyard/optim/cuda/kernels.h"
#include "trainyard/optim/formulas.h"
#include "trainyard/optim/l2_loss.h"
#include "trainyard/optim/optimizer.h"

namespace trainyard::optim::cuda {
namespace {

// Segments that end within a pack, a part of one element, and one of several parts.
nn::ParameterSet make_set(at::ScalarType dtype) {
  nn::ParameterSet set({.dtype = dtype});
  set.declare({.name = "a.weight", .shape = {3, 11}, .init = nn::Initializer::normal(1.0)});
  set.declare({.name = "a.bias", .shape = {7}, .init = nn::Initializer::normal(1.0), .decay = false});
  set.declare({.name = "b.weight", .shape = {kPartElements + 1}, .init = nn::Initializer::normal(1.0)});
  set.allocate();
  set.initialize(17);
  return set;
}

template <typename Formula>
void expect_follows_the_cpu(const std::string& name, const Formula& formula, at::ScalarType dtype) {
  const OptimizerOptions options{.momentum = 0.8, .weight_decay = 0.01, .gradient_clip = 0.75};
  nn::ParameterSet here = make_set(dtype), there = make_set(dtype);
  const auto optimizer = optimizers().get(name)(here, options);
  const std::vector<SegmentPart> parts = cut_segments(there.segments());
  at::Tensor slot = at::zeros_like(there.values());
  StepState state;
  for (int step = 0; step < 4; ++step) {
    state.write({.learning_rate = 0.1, .inverse_loss_scale = 0.5, .step = step, .found_inf = step == 2});
    here.gradients().copy_(at::randn({here.total()}));
    there.gradients().copy_(here.gradients());
    optimizer->apply(state);
    const at::Tensor fields = state.tensor();
    const auto* const field = fields.const_data_ptr<double>();
    launch_flat_update(FlatUpdate{.is_double = dtype == at::kDouble,
                                  .values = there.values().data_ptr(),
                                  .gradients = there.gradients().const_data_ptr(),
                                  .slots = {slot.data_ptr()},
                                  .parts = parts.data(),
                                  .part_count = static_cast<int>(parts.size()),
                                  .learning_rate = field + StepState::kLearningRate,
                                  .inverse_loss_scale = field + StepState::kInverseLossScale,
                                  .found_inf = field + StepState::kFoundInf,
                                  .decay = 0.01,
                                  .clip = 0.75},
                       formula, nullptr);
    const double allowed = dtype == at::kFloat ? 1e-6 : 1e-15;
    EXPECT_LE((there.values() - here.values()).abs().max().item<double>(), allowed) << step;
    if (Formula::kSlots > 0) {
      EXPECT_LE((slot - optimizer->slots()[0].values).abs().max().item<double>(), allowed) << step;
    }
  }
}

TEST(CudaEmulation, UpdatesFollowTheCpu) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    expect_follows_the_cpu("sgd", SgdFormula{}, dtype);
    expect_follows_the_cpu("momentum", MomentumFormula<false>{.momentum = 0.8}, dtype);
    expect_follows_the_cpu("nesterov", MomentumFormula<true>{.momentum = 0.8}, dtype);
  }
}

TEST(CudaEmulation, SumsOfSquaresAreTheL2Losss) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    nn::ParameterSet set = make_set(dtype);
    const std::vector<SegmentPart> parts = cut_segments(set.segments());
    std::vector<double> sums(parts.size(), NAN);
    double total = NAN;
    part_squares(dtype == at::kDouble, set.values().const_data_ptr(), parts.data(), static_cast<int>(parts.size()),
                 sums.data(), nullptr);
    add_up(sums.data(), static_cast<int>(sums.size()), &total, nullptr);
    EXPECT_NEAR(total / 2, L2Loss(set, 1.0)().item<double>(), 1e-9 * total);
  }
}

TEST(CudaEmulation, InfiniteGradientsAreSeenWhereverTheyAre) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    // More than the blocks of one launch hold at a time, and few.
    for (const int64_t count : {int64_t{16}, int64_t{4144}, int64_t{1024 * 256 * 4 + 16}}) {
      const at::Tensor gradients = at::full({count}, 1.0, dtype);
      const auto found = [&] {
        int result = -1;
        find_non_finite(dtype == at::kDouble, gradients.const_data_ptr(), count, &result, nullptr);
        return result;
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
  LossScale scale{.scale = 8, .clean_steps = 0};
  double inverse = NAN, found_inf = NAN;
  const int clean = 0, bad = 1;
  apply_loss_scale(&scale, &clean, 1, &inverse, &found_inf, nullptr);
  EXPECT_EQ(inverse, 1.0 / 8);
  EXPECT_EQ(found_inf, 0);
  apply_loss_scale(&scale, &clean, 1, &inverse, &found_inf, nullptr);
  EXPECT_EQ(scale.scale, 16);
  apply_loss_scale(&scale, &bad, 1, &inverse, &found_inf, nullptr);
  EXPECT_EQ(inverse, 1.0 / 16);
  EXPECT_EQ(found_inf, 1);
  EXPECT_EQ(scale.scale, 8);
  apply_loss_scale(&scale, nullptr, 1, &inverse, &found_inf, nullptr);
  EXPECT_EQ(found_inf, 0);
  EXPECT_EQ(scale.scale, 8);
}

TEST(CudaEmulation, AStepsNumbersArrive) {
  std::vector<double> fields(3, NAN);
  write_fields(fields.data(), {.value = {1, 2}}, 2, nullptr);
  EXPECT_EQ(fields[0], 1);
  EXPECT_EQ(fields[1], 2);
  EXPECT_TRUE(std::isnan(fields[2]));
}

}  // namespace
}  // namespace trainyard::optim::cuda
