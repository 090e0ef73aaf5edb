// Makes the page of a report: one HTML file that holds its data, its style and its code.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trainyard/cli/report/report_run.h"
#include "trainyard/cli/report/search_record.h"

namespace trainyard::cli {

struct ReportPageOptions {
  double now = 0;                           // seconds since the Unix epoch
  std::optional<int64_t> reload_seconds{};  // the page loads itself again that often; nothing: never
};

// Gives each run the shortest name that tells it from the others: the folder's, else more of its path.
void name_runs(std::vector<ReportRun>& runs);

// Returns what the page shows, as JSON, for report/page/page.js. Shortens curves, confusion matrices and images so that
// the page of 20 runs has at most 2 MB. A trial of a search whose folder is that of a run names the run's index.
std::string report_json(std::vector<ReportRun> runs, const ReportPageOptions& options,
                        const std::vector<ReportSearch>& searches = {});

// Returns the page. No text of a run can become markup or code: it is JSON in an element that is never executed, with
// each "<" escaped, and scripts run by a random nonce only (Content-Security-Policy), as nothing is loaded either.
std::string report_page(std::vector<ReportRun> runs, const ReportPageOptions& options,
                        const std::vector<ReportSearch>& searches = {});

}  // namespace trainyard::cli
