// Flags that another flag, or the device, has switched off: tf_cnn_benchmarks says nothing of them.
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/frontends/tf_cnn/benchmark_cnn.h"
#include "trainyard/frontends/tf_cnn/flags.h"
#include "trainyard/frontends/tf_cnn/prepare.h"
#include "trainyard/frontends/tf_cnn/read_options.h"

namespace trainyard::frontends::idle_flags_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

using Arguments = std::vector<std::string>;

const Arguments kLossScale = {"--fp16_loss_scale=64", "--fp16_enable_auto_loss_scale",
                              "--fp16_inc_loss_scale_every_n=10", "--fp16_vars"};
const Arguments kGpu = {"--gpu_indices=1,0", "--gpu_thread_mode=global", "--allow_growth", "--use_unified_memory",
                        "--gpu_memory_frac_for_testing=0.25"};

TfCnnOptions options_of(Dialect dialect, Arguments arguments) {
  arguments.insert(arguments.end(), {"--model=lenet", "--synthetic"});
  return read_options(core::parse_flags(tf_cnn_flags(dialect), arguments), dialect);
}

// Returns why the flags are refused on a machine with so many GPUs, and "" where they are not.
std::string problem(Dialect dialect, Arguments arguments, const Arguments& more, int gpus = 0) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  const auto error = core::error_of([&] { plan_devices(options_of(dialect, arguments).device, {}, gpus); });
  return error ? error->detail().problem : "";
}

TEST(IdleFlags, OfFp16AreSilentWithoutUseFp16) {
  for (const Arguments& off : {Arguments(), Arguments{"--use_fp16=false"}}) {
    EXPECT_EQ(problem(Dialect::kTfCnnBenchmarks, kLossScale, off), "");
    EXPECT_EQ(problem(Dialect::kTfCnnBenchmarks, kLossScale, off, /*gpus=*/1), "");
  }
  EXPECT_EQ(problem(Dialect::kTrainyard, kLossScale, {"--use_fp16=false"}), "");
  EXPECT_EQ(problem(Dialect::kTrainyard, kLossScale, {"--use_fp16=false"}, 1), "");
  for (const std::string& flag : kLossScale) EXPECT_NE(problem(Dialect::kTrainyard, {flag}, {}, 1), "") << flag;
  // Flags of ours have no example to follow: without --use_fp16=false they ask for what is not done.
  for (const Dialect dialect : {Dialect::kTfCnnBenchmarks, Dialect::kTrainyard}) {
    EXPECT_EQ(problem(dialect, {"--loss_scale_rule=torch"}, {}, 1), "--loss_scale_rule is of --use_fp16");
    EXPECT_EQ(problem(dialect, {"--loss_scale_rule=torch", "--loss_scale_lower_after=3"}, {"--use_fp16=false"}, 1), "");
  }
}

TEST(IdleFlags, OfFp16CountWithUseFp16) {
  const DeviceOptions on =
      options_of(Dialect::kTfCnnBenchmarks, {"--use_fp16", "--fp16_loss_scale=64", "--fp16_vars"}).device;
  const DeviceOptions plan = plan_devices(on, {}, 1);
  ASSERT_TRUE(loss_scale_of(plan));
  EXPECT_EQ(loss_scale_of(plan)->scale, 64);
  EXPECT_EQ(variables_of(plan), at::kHalf);
  EXPECT_EQ(problem(Dialect::kTfCnnBenchmarks, {"--use_fp16", "--fp16_loss_scale=64"}, {}), "--use_fp16 needs a GPU");
  // bfloat16 has 16-bit variables, too.
  EXPECT_TRUE(options_of(Dialect::kTfCnnBenchmarks, {"--use_bf16", "--fp16_vars"}).device.fp16_vars);
}

TEST(IdleFlags, OfGpusAreSilentOnACpu) {
  for (const Arguments& cpu : {Arguments(), Arguments{"--device=cpu"}}) {
    EXPECT_EQ(problem(Dialect::kTfCnnBenchmarks, kGpu, cpu), "");
    EXPECT_EQ(problem(Dialect::kTfCnnBenchmarks, {"--per_gpu_thread_count=3"}, cpu), "");
  }
  EXPECT_EQ(problem(Dialect::kTrainyard, kGpu, {"--device=cpu"}), "");
  EXPECT_EQ(problem(Dialect::kTrainyard, kGpu, {}), "--gpu_indices needs a GPU");
  EXPECT_EQ(problem(Dialect::kTrainyard, {"--per_gpu_thread_count=3"}, {}), "--per_gpu_thread_count needs a GPU");
  // What would compute something else is no such flag.
  for (const char* flag : {"--xla", "--tf32", "--local_parameter_device=gpu"}) {
    EXPECT_THAT(problem(Dialect::kTfCnnBenchmarks, {flag, "--device=cpu"}, {}), HasSubstr("needs a GPU")) << flag;
  }
}

// --resnet_base_lr changes the own schedule of tf_cnn_benchmarks' ResNets for ImageNet, and nothing else.
TEST(IdleFlags, ABaseRateThatNoScheduleReadsIsRefusedInOurDialect) {
  const auto problem_of_run = [](Dialect dialect, const Arguments& more) {
    Arguments arguments = {"--device=cpu",    "--synthetic",  "--batch_size=1",
                           "--num_batches=1", "--train_dir=", "--resnet_base_lr=0.5"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    testing::internal::CaptureStderr();
    const auto error =
        core::error_of([&] { prepare(read_options(core::parse_flags(tf_cnn_flags(dialect), arguments), dialect)); });
    testing::internal::GetCapturedStderr();
    return error ? error->detail().problem : "";
  };
  const Arguments cifar = {"--model=resnet20", "--data_name=cifar10"},
                  given = {"--model=resnet50", "--init_learning_rate=1"};
  const char* const other_model = "--resnet_base_lr is for tf_cnn_benchmarks' ResNets for ImageNet";
  EXPECT_THAT(problem_of_run(Dialect::kTrainyard, cifar), StartsWith(other_model));
  EXPECT_THAT(problem_of_run(Dialect::kTrainyard, {"--model=official_resnet50"}), StartsWith(other_model));
  const char* const other_rate = "--resnet_base_lr is of the model's own schedule";
  EXPECT_THAT(problem_of_run(Dialect::kTrainyard, given), StartsWith(other_rate));
  EXPECT_THAT(problem_of_run(Dialect::kTrainyard, {"--model=resnet50", "--piecewise_learning_rate_schedule=1;3;.1"}),
              StartsWith(other_rate));
  EXPECT_EQ(problem_of_run(Dialect::kTrainyard, {"--model=resnet50"}), "");
  EXPECT_EQ(problem_of_run(Dialect::kTrainyard, {"--model=lenet", "--forward_only"}), "");
  for (const Arguments& ignored : {cifar, given}) EXPECT_EQ(problem_of_run(Dialect::kTfCnnBenchmarks, ignored), "");
}

TEST(IdleFlags, NothingIsSaidOfThem) {
  Arguments arguments = {"--model=lenet",          "--device=cpu",   "--batch_size=2",          "--num_batches=1",
                         "--num_warmup_batches=0", "--task_index=3", "--per_gpu_thread_count=2"};
  arguments.insert(arguments.end(), kLossScale.begin(), kLossScale.end());
  arguments.insert(arguments.end(), {"--gpu_indices=1,0", "--allow_growth"});
  testing::internal::CaptureStderr();
  std::ostringstream out;
  BenchmarkCnn(options_of(Dialect::kTfCnnBenchmarks, arguments)).run(out);
  const std::string log = testing::internal::GetCapturedStderr();
  for (const char* word : {"fp16", "gpu_", "task_index", "allow_growth", "warning"})
    EXPECT_THAT(log, Not(HasSubstr(word)));
  EXPECT_THAT(out.str(), HasSubstr("total images/sec"));
}

}  // namespace
}  // namespace trainyard::frontends::idle_flags_test
