// Decides which trial of a search runs next, and how far. It knows numbers only: no processes, no files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/cli/tune_file.h"

namespace trainyard::cli {

// What a trial reached at a level of the search.
struct TuneResult {
  double epochs = 0;
  int64_t global_step = 0;
  double value = 0;  // of the metric; finite
  double seconds = 0;
};

struct Trial {
  int64_t number = 0;  // from 0
  FlagTexts flags{};
  std::vector<TuneResult> results{};  // by level
  size_t started = 0;                 // levels that have begun: more than results when one was cut short
  std::string failure{};              // why it ended; empty: it did not fail
  bool running = false;
  double part_seconds = 0;  // of the part after the last result, in processes that were stopped or failed
};

// A part of a trial: up to the epochs of a level.
struct TuneJob {
  size_t trial = 0, level = 0;
};

// Returns the epochs after which trials are compared, the last of which are all of a trial: epochs * eta^-s, ...,
// epochs * eta^-1, epochs with the largest s for which the first is at least min_epochs (Li et al., "Hyperband", 2018,
// table 1; "A system for massively parallel hyperparameter tuning" (ASHA), 2018, section 3). One level for random
// search.
[[nodiscard]] std::vector<double> tune_levels(const TuneFile& file);

// Returns the next part to run; nothing when none can begin before a running one has ended, or the search has ended.
// Parts that were cut short come first. ASHA: get_job() of algorithm 2 of the paper; halving: algorithm 1, where a rung
// is decided when all of its trials have ended. A trial that failed counts in its rung and never runs on. Trials that
// have not begun are those with a number and no entry; the job's trial is then trials.size().
[[nodiscard]] std::optional<TuneJob> next_tune_job(const TuneFile& file, const std::vector<Trial>& trials);

// Returns the numbers of the trials that did not fail, the best first: those that ran longest, and among them by value.
[[nodiscard]] std::vector<size_t> ranked_trials(const TuneFile& file, const std::vector<Trial>& trials);

}  // namespace trainyard::cli
