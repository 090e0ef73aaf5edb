// The record of a search, tune.json in its folder: what each trial has reached. It is written again, atomically,
// whenever a part of a trial begins or ends, so that a search that was killed continues.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trainyard/cli/tune_search.h"

namespace trainyard::cli {

inline constexpr const char* kTuneRecord = "tune.json";
inline constexpr const char* kTuneLock = "tune.lock";  // held by the search that runs

// Returns the record's text (docs/howto/find_the_settings.md).
[[nodiscard]] std::string tune_record(const TuneFile& file, const std::vector<Trial>& trials);

// Reads the record of `directory`; no trials when there is none. Throws kInvalidArgument when it is of a search with
// other ranges, flags or settings than `file`, and kCorruptData for a file that is no record.
[[nodiscard]] std::vector<Trial> read_tune_record(const std::string& directory, const TuneFile& file);

// Returns the table of a search for people: a row a trial, the best first, and those that failed last with their
// reason.
[[nodiscard]] std::string tune_table(const TuneFile& file, const std::vector<Trial>& trials);
// Returns the same as CSV (RFC 4180), by number: trial, state, epochs, value, seconds, the ranges' flags, reason.
[[nodiscard]] std::string tune_csv(const TuneFile& file, const std::vector<Trial>& trials);
// Returns a picture as SVG: the metric over the epochs of each trial, and over each range. Empty when no trial has a
// result.
[[nodiscard]] std::string tune_svg(const TuneFile& file, const std::vector<Trial>& trials, const std::string& title);

// Returns a trial's folder within that of the search: "trial-007".
[[nodiscard]] std::string trial_name(int64_t number);

}  // namespace trainyard::cli
