// Whose defaults and lines a run has: the same flags are understood in both dialects (docs/dialects.md).
#pragma once

namespace trainyard::recipes {

enum class Dialect {
  kTfCnnBenchmarks,  // flags without a sub-command: tf_cnn_benchmarks to the letter
  kTrainyard,        // `trainyard train` and `trainyard eval`: friendlier defaults
};

}  // namespace trainyard::recipes
