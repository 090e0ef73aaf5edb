// A search without its processes: the trials' commands, what is read from their files, the record and the tables. That
// it runs, is killed and continues, tests/tune_test.py sees.
#include "trainyard/cli/tune_run.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainyard/cli/report/search_record.h"
#include "trainyard/cli/testing/cli.h"
#include "trainyard/cli/tune_record.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/files/lock_file.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"

namespace trainyard::cli::tune_run_test {
namespace {

using ::testing::ElementsAre, ::testing::HasSubstr, ::testing::Not;

TuneFile file_of() {
  return {.search = TuneSearch::kAsha,
          .trials = 4,
          .epochs = 9,
          .min_epochs = 1,
          .flags = {{"model", "resnet20"}},
          .ranges = {{.flag = "init_learning_rate", .kind = TuneRange::Kind::kLogUniform, .low = 0.001, .high = 1},
                     {.flag = "optimizer", .kind = TuneRange::Kind::kChoice, .choices = {"adam", "sgd"}}}};
}

std::vector<Trial> trials_of() {
  std::vector<Trial> trials = {
      {.number = 0,
       .flags = {{"model", "resnet20"}, {"init_learning_rate", "0.1"}, {"optimizer", "sgd"}},
       .results = {{1, 10, 0.25, 1.5}, {3, 30, 0.5, 2}, {9, 90, 0.75, 4}},
       .started = 3},
      {.number = 1,
       .flags = {{"model", "resnet20"}, {"init_learning_rate", "0.9"}, {"optimizer", "adam"}},
       .started = 1,
       .failure = "the loss is not finite, at step 3"},
      {.number = 2,
       .flags = {{"model", "resnet20"}, {"init_learning_rate", "0.002"}, {"optimizer", "adam"}},
       .results = {{1, 10, 0.125, 1}},
       .started = 1}};
  return trials;
}

TEST(TuneRun, TheCommandOfATrialEndsWithinItsSchedule) {
  const TuneOptions options{.directory = "out/search"};
  EXPECT_THAT(trial_arguments(file_of(), options, trials_of()[0], 1, 2),
              ElementsAre("train", "--model=resnet20", "--init_learning_rate=0.1", "--optimizer=sgd",
                          "--num_intra_threads=2", "--train_dir=out/search/trial-000", "--existing_run=keep",
                          "--num_epochs=9", "--stop_after_epochs=3"));
  EXPECT_THAT(trial_arguments(file_of(), options, trials_of()[0], 2, 0),
              ElementsAre("train", "--model=resnet20", "--init_learning_rate=0.1", "--optimizer=sgd",
                          "--train_dir=out/search/trial-000", "--existing_run=keep", "--num_epochs=9"));
  Trial own = trials_of()[0];
  own.flags.emplace_back("num_intra_threads", "1");
  EXPECT_THAT(trial_arguments(file_of(), options, own, 2, 2), Not(::testing::Contains("--num_intra_threads=2")));
}

TEST(TuneRun, TheLastEvaluationCounts) {
  const std::string metrics =
      "{\"global_step\":5,\"phase\":\"train\",\"total_loss\":2.5,\"top_1_accuracy\":0.9}\n"
      "{\"global_step\":5,\"phase\":\"eval\",\"top_1_accuracy\":0.25,\"loss\":2}\nnot json\n"
      "{\"global_step\":9,\"phase\":\"eval\",\"top_1_accuracy\":0.5,\"loss\":\"nan\"}\n"
      "{\"global_step\":10,\"phase\":\"train\",\"total_loss\":1.5,\"top_1_accuracy\":0.8}\n{\"global_step\":11";
  EXPECT_EQ(last_metric(metrics, "top_1_accuracy")->value, 0.5);
  EXPECT_EQ(last_metric(metrics, "top_1_accuracy")->global_step, 9);
  EXPECT_EQ(last_metric(metrics, "total_loss")->value, 1.5) << "training steps have it alone";
  EXPECT_TRUE(std::isnan(last_metric(metrics, "loss")->value));
  EXPECT_FALSE(last_metric(metrics, "top_5_accuracy"));
}

TEST(TuneRun, TheLastErrorOfALogIsTheReason) {
  EXPECT_EQ(
      last_error("02:24:22.639 info a\n02:24:22.640 error first\n02:24:23.640 error the loss is nan: step 3\n1\t2\n"),
      "the loss is nan: step 3");
  EXPECT_EQ(last_error("an error of a library\n"), "");
  EXPECT_EQ(last_error(""), "");
}

TEST(TuneRun, TheRecordIsReadBack) {
  const core::TempDir temp;
  const TuneFile file = file_of();
  EXPECT_TRUE(read_tune_record(temp.path(), file).empty());
  core::local_file_system().write_file_atomically(temp.file(kTuneRecord), tune_record(file, trials_of()));
  const std::vector<Trial> back = read_tune_record(temp.path(), file);
  ASSERT_EQ(back.size(), 3u);
  // A report reads the same file.
  const auto shown = read_report_search(temp.file(kTuneRecord));
  EXPECT_THAT(shown->problems, ::testing::IsEmpty());
  EXPECT_EQ(shown->record["trials"].size(), 3u);
  EXPECT_EQ(shown->record["trials"][0]["values"], (nlohmann::ordered_json{"0.1", "sgd"}));
  EXPECT_EQ(shown->record["ranges"][0]["scale"], "logarithmic");
  EXPECT_EQ(shown->record["ranges"][1]["choices"], (nlohmann::ordered_json{"adam", "sgd"}));
  EXPECT_EQ(shown->record["levels"], (nlohmann::ordered_json{1.0, 3.0, 9.0}));
  EXPECT_EQ(tune_record(file, back), tune_record(file, trials_of()));
  EXPECT_EQ(back[0].results[2].value, 0.75);
  EXPECT_EQ(back[1].failure, "the loss is not finite, at step 3");
  EXPECT_EQ(back[2].flags, trials_of()[2].flags);

  TuneFile other = file;
  other.seed = 2;
  EXPECT_THAT(core::message_of([&] { static_cast<void>(read_tune_record(temp.path(), other)); }),
              HasSubstr("another search"));
  for (const char* text : {"", "{", "[]", "{\"kind\":\"x\"}", "{\"kind\":\"trainyard tune\",\"search\":\"\"}"}) {
    core::local_file_system().write_file_atomically(temp.file(kTuneRecord), text);
    EXPECT_EQ(core::code_of([&] { static_cast<void>(read_tune_record(temp.path(), file)); }),
              core::ErrorCode::kCorruptData)
        << text;
  }
}

TEST(TuneRun, RowsOfMetricsThatAreNoneArePassedOver) {
  EXPECT_EQ(last_metric("{\"global_step\":5,\"phase\":\"eval\",\"loss\":2}\n"
                        "{\"global_step\":\"6\",\"phase\":\"eval\",\"loss\":3}\n"
                        "{\"phase\":\"eval\",\"loss\":4}\n"
                        "{\"global_step\":7,\"phase\":\"eval\",\"loss\":true}\n"
                        "{\"global_step\":8,\"phase\":\"train\",\"loss\":6}\n",
                        "loss")
                ->value,
            2);
}

TEST(TuneRun, ErrorsInOtherWordsOfALogAreNone) {
  EXPECT_EQ(last_error("02:24:22.639 info an error of no run\n"), "");
  EXPECT_EQ(last_error("the compiler error a\nabcdefghijkl error b\n"), "") << "behind no time of day";
}

TEST(TuneRun, TheRecordHasWhatEachTrialReached) {
  using Json = nlohmann::json;
  TuneFile file = file_of();
  std::vector<Trial> trials = trials_of();
  const Json record = Json::parse(tune_record(file, trials));
  EXPECT_EQ(record["kind"], "trainyard tune");
  EXPECT_EQ(record["metric"], "top_1_accuracy");
  EXPECT_EQ(record["goal"], "highest");
  EXPECT_EQ(record["best"], 0);
  EXPECT_EQ(record["trials"][0]["directory"], "trial-000");
  EXPECT_EQ(record["trials"][0]["started"], 3);
  EXPECT_EQ(record["trials"][0]["failure"], nullptr);
  EXPECT_EQ(record["trials"][0]["results"][1],
            Json::parse(R"({"epochs": 3.0, "global_step": 30, "value": 0.5, "seconds": 2.0})"));
  EXPECT_EQ(record["trials"][1]["failure"], "the loss is not finite, at step 3");
  EXPECT_EQ(record["trials"][2]["flags"]["init_learning_rate"], "0.002");
  file.highest = false;
  trials[0].results.clear();
  const Json lowest = Json::parse(tune_record(file, trials));
  EXPECT_EQ(lowest["goal"], "lowest");
  EXPECT_EQ(lowest["best"], 2);
  EXPECT_EQ(Json::parse(tune_record(file, {}))["best"], nullptr);
}

TEST(TuneRun, ADamagedRecordSaysWhatIsWrong) {
  const core::TempDir temp;
  const TuneFile file = file_of();
  const auto message = [&](const std::vector<Trial>& trials) {
    core::local_file_system().write_file_atomically(temp.file(kTuneRecord), tune_record(file, trials));
    return core::message_of([&] { static_cast<void>(read_tune_record(temp.path(), file)); },
                            core::ErrorCode::kCorruptData);
  };
  std::vector<Trial> trials = trials_of();
  std::swap(trials[0], trials[1]);
  EXPECT_EQ(message(trials), "the record of a search cannot be read: its trials are not in order: " +
                                 temp.file(kTuneRecord) + "; name another folder with --tune_dir");
  trials = trials_of();
  trials[0].started = 4;
  EXPECT_THAT(message(trials), HasSubstr("a trial has more results than levels")) << "there are three";
  trials[0].started = 2;
  EXPECT_THAT(message(trials), HasSubstr("a trial has more results than levels")) << "than have begun";
}

TEST(TuneRun, TrialsThatAreNotDoneAreBeforeThoseThatFailed) {
  std::vector<Trial> trials = trials_of();
  trials[1].failure = "it said \"no\", twice";
  trials[2].started = 2;
  trials.push_back({.number = 3,
                    .flags = {{"model", "resnet20"}, {"init_learning_rate", "0.5"}, {"optimizer", "sgd"}},
                    .started = 1});
  EXPECT_EQ(tune_table(file_of(), trials),
            "trial  top_1_accuracy  epochs  state       init_learning_rate  optimizer\n"
            "0      0.7500          9       finished    0.1                 sgd\n"
            "2      0.1250          1       unfinished  0.002               adam\n"
            "3      -               -       unfinished  0.5                 sgd\n"
            "1      -               -       failed      0.9                 adam\n"
            "trial 1 failed: it said \"no\", twice\n");
  EXPECT_EQ(tune_csv(file_of(), trials),
            "trial,state,epochs,global_step,top_1_accuracy,seconds,init_learning_rate,optimizer,reason\n"
            "0,finished,9,90,0.75,7.500,0.1,sgd,\n"
            "1,failed,,,,,0.9,adam,\"it said \"\"no\"\", twice\"\n"
            "2,unfinished,1,10,0.125,1.000,0.002,adam,\n"
            "3,unfinished,,,,,0.5,sgd,\n");
}

TEST(TuneRun, TheTableHasTheBestFirstAndReasonsLast) {
  EXPECT_EQ(tune_table(file_of(), trials_of()),
            "trial  top_1_accuracy  epochs  state     init_learning_rate  optimizer\n"
            "0      0.7500          9       finished  0.1                 sgd\n"
            "2      0.1250          1       stopped   0.002               adam\n"
            "1      -               -       failed    0.9                 adam\n"
            "trial 1 failed: the loss is not finite, at step 3\n");
  EXPECT_EQ(tune_csv(file_of(), trials_of()),
            "trial,state,epochs,global_step,top_1_accuracy,seconds,init_learning_rate,optimizer,reason\n"
            "0,finished,9,90,0.75,7.500,0.1,sgd,\n"
            "1,failed,,,,,0.9,adam,\"the loss is not finite, at step 3\"\n"
            "2,stopped,1,10,0.125,1.000,0.002,adam,\n");
  const std::string picture = tune_svg(file_of(), trials_of(), "search.yaml");
  EXPECT_THAT(picture, HasSubstr("optimizer: 0 adam 1 sgd"));
  EXPECT_THAT(picture, HasSubstr(">0.01<")) << "the rate's axis is logarithmic";
  EXPECT_EQ(tune_svg(file_of(), {}, "search.yaml"), "");
}

TEST(TuneRun, TheCommandRefusesWhatItCannotDo) {
  const core::TempDir temp;
  core::FileSystem& files = core::local_file_system();
  EXPECT_EQ(run_command({"tune"}).code, kUsage);
  EXPECT_THAT(run_command({"tune", temp.file("none.yaml")}).err, HasSubstr("none.yaml"));
  const std::string path = temp.file("search.yaml");
  files.write_file_atomically(path, "flags:\n  model: resnet20\nranges:\n  momentum: {uniform: [0, 1]}\n");
  const CommandResult wrong = run_command({"tune", path});
  EXPECT_EQ(wrong.code, kUsage) << "no trial could run: there are no images";
  files.write_file_atomically(path,
                              "trials: 2\nflags:\n  model: resnet20\n  optimizer: tf_momentum\n  synthetic: true\n"
                              "ranges:\n  momentum: {uniform: [0, 1]}\n");
  const CommandResult listed = run_command({"tune", path, "--dry_run"});
  EXPECT_EQ(listed.code, kSuccess) << listed.err;
  EXPECT_EQ(count_lines(listed.out, "^trainyard train --model=resnet20 .*--train_dir=.*/search/trial-00[01] "), 2)
      << listed.out;
  EXPECT_EQ(count_lines(listed.out, "num_intra_threads"), 0) << "a trial that runs alone has all cores";
  const CommandResult shared = run_command({"tune", path, "--dry_run", "--max_parallel=1024"});
  EXPECT_EQ(count_lines(shared.out, " --num_intra_threads=1 "), 2) << shared.out;
  EXPECT_FALSE(files.exists(temp.file("search")));
  files.make_directories(temp.file("search"));
  files.write_file_atomically(temp.file("search/notes.txt"), "mine");
  EXPECT_THAT(run_command({"tune", path}).err, HasSubstr("holds other files"));
  // A search that has just begun, or was killed then, has no record yet.
  files.remove_file(temp.file("search/notes.txt"));
  const core::LockFile other(core::join_path(temp.file("search"), kTuneLock));
  EXPECT_THAT(run_command({"tune", path}).err, HasSubstr("another run writes into this folder"));
  EXPECT_EQ(run_command({"tune", "--help"}).code, kSuccess);
}

}  // namespace
}  // namespace trainyard::cli::tune_run_test
