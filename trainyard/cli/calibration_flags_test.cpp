#include "trainyard/cli/calibration_flags.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/frontends/options/precision_options.h"

namespace trainyard::cli::calibration_flags_test {
namespace {

train::QuantizeModelOptions read(const std::vector<std::string>& arguments) {
  core::FlagTable table;
  declare_calibration_flags(table);
  return read_quantize_options(core::parse_flags(table, arguments));
}

TEST(CalibrationFlags, EachWordIsItsMethod) {
  for (const auto& [word, ranges] : {std::pair{"auto", nn::RangeMethod::kAuto},
                                     {"min_max", nn::RangeMethod::kMinMax},
                                     {"percentile", nn::RangeMethod::kPercentile},
                                     {"entropy", nn::RangeMethod::kEntropy}}) {
    EXPECT_EQ(read({std::string("--calibration=") + word}).quantization.ranges, ranges) << word;
  }
  for (const auto& [word, method] : {std::pair{"auto", nn::QuantizeMethod::kAuto},
                                     {"plain", nn::QuantizeMethod::kPlain},
                                     {"bias_correction", nn::QuantizeMethod::kBiasCorrection},
                                     {"equalization", nn::QuantizeMethod::kEqualization},
                                     {"smooth_quant", nn::QuantizeMethod::kSmoothQuant}}) {
    EXPECT_EQ(read({std::string("--quantize_method=") + word}).quantization.method, method) << word;
  }
  const train::QuantizeModelOptions plain = read({});
  EXPECT_EQ(plain.quantization.ranges, nn::RangeMethod::kAuto);
  EXPECT_EQ(plain.quantization.method, nn::QuantizeMethod::kAuto);
  EXPECT_EQ(plain.quantization.percentile, std::nullopt);
  EXPECT_EQ(plain.batches, frontends::kCalibrationBatches);
}

TEST(CalibrationFlags, NumbersReachTheQuantization) {
  EXPECT_EQ(read({"--calibration_batches=7"}).batches, 7);
  EXPECT_EQ(read({"--calibration=percentile", "--percentile=99.5"}).quantization.percentile, 99.5);
  for (const char* const ranges : {"auto", "min_max", "entropy"}) {
    EXPECT_EQ(core::message_of([&] {
                read({std::string("--calibration=") + ranges, "--percentile=99.5"});
              }),
              "--percentile is of --calibration=percentile; pass both, or neither")
        << ranges;
  }
  EXPECT_THROW(read({"--calibration=percentile", "--percentile=100.5"}), core::Error);
  EXPECT_THROW(read({"--calibration_batches=0"}), core::Error);
}

}  // namespace
}  // namespace trainyard::cli::calibration_flags_test
