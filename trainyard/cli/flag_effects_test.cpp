// No flag of a sub-command is accepted and ignored. testdata/flag_effects.tsv has a section for each command, and
// one more, "COMMAND (MODE)", where it does something else altogether: a row whose flag is "*" gives the base,
// arguments that all runs have, the rows below it one of the command's flags each, with what is added to the base and
// what that changes. The plain run, which a row is compared with, has all that is added but the flag
// (flag_effect_rows.h in core/testing): what the flag needs makes no difference. Where that cannot run without it, the
// plain run is the base.
//
// - "output": stdout is another one than that of the plain run.
// - "prints TEXT": stdout has TEXT, which that of the plain run has not.
// - "drops TEXT": stdout has no TEXT, which that of the plain run has.
// - "changes NAME": the file of that name in the run's folder has other bytes.
// - "with AVX-512 changes NAME": that on a processor with AVX-512; on others it has the same bytes, and a warning says
//   why.
// - "warned": a warning that names the flag.
// - "file NAME": there is a file of that name in the run's folder, and the plain run leaves none.
// - "refused": the command fails with an error of its arguments.
// - "same: WHY": stdout does not change, and WHY says that this is right.
// - "reviewed: WHY": WHY says what changes and which test sees it.
//
// The flags of train and eval have a table of their own in frontends/testdata.
#include <filesystem>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trainyard/cli/testing/cli.h"
#include "trainyard/cli/testing/shapes_suite.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/system/cpu_isa.h"
#include "trainyard/core/testing/flag_effect_rows.h"
#include "trainyard/core/testing/golden_lines.h"
#include "trainyard/data/codecs/png_writer.h"
#include "trainyard/formats/tensors/npy.h"

namespace trainyard::cli::flag_effects_test {
namespace {

struct EffectRow {
  std::string command, flag, arguments, effect;
};

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

std::vector<EffectRow> read_effects() {
  std::vector<EffectRow> rows;
  for (const std::string& line : core::table_rows("trainyard/cli/testdata/flag_effects.tsv")) {
    std::istringstream cells(line);
    EffectRow& row = rows.emplace_back();
    for (std::string* cell : {&row.command, &row.flag, &row.arguments, &row.effect}) std::getline(cells, *cell, '\t');
  }
  return rows;
}

// "models" of "models (list)".
std::string without_mode(const std::string& section) {
  return section.substr(0, section.find(" ("));
}

// The flags that the help of a command lists, without --help itself.
std::set<std::string> flags_in_help(const std::string& command) {
  Arguments arguments = words_of(without_mode(command));
  arguments.emplace_back("--help");
  std::istringstream lines(run_command(arguments).out);
  std::set<std::string> flags;
  std::smatch match;
  for (std::string line; std::getline(lines, line);) {
    if (std::regex_search(line, match, std::regex("^  --(\\[no\\])?([a-z0-9_]+)"))) flags.insert(match[2]);
  }
  flags.erase("help");
  return flags;
}

class CommandFlagEffects : public ShapesSuite {
 protected:
  static void SetUpTestSuite() {
    ShapesSuite::SetUpTestSuite();
    core::FileSystem& files = core::local_file_system();
    const auto make = [](const Arguments& arguments) {
      const CommandResult made = run_command(arguments);
      ASSERT_EQ(made.code, kSuccess) << made.err;
    };
    const std::string shapes = shared->file("shapes");
    make({"train", "--model=resnet20", "--data_dir=" + shapes, "--device=cpu", "--batch_size=4", "--num_batches=2",
          "--num_intra_threads=1", "--train_dir=" + shared->file("run")});
    make({"data", "convert", "--from=" + shapes, "--to=folder", "--output=" + shared->file("folders")});
    files.make_directories(shared->file("exported"));
    make({"train-ctl", "--model=trivial", "--image_width=32", "--image_height=32", "-b4", "-i1", "--precision=fp32",
          "--export_dir=" + shared->file("exported")});
    make({"data", "convert", "--from=" + shapes, "--to=tfrecord", "--output=" + shared->file("records")});
    const auto png = data::encode_png(data::draw_shape(1, data::Subset::kTrain, 0, 48));
    files.make_directories(shared->file("images"));
    files.write_file_atomically(shared->file("images/a.png"), {reinterpret_cast<const char*>(png.data()), png.size()});
    files.write_file_atomically(shared->file("search.yaml"),
                                "trials: 2\nflags: {model: resnet20, optimizer: tf_momentum, synthetic: true}\n"
                                "ranges:\n  momentum: {uniform: [0.5, 0.9]}\n");
    files.write_file_atomically(shared->file("link.json"),
                                R"({"ranks": 2, "processes": 2, "algorithm": "ring", "timings": [
          {"operation": "all-reduce", "bytes": 10000000, "median_seconds": 1.0},
          {"operation": "all-reduce", "bytes": 100000000, "median_seconds": 10.0}]})");
    files.write_file_atomically(shared->file("layers.json"),
                                R"({"model": "trivial", "conditions": [], "batch_size": 12, "step_seconds": 1,
          "layers": [{"nodes": ["affine0"], "backward": {"seconds": 0.5}}], "outside_seconds": {"update": 0.1}})");
    for (const auto& [file, value] : {std::pair("images.npy", 0.25F), std::pair("other_images.npy", -0.5F)}) {
      const std::vector<float> images(2UL * 3 * 32 * 32, value);
      files.write_file_atomically(shared->file(file),
                                  formats::encode_npy(std::vector<int64_t>{2, 3, 32, 32}, std::span(images)));
    }
    files.write_file_atomically(shared->file("list.txt"), shared->file("images/a.png") + "\n");
  }

  struct Seen {
    int code = 0;
    std::string out, err;
    std::map<std::string, std::string> files;  // content by path; of a folder none
  };

  // Flags of the base, under those of a row: a later flag stands over an earlier one, an empty one takes it out.
  static Seen run_row(const std::string& command, const std::string& base, const std::string& more) {
    const core::TempDir directory;
    Arguments arguments = words_of(without_mode(command));
    for (std::string& word : with_flags(words_of(base), core::flags_of_row(more))) {
      if (word.ends_with("=")) continue;
      word = std::regex_replace(word, std::regex("\\$DIR"), directory.path());
      arguments.push_back(std::regex_replace(word, std::regex("\\$SHARED"), shared->path()));
    }
    const CommandResult result = run_command(arguments);
    Seen seen{.code = result.code,
              .out = std::regex_replace(result.out, std::regex(directory.path()), "DIR"),
              .err = result.err};
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory.path())) {
      seen.files[entry.path().lexically_relative(directory.path()).string()] =
          entry.is_regular_file() ? core::local_file_system().read_file(entry.path().string()) : "";
    }
    return seen;
  }

  // Returns the plain run of a row. Where it fails without the flag, the row's run would fail with one that did
  // nothing: then that of the base serves. `known`: plain runs so far, by what they add to the base.
  static const Seen& plain_run(const EffectRow& row, const std::string& base, std::map<std::string, Seen>& known) {
    const std::string companions = core::companions_of(row.arguments, row.flag);
    auto found = known.find(companions);
    if (found == known.end()) found = known.emplace(companions, run_row(row.command, base, companions)).first;
    return found->second.code == kSuccess ? found->second : known.at("");
  }

  static void expect_effect(const EffectRow& row, const std::string& base, std::map<std::string, Seen>& known) {
    constexpr std::string_view kWithAvx512 = "with AVX-512 changes ";
    const bool without_avx512 = row.effect.starts_with(kWithAvx512) && !core::cpu_has_avx512();
    const std::string effect =
        row.effect.starts_with(kWithAvx512) ? "changes " + row.effect.substr(kWithAvx512.size()) : row.effect;
    if (effect.starts_with("reviewed: ")) return;
    SCOPED_TRACE(fmt::format("{} {}: {}", row.command, row.arguments, effect));
    const Seen seen = run_row(row.command, base, row.arguments);
    if (effect == "refused") {
      EXPECT_NE(seen.code, kSuccess) << seen.out;
      return;
    }
    EXPECT_EQ(seen.code, kSuccess) << seen.err;
    if (effect == "warned") {
      EXPECT_NE(seen.err.find(row.flag), std::string::npos) << seen.err;
      return;
    }
    const Seen& plain = plain_run(row, base, known);
    if (effect == "output") {
      EXPECT_NE(seen.out, plain.out);
    } else if (effect.starts_with("same: ")) {
      EXPECT_EQ(seen.out, plain.out);
    } else if (effect.starts_with("prints ")) {
      EXPECT_NE(seen.out.find(effect.substr(7)), std::string::npos) << seen.out;
      EXPECT_EQ(plain.out.find(effect.substr(7)), std::string::npos) << "without the flag, too:\n" << plain.out;
    } else if (effect.starts_with("drops ")) {
      EXPECT_EQ(seen.out.find(effect.substr(6)), std::string::npos) << seen.out;
      EXPECT_NE(plain.out.find(effect.substr(6)), std::string::npos) << "nor without the flag:\n" << plain.out;
    } else if (effect.starts_with("changes ")) {
      const std::string name = effect.substr(8);
      ASSERT_TRUE(plain.files.contains(name) && seen.files.contains(name));
      EXPECT_EQ(seen.files.at(name) == plain.files.at(name), without_avx512) << "the same bytes, or others";
      if (without_avx512) {
        EXPECT_NE(seen.err.find("needs AVX-512"), std::string::npos) << seen.err;
      }
    } else if (effect.starts_with("file ")) {
      EXPECT_TRUE(seen.files.contains(effect.substr(5))) << "missing";
      EXPECT_FALSE(plain.files.contains(effect.substr(5))) << "there without the flag, too";
    } else {
      ADD_FAILURE() << "no effect that this test knows";
    }
  }

  static void expect_effects(const std::string& command) {
    std::string base;
    std::map<std::string, Seen> known;
    std::set<std::string> listed;
    for (const EffectRow& row : read_effects()) {
      if (row.command != command) continue;
      if (row.flag == "*") {
        base = row.arguments;
        known.emplace("", run_row(command, base, ""));
        ASSERT_EQ(known.at("").code, kSuccess) << known.at("").err;
        continue;
      }
      EXPECT_TRUE(listed.insert(row.flag).second) << row.flag << " twice";
      expect_effect(row, base, known);
    }
    EXPECT_EQ(listed, flags_in_help(command));
  }
};

TEST_F(CommandFlagEffects, OfPredict) {
  expect_effects("predict");
  expect_effects("predict (array)");
}
TEST_F(CommandFlagEffects, OfEvalDetections) {
  core::FileSystem& files = core::local_file_system();
  files.write_file_atomically(shared->file("truth.json"), R"({"images": [], "annotations": [], "categories": []})");
  files.write_file_atomically(shared->file("found.json"), "[]");
  expect_effects("eval-detections");
}
TEST_F(CommandFlagEffects, OfQuantize) {
  expect_effects("quantize");
}
TEST_F(CommandFlagEffects, OfExport) {
  expect_effects("export");
}
TEST_F(CommandFlagEffects, OfBenchLatency) {
  expect_effects("bench latency");
}
TEST_F(CommandFlagEffects, OfBenchLayers) {
  expect_effects("bench layers");
}
TEST_F(CommandFlagEffects, OfBenchQuantization) {
  expect_effects("bench quantization");
}
TEST_F(CommandFlagEffects, OfBenchData) {
  expect_effects("bench data");
}
TEST_F(CommandFlagEffects, OfModels) {
  expect_effects("models");
  expect_effects("models (list)");
}
TEST_F(CommandFlagEffects, OfSimulate) {
  expect_effects("simulate");
}
TEST_F(CommandFlagEffects, OfSparsity) {
  expect_effects("sparsity");
}
TEST_F(CommandFlagEffects, OfProgram) {
  expect_effects("program");
}
TEST_F(CommandFlagEffects, OfLaunch) {
  expect_effects("launch");
}

TEST_F(CommandFlagEffects, OfSuite) {
  expect_effects("suite");
}
TEST_F(CommandFlagEffects, OfHelp) {
  expect_effects("help");
  expect_effects("help (pages)");
}
TEST_F(CommandFlagEffects, OfDoctor) {
  expect_effects("doctor");
}
TEST_F(CommandFlagEffects, OfDataMakeShapes) {
  expect_effects("data make-shapes");
}
TEST_F(CommandFlagEffects, OfDataConvert) {
  expect_effects("data convert");
  expect_effects("data convert (folder)");
}
TEST_F(CommandFlagEffects, OfDataIndex) {
  expect_effects("data index");
}
TEST_F(CommandFlagEffects, OfDataVerify) {
  expect_effects("data verify");
}
TEST_F(CommandFlagEffects, OfTrainCtl) {
  expect_effects("train-ctl");
}
TEST_F(CommandFlagEffects, OfFindLr) {
  expect_effects("find-lr");
}
TEST_F(CommandFlagEffects, OfTune) {
  expect_effects("tune");
}
TEST_F(CommandFlagEffects, OfDataShow) {
  expect_effects("data show");
}
TEST_F(CommandFlagEffects, OfReport) {
  expect_effects("report");
}
TEST_F(CommandFlagEffects, OfBenchAllReduce) {
  expect_effects("bench allreduce");
}

// Nothing runs, so that no data are made.
TEST(CommandFlagEffectRows, NameATestOfTheFlagWhereTheyAreReviewed) {
  for (const EffectRow& row : read_effects()) {
    if (!row.effect.starts_with("reviewed: ")) continue;
    EXPECT_EQ(core::problem_of_review(row.effect, row.flag), "")
        << row.command << " " << row.flag << ": " << row.effect;
  }
}

// The names that a help lists, each at the start of a line: "  train      train or benchmark a model".
std::vector<std::string> listed_in(const std::string& help) {
  std::vector<std::string> names;
  std::istringstream lines(help);
  std::smatch match;
  for (std::string line; std::getline(lines, line);) {
    if (std::regex_search(line, match, std::regex("^  ([a-z][a-z-]*) "))) names.push_back(match[1]);
  }
  return names;
}

TEST_F(CommandFlagEffects, AreTestedOfEachCommandThatHasFlags) {
  std::set<std::string> commands;
  for (const std::string& command : listed_in(run_command({"--help"}).out)) {
    if (command == "train" || command == "eval") continue;  // frontends/testdata
    const bool divided = command == "bench" || command == "data";
    if (!divided) commands.insert(command);
    for (const std::string& kind : divided ? listed_in(run_command({command, "--help"}).out) : Arguments()) {
      commands.insert(command + " " + kind);
    }
  }
  std::erase_if(commands, [](const std::string& command) { return flags_in_help(command).empty(); });
  std::set<std::string> tested;
  for (const EffectRow& row : read_effects()) tested.insert(without_mode(row.command));
  EXPECT_GT(commands.size(), 20U);
  EXPECT_EQ(tested, commands);
}

}  // namespace
}  // namespace trainyard::cli::flag_effects_test
