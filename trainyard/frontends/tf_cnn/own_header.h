// The five lines at the top of a run of `trainyard train` and `trainyard eval`. Flags alone print those of
// tf_cnn_benchmarks (run_header.h).
#pragma once

#include <vector>

#include "trainyard/frontends/tf_cnn/run_header.h"

namespace trainyard::frontends {

std::vector<HeaderRow> own_header_rows(const PreparedRun& run);

}  // namespace trainyard::frontends
