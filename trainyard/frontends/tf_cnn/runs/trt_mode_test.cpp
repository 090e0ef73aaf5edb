// Precisions of the frozen graph, and the memory that it may take.
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/system/cpu_isa.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/frontends/tf_cnn/benchmark_cnn.h"
#include "trainyard/frontends/tf_cnn/flags.h"
#include "trainyard/frontends/tf_cnn/options.h"
#include "trainyard/frontends/tf_cnn/read_options.h"

namespace trainyard::frontends::trt_mode_test {
namespace {

using ::testing::HasSubstr;

// Returns the lines of frozen forward passes, without speeds.
std::string frozen_lines(std::vector<std::string> more) {
  constexpr auto kDialect = Dialect::kTfCnnBenchmarks;
  std::vector<std::string> arguments = {"--model=lenet",     "--device=cpu",    "--batch_size=4",
                                        "--forward_only",    "--num_batches=3", "--freeze_when_forward_only",
                                        "--display_every=1", "--deterministic", "--num_warmup_batches=0"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  std::ostringstream out;
  BenchmarkCnn(read_options(core::parse_flags(tf_cnn_flags(kDialect), arguments), kDialect)).run(out);
  return std::regex_replace(out.str(), std::regex("images/sec: [^\\t\\n]*(jitter = [^)]*\\))?"), "images/sec");
}

TEST(TrtMode, Fp32IsTheFrozenGraphAsItIs) {
  EXPECT_EQ(frozen_lines({"--trt_mode=FP32"}), frozen_lines({}));
  EXPECT_THAT(core::message_of([] { frozen_lines({"--trt_mode=FP32", "--use_bf16"}); }), HasSubstr("excludes"));
}

TEST(TrtMode, Fp16IsBfloat16OnACpuThatHasIt) {
  testing::internal::CaptureStderr();
  std::string lines, refusal;
  try {
    lines = frozen_lines({"--trt_mode=FP16"});
  } catch (const core::Error& error) {
    refusal = error.what();
  }
  const std::string log = testing::internal::GetCapturedStderr();
  if (!core::cpu_has_avx512_bf16()) {
    EXPECT_THAT(refusal, HasSubstr("AVX512_BF16"));
    return;
  }
  EXPECT_EQ(refusal, "");
  EXPECT_EQ(lines, frozen_lines({"--use_bf16"}));
  EXPECT_THAT(log, HasSubstr("trt_mode=FP16: the frozen graph computes in bfloat16"));
}

TEST(TrtMode, MemoryIsBounded) {
  const std::string refusal = core::message_of([] {
    frozen_lines({"--trt_mode=FP32", "--trt_max_workspace_size_bytes=1000", "--executor=cpu"});
  });
  EXPECT_THAT(refusal, HasSubstr("--trt_max_workspace_size_bytes"));
  EXPECT_THAT(refusal, HasSubstr("at most 1000 bytes"));
  EXPECT_EQ(core::message_of([] {
              frozen_lines({"--trt_mode=FP32", "--trt_max_workspace_size_bytes=100000000", "--executor=cpu"});
            }),
            "no error");
  EXPECT_THAT(core::message_of([] { frozen_lines({"--trt_max_workspace_size_bytes=1000"}); }),
              HasSubstr("is of --trt_mode"));
}

TEST(TrtMode, MemoryOfOtherForwardPassesIsNotBounded) {
  TfCnnOptions options;
  options.model = "lenet";
  options.mode = RunMode::kForwardOnly;
  options.freeze_when_forward_only = true;
  options.batch_size = 4;
  options.device.gpu = false;
  options.steps.num_batches = 1;
  options.steps.num_warmup_batches = 0;
  options.trt_max_workspace_size_bytes = 1000;
  std::ostringstream out;
  EXPECT_EQ(core::message_of([&] { BenchmarkCnn(options).run(out); }), "no error");
}

// Returns the log of frozen forward passes, and expects their lines.
std::string integer_log(std::vector<std::string> more) {
  more.insert(more.begin(), "--trt_mode=INT8");
  testing::internal::CaptureStderr();
  const std::string lines = frozen_lines(more);
  std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(lines, HasSubstr("total images/sec"));
  return log;
}

TEST(TrtMode, EightBitsFollowFromTheInput) {
  const std::string log = integer_log({"--calibration_batches=2"});
  EXPECT_THAT(log, HasSubstr("layers multiply 8-bit integers"));
  EXPECT_THAT(log, HasSubstr("dB"));
  EXPECT_NE(log, integer_log({"--calibration_batches=5"})) << "other images";
  EXPECT_THAT(integer_log({"--calibration_batches=2", "--use_bf16"}), HasSubstr("dB")) << "what is not in 8 bits";
}

TEST(TrtMode, EightBitsAreOfFrozenForwardPassesOnOneCpu) {
  EXPECT_THAT(core::message_of([] {
                frozen_lines({"--trt_mode=INT8", "--nofreeze_when_forward_only"});
              }),
              HasSubstr("freeze_when_forward_only"));
  EXPECT_THAT(core::message_of([] {
                frozen_lines({"--trt_mode=INT8", "--noforward_only"});
              }),
              HasSubstr("--forward_only"));
  for (const char* flag : {"--calibration_batches=2", "--calibration_batches=16"}) {  // 16 is the default's value
    EXPECT_THAT(core::message_of([&] { frozen_lines({flag}); }),
                HasSubstr("--calibration_batches is of --trt_mode=INT8"));
  }
  EXPECT_THAT(core::message_of(
                  [] {
                    frozen_lines({"--trt_mode=INT8", "--device=gpu"});
                  },
                  core::ErrorCode::kUnsupported),
              HasSubstr("8-bit integers are computed on CPUs"));
  EXPECT_THAT(core::message_of([] { frozen_lines({"--precision=int8"}); }),
              HasSubstr("--precision is of evaluations and predictions"));
}

TEST(TrtMode, DetectorsStayInFloat) {
  EXPECT_THAT(core::message_of(
                  [] {
                    frozen_lines({"--trt_mode=INT8", "--model=ssd300", "--data_name=coco"});
                  },
                  core::ErrorCode::kUnsupported),
              HasSubstr("detect objects"));
}

}  // namespace
}  // namespace trainyard::frontends::trt_mode_test
