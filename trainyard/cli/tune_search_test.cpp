// The order of a search against the papers: table 1 of Li et al., "Hyperband", 2018, for successive halving, and the
// promotions of ASHA (Li et al., "A system for massively parallel hyperparameter tuning", 2018) with one worker.
#include "trainyard/cli/tune_search.h"

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trainyard::cli::tune_search_test {
namespace {

using ::testing::ElementsAre;

TuneFile file_of(TuneSearch search, int64_t trials, double min_epochs, double epochs, int64_t eta = 3) {
  return {.search = search, .trials = trials, .epochs = epochs, .min_epochs = min_epochs, .eta = eta};
}

// Runs a search with `workers` at a time, whose parts end in the order in which they began. A trial's value is
// `value(number)`, or nothing when it fails. Returns the parts in their order, as (trial, level).
std::vector<std::pair<size_t, size_t>> run(const TuneFile& file, const std::function<double(size_t)>& value,
                                           size_t workers = 1, std::vector<Trial> trials = {},
                                           const std::function<bool(size_t, size_t)>& fails = {}) {
  std::vector<std::pair<size_t, size_t>> order;
  std::deque<TuneJob> running;
  const auto levels = tune_levels(file);
  for (;;) {
    while (running.size() < workers) {
      const auto job = next_tune_job(file, trials);
      if (!job) break;
      if (job->trial == trials.size()) trials.push_back({.number = static_cast<int64_t>(job->trial)});
      Trial& trial = trials[job->trial];
      EXPECT_EQ(trial.results.size(), job->level) << "levels follow each other";
      EXPECT_FALSE(trial.running);
      trial.started = job->level + 1;
      trial.running = true;
      running.push_back(*job);
      order.emplace_back(job->trial, job->level);
    }
    if (running.empty()) return order;
    const TuneJob ended = running.front();
    running.pop_front();
    Trial& trial = trials[ended.trial];
    trial.running = false;
    if (fails && fails(ended.trial, ended.level)) {
      trial.failure = "it failed";
    } else {
      trial.results.push_back({.epochs = levels[ended.level], .value = value(ended.trial)});
    }
  }
}

std::map<size_t, int> trials_by_level(const std::vector<std::pair<size_t, size_t>>& order) {
  std::map<size_t, int> counts;
  for (const auto& [trial, level] : order) ++counts[level];
  return counts;
}

// A shuffled order of merit.
double scrambled(size_t trial) {
  return static_cast<double>((trial * 37 + 11) % 101);
}

TEST(TuneSearch, LevelsAreThoseOfHyperbandsTable) {
  using File = TuneFile;
  const auto levels = [](double least, double most, int64_t eta = 3) {
    return tune_levels(File{.search = TuneSearch::kHalving, .epochs = most, .min_epochs = least, .eta = eta});
  };
  EXPECT_THAT(levels(1, 81), ElementsAre(1, 3, 9, 27, 81));
  EXPECT_THAT(levels(3, 81), ElementsAre(3, 9, 27, 81));
  EXPECT_THAT(levels(9, 81), ElementsAre(9, 27, 81));
  EXPECT_THAT(levels(27, 81), ElementsAre(27, 81));
  EXPECT_THAT(levels(81, 81), ElementsAre(81));
  EXPECT_EQ(levels(1, 243).size(), 6u) << "log(243) / log(3) is not whole in floating point";
  EXPECT_THAT(levels(1, 10, 2), ElementsAre(1.25, 2.5, 5, 10)) << "the last level is all epochs";
  EXPECT_THAT(tune_levels(File{.epochs = 5, .min_epochs = 1}), ElementsAre(5)) << "random search compares at the end";
}

TEST(TuneSearch, HalvingKeepsWhatHyperbandsTableSays) {
  // n_i of each bracket with R = 81 and eta = 3.
  const std::vector<std::pair<std::pair<int64_t, double>, std::vector<int>>> brackets = {
      {{81, 1}, {81, 27, 9, 3, 1}}, {{27, 3}, {27, 9, 3, 1}}, {{9, 9}, {9, 3, 1}}, {{6, 27}, {6, 2}}, {{5, 81}, {5}}};
  for (const size_t workers : {1, 4, 100}) {
    for (const auto& [bracket, expected] : brackets) {
      const auto order = run(file_of(TuneSearch::kHalving, bracket.first, bracket.second, 81), scrambled, workers);
      const auto counts = trials_by_level(order);
      ASSERT_EQ(counts.size(), expected.size());
      for (size_t level = 0; level < expected.size(); ++level) EXPECT_EQ(counts.at(level), expected[level]);
    }
  }
}

TEST(TuneSearch, HalvingKeepsTheBestOfEachRung) {
  TuneFile file = file_of(TuneSearch::kHalving, 9, 1, 9);
  const std::vector<double> values = {5, 9, 1, 7, 3, 8, 2, 6, 4};
  const auto value = [&](size_t t) { return values[t]; };
  std::vector<std::pair<size_t, size_t>> late;
  for (const auto& part : run(file, value)) {
    if (part.second > 0) late.push_back(part);
  }
  EXPECT_THAT(late, ElementsAre(std::pair(1, 1), std::pair(5, 1), std::pair(3, 1), std::pair(1, 2)));
  file.highest = false;
  EXPECT_EQ(run(file, value).back(), std::pair(size_t{2}, size_t{2}));
}

// Nine trials were searched to the end, then `trials:` became 27. The three that ran on before count in the second
// rung, which has as many as it needs while the last of the new ones still run: and these are the best there.
TEST(TuneSearch, HalvingThatHasGrownWaitsForAllOfARung) {
  std::vector<Trial> searched(9);
  for (size_t t = 0; t < 9; ++t) {
    searched[t].number = static_cast<int64_t>(t);
    searched[t].started = t == 8 ? 3 : t >= 6 ? 2 : 1;
    for (size_t level = 0; level < searched[t].started; ++level) {
      searched[t].results.push_back({.value = static_cast<double>(level == 0 ? t : 0)});
    }
  }
  for (const size_t workers : {1, 2, 4, 100}) {
    std::map<size_t, int> asked;
    const auto value = [&asked](size_t t) { return static_cast<double>(asked[t]++ == 0 ? t : 100 - t); };
    std::vector<size_t> last;
    for (const auto& [trial, level] : run(file_of(TuneSearch::kHalving, 27, 1, 9), value, workers, searched)) {
      if (level == 2) last.push_back(trial);
    }
    EXPECT_THAT(last, ElementsAre(18, 19, 20, 21)) << workers;
  }
}

// Algorithm 2 with one worker, eta = 3 and nine trials: after three trials of a rung the best of them runs on, and
// after three of the second rung the best of those.
TEST(TuneSearch, AshaPromotesAsSoonAsItCan) {
  const std::vector<double> values = {5, 9, 1, 7, 3, 8, 2, 6, 4};
  const auto order = run(file_of(TuneSearch::kAsha, 9, 1, 9), [&](size_t t) { return values[t]; });
  const std::vector<std::pair<size_t, size_t>> expected = {
      {0, 0}, {1, 0}, {2, 0}, {1, 1},          // the best of 5, 9, 1
      {3, 0}, {4, 0}, {5, 0}, {5, 1},          // two of six run on: 9, which has, and 8
      {6, 0}, {7, 0}, {8, 0}, {3, 1}, {1, 2},  // 7; then three are in the second rung
  };
  EXPECT_EQ(order, expected);
}

TEST(TuneSearch, AshaWithManyWorkersEndsWithAtLeastTheHalvingsCounts) {
  for (const size_t workers : {1, 3, 25}) {
    const auto counts = trials_by_level(run(file_of(TuneSearch::kAsha, 27, 1, 27), scrambled, workers));
    ASSERT_EQ(counts.size(), 4u) << workers;
    EXPECT_EQ(counts.at(0), 27);
    EXPECT_GE(counts.at(1), 9);
    EXPECT_LE(counts.at(1), 18) << "those that looked good early, too, but not all";
    EXPECT_GE(counts.at(3), 1);
  }
}

TEST(TuneSearch, RandomSearchRunsEachTrialOnce) {
  const auto order = run(file_of(TuneSearch::kRandom, 5, 1, 9), scrambled, 2);
  EXPECT_EQ(trials_by_level(order), (std::map<size_t, int>{{0, 5}}));
}

TEST(TuneSearch, AFailedTrialCountsAndNeverRunsOn) {
  const auto fails = [](size_t trial, size_t level) { return trial % 3 == 0 && level == 0; };
  for (const TuneSearch search : {TuneSearch::kHalving, TuneSearch::kAsha}) {
    const auto order = run(
        file_of(search, 9, 1, 9), [](size_t t) { return static_cast<double>(t); }, 1, {}, fails);
    const auto counts = trials_by_level(order);
    EXPECT_EQ(counts.at(0), 9);
    // Each trial is better than those before it, so ASHA lets more run on: those that were the best until then.
    EXPECT_EQ(counts.at(1), search == TuneSearch::kHalving ? 3 : 5);
    EXPECT_EQ(counts.at(2), search == TuneSearch::kHalving ? 1 : 3);
    for (const auto& [trial, level] : order) EXPECT_FALSE(level > 0 && trial % 3 == 0);
  }
  // Where all fail, the search ends.
  const auto all = run(file_of(TuneSearch::kHalving, 9, 1, 9), scrambled, 1, {}, [](size_t, size_t) { return true; });
  EXPECT_EQ(all.size(), 9u);
}

TEST(TuneSearch, WhatWasCutShortComesFirst) {
  // A search that was killed: trial 0 has a result, 1 was on its way to the second level, 2 in the first one.
  std::vector<Trial> trials(3);
  for (size_t t = 0; t < 3; ++t) trials[t].number = static_cast<int64_t>(t);
  trials[0].results = {{.epochs = 1, .value = 1}};
  trials[0].started = 1;
  trials[1].results = {{.epochs = 1, .value = 2}};
  trials[1].started = 2;
  trials[2].started = 1;
  const auto order = run(file_of(TuneSearch::kAsha, 4, 1, 9), scrambled, 1, trials);
  EXPECT_EQ(order[0], std::pair(size_t{1}, size_t{1}));
  EXPECT_EQ(order[1], std::pair(size_t{2}, size_t{0}));
  EXPECT_EQ(order[2], std::pair(size_t{2}, size_t{1})) << "it is the best of three, and trial 1 had begun before it";
  EXPECT_EQ(order[3], std::pair(size_t{3}, size_t{0}));
}

TEST(TuneSearch, RanksThoseThatRanLongestFirst) {
  std::vector<Trial> trials(4);
  trials[0].results = {{.value = 0.9}};
  trials[1].results = {{.value = 0.5}, {.value = 0.6}};
  trials[2].results = {{.value = 0.5}, {.value = 0.7}};
  trials[3].results = {{.value = 0.99}};
  trials[3].failure = "it diverged";
  TuneFile file = file_of(TuneSearch::kAsha, 4, 1, 3);
  EXPECT_THAT(ranked_trials(file, trials), ElementsAre(2, 1, 0));
  file.highest = false;
  EXPECT_THAT(ranked_trials(file, trials), ElementsAre(1, 2, 0));
}

}  // namespace
}  // namespace trainyard::cli::tune_search_test
