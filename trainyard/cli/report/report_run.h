// Reads the folder of a run for a report. Whatever is damaged or missing is left out and named.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainyard/cli/report/run_metrics.h"

namespace trainyard::cli {

struct ReportCheckpoint {
  std::string name{};       // of the folder: "model.ckpt-600", "best"
  int64_t global_step = 0;  // -1: not known
  uint64_t bytes = 0;
  double saved_at = 0;   // seconds since the Unix epoch
  std::string damage{};  // what is wrong with it; empty: its manifest and lengths are right
};

struct ReportRun {
  std::string directory{};                                            // as given
  std::string name{};                                                 // what tells it from the other runs of a report
  nlohmann::ordered_json summary = nlohmann::ordered_json::object();  // run_summary.json
  RunMetrics metrics{};
  std::vector<ReportCheckpoint> checkpoints{};
  nlohmann::ordered_json evaluation{};  // as read_evaluation() returns it; null: there is none
  std::vector<std::string> problems{};  // what could not be read, in sentences
};

// Returns whether the folder has a file that a run writes: run_summary.json or metrics.jsonl.
bool is_run_folder(const std::string& directory);

// Reads the run in `directory`. Throws kIo.
ReportRun read_report_run(const std::string& directory);

// Returns the text or number at a name of an object, and nothing where it is missing or has another type.
std::optional<std::string> text_at(const nlohmann::ordered_json& object, const char* name);
std::optional<double> number_at(const nlohmann::ordered_json& object, const char* name);
// Returns the object at a name, an empty one where there is none.
const nlohmann::ordered_json& object_at(const nlohmann::ordered_json& object, const char* name);

// Returns the command line that repeats the run, in a folder of its own. Empty where the summary does not tell it.
std::string repeat_command(const ReportRun& run);
// Returns the command line that writes the run's evaluation.json.
std::string evaluate_command(const ReportRun& run);

}  // namespace trainyard::cli
