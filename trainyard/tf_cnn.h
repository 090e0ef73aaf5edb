// tf_cnn_benchmarks with data sets and models of the caller (docs/howto/benchmark_as_a_library.md).
#pragma once

#include "trainyard/frontends/tf_cnn/benchmark_cnn.h"  // IWYU pragma: export
#include "trainyard/trainyard.h"                       // IWYU pragma: export
