#include "trainyard/optim/scaling/loss_scaler.h"

#include <limits>

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/memory_state.h"

namespace trainyard::optim {
namespace {

at::Tensor gradients(double value) {
  at::Tensor all = at::full({32}, 1.0, at::kFloat);
  all[17] = value;
  return all;
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(LossScaler, HalvesSkipsAndDoublesAsUpstream) {
  LossScaler scaler({.scale = 8, .automatic = true, .raise_after = 2});
  StepState state;
  // The scale before, whether a gradient is infinite, then what the optimizer sees.
  struct Row {
    double scale;
    bool infinite;
  };
  const Row rows[] = {{8, false}, {8, false}, {8, false}, {16, true}, {8, true},
                      {4, false}, {4, false}, {4, false}, {8, false}};
  for (const Row& row : rows) {
    EXPECT_EQ(scaler.scale().item<double>(), row.scale);
    scaler.end_step(gradients(row.infinite ? kInfinity : 3.0), state);
    EXPECT_EQ(state.read().inverse_loss_scale, 1 / row.scale);
    EXPECT_EQ(state.read().found_inf, row.infinite);
  }
}

TEST(LossScaler, NotANumberCountsAsInfinite) {
  LossScaler scaler({.scale = 8, .automatic = true});
  StepState state;
  scaler.end_step(gradients(std::numeric_limits<double>::quiet_NaN()), state);
  EXPECT_TRUE(state.read().found_inf);
  EXPECT_EQ(scaler.scale().item<double>(), 4);
}

TEST(LossScaler, AFixedScaleStaysAndSeesNothing) {
  LossScaler scaler({.scale = 128});
  StepState state;
  scaler.end_step(gradients(kInfinity), state);
  EXPECT_FALSE(state.read().found_inf);
  EXPECT_EQ(state.read().inverse_loss_scale, 1 / 128.0);
  EXPECT_EQ(scaler.scale().item<double>(), 128);
}

TEST(LossScaler, GoesOnWhereItWasSaved) {
  LossScaler first({.scale = 8, .automatic = true, .raise_after = 2}),
      second({.scale = 1, .automatic = true, .raise_after = 2});
  StepState state;
  for (int step = 0; step < 2; ++step) first.end_step(gradients(1), state);
  core::MemoryState saved;
  first.save(saved);
  second.load(saved);
  for (LossScaler* scaler : {&first, &second}) {
    scaler->end_step(gradients(1), state);
    EXPECT_EQ(scaler->scale().item<double>(), 16);
  }
}

TEST(LossScaler, RefusesScalesThatMakeNoSense) {
  for (const double scale : {0.0, -1.0, kInfinity}) EXPECT_THROW(LossScaler({.scale = scale}), core::Error);
  EXPECT_THROW(LossScaler({.raise_after = 0}), core::Error);
}

}  // namespace
}  // namespace trainyard::optim
