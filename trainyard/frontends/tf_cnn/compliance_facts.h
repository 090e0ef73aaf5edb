// Collects the facts for MLPerf's lines of a run (--ml_perf_compliance_logging).
#pragma once

#include "trainyard/frontends/tf_cnn/mlperf/compliance_run.h"
#include "trainyard/frontends/tf_cnn/prepare.h"

namespace trainyard::frontends {

ComplianceFacts compliance_facts(const PreparedRun& run);

}  // namespace trainyard::frontends
