// What MLPerf's lines say of a run (--ml_perf_compliance_logging).
#pragma once

#include "trainyard/core/base/export.h"
#include "trainyard/frontends/tf_cnn/mlperf/compliance_run.h"
#include "trainyard/frontends/tf_cnn/prepare.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::frontends {

ComplianceFacts compliance_facts(const PreparedRun& run);

}  // namespace trainyard::frontends
TRAINYARD_EXPORT_END
