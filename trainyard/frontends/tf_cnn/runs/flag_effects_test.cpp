// No flag is accepted and ignored. testdata/flag_effects.tsv says of each flag what it changes in each mode:
//
// - "output": a line or number on stdout is another one than without the flag; speeds, and the header, which echoes
//   flags, do not count.
// - "file NAME": there is a file whose path begins with NAME, and there is none without the flag.
// - "file NAME has TEXT": there is a file with that path that has TEXT, and none has it without the flag.
// - "refused": an error, before anything runs.
// - "warned": a warning that names the flag.
// - "same: WHY": nothing changes, and WHY says that this is right.
// - "with AVX-512 output": "output" on a processor with AVX-512; on others nothing changes, and a warning says why.
// - "reviewed: WHY": WHY says what changes and which test sees it: so short a run does not.
// - "-", in the columns of `trainyard train` and `trainyard eval`: as in tf_cnn_benchmarks' training or evaluation.
//
// All but "reviewed" are seen here, in runs of a few steps. "Without the flag" means with all other words of the row
// (core/testing/flag_effect_rows.h): those that the flag needs make no difference. Where they cannot run without it,
// none of the row's words is there.
#include <filesystem>
#include <map>
#include <memory>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/flags/flag_value.h"
#include "trainyard/core/system/cpu_isa.h"
#include "trainyard/core/testing/flag_effect_rows.h"
#include "trainyard/core/testing/golden_lines.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/frontends/tf_cnn/benchmark_cnn.h"
#include "trainyard/frontends/tf_cnn/flags.h"
#include "trainyard/frontends/tf_cnn/read_options.h"

namespace trainyard::frontends::flag_effects_test {
namespace {

constexpr const char* kModes[] = {"training", "evaluation", "forward only", "trainyard train", "trainyard eval"};
enum Mode { kTraining, kEvaluation, kForwardOnly, kTrain, kEval, kModeCount };

bool evaluates(int mode) {
  return mode == kEvaluation || mode == kEval;
}
Dialect dialect_of(int mode) {
  return mode == kTrain || mode == kEval ? Dialect::kTrainyard : Dialect::kTfCnnBenchmarks;
}

struct Row {
  std::string flag, arguments;
  std::string effects[kModeCount];
};

std::vector<Row> read_table() {
  std::vector<Row> rows;
  for (const std::string& line : core::table_rows("trainyard/frontends/testdata/flag_effects.tsv")) {
    std::istringstream cells(line);
    Row row;
    std::getline(cells, row.flag, '\t');
    std::getline(cells, row.arguments, '\t');
    for (std::string& effect : row.effects) std::getline(cells, effect, '\t');
    if (row.effects[kTrain] == "-") row.effects[kTrain] = row.effects[kTraining];
    if (row.effects[kEval] == "-") row.effects[kEval] = row.effects[kEvaluation];
    rows.push_back(row);
  }
  return rows;
}

// What a run left behind, without what differs each time.
struct Seen {
  std::string output, log, error;
  std::set<std::string> files;
  std::shared_ptr<const core::TempDir> directory;  // of these files
};

std::string body_without_speeds(const std::string& text) {
  const size_t header = text.find("==========\n");
  const std::string body = header == std::string::npos ? text : text.substr(header);
  const std::string steps =
      std::regex_replace(body, std::regex("images/sec: [^\\t\\n]*(jitter = [^)]*\\))?"), "images/sec");
  return std::regex_replace(steps, std::regex("[0-9.]+ examples/sec"), "examples/sec");
}

// Runs the program with these flags. A later flag replaces an earlier one of its name, and an empty one removes it.
Seen run(const std::vector<std::string>& arguments, Dialect dialect) {
  const auto directory = std::make_shared<const core::TempDir>();
  Seen seen;
  seen.directory = directory;
  std::map<std::string, std::string> last;
  std::vector<std::string> order;
  for (const std::string& argument : arguments) {
    const std::string name = argument.substr(0, argument.find('='));
    if (!last.contains(name)) order.push_back(name);
    last[name] = std::regex_replace(argument, std::regex("\\$DIR"), directory->path());
  }
  std::vector<std::string> given;
  for (const std::string& name : order) {
    if (last[name] != name + "=") given.push_back(last[name]);
  }
  std::ostringstream out;
  testing::internal::CaptureStderr();
  try {
    TfCnnOptions options = read_options(core::parse_flags(tf_cnn_flags(dialect), given), dialect);
    options.saving.new_runs_in.clear();  // nothing is left in the working directory
    BenchmarkCnn(options).run(out);
  } catch (const core::Error& error) {
    seen.error = error.what();
  }
  seen.log = testing::internal::GetCapturedStderr();
  seen.output = std::regex_replace(body_without_speeds(out.str()), std::regex(directory->path()), "DIR");
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory->path())) {
    seen.files.insert(entry.path().lexically_relative(directory->path()).string());
  }
  return seen;
}

class FlagEffects : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    shared = new core::TempDir();
    std::vector<std::string> arguments = base(kTraining);
    arguments.push_back("--train_dir=" + shared->file("run"));
    const Seen trained = run(arguments, dialect_of(kTraining));
    ASSERT_EQ(trained.error, "");
  }
  static void TearDownTestSuite() { delete shared; }

  static std::vector<std::string> base(int mode) {
    std::vector<std::string> arguments = {"--model=lenet",          "--device=cpu",
                                          "--batch_size=2",         "--num_batches=4",
                                          "--num_warmup_batches=1", "--display_every=1",
                                          "--deterministic",        "--init_learning_rate=0.1",
                                          "--num_intra_threads=1",  "--eval_dir=$DIR/default_eval"};
    if (evaluates(mode)) {
      for (const std::string& more :
           {std::string("--eval"), "--train_dir=" + shared->file("run"), std::string("--num_eval_batches=2")}) {
        arguments.push_back(more);
      }
    }
    if (mode == kForwardOnly) arguments.emplace_back("--forward_only");
    if (dialect_of(mode) == Dialect::kTrainyard) arguments.emplace_back("--synthetic");
    return arguments;
  }

  // Runs with these arguments of a row.
  static Seen run_with(const std::string& of_row, int mode) {
    std::vector<std::string> arguments = base(mode);
    for (const std::string& flag : core::flags_of_row(of_row)) {
      if (evaluates(mode) && flag.starts_with("--train_dir=$DIR")) continue;  // it names what is evaluated
      arguments.push_back(std::regex_replace(flag, std::regex("\\$SHARED"), shared->file("run")));
    }
    return run(arguments, dialect_of(mode));
  }

  // Returns the run without the row's flag. Where that is an error, the row's run would be one with a flag that did
  // nothing: then the run without any word of the row serves. `known`: such runs so far, by the words that they have.
  static const Seen& run_without(const Row& row, int mode, std::map<std::string, Seen>& known) {
    const std::string companions = core::companions_of(row.arguments, row.flag);
    auto found = known.find(companions);
    if (found == known.end()) found = known.emplace(companions, run_with(companions, mode)).first;
    return found->second.error.empty() ? found->second : known.at("");
  }

  // `what`: "NAME" or "NAME has TEXT".
  static bool has_file(const Seen& seen, const std::string& what) {
    const std::string behind_name = " has ";
    const size_t end = what.find(behind_name);
    if (end == std::string::npos) {
      const auto file = seen.files.lower_bound(what);
      return file != seen.files.end() && file->starts_with(what);
    }
    const std::string name = what.substr(0, end), text = what.substr(end + behind_name.size());
    if (!seen.files.contains(name)) return false;
    return core::local_file_system().read_file(seen.directory->file(name)).find(text) != std::string::npos;
  }

  static void expect_effect(const Row& row, int mode, std::map<std::string, Seen>& known) {
    const std::string& effect = row.effects[mode];
    if (effect.starts_with("reviewed: ")) return;
    SCOPED_TRACE(fmt::format("{} in {}: {}", row.arguments, kModes[mode], effect));
    const Seen seen = run_with(row.arguments, mode);
    if (effect == "refused") {
      EXPECT_NE(seen.error, "");
      return;
    }
    EXPECT_EQ(seen.error, "");
    if (effect == "warned") {
      EXPECT_NE(seen.log.find(row.flag), std::string::npos) << seen.log;
      return;
    }
    const Seen& plain = run_without(row, mode, known);
    if (effect == "output" || (effect == "with AVX-512 output" && core::cpu_has_avx512())) {
      EXPECT_NE(seen.output, plain.output);
    } else if (effect == "with AVX-512 output") {
      EXPECT_EQ(seen.output, plain.output);
      EXPECT_NE(seen.log.find("needs AVX-512"), std::string::npos) << seen.log;
    } else if (effect.starts_with("same: ")) {
      EXPECT_EQ(seen.output, plain.output);
    } else if (effect.starts_with("file ")) {
      EXPECT_TRUE(has_file(seen, effect.substr(5))) << "missing";
      EXPECT_FALSE(has_file(plain, effect.substr(5))) << "there without the flag, too";
    } else {
      ADD_FAILURE() << "no effect that this test knows";
    }
  }

  static void expect_effects(int mode) {
    std::map<std::string, Seen> known;
    known.emplace("", run_with("", mode));
    ASSERT_EQ(known.at("").error, "");
    for (const Row& row : read_table()) expect_effect(row, mode, known);
  }

  static core::TempDir* shared;
};

core::TempDir* FlagEffects::shared = nullptr;

TEST_F(FlagEffects, AreListedForEachFlag) {
  std::set<std::string> listed;
  for (const Row& row : read_table()) {
    EXPECT_TRUE(listed.insert(row.flag).second) << row.flag << " twice";
    EXPECT_NE(row.arguments.find(row.flag), std::string::npos) << row.flag;
    for (const std::string& effect : row.effects) {
      const size_t colon = effect.find(": ");
      EXPECT_TRUE(!effect.empty() && (colon == std::string::npos || colon + 2 < effect.size())) << row.flag;
      if (!effect.starts_with("reviewed: ")) continue;
      EXPECT_EQ(core::problem_of_review(effect, row.flag), "") << row.flag << ": " << effect;
    }
  }
  const std::vector<std::string> names = tf_cnn_flags().names();
  EXPECT_EQ(listed, std::set<std::string>(names.begin(), names.end()));
}

TEST_F(FlagEffects, OfTraining) {
  expect_effects(kTraining);
}

TEST_F(FlagEffects, OfEvaluation) {
  expect_effects(kEvaluation);
}

TEST_F(FlagEffects, OfForwardPasses) {
  expect_effects(kForwardOnly);
}

TEST_F(FlagEffects, OfTrainyardTrain) {
  expect_effects(kTrain);
}

TEST_F(FlagEffects, OfTrainyardEval) {
  expect_effects(kEval);
}

}  // namespace
}  // namespace trainyard::frontends::flag_effects_test
