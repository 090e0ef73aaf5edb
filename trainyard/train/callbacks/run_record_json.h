// Converts a run's record to JSON, for the files that describe a run.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "trainyard/train/callbacks/run_record.h"

namespace trainyard::train {

// Adds the record's fields, the versions and the machine to a summary's object.
void add_run_record(const RunRecord& record, nlohmann::ordered_json& json);

// Returns the versions of this library and of its dependencies: {"trainyard": "0.1.0", "git_revision": ..., "LibTorch":
// ...}.
nlohmann::ordered_json versions_json();
// Returns {"name": ..., "cpu": ..., "cores": 2, "memory_bytes": ..., "gpus": [...]}.
nlohmann::ordered_json machine_json(const std::vector<std::string>& gpus);

// Returns null for an empty text.
nlohmann::ordered_json or_null(const std::string& text);

// Returns "2023-11-14T22:13:20.250Z" for seconds since the Unix epoch.
std::string utc_date(double seconds);

}  // namespace trainyard::train
