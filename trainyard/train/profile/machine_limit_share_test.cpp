#include "trainyard/train/profile/machine_limit_share.h"

#include <memory>

#include <gtest/gtest.h>

#include "trainyard/core/machine/machine_limits.h"
#include "trainyard/core/testing/environment.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/train/testing/fake_accelerator.h"
#include "trainyard/train/testing/tiny_model.h"

namespace trainyard::train::machine_limit_share_test {
namespace {

// Forward of the tiny model, counted by hand: 8 filters of 3 x 3 x 3 at 5 x 5 places, and 8 inputs of 6 outputs.
constexpr double kForwardFlops = 2 * (8 * 27 * 25 + 8 * 6);

TEST(MachineLimitShare, CountsAForwardOnceAndATrainingThrice) {
  const core::TempDir cache;
  const core::EnvironmentVariable folder("XDG_CACHE_HOME", cache.path());
  EXPECT_EQ(compute_rate(tiny_graph(), false, {}, 1000).model_flops, 1000 * kForwardFlops);
  const ComputeRate training = compute_rate(tiny_graph(), true, {}, 1e6);
  EXPECT_EQ(training.model_flops, 3e6 * kForwardFlops);
  EXPECT_EQ(training.limit_flops, 0) << "no limit was measured";
  EXPECT_EQ(compute_rate_text(training),
            "32.7 GFLOP/s of the model (trainyard doctor --limits measures what the machine can do)");
  EXPECT_EQ(compute_rate_text({}), "");
}

TEST(MachineLimitShare, TakesTheSavedLimitOfThePrecision) {
  const core::TempDir cache;
  const core::EnvironmentVariable folder("XDG_CACHE_HOME", cache.path());
  core::MachineLimits limits{.threads = 1,
                             .fp32_flops_one = 1e11,
                             .fp32_flops_all = 1e11,
                             .bf16_flops_one = 2e11,
                             .bf16_flops_all = 2e11,
                             .read_bytes = 1e10,
                             .copy_bytes = 1e10,
                             .triad_bytes = 1e10,
                             .processor_share = 1,
                             .measured_at = 1'700'000'000};
  core::save_machine_limits(limits);
  const ComputeRate rate = compute_rate(tiny_graph(), true, {}, 1e6);
  EXPECT_EQ(rate.limit_flops, 1e11);
  EXPECT_EQ(compute_rate_text(rate), "32.7 GFLOP/s of the model, 33 % of the machine's limit");
  EXPECT_EQ(compute_rate(tiny_graph(), true, {.dtype = at::kBFloat16}, 1e6).limit_flops, 2e11);
  EXPECT_EQ(compute_rate(tiny_graph(), true, {.accelerators = {std::make_shared<FakeAccelerator>()}}, 1e6).limit_flops,
            0)
      << "the limit is the CPU's";
  limits.processor_share = 0.5;
  core::save_machine_limits(limits);
  EXPECT_EQ(compute_rate_text(compute_rate(tiny_graph(), true, {}, 1e6)),
            "32.7 GFLOP/s of the model, 33 % of the machine's limit, which was measured on a busy machine");
}

}  // namespace
}  // namespace trainyard::train::machine_limit_share_test
