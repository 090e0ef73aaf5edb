#include "trainyard/cli/tune_search.h"

#include <algorithm>
#include <cmath>

namespace trainyard::cli {
namespace {

bool better(const TuneFile& file, double a, double b) {
  return file.highest ? a > b : a < b;
}

// The trials that have ended at a level, the best first and those that failed there last.
struct Rung {
  std::vector<size_t> finished;  // did not fail
  size_t failed = 0;

  size_t size() const { return finished.size() + failed; }
};

Rung rung_of(const TuneFile& file, const std::vector<Trial>& trials, size_t level) {
  Rung rung;
  for (size_t t = 0; t < trials.size(); ++t) {
    if (trials[t].results.size() > level) {
      rung.finished.push_back(t);
    } else if (!trials[t].failure.empty() && trials[t].started == level + 1) {
      ++rung.failed;
    }
  }
  std::stable_sort(rung.finished.begin(), rung.finished.end(), [&](size_t a, size_t b) {
    return better(file, trials[a].results[level].value, trials[b].results[level].value);
  });
  return rung;
}

// Returns whether a trial has begun this level and not ended it.
bool runs_at(const std::vector<Trial>& trials, size_t level) {
  return std::any_of(trials.begin(), trials.end(), [level](const Trial& trial) {
    return trial.failure.empty() && trial.started == level + 1 && trial.results.size() == level;
  });
}

// Returns the best trial of the rung that has not begun the next level, among as many as run on.
std::optional<TuneJob> promoted(const TuneFile& file, const std::vector<Trial>& trials, const Rung& rung,
                                size_t level) {
  const size_t most = std::min(rung.size() / static_cast<size_t>(file.eta), rung.finished.size());
  for (size_t i = 0; i < most; ++i) {
    const size_t t = rung.finished[i];
    if (trials[t].started == level + 1 && trials[t].failure.empty()) return TuneJob{.trial = t, .level = level + 1};
  }
  return std::nullopt;
}

}  // namespace

std::vector<double> tune_levels(const TuneFile& file) {
  if (file.search == TuneSearch::kRandom) return {file.epochs};
  const auto eta = static_cast<double>(file.eta);
  // The tolerance is for quotients such as log(243) / log(3), which are not whole in floating point.
  const double halvings = std::floor(std::log(file.epochs / file.min_epochs) / std::log(eta) + 1e-9);
  std::vector<double> levels;
  for (double left = halvings; left >= 0; --left) levels.push_back(file.epochs * std::pow(eta, -left));
  return levels;
}

std::optional<TuneJob> next_tune_job(const TuneFile& file, const std::vector<Trial>& trials) {
  for (size_t t = 0; t < trials.size(); ++t) {
    const Trial& trial = trials[t];
    if (!trial.running && trial.failure.empty() && trial.started > trial.results.size()) {
      return TuneJob{.trial = t, .level = trial.results.size()};
    }
  }
  const size_t levels = tune_levels(file).size();
  const bool all_begun = trials.size() >= static_cast<size_t>(file.trials);
  if (file.search == TuneSearch::kAsha) {
    for (size_t level = levels - 1; level-- > 0;) {
      if (const auto job = promoted(file, trials, rung_of(file, trials, level), level)) return job;
    }
  }
  if (!all_begun) return TuneJob{.trial = trials.size(), .level = 0};
  if (file.search != TuneSearch::kHalving) return std::nullopt;
  size_t members = static_cast<size_t>(file.trials);
  for (size_t level = 0; level + 1 < levels; ++level) {
    const Rung rung = rung_of(file, trials, level);
    // It waits for those that run. Where the search has grown, trials that ran on before make up the number early.
    if (rung.size() < members || runs_at(trials, level)) return std::nullopt;
    if (const auto job = promoted(file, trials, rung, level)) return job;
    members = std::min(members / static_cast<size_t>(file.eta), rung.finished.size());
  }
  return std::nullopt;
}

std::vector<size_t> ranked_trials(const TuneFile& file, const std::vector<Trial>& trials) {
  std::vector<size_t> ranked;
  for (size_t t = 0; t < trials.size(); ++t) {
    if (trials[t].failure.empty() && !trials[t].results.empty()) ranked.push_back(t);
  }
  std::stable_sort(ranked.begin(), ranked.end(), [&](size_t a, size_t b) {
    const auto &first = trials[a].results, &second = trials[b].results;
    if (first.size() != second.size()) return first.size() > second.size();
    return better(file, first.back().value, second.back().value);
  });
  return ranked;
}

}  // namespace trainyard::cli
