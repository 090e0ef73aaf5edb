// The precision in which a trained model predicts, and its flag.
#pragma once

#include <optional>
#include <string>

#include <c10/core/ScalarType.h>

#include "trainyard/core/flags/flags.h"

namespace trainyard::frontends {

enum class Precision {
  kAuto,      // that of the model: 8 bits where it has scales, else float32
  kFloat32,   // of a quantized model's file: with its rounded weights
  kBfloat16,  // activations; likewise
  kInt8,      // layers that have scales compute in 8 bits
};

// Returns "auto", "float32", "bfloat16" or "int8".
[[nodiscard]] const char* precision_name(Precision precision);

// Returns the dtype of what is not in 8 bits.
[[nodiscard]] at::ScalarType float_type(Precision precision);

// Declares --precision, in this group of the help, and reads it.
void declare_precision_flag(core::FlagTable& table, const std::string& group);
[[nodiscard]] Precision read_precision(const core::FlagValues& values);

// The default of --calibration_batches.
inline constexpr int64_t kCalibrationBatches = 16;
// Declares --calibration_batches, and reads it; unset where it is not given, or a file of flags repeats its default.
void declare_calibration_batches_flag(core::FlagTable& table, const std::string& group, const std::string& help);
[[nodiscard]] std::optional<int64_t> read_calibration_batches(const core::FlagValues& values);

}  // namespace trainyard::frontends
