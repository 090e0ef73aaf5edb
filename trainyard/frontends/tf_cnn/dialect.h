// Whose defaults and lines a run has: the same flags are understood in both dialects (docs/dialects.md).
#pragma once

#include "trainyard/core/base/export.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::frontends {

enum class Dialect {
  kTfCnnBenchmarks,  // flags without a sub-command: tf_cnn_benchmarks to the letter
  kTrainyard,        // `trainyard train` and `trainyard eval`: friendlier defaults
};

}  // namespace trainyard::frontends
TRAINYARD_EXPORT_END
