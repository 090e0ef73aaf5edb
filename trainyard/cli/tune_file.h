// The file of `trainyard tune`: which flags are varied in which ranges, and how they are searched
// (docs/howto/find_the_settings.md).
//
//   trials: 20
//   epochs: 9
//   search: asha
//   flags:
//     model: resnet20
//     data_dir: cifar10
//   ranges:
//     init_learning_rate: {loguniform: [0.001, 1]}
//     batch_size: {choice: [32, 64, 128]}
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trainyard/core/flags/flags.h"

namespace trainyard::cli {

// Flags with their values as text.
using FlagTexts = std::vector<std::pair<std::string, std::string>>;

// A flag whose value each trial draws.
struct TuneRange {
  enum class Kind { kUniform, kLogUniform, kInteger, kLogInteger, kChoice };
  std::string flag{};
  Kind kind = Kind::kUniform;
  double low = 0, high = 0;            // inclusive; unused by kChoice
  std::vector<std::string> choices{};  // of kChoice, with equal chances

  bool logarithmic() const { return kind == Kind::kLogUniform || kind == Kind::kLogInteger; }
};

enum class TuneSearch {
  kRandom,   // each trial runs all epochs (Bergstra and Bengio, "Random search", 2012)
  kHalving,  // successive halving: a rung is complete before its best trials run on (Jamieson and Talwalkar, 2016)
  kAsha,     // asynchronous: a trial runs on as soon as it is among the best so far (Li et al., 2018)
};

struct TuneFile {
  TuneSearch search = TuneSearch::kRandom;
  int64_t trials = 20;
  double epochs = 1;      // of a trial that runs to its end, and of all schedules
  double min_epochs = 1;  // of a trial before the first decision
  int64_t eta = 3;        // one trial of so many runs on
  uint64_t seed = 1;
  std::string metric = "top_1_accuracy";  // a number of evaluations in metrics.jsonl, or of training steps
  bool highest = true;                    // whether high values are good
  FlagTexts flags{};                      // the same in all trials
  std::vector<TuneRange> ranges{};        // in the order of the file
};

// Reads the file. `table` are the flags of `trainyard train`. Throws kInvalidArgument, naming file and line, for what
// is no YAML, an unknown key or flag, a value that its flag does not take, a range of nothing, and flags that the
// search sets itself; and what reading throws.
[[nodiscard]] TuneFile read_tune_file(const std::string& path, const core::FlagTable& table);

// Returns the flags of a trial, those that are the same in all of them first. They depend only on the seed, the trial's
// number and the range itself: other ranges and the number of trials change nothing.
[[nodiscard]] FlagTexts trial_flags(const TuneFile& file, int64_t trial);

// Returns a text that is equal for two files whose finished trials can be continued with each other: all but the number
// of trials.
[[nodiscard]] std::string search_text(const TuneFile& file);

}  // namespace trainyard::cli
