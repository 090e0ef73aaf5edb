// The file of a search: what it says, its errors with their lines, and what trials draw from it.
#include "trainyard/cli/tune_file.h"

#include <cmath>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/frontends/tf_cnn/flags.h"

namespace trainyard::cli::tune_file_test {
namespace {

using ::testing::HasSubstr;

constexpr const char* kWhole = R"(trials: 50
epochs: 9
min_epochs: 1
search: asha
eta: 3
seed: 7
metric: loss
flags:
  model: resnet20
  batch_size: 32
  eval_during_training_at_specified_steps: [5, 10]
ranges:
  init_learning_rate: {loguniform: [0.001, 1]}
  momentum: {uniform: [0.8, 0.99]}
  optimizer: {choice: [tf_momentum, adam]}
  micro_steps: {int: [1, 4]}
  tf_random_seed: {logint: [1, 1000]}
)";

class TuneFiles : public ::testing::Test {
 protected:
  TuneFile read(const std::string& text) const {
    core::local_file_system().write_file_atomically(temp_.file("search.yaml"), text);
    return read_tune_file(temp_.file("search.yaml"), frontends::tf_cnn_flags(frontends::Dialect::kTrainyard));
  }
  std::string error_of(const std::string& text) const {
    return core::message_of([&] { static_cast<void>(read(text)); });
  }

  core::TempDir temp_;
};

TEST_F(TuneFiles, AreRead) {
  const TuneFile file = read(kWhole);
  EXPECT_EQ(file.search, TuneSearch::kAsha);
  EXPECT_EQ(file.trials, 50);
  EXPECT_EQ(file.epochs, 9);
  EXPECT_EQ(file.eta, 3);
  EXPECT_EQ(file.seed, 7u);
  EXPECT_EQ(file.metric, "loss");
  EXPECT_FALSE(file.highest) << "a loss is good when it is low";
  ASSERT_EQ(file.flags.size(), 3u);
  EXPECT_EQ(file.flags[2].second, "5,10");
  ASSERT_EQ(file.ranges.size(), 5u);
  EXPECT_EQ(file.ranges[0].flag, "init_learning_rate");
  EXPECT_TRUE(read("ranges:\n  momentum: {uniform: [0, 1]}\n").highest) << "an accuracy when it is high";
}

TEST_F(TuneFiles, ErrorsSayWhatAndWhere) {
  const std::string ranges = "ranges:\n  momentum: {uniform: [0, 1]}\n";  // two lines
  const std::vector<std::pair<std::string, std::vector<const char*>>> wrong = {
      {"trials: [", {"not valid YAML", ":1"}},
      {"- 1\n", {"a mapping", ":1"}},
      {"trials: 3\n", {"nothing is searched"}},
      {ranges + "trials: 0\n", {"trials is out of range", ":3"}},
      {ranges + "trials: many\n", {"not a finite number: many", ":3"}},
      {ranges + "epochs: -1\n", {"epochs is out of range", ":3"}},
      {ranges + "trial: 3\n", {"no key 'trial'", "did you mean trials?", ":3"}},
      {ranges + "batch_size: 3\n", {"no key 'batch_size'", "below `flags:`", ":3"}},
      {ranges + "seed: 1\nseed: 2\n", {"seed is given twice, first in line 3", ":4"}},
      {ranges + "search: grid\n", {"no search 'grid'", "random, halving, asha", ":3"}},
      {ranges + "goal: most\n", {"no goal 'most'", ":3"}},
      {ranges + "eta: 4\n", {"eta is of the searches", "search: asha", ":3"}},
      {ranges + "search: asha\nmin_epochs: 2\n", {"min_epochs is more than epochs", ":4"}},
      {ranges + "flags:\n  learning_rate: 1\n", {"no flag learning_rate", "did you mean init_learning_rate?", ":4"}},
      {ranges + "flags:\n  momentum: 0.9\n", {"a value in `flags:` and a range", ":4"}},
      {ranges + "flags:\n  micro_steps: 0\n", {"micro_steps", ":4"}},
      {ranges + "flags:\n  batch_size: {int: [1, 2]}\n", {"takes one value", "`ranges:`", ":4"}},
      {ranges + "flags:\n  train_dir: x\n", {"--train_dir is set by the search", ":4"}},
      {ranges + "flags:\n  num_epochs: 3\n", {"`epochs:` is the length", ":4"}},
      {"ranges:\n  momentum: 0.9\n", {"momentum has no range", "{uniform: [...]}", "`flags:`", ":2"}},
      {"ranges:\n  momentum: {normal: [0, 1]}\n", {"no range 'normal'", ":2"}},
      {"ranges:\n  momentum: {uniform: 1}\n", {"not a list", ":2"}},
      {"ranges:\n  momentum: {uniform: [0.5]}\n", {"two ends", ":2"}},
      {"ranges:\n  momentum: {uniform: [1, 0]}\n", {"is empty", ":2"}},
      {"ranges:\n  momentum: {uniform: [0, many]}\n", {"not a finite number: many", ":2"}},
      {"ranges:\n  init_learning_rate: {loguniform: [0, 1]}\n", {"logarithmic", ":2"}},
      {"ranges:\n  batch_size: {int: [1.5, 3]}\n", {"no integers", ":2"}},
      {"ranges:\n  batch_size: {uniform: [1, 3]}\n", {"takes integers", ":2"}},
      {"ranges:\n  micro_steps: {int: [0, 3]}\n", {"micro_steps", ":2"}},
      {"ranges:\n  optimizer: {uniform: [1, 3]}\n", {"optimizer", ":2"}},
      {"ranges:\n  optimizer:\n    choice: [adam,\n      adamm]\n", {"adamm", ":4"}},
      {"ranges:\n  optimizer: {choice: []}\n", {"no choices", ":2"}},
  };
  for (const auto& [of_case, words] : wrong) {
    const std::string& text = of_case;  // clang 14 captures no binding
    const std::string message = error_of(text);
    for (const char* word : words) EXPECT_THAT(message, HasSubstr(word)) << text;
    EXPECT_EQ(core::code_of([&] { static_cast<void>(read(text)); }), core::ErrorCode::kInvalidArgument) << text;
  }
}

TEST_F(TuneFiles, AGoalThatIsGivenCounts) {
  const std::string ranges = "ranges:\n  momentum: {uniform: [0, 1]}\n";
  EXPECT_TRUE(read(ranges + "metric: loss\ngoal: highest\n").highest);
  EXPECT_FALSE(read(ranges + "metric: loss\ngoal: lowest\n").highest);
  EXPECT_FALSE(read(ranges + "goal: lowest\n").highest);
}

TEST_F(TuneFiles, NumbersEndWhereTheyShould) {
  const std::string ranges = "ranges:\n  momentum: {uniform: [0, 1]}\n";
  for (const char* const good :
       {"trials: 1", "trials: 100000", "search: asha\neta: 2", "search: halving\neta: 1000", "seed: 0",
        "seed: 9007199254740992", "epochs: 1000000000", "search: asha\nepochs: 2\nmin_epochs: 2"}) {
    EXPECT_EQ(error_of(ranges + good + "\n"), "no error") << good;
  }
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"trials: 100001", "trials is out of range: PLACE: expected an integer of 1 to 100000"},
      {"trials: 1.5", "trials is out of range: PLACE: expected an integer of 1 to 100000"},
      {"eta: 1", "eta is out of range: PLACE: expected an integer of 2 to 1000"},
      {"eta: 1001", "eta is out of range: PLACE: expected an integer of 2 to 1000"},
      {"seed: -1", "seed is out of range: PLACE: expected an integer of 0 to 9007199254740992"},
      {"epochs: 0", "epochs is out of range: PLACE: expected above 0, at most 1e9"},
      {"epochs: 1000000001", "epochs is out of range: PLACE: expected above 0, at most 1e9"},
      {"min_epochs: 0", "min_epochs is out of range: PLACE: expected above 0, at most 1e9"}};
  for (const auto& [text, expected] : wrong) {
    const std::string message = error_of(ranges + text + "\n");
    const size_t place = expected.find("PLACE");
    EXPECT_TRUE(message.starts_with(expected.substr(0, place) + temp_.file("search.yaml") + ":3")) << message;
    EXPECT_TRUE(message.ends_with(expected.substr(place + 5))) << message;
  }
}

TEST_F(TuneFiles, TheFirstDecisionIsAfterOneEpochOrAllOfThem) {
  const std::string ranges = "ranges:\n  momentum: {uniform: [0, 1]}\nsearch: asha\n";
  EXPECT_EQ(read(ranges + "epochs: 9\n").min_epochs, 1);
  EXPECT_EQ(read(ranges + "epochs: 0.5\n").min_epochs, 0.5);
  EXPECT_EQ(read(ranges + "epochs: 9\nmin_epochs: 3\n").min_epochs, 3);
}

std::map<std::string, std::vector<double>> drawn(const TuneFile& file, int64_t trials) {
  std::map<std::string, std::vector<double>> values;
  for (int64_t trial = 0; trial < trials; ++trial) {
    for (const auto& [flag, text] : trial_flags(file, trial)) {
      if (flag == "init_learning_rate" || flag == "momentum" || flag == "micro_steps" || flag == "tf_random_seed") {
        values[flag].push_back(std::stod(text));
      }
    }
  }
  return values;
}

// Returns the largest distance between the values' distribution and `cumulative` (Kolmogorov and Smirnov).
double distance(std::vector<double> values, const std::function<double(double)>& cumulative) {
  std::sort(values.begin(), values.end());
  double most = 0;
  const auto count = static_cast<double>(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const double expected = cumulative(values[i]);
    most = std::max({most, std::abs(static_cast<double>(i + 1) / count - expected),
                     std::abs(static_cast<double>(i) / count - expected)});
  }
  return most;
}

TEST_F(TuneFiles, TrialsDrawFromTheirRanges) {
  const int64_t count = 2000;
  const auto values = drawn(read(kWhole), count);
  const double limit = 1.95 / std::sqrt(static_cast<double>(count));  // exceeded once in a thousand seeds
  EXPECT_LT(distance(values.at("momentum"), [](double v) { return (v - 0.8) / 0.19; }), limit);
  EXPECT_LT(distance(values.at("init_learning_rate"), [](double v) { return std::log10(v / 0.001) / 3; }), limit);
  std::map<double, int> counts;
  for (const double value : values.at("micro_steps")) ++counts[value];
  ASSERT_EQ(counts.size(), 4u);
  for (const auto& [value, times] : counts) EXPECT_NEAR(times, count / 4.0, 4 * std::sqrt(count * 3.0 / 16)) << value;
  for (const double value : values.at("tf_random_seed")) EXPECT_TRUE(value >= 1 && value <= 1000) << value;
  std::set<std::string> optimizers;
  for (int64_t trial = 0; trial < 50; ++trial) optimizers.insert(trial_flags(read(kWhole), trial)[5].second);
  EXPECT_EQ(optimizers, (std::set<std::string>{"adam", "tf_momentum"}));
}

// An integer k is as likely as a real value from k to k + 1 is, the highest one among them.
TEST_F(TuneFiles, LogarithmicIntegersReachBothEnds) {
  const TuneFile file = read("ranges:\n  tf_random_seed: {logint: [1, 3]}\n");
  constexpr int64_t kCount = 2000;
  std::map<std::string, int> counts;
  for (int64_t trial = 0; trial < kCount; ++trial) ++counts[trial_flags(file, trial)[0].second];
  EXPECT_EQ(counts.size(), 3U);
  for (const int value : {1, 2, 3}) {
    const double share = std::log((value + 1.0) / value) / std::log(4.0);
    EXPECT_NEAR(counts[std::to_string(value)], share * kCount, 4 * std::sqrt(share * (1 - share) * kCount)) << value;
  }
}

// Six digits of a value may lie outside of a narrow range, which a flag would refuse.
TEST_F(TuneFiles, ValuesStayWithinNarrowRanges) {
  for (const auto& [range, low, high] : std::vector<std::tuple<const char*, double, double>>{
           {"uniform: [0.999999, 0.9999999]", 0.999999, 0.9999999},
           {"uniform: [0.9000001, 0.9000009]", 0.9000001, 0.9000009},
           {"loguniform: [0.1234561, 0.1234564]", 0.1234561, 0.1234564}}) {
    const TuneFile file = read(fmt::format("ranges:\n  momentum: {{{}}}\n", range));
    std::set<double> values;
    for (int64_t trial = 0; trial < 200; ++trial) {
      const std::string text = trial_flags(file, trial)[0].second;
      const double value = std::stod(text);
      EXPECT_TRUE(value >= low && value <= high) << range << ": " << text;
      values.insert(value);
    }
    EXPECT_GT(values.size(), 10U) << range;
  }
  // What six digits can say is said in six.
  for (int64_t trial = 0; trial < 20; ++trial) {
    EXPECT_LE(trial_flags(read("ranges:\n  momentum: {uniform: [0.5, 0.75]}\n"), trial)[0].second.size(), 8U);
  }
}

TEST_F(TuneFiles, TheSameSeedDrawsTheSameTrials) {
  const TuneFile file = read(kWhole);
  EXPECT_EQ(trial_flags(file, 3), trial_flags(read(kWhole), 3));
  EXPECT_NE(trial_flags(file, 3), trial_flags(file, 4));
  TuneFile other = file;
  other.seed = 8;
  EXPECT_NE(trial_flags(other, 3), trial_flags(file, 3));
  // More trials and other ranges change nothing.
  TuneFile fewer = file;
  fewer.ranges.erase(fewer.ranges.begin());
  EXPECT_EQ(trial_flags(fewer, 3)[3], trial_flags(file, 3)[4]);
}

TEST_F(TuneFiles, TheNumberOfTrialsMayGrow) {
  TuneFile file = read(kWhole), more = file;
  more.trials = 100;
  EXPECT_EQ(search_text(file), search_text(more));
  std::swap(more.ranges[0], more.ranges[1]);
  EXPECT_EQ(search_text(file), search_text(more)) << "their order changes nothing";
  for (const auto& change : std::vector<std::function<void(TuneFile&)>>{
           [](TuneFile& f) { f.seed = 8; }, [](TuneFile& f) { f.epochs = 10; }, [](TuneFile& f) { f.eta = 4; },
           [](TuneFile& f) { f.ranges[1].high = 0.98; }, [](TuneFile& f) { f.flags[1].second = "64"; },
           [](TuneFile& f) { f.highest = true; }}) {
    TuneFile changed = file;
    change(changed);
    EXPECT_NE(search_text(file), search_text(changed));
  }
}

}  // namespace
}  // namespace trainyard::cli::tune_file_test
