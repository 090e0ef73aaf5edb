// What run_summary.json of `trainyard train` says of the run itself.
#pragma once

#include "trainyard/frontends/tf_cnn/prepare.h"
#include "trainyard/train/session/run_report.h"

namespace trainyard::frontends {

// Returns what was asked for and what was chosen; without the data's digest.
train::RunRecord make_run_record(const PreparedRun& run);

// Returns the report of a run, in its train_dir.
train::RunReportOptions make_run_report(const PreparedRun& run);

}  // namespace trainyard::frontends
