// The dialect of a run selects its defaults and output lines. Both dialects accept the same flags (docs/dialects.md).
#pragma once

namespace trainyard::frontends {

enum class Dialect {
  kTfCnnBenchmarks,  // flags without a sub-command: tf_cnn_benchmarks to the letter
  kTrainyard,        // `trainyard train` and `trainyard eval`: friendlier defaults
};

}  // namespace trainyard::frontends
