// A search with its processes, which here are scripts that write what a training would: the order of the parts, what is
// read from their files, and the end of a search. That trainings do so, tests/tune_test.py sees.
#include <filesystem>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/cli/testing/cli.h"
#include "trainyard/cli/tune_record.h"
#include "trainyard/cli/tune_run.h"
#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/core/threads/stop_token.h"
#include "trainyard/frontends/tf_cnn/flags.h"
#include "trainyard/train/monitors/curve_svg.h"

namespace trainyard::cli::tune_processes_test {
namespace {

using ::testing::HasSubstr, ::testing::IsEmpty, ::testing::Not;

// Asks for the end of the search when its first line has been printed.
class StoppingBuffer : public std::stringbuf {
 public:
  explicit StoppingBuffer(core::StopSource& stop) : stop_(stop) {}
  int sync() override {
    stop_.request_stop(core::StopReason::kSignal, "SIGUSR1");
    return 0;
  }

 private:
  core::StopSource& stop_;
};

class TuneProcesses : public ::testing::Test {
 protected:
  void SetUp() override { files().make_directories(options_.directory); }

  static core::FileSystem& files() { return core::local_file_system(); }
  static TuneFile file_of(TuneSearch search, int64_t trials) {
    return {.search = search,
            .trials = trials,
            .epochs = 3,
            .min_epochs = 1,
            .flags = {{"model", "resnet20"}},
            .ranges = {{.flag = "momentum", .kind = TuneRange::Kind::kUniform, .low = 0.5, .high = 1}}};
  }
  // Makes `commands` what a process of the search runs. They find the folder of their trial in $directory, the number
  // of its parts, this one included, in $part, and end with write STEP VALUE where they have something to tell.
  void run_as_training(const std::string& commands) {
    files().write_file_atomically(options_.program,
                                  "#!/bin/sh\n"
                                  "for argument in \"$@\"; do\n"
                                  "  case \"$argument\" in --train_dir=*) directory=\"${argument#*=}\" ;; esac\n"
                                  "done\n"
                                  "echo \"$@\" >> \"$directory/arguments.txt\"\n"
                                  "part=$(wc -l < \"$directory/arguments.txt\")\n"
                                  "write() {\n"
                                  "  printf '{\"global_step\":%s,\"phase\":\"eval\",\"top_1_accuracy\":%s}\\n' $1 $2"
                                  " >> \"$directory/metrics.jsonl\"\n"
                                  "}\n" +
                                      commands);
    std::filesystem::permissions(options_.program, std::filesystem::perms::owner_all);
  }
  std::vector<Trial> search(const TuneFile& file) {
    std::ostringstream out;
    std::vector<Trial> trials = run_tune(file, options_, out, core::StopSource().token());
    out_ = out.str();
    return trials;
  }
  std::string of_trial(int64_t number, const char* name) const {
    return files().read_file(core::join_path(core::join_path(options_.directory, trial_name(number)), name));
  }

  const core::TempDir temp_;
  TuneOptions options_{.directory = temp_.file("search"), .program = temp_.file("program")};
  std::string out_;
};

// A folder without a record but with something in it is taken for another's: the next start would be refused.
TEST_F(TuneProcesses, MakeNothingBeforeTheRecord) {
  options_.directory = temp_.file("missing");  // as on a full disk, the record cannot be written
  EXPECT_THROW(search(file_of(TuneSearch::kRandom, 1)), core::Error);
  EXPECT_FALSE(files().exists(options_.directory));
}

// Two trials reach the first level, of which the better one runs to the end, and one fails: as often as it is tried.
TEST_F(TuneProcesses, RunOneAfterTheOtherAndFailuresAreTriedAgainWhereThatIsAsked) {
  run_as_training(
      "mkdir \"$directory/../running\" || exit 9\n"
      "case \"$directory $part\" in\n"
      "  *trial-000?1) write 10 0.5 ;;\n"
      "  *trial-000?2) write 30 0.75 ;;\n"
      "  *trial-001*) write 10 0.25 ;;\n"
      "  *trial-002?1) echo '02:24:22.639 error the disk is full' >&2; code=1 ;;\n"
      "  *trial-002?2) code=3 ;;\n"
      "  *) echo '02:24:22.639 error it is late'; rmdir \"$directory/../running\"; kill -KILL $$ ;;\n"
      "esac\n"
      "rmdir \"$directory/../running\"\n"
      "exit ${code:-0}\n");
  const TuneFile file = file_of(TuneSearch::kAsha, 3);
  const std::vector<Trial> trials = search(file);
  EXPECT_EQ(out_,
            "trial 0: top_1_accuracy 0.5000 after 1 of 3 epochs\n"
            "trial 1: top_1_accuracy 0.2500 after 1 of 3 epochs\n"
            "trial 2 failed: the disk is full\n"
            "trial 0: top_1_accuracy 0.7500 after 3 of 3 epochs\n");
  ASSERT_EQ(trials.size(), 3U);
  ASSERT_EQ(trials[0].results.size(), 2U);
  EXPECT_EQ(trials[0].results[0].epochs, 1);
  EXPECT_EQ(trials[0].results[0].global_step, 10);
  EXPECT_EQ(trials[0].results[0].value, 0.5);
  EXPECT_GT(trials[0].results[0].seconds, 0);
  EXPECT_LT(trials[0].results[0].seconds, 60);
  EXPECT_EQ(trials[0].results[1].epochs, 3);
  EXPECT_EQ(trials[0].results[1].global_step, 30);
  EXPECT_EQ(trials[0].results[1].value, 0.75);
  EXPECT_EQ(trials[0].started, 2U);
  EXPECT_EQ(trials[1].results.size(), 1U);
  EXPECT_EQ(trials[1].started, 1U);
  EXPECT_THAT(trials[2].results, IsEmpty());
  EXPECT_EQ(trials[2].failure, "the disk is full");
  for (size_t t = 0; t < trials.size(); ++t) {
    EXPECT_EQ(trials[t].number, static_cast<int64_t>(t));
    EXPECT_EQ(trials[t].flags, trial_flags(file, static_cast<int64_t>(t)));
    EXPECT_FALSE(trials[t].running);
  }
  EXPECT_EQ(files().read_file(core::join_path(options_.directory, kTuneRecord)), tune_record(file, trials));
  const auto arguments = [&](size_t level) {
    return fmt::format("{}\n", fmt::join(trial_arguments(file, options_, trials[0], level, 0), " "));
  };
  EXPECT_EQ(of_trial(0, "arguments.txt"), arguments(0) + arguments(1));

  // The search is complete: nothing runs.
  EXPECT_EQ(tune_record(file, search(file)), tune_record(file, trials));
  EXPECT_EQ(out_, "");
  // What an earlier part has said is not the reason, and a process that was killed had no time to tell one.
  options_.retry_failed = true;
  EXPECT_EQ(search(file)[2].failure, "ended with code 3");
  EXPECT_EQ(out_, "trial 2 failed: ended with code 3\n");
  EXPECT_EQ(search(file)[2].failure, "was ended by SIGKILL");
  EXPECT_EQ(of_trial(2, "log.txt"), "02:24:22.639 error the disk is full\n02:24:22.639 error it is late\n");
}

TEST_F(TuneProcesses, WithoutAFiniteMetricHaveFailed) {
  run_as_training(
      "case \"$directory\" in\n"
      "  *trial-001) write 7 '\"nan\"' ;;\n"
      "  *trial-002) write 7 0.125 ;;\n"
      "esac\n");
  const std::vector<Trial> trials = search(file_of(TuneSearch::kRandom, 3));
  EXPECT_EQ(out_,
            "trial 0 failed: its metrics have no top_1_accuracy: without validation images nothing is evaluated\n"
            "trial 1 failed: it diverged: top_1_accuracy is nan after step 7\n"
            "trial 2: top_1_accuracy 0.1250 after 3 of 3 epochs\n");
  ASSERT_EQ(trials.size(), 3U);
  EXPECT_THAT(trials[0].failure, HasSubstr("its metrics have no top_1_accuracy"));
  EXPECT_THAT(trials[1].failure, HasSubstr("it diverged"));
  EXPECT_EQ(trials[2].failure, "");
}

// Each waits for the other one.
TEST_F(TuneProcesses, RunAsManyAtATimeAsAreAsked) {
  run_as_training(
      "touch \"$directory/here\"\n"
      "other=\"$directory/../trial-000/here\"\n"
      "case \"$directory\" in *trial-000) other=\"$directory/../trial-001/here\" ;; esac\n"
      "turns=0\n"
      "while [ ! -e \"$other\" ] && [ $turns -lt 1000 ]; do sleep 0.01; turns=$((turns + 1)); done\n"
      "[ -e \"$other\" ] && write 5 0.5\n");
  options_.max_parallel = 2;
  const TuneFile file = file_of(TuneSearch::kRandom, 2);
  const std::vector<Trial> trials = search(file);
  ASSERT_EQ(trials.size(), 2U);
  for (const Trial& trial : trials) {
    EXPECT_EQ(trial.failure, "");
    EXPECT_EQ(trial.results.size(), 1U);
    EXPECT_EQ(of_trial(trial.number, "arguments.txt"),
              fmt::format("{}\n", fmt::join(trial_arguments(file, options_, trial, 0, trial_threads(options_)), " ")));
  }
}

// The signal reaches the process once, and the trial is not a failed one: it is continued.
TEST_F(TuneProcesses, GetTheSignalThatEndsTheSearch) {
  run_as_training(
      "wait_for() {\n"
      "  turns=0\n"
      "  while [ ! -e \"$1\" ] && [ $turns -lt 1000 ]; do sleep 0.01; turns=$((turns + 1)); done\n"
      "}\n"
      "case \"$directory\" in\n"
      "  *trial-000) wait_for \"$directory/../trial-001/here\"; write 5 0.5; exit 0 ;;\n"
      "esac\n"
      "trap 'echo USR1 >> \"$directory/signals.txt\"' USR1\n"
      "touch \"$directory/here\"\n"
      "wait_for \"$directory/signals.txt\"\n"
      "for turn in 1 2 3 4 5 6; do sleep 0.02; done\n"
      "exit 75\n");
  options_.max_parallel = 2;
  const TuneFile file = file_of(TuneSearch::kRandom, 3);
  core::StopSource stop;
  StoppingBuffer buffer(stop);
  std::ostream out(&buffer);
  const std::vector<Trial> trials = run_tune(file, options_, out, stop.token());
  EXPECT_EQ(buffer.str(), "trial 0: top_1_accuracy 0.5000 after 3 of 3 epochs\n");
  ASSERT_EQ(trials.size(), 2U) << "the third one is not begun";
  EXPECT_EQ(of_trial(1, "signals.txt"), "USR1\n");
  EXPECT_EQ(trials[1].failure, "");
  EXPECT_THAT(trials[1].results, IsEmpty());
  EXPECT_EQ(trials[1].started, 1U);
  EXPECT_FALSE(trials[1].running);
  EXPECT_GT(trials[1].part_seconds, 0);
  EXPECT_EQ(files().read_file(core::join_path(options_.directory, kTuneRecord)), tune_record(file, trials));
}

// The table says how long a trial has trained, not how long its last process ran.
TEST_F(TuneProcesses, CountTheSecondsOfAPartThatIsContinued) {
  run_as_training(
      "[ $part = 1 ] && { sleep 0.2; exit 3; }\n"
      "write 5 0.5\n");
  const TuneFile file = file_of(TuneSearch::kRandom, 1);
  const double cut_short = search(file)[0].part_seconds;
  EXPECT_GE(cut_short, 0.2);
  options_.retry_failed = true;
  const std::vector<Trial> trials = search(file);
  ASSERT_EQ(trials[0].results.size(), 1U);
  EXPECT_GT(trials[0].results[0].seconds, cut_short);
  EXPECT_EQ(trials[0].part_seconds, 0);
}

// A search whose trials have all ended runs nothing: its command tells what the record has.
class TuneCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    files().write_file_atomically(path_,
                                  "trials: 2\nsearch: asha\nepochs: 9\nflags:\n  model: resnet20\n  synthetic: true\n"
                                  "  optimizer: tf_momentum\nranges:\n  momentum: {uniform: [0.5, 0.75]}\n");
    files().make_directories(directory_);
  }
  static core::FileSystem& files() { return core::local_file_system(); }
  std::string read(const char* name) const { return files().read_file(core::join_path(directory_, name)); }
  CommandResult tell(const std::vector<Trial>& trials) const {
    files().write_file_atomically(core::join_path(directory_, kTuneRecord), tune_record(file(), trials));
    return run_command({"tune", path_});
  }
  TuneFile file() const { return read_tune_file(path_, frontends::tf_cnn_flags(frontends::Dialect::kTrainyard)); }

  const core::TempDir temp_;
  const std::string path_ = temp_.file("search.yaml"), directory_ = temp_.file("search");
};

TEST_F(TuneCommand, TellsTheBestTrialAndHowToTrainAsItDid) {
  const TuneFile search = file();
  const std::vector<Trial> trials = {
      {.number = 0, .flags = trial_flags(search, 0), .results = {{1, 10, 0.25, 1.5}}, .started = 1},
      {.number = 1,
       .flags = trial_flags(search, 1),
       .results = {{1, 10, 0.5, 1}, {3, 30, 0.625, 2}, {9, 90, 0.75, 4}},
       .started = 3}};
  const CommandResult result = tell(trials);
  EXPECT_EQ(result.code, kSuccess) << result.err;
  std::string flags;
  for (const auto& [name, value] : trials[1].flags) flags += fmt::format(" --{}={}", name, value);
  EXPECT_EQ(result.out,
            tune_table(search, trials) + fmt::format("Best:    trial 1, top_1_accuracy 0.7500, in {0}/trial-001\n"
                                                     "Train:   trainyard train{1} --num_epochs=9\n"
                                                     "Table:   {0}/tune.csv\n"
                                                     "Picture: {0}/tune.svg\n"
                                                     "Report:  trainyard report {0}\n",
                                                     directory_, flags));
  EXPECT_EQ(read("tune.csv"), tune_csv(search, trials));
  EXPECT_EQ(read("tune.svg"), tune_svg(search, trials, "search.yaml: top_1_accuracy"));
  EXPECT_EQ(read(kTuneRecord), tune_record(search, trials));
}

TEST_F(TuneCommand, FailsWhereEachTrialHasFailed) {
  const TuneFile search = file();
  std::vector<Trial> trials;
  for (int64_t number = 0; number < 2; ++number) {
    trials.push_back(
        {.number = number, .flags = trial_flags(search, number), .started = 1, .failure = "the disk is full"});
  }
  const CommandResult result = tell(trials);
  EXPECT_EQ(result.code, kFailure) << result.err;
  EXPECT_THAT(result.out, HasSubstr("trial 1 failed: the disk is full\n"));
  EXPECT_THAT(result.out, Not(HasSubstr("Best:")));
  EXPECT_THAT(result.out, HasSubstr("Table:   " + directory_ + "/tune.csv\n"));
}

TEST_F(TuneCommand, SaysHowManyFilesItTakes) {
  EXPECT_THAT(run_command({"tune", path_, path_}).err,
              HasSubstr("takes one file, which describes the search: got 2 files"));
  EXPECT_THAT(run_command({"tune"}).err, HasSubstr("got 0 files"));
}

// The folder of a search is named after its file.
TEST_F(TuneCommand, ItsFolderIsNamedAfterTheFile) {
  for (const std::string name : {"a.yaml", "a.yml", "a"}) {
    files().write_file_atomically(temp_.file(name), files().read_file(path_));
    const CommandResult listed = run_command({"tune", temp_.file(name), "--dry_run"});
    EXPECT_THAT(listed.out, HasSubstr(" --train_dir=" + temp_.file(name == "a" ? "a.tune" : "a") + "/trial-000 "));
  }
  const CommandResult elsewhere = run_command({"tune", path_, "--dry_run", "--tune_dir=" + temp_.file("other")});
  EXPECT_THAT(elsewhere.out, HasSubstr(" --train_dir=" + temp_.file("other/trial-001") + " "));
}

// The places of single trials are told apart where both kinds are there.
TEST(TunePicture, NamesTrialsThatRanToTheEndWhereOthersWereStopped) {
  const TuneFile file{.search = TuneSearch::kAsha,
                      .trials = 2,
                      .epochs = 3,
                      .ranges = {{.flag = "momentum", .kind = TuneRange::Kind::kUniform, .low = 0.5, .high = 1}}};
  std::vector<Trial> trials = {
      {.number = 0, .flags = {{"momentum", "0.5"}}, .results = {{1, 10, 0.25, 1}, {3, 30, 0.5, 1}}, .started = 2},
      {.number = 1, .flags = {{"momentum", "0.75"}}, .results = {{1, 10, 0.125, 1}, {3, 30, 0.75, 1}}, .started = 2}};
  const std::string all_ended = tune_svg(file, trials, "x");
  EXPECT_THAT(all_ended, Not(HasSubstr("run to the end")));
  EXPECT_THAT(all_ended, Not(HasSubstr("stopped")));
  trials[1].results.pop_back();
  const std::string both = tune_svg(file, trials, "x");
  EXPECT_THAT(both, HasSubstr(">run to the end<"));
  EXPECT_THAT(both, HasSubstr(">stopped<"));
}

// A curve for each trial, and for each range a point for each trial that has a result; how they are drawn has tests of
// its own.
TEST(TunePicture, HasTheCurvesOfTrialsAndTheirValuesOverEachRange) {
  const TuneFile file{.search = TuneSearch::kAsha,
                      .trials = 3,
                      .epochs = 3,
                      .ranges = {{.flag = "momentum", .kind = TuneRange::Kind::kUniform, .low = 0.5, .high = 1},
                                 {.flag = "lr", .kind = TuneRange::Kind::kLogUniform, .low = 0.01, .high = 1},
                                 {.flag = "optimizer", .kind = TuneRange::Kind::kChoice, .choices = {"adam", "sgd"}}}};
  const std::vector<Trial> trials = {
      {.number = 0,
       .flags = {{"momentum", "0.5"}, {"lr", "0.1"}, {"optimizer", "sgd"}},
       .results = {{1, 10, 0.25, 1}, {3, 30, 0.5, 1}},
       .started = 2},
      {.number = 1,
       .flags = {{"momentum", "0.75"}, {"lr", "0.02"}, {"optimizer", "adam"}},
       .results = {{1, 10, 0.125, 1}},
       .started = 1},
      {.number = 2, .flags = {{"momentum", "0.625"}, {"lr", "0.5"}, {"optimizer", "adam"}}, .failure = "it failed"}};
  const auto panel = [](const char* axis, double ended, double stopped, bool logarithmic) {
    return train::CurvePanel{.title = "top_1_accuracy",
                             .series = {{.name = "run to the end", .x = {ended}, .y = {0.5}, .joined = false},
                                        {.name = "stopped", .x = {stopped}, .y = {0.125}, .joined = false}},
                             .x_axes = {{axis}},
                             .logarithmic = logarithmic};
  };
  const train::CurvePanel curves{.title = "top_1_accuracy by epoch",
                                 .series = {{.name = "", .x = {1, 3}, .y = {0.25, 0.5}},
                                            {.name = "", .x = {1}, .y = {0.125}},
                                            {.name = "", .x = {}, .y = {}}},
                                 .x_axes = {{"epochs"}}};
  EXPECT_EQ(tune_svg(file, trials, "search.yaml"),
            train::curve_svg("search.yaml", {curves, panel("momentum", 0.5, 0.75, false), panel("lr", 0.1, 0.02, true),
                                             panel("optimizer: 0 adam 1 sgd", 1, 0, false)}));
}

}  // namespace
}  // namespace trainyard::cli::tune_processes_test
