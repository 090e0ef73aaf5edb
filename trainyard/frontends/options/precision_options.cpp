#include "trainyard/frontends/options/precision_options.h"

#include <iterator>

namespace trainyard::frontends {
namespace {

// By Precision.
constexpr const char* kPrecisionNames[] = {"auto", "float32", "bfloat16", "int8"};
constexpr int64_t kMostCalibrationBatches = 65'536;

}  // namespace

const char* precision_name(Precision precision) {
  return kPrecisionNames[static_cast<size_t>(precision)];
}

at::ScalarType float_type(Precision precision) {
  return precision == Precision::kBfloat16 ? at::kBFloat16 : at::kFloat;
}

void declare_precision_flag(core::FlagTable& table, const std::string& group) {
  table
      .choice("precision", kPrecisionNames[0], {std::begin(kPrecisionNames), std::end(kPrecisionNames)},
              "in which a trained model computes: int8 needs the scales of `trainyard quantize` or of a training with "
              "--qat, "
              "or in an evaluation images to find them with; auto: int8 of a model that has scales, else float32")
      .group(group);
}

Precision read_precision(const core::FlagValues& values) {
  const std::string name = values.text("precision");
  for (const Precision each : {Precision::kFloat32, Precision::kBfloat16, Precision::kInt8}) {
    if (name == precision_name(each)) return each;
  }
  return Precision::kAuto;
}

void declare_calibration_batches_flag(core::FlagTable& table, const std::string& group, const std::string& help) {
  table.integer("calibration_batches", kCalibrationBatches, help).bounds(1, kMostCalibrationBatches).group(group);
}

std::optional<int64_t> read_calibration_batches(const core::FlagValues& values) {
  // A file of flags may repeat the default; on the command line it is asked for.
  const bool asked = values.source("calibration_batches") == core::FlagSource::kCommandLine;
  if (!asked && !values.changed("calibration_batches")) return std::nullopt;
  return values.integer("calibration_batches");
}

}  // namespace trainyard::frontends
