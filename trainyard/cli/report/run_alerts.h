// Finds what a person should know about a run before its curves: failures, lost steps, what held it back.
#pragma once

#include <string>
#include <vector>

#include "trainyard/cli/report/report_run.h"

namespace trainyard::cli {

struct RunAlert {
  std::string level{};   // "error": the run failed; "warning": it lost time or accuracy; "note"
  std::string kind{};    // "failed", "silent", "nan", "overfitting", ...
  std::string text{};    // what happened, with numbers
  std::string advice{};  // what helps, and the page that says more
};

// The alerts' limits. docs/howto/report.md lists them.
inline constexpr double kInputBoundShare = 0.15;  // of the time, spent waiting for input
inline constexpr double kSlowRankShare = 0.1;     // waited more by the others than by the slowest rank
inline constexpr double kSlowerNow = 0.8;         // the last quarter's median speed, by the best quarter's
inline constexpr double kOverfitLoss = 1.1;       // the last validation loss, by the least one
inline constexpr double kOverfitAccuracy = 0.02;  // the best validation accuracy less the last one
inline constexpr double kSilentSeconds = 600;     // since a running training has written its last row

// Returns them in the order in which they matter. `now`: seconds since the Unix epoch. Call it before thin_out().
std::vector<RunAlert> find_alerts(const ReportRun& run, double now);

}  // namespace trainyard::cli
