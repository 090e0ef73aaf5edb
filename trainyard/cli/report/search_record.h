// Reads the record of a search, the tune.json of `trainyard tune`, for a report. Whatever is damaged is left out and
// named.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace trainyard::cli {

struct ReportSearch {
  std::string directory{};  // as given
  // What the page shows:
  //   {"metric": "top_1_accuracy", "goal": "highest", "levels": [epochs],
  //    "ranges": [{"flag", "scale": "linear", "logarithmic" or "choice", "choices": [texts]}],
  //    "left_out": trials beyond the most that are shown,
  //    "trials": [{"number", "directory", "state": "finished", "stopped", "unfinished" or "failed", "reason",
  //                "results": [[epochs, value, global step, seconds]], "values": [texts of the ranges' flags]}]}
  // The trials are in the order of the file.
  nlohmann::ordered_json record = nlohmann::ordered_json::object();
  std::vector<std::string> problems{};  // what could not be read, in sentences
};

// Reads the record at `path`, whose folder is that of the search. Returns nothing where there is no such file. What
// cannot be read is in `problems`.
std::optional<ReportSearch> read_report_search(const std::string& path);

// Returns what a record says, in the form of ReportSearch::record. Never throws for what the file may hold.
nlohmann::ordered_json checked_search(const nlohmann::ordered_json& file, std::vector<std::string>& problems);

}  // namespace trainyard::cli
