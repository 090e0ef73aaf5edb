// The two dialects (docs/dialects.md): flags alone print and write what tf_cnn_benchmarks does and nothing else;
// `train` and `eval` have the defaults that people expect. Whole runs through the command line, on the embedded data
// set.
#include <algorithm>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainyard/cli/testing/cli.h"
#include "trainyard/cli/testing/shapes_suite.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/codecs/jpeg.h"
#include "trainyard/data/datasets/shapes.h"
#include "trainyard/train/checkpoint/checkpoint.h"

namespace trainyard::cli::dialects_test {
namespace {

using ::testing::ElementsAre, ::testing::HasSubstr, ::testing::Not, ::testing::UnorderedElementsAre;

core::FileSystem& files() {
  return core::local_file_system();
}

class Dialects : public ShapesSuite {
 protected:
  // `command` is empty for flags alone.
  CommandResult run(const std::string& command, const std::string& train_dir, const Arguments& more) const {
    Arguments all;
    if (!command.empty()) all.push_back(command);
    for (const char* flag : {"--model=resnet20", "--device=cpu", "--batch_size=8", "--init_learning_rate=0.05",
                             "--optimizer=momentum", "--num_intra_threads=1"}) {
      all.emplace_back(flag);
    }
    all.push_back("--data_dir=" + shared->file("shapes"));
    if (!train_dir.empty()) all.push_back("--train_dir=" + temp_.file(train_dir));
    all.insert(all.end(), more.begin(), more.end());
    return run_command(all);
  }
  // What a run left in its folder: names without numbers that no two runs share, and without the lock of the folder.
  std::set<std::string> names(const std::string& train_dir) const {
    std::set<std::string> found;
    for (std::string name : files().list(temp_.file(train_dir))) {
      if (name.starts_with("events.out.tfevents.")) name = "events";
      if (name.find("lock") == std::string::npos) found.insert(name);
    }
    return found;
  }
  std::vector<nlohmann::json> metrics(const std::string& train_dir) const {
    std::istringstream text(files().read_file(temp_.file(train_dir + "/metrics.jsonl")));
    std::vector<nlohmann::json> rows;
    for (std::string line; std::getline(text, line);) rows.push_back(nlohmann::json::parse(line));
    return rows;
  }
  nlohmann::json summary(const std::string& train_dir) const {
    return nlohmann::json::parse(files().read_file(temp_.file(train_dir + "/run_summary.json")));
  }

  core::TempDir temp_;
};

// Whether `text` is these lines and no others, each a regular expression.
::testing::AssertionResult has_lines(const std::string& text, const std::vector<std::string>& patterns) {
  std::istringstream lines(text);
  size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    if (count == patterns.size()) return ::testing::AssertionFailure() << "one line too many: " << line;
    if (std::regex_match(line, std::regex(patterns[count]))) continue;
    return ::testing::AssertionFailure() << "line " << count + 1 << " is\n  " << line << "\nand should match\n  "
                                         << patterns[count];
  }
  if (count < patterns.size()) return ::testing::AssertionFailure() << "missing: " << patterns[count];
  return ::testing::AssertionSuccess() << text;
}

// The formats of tf_cnn_benchmarks: %.1f, %.2f, %.3f, %.4f.
const std::string kF1 = "[0-9]+\\.[0-9]", kF2 = kF1 + "[0-9]", kF3 = kF2 + "[0-9]", kF4 = kF3 + "[0-9]";
const std::string kDashes(64, '-');

std::vector<std::string> header(const std::string& mode, int batch, int batches, const std::string& epochs) {
  return {"TensorFlow:  2\\.13",
          "Model:       resnet20",
          "Dataset:     shapes",
          "Mode:        " + mode,
          "SingleSess:  False",
          "Batch size:  " + std::to_string(batch) + " global",
          "             " + std::to_string(batch) + " per device",
          "Num batches: " + std::to_string(batches),
          "Num epochs:  " + epochs,
          "Devices:     \\['/cpu:0'\\]",
          "NUMA bind:   False",
          "Data format: NCHW",
          "Optimizer:   momentum",
          "Variables:   parameter_server",
          "=========="};
}

std::string step(int number, bool accuracies) {
  const std::string line =
      std::to_string(number) + "\timages/sec: " + kF1 + " \\+/- " + kF1 + " \\(jitter = " + kF1 + "\\)\t" + kF3;
  return accuracies ? line + "\t" + kF3 + "\t" + kF3 : line;
}

std::string accuracy(int examples) {
  return "Accuracy @ 1 = " + kF4 + " Accuracy @ 5 = " + kF4 + " \\[" + std::to_string(examples) + " examples\\]";
}

void append(std::vector<std::string>& lines, const std::vector<std::string>& more) {
  lines.insert(lines.end(), more.begin(), more.end());
}

TEST_F(Dialects, FlagsAlonePrintTheLinesOfATraining) {
  const CommandResult result =
      run("", "run", {"--num_batches=3", "--num_warmup_batches=1", "--display_every=2", "--print_training_accuracy"});
  ASSERT_EQ(result.code, kSuccess) << result.err;
  std::vector<std::string> lines = header("training", 8, 3, "0\\.20");
  append(lines, {"Generating training model", "Initializing graph", "Running warm up", "Done warm up",
                 "Step\tImg/sec\ttotal_loss\ttop_1_accuracy\ttop_5_accuracy", step(1, true), step(2, true), kDashes,
                 "total images/sec: " + kF2, kDashes});
  EXPECT_TRUE(has_lines(result.out, lines)) << result.out;
  // Warm-up steps come in front of num_batches, and train.
  EXPECT_EQ(train::find_checkpoint(temp_.file("run")).global_step, 4);
  EXPECT_THAT(names("run"), UnorderedElementsAre("model.ckpt-4"));
  EXPECT_THAT(result.err, HasSubstr("time: input "));  // what is ours is on stderr
}

TEST_F(Dialects, FlagsAlonePrintTheLinesOfATrainingWithEvaluations) {
  const CommandResult result =
      run("", "run",
          {"--num_batches=3", "--num_warmup_batches=2", "--display_every=3", "--num_eval_batches=6",
           "--eval_during_training_every_n_steps=2", "--loss_type_to_report=base_loss"});
  ASSERT_EQ(result.code, kSuccess) << result.err;
  std::vector<std::string> lines = header("training \\+ evaluation", 8, 3, "0\\.20");
  const std::string three = "3\t" + kF1 + " examples/sec", six = "6\t" + kF1 + " examples/sec";
  append(lines, {"Generating training model", "Generating evaluation model", "Initializing graph", "Running warm up",
                 "Done warm up", "Step\tImg/sec\tbase_loss", step(1, false), "Running evaluation at global_step 4",
                 three, six, accuracy(48), "Resuming training", step(3, false), "Done with training",
                 "Running final evaluation at global_step 5", three, six, accuracy(48)});
  // 36 images: six batches of eight wrap around.
  EXPECT_TRUE(has_lines(result.out, lines)) << result.out;
  EXPECT_THAT(names("run"), UnorderedElementsAre("model.ckpt-5"));
}

TEST_F(Dialects, FlagsAlonePrintTheLinesOfAnEvaluation) {
  ASSERT_EQ(run("", "run", {"--num_batches=1", "--num_warmup_batches=0"}).code, kSuccess);
  const Arguments evaluate = {"--eval", "--num_batches=5", "--display_every=2", "--eval_dir=" + temp_.file("eval"),
                              "--benchmark_log_dir=" + temp_.file("log")};
  const CommandResult result = run("", "run", evaluate);
  ASSERT_EQ(result.code, kSuccess) << result.err;
  std::vector<std::string> lines = header("evaluation", 8, 5, "1\\.11");
  append(lines, {"Generating evaluation model", "Successfully loaded model from .*/run/model\\.ckpt-1\\.",
                 "2\t" + kF1 + " examples/sec", "4\t" + kF1 + " examples/sec", accuracy(40), kDashes,
                 "total images/sec: " + kF2, kDashes});
  EXPECT_TRUE(has_lines(result.out, lines)) << result.out;
  EXPECT_THAT(names("run"), UnorderedElementsAre("model.ckpt-1"));
  EXPECT_THAT(names("eval"), UnorderedElementsAre("events"));
  EXPECT_THAT(files().read_file(temp_.file("log/metric.log")), HasSubstr("\"eval_top_1_accuracy\""));

  // The header speaks of --num_batches, also where --num_eval_batches counts.
  Arguments other = evaluate;
  other.insert(other.end(), {"--num_eval_batches=2", "--eval_batch_size=4"});
  const CommandResult shorter = run("", "run", other);
  EXPECT_THAT(shorter.out,
              HasSubstr("Batch size:  8 global\n             8 per device\nNum batches: 5\nNum epochs:  1.11\n"));
  EXPECT_TRUE(std::regex_search(shorter.out, std::regex("\\[8 examples\\]\n"))) << shorter.out;

  // A folder without a checkpoint is told on stdout, and is no failure.
  files().make_directories(temp_.file("empty"));
  const CommandResult missing = run("", "empty", evaluate);
  EXPECT_EQ(missing.code, kSuccess) << missing.err;
  lines = header("evaluation", 8, 5, "1\\.11");
  append(lines, {"Generating evaluation model", "Checkpoint not found in .*/empty"});
  EXPECT_TRUE(has_lines(missing.out, lines)) << missing.out;
}

TEST_F(Dialects, FlagsAlonePrintTheLinesOfForwardPasses) {
  const CommandResult result =
      run("", "",
          {"--forward_only", "--num_batches=2", "--num_warmup_batches=3", "--batch_group_size=2", "--display_every=1"});
  ASSERT_EQ(result.code, kSuccess) << result.err;
  std::vector<std::string> lines = header("forward only", 8, 2, "0\\.13");
  lines.insert(lines.begin() + 7, "             2 batches per prepocessing group");
  append(lines,
         {"Generating training model", "Initializing graph", "Round up warm up steps to 4 to match batch_group_size",
          "Running warm up", "Done warm up", "Step\tImg/sec\ttotal_loss\ttop_1_accuracy\ttop_5_accuracy", step(1, true),
          step(2, true), kDashes, "total images/sec: " + kF2, kDashes});
  EXPECT_TRUE(has_lines(result.out, lines)) << result.out;
  EXPECT_THAT(result.err, HasSubstr("latency of a batch of 8: p50 "));
}

TEST_F(Dialects, FlagsAloneWriteEventsOnlyWhenTheyAreAskedFor) {
  const Arguments asked = {"--num_batches=2", "--num_warmup_batches=0", "--summary_verbosity=1",
                           "--save_summaries_steps=1"};
  ASSERT_EQ(run("", "run", asked).code, kSuccess);
  EXPECT_THAT(names("run"), UnorderedElementsAre("model.ckpt-2", "events"));
}

TEST_F(Dialects, ARepeatedFlagIsRefusedInTheSubCommandsOnly) {
  const Arguments twice = {"--num_batches=3", "--num_batches=1", "--num_warmup_batches=0"};
  EXPECT_EQ(run("", "alone", twice).code, kSuccess);
  EXPECT_EQ(train::find_checkpoint(temp_.file("alone")).global_step, 1);
  for (const char* command : {"train", "eval"}) {
    const CommandResult refused = run(command, "own", twice);
    EXPECT_EQ(refused.code, kUsage);
    EXPECT_THAT(refused.err, HasSubstr("--num_batches is given twice with different values: got 3 and 1"));
  }
  EXPECT_FALSE(files().exists(temp_.file("own")));
  EXPECT_EQ(run_command({"predict", "--train_dir=a", "--train_dir=b", "x.jpg"}).code, kUsage);
  // A file and the command line are no repetition.
  files().write_file_atomically(temp_.file("run.yaml"), "num_batches: 7\n");
  EXPECT_EQ(run("train", "own", {"--config=" + temp_.file("run.yaml"), "--num_batches=1"}).code, kSuccess);
}

TEST_F(Dialects, EvaluationIsExactUnlessALengthIsAskedFor) {
  ASSERT_EQ(run("train", "run", {"--num_batches=1"}).code, kSuccess);
  const auto images = [&](const std::string& command, const Arguments& more) {
    const CommandResult result = run(command, "run", more);
    EXPECT_EQ(result.code, kSuccess) << result.err;
    std::smatch found;
    return std::regex_search(result.out, found, std::regex("\\[([0-9]+) examples\\]")) ? std::stoi(found[1]) : -1;
  };
  EXPECT_EQ(images("eval", {}), 36);
  EXPECT_THAT(run("eval", "run", {"--eval_batch_size=7"}).out, HasSubstr("Steps:       6 of 7 images\n"));
  EXPECT_EQ(images("eval", {"--num_eval_batches=7"}), 56);
  EXPECT_EQ(images("eval", {"--num_batches=7"}), 36);
  EXPECT_EQ(images("eval", {"--noeval_exact", "--num_batches=7"}), 56);
  EXPECT_EQ(images("", {"--eval", "--num_batches=7", "--eval_dir=" + temp_.file("eval")}), 56);
  // During a training, too.
  const CommandResult training = run("train", "during", {"--num_batches=2", "--eval_during_training_every_n_steps=1"});
  EXPECT_EQ(count_lines(training.out, "\\[36 examples\\]$"), 2) << training.out;
}

TEST_F(Dialects, ATrainingRecordsItselfWithoutFurtherFlags) {
  ASSERT_EQ(run("train", "run", {"--num_batches=7", "--display_every=3"}).code, kSuccess);
  EXPECT_THAT(names("run"), UnorderedElementsAre("model.ckpt-7", "events", "metrics.jsonl", "metrics.csv", "curve.svg",
                                                 "run_summary.json"));
  std::vector<int64_t> steps;
  for (const auto& row : metrics("run")) {
    steps.push_back(row.at("global_step"));
    EXPECT_TRUE(row.contains("total_loss")) << row;
    EXPECT_TRUE(row.contains("images_per_second")) << row;
    EXPECT_EQ(row.at("learning_rate"), 0.05);
    EXPECT_DOUBLE_EQ(row.at("epoch"), row.at("global_step").get<double>() * 8 / 120);
  }
  EXPECT_THAT(steps, ElementsAre(1, 3, 6, 7));

  ASSERT_EQ(run("train", "none", {"--num_batches=2", "--summary_verbosity=0"}).code, kSuccess);
  EXPECT_THAT(names("none"), UnorderedElementsAre("model.ckpt-2", "run_summary.json"));

  ASSERT_EQ(run("train", "own", {"--num_batches=7", "--display_every=3", "--save_summaries_steps=5"}).code, kSuccess);
  ASSERT_EQ(metrics("own").size(), 1u);
  EXPECT_EQ(metrics("own")[0].at("global_step"), 5);
}

// An evaluation leaves a train_dir as it was, and adds the accuracy of each class.
TEST_F(Dialects, AnEvaluationChangesNothingInTheTrainDir) {
  ASSERT_EQ(run("train", "run", {"--num_batches=1"}).code, kSuccess);
  const auto before = names("run");
  const std::string summary_before = files().read_file(temp_.file("run/run_summary.json"));
  ASSERT_EQ(run("eval", "run", {}).code, kSuccess);
  auto after = names("run");
  for (const char* name : {"class_accuracy.json", "evaluation.json", "confusion.csv", "confusion.svg", "per_class.csv",
                           "calibration.svg", "most_wrong.png"}) {
    EXPECT_EQ(after.erase(name), 1u) << name;
  }
  EXPECT_EQ(after, before);
  EXPECT_EQ(files().read_file(temp_.file("run/run_summary.json")), summary_before);
}

TEST_F(Dialects, TheSummarySaysWhatTheRunWas) {
  ASSERT_EQ(run("train", "run", {"--num_batches=2", "--tf_random_seed=7"}).code, kSuccess);
  const nlohmann::json json = summary("run");
  EXPECT_EQ(json.at("status"), "finished");
  EXPECT_TRUE(json.at("error").is_null());
  EXPECT_EQ(json.at("command"), "trainyard train");
  EXPECT_LE(json.at("started").get<std::string>(), json.at("ended").get<std::string>());
  EXPECT_EQ(json.at("data").at("directory"), shared->file("shapes"));
  EXPECT_THAT(json.at("data").at("files").get<std::string>(),
              ::testing::MatchesRegex("[0-9]+ files, [0-9]+ bytes, [0-9a-f]+"));
  EXPECT_EQ(json.at("data").at("train_examples"), 120);
  EXPECT_EQ(json.at("seed"), 7);
  EXPECT_EQ(json.at("flags").at("batch_size"), 8);
  EXPECT_EQ(json.at("flags").at("eval_exact"), true);  // not given: the default of this dialect
  EXPECT_TRUE(json.at("flags").at("num_epochs").is_null());
  const auto given = json.at("given_flags").get<std::vector<std::string>>();
  EXPECT_THAT(given, ::testing::Contains("tf_random_seed"));
  EXPECT_THAT(given, Not(::testing::Contains("eval_exact")));
  EXPECT_EQ(json.at("choices").at("num_warmup_batches"), "0");
  for (const char* name : {"trainyard", "git_revision", "LibTorch", "oneDNN"}) {
    EXPECT_FALSE(json.at("versions").at(name).get<std::string>().empty()) << name;
  }
  for (const char* name : {"name", "cpu", "cores", "memory_bytes", "instruction_set", "gpus"}) {
    EXPECT_TRUE(json.at("machine").contains(name)) << name;
  }
}

// Class folders with two pictures each, the last of which is `last`.
void write_class_folders(const std::string& folder, const std::string& last) {
  for (const char* name : {"train/cat/1.jpg", "train/cat/2.jpg", "train/dog/1.jpg", "train/dog/2.jpg"}) {
    const std::string path = core::join_path(folder, name);
    files().make_directories(core::parent_path(path));
    const auto bytes = data::encode_jpeg(data::draw_shape(1, data::Subset::kTrain, 0, 32));
    files().write_file_atomically(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  if (!last.empty()) files().write_file_atomically(core::join_path(folder, "train/dog/2.jpg"), last);
}

TEST_F(Dialects, ClassFoldersAreCalledAsTheirFolderIs) {
  write_class_folders(temp_.file("pets"), "");
  const Arguments small = {"--model=lenet", "--device=cpu", "--batch_size=2", "--num_batches=1",
                           "--num_warmup_batches=0"};
  const auto header_of = [&](const Arguments& more) {
    Arguments all = more;
    all.insert(all.end(), small.begin(), small.end());
    const CommandResult result = run_command(all);
    EXPECT_EQ(result.code, kSuccess) << result.err;
    return result.out;
  };
  const std::string from = "--data_dir=" + temp_.file("pets/");
  EXPECT_THAT(header_of({"train", from, "--train_dir=" + temp_.file("run")}),
              HasSubstr("Dataset:     pets, 4 images to train on\n"));
  EXPECT_EQ(summary("run").at("dataset"), "pets");
  EXPECT_THAT(files().read_file(temp_.file("run/curve.svg")), HasSubstr("lenet on pets"));
  EXPECT_THAT(header_of({"train", from, "--data_name=imagenet", "--train_dir="}),
              HasSubstr("Dataset:     imagenet, 4 images to train on\n"));
  const std::string alone = header_of({from});
  EXPECT_THAT(alone, HasSubstr("Dataset:     imagenet\n"));
  EXPECT_THAT(alone, HasSubstr("Model:       lenet5\n"));
}

TEST_F(Dialects, TheSummaryOfARunThatFailedSaysWhy) {
  write_class_folders(temp_.file("pets"), "no picture");
  Arguments broken = {"train",
                      "--model=lenet",
                      "--device=cpu",
                      "--batch_size=4",
                      "--num_batches=3",
                      "--data_dir=" + temp_.file("pets"),
                      "--train_dir=" + temp_.file("failed")};
  EXPECT_EQ(run_command(broken).code, kFailure);
  EXPECT_EQ(summary("failed").at("status"), "failed");
  EXPECT_THAT(summary("failed").at("error").get<std::string>(), HasSubstr("dog/2.jpg"));
  EXPECT_EQ(summary("failed").at("flags").at("num_batches"), 3);

  core::StopSource stop;
  stop.request_stop(core::StopReason::kSignal, "SIGTERM");
  Arguments all = {"train",
                   "--model=resnet20",
                   "--device=cpu",
                   "--batch_size=8",
                   "--init_learning_rate=0.05",
                   "--data_dir=" + shared->file("shapes"),
                   "--train_dir=" + temp_.file("stopped"),
                   "--num_batches=5"};
  EXPECT_EQ(run_command(all, stop.token()).code, kStoppedBySignal);
  EXPECT_EQ(summary("stopped").at("status"), "stopped");
  EXPECT_EQ(summary("stopped").at("stopped_by"), "SIGTERM");
}

// Steps are updates and epochs are what these have seen, in all that a run says.
TEST_F(Dialects, OneEpochEndsAtTheStepThatIsItsEnd) {
  const CommandResult result = run("train", "run",
                                   {"--num_epochs=1", "--display_every=5", "--learning_rate_schedule=cosine",
                                    "--eval_during_training_every_n_epochs=0.5", "--save_model_steps=10"});
  ASSERT_EQ(result.code, kSuccess) << result.err;
  EXPECT_THAT(result.out, HasSubstr("Steps:       15 of 8 images, 1.00 epochs, tf_nesterov\n"));
  EXPECT_THAT(result.out, HasSubstr("Step\tImg/sec\ttotal_loss\tepoch\tlearning_rate\n"));
  EXPECT_EQ(count_lines(result.out, "^15\timages/sec: .*\t1\\.00\t0.0005463$"), 1) << result.out;
  EXPECT_THAT(result.out, HasSubstr("Running evaluation at global_step 8\n"));  // 60 of 120 images by 8: 7.5 steps
  EXPECT_THAT(result.out, HasSubstr("Running final evaluation at global_step 15\n"));
  EXPECT_THAT(result.out, Not(HasSubstr("warm up")));
  EXPECT_THAT(names("run"), ::testing::IsSupersetOf({"model.ckpt-10", "model.ckpt-15"}));
  EXPECT_EQ(metrics("run").back().at("global_step"), 15);
  EXPECT_DOUBLE_EQ(metrics("run").back().at("epoch"), 1);
  EXPECT_EQ(summary("run").at("global_step"), 15);
  EXPECT_EQ(summary("run").at("steps"), 15);
}

// A warm-up that is asked for goes untimed, and nothing else is different.
TEST_F(Dialects, AWarmUpIsAPartOfTheTraining) {
  const CommandResult warm = run("train", "warm", {"--num_batches=6", "--num_warmup_batches=2", "--display_every=2"});
  ASSERT_EQ(warm.code, kSuccess) << warm.err;
  EXPECT_EQ(count_lines(warm.out, "^[346]\timages/sec"), 3) << warm.out;  // the first that is timed, then 4 and 6
  EXPECT_EQ(summary("warm").at("steps"), 4);
  ASSERT_EQ(run("train", "cold", {"--num_batches=6"}).code, kSuccess);
  // One step is always timed.
  const CommandResult short_run = run("train", "short", {"--num_batches=3", "--num_warmup_batches=10"});
  EXPECT_EQ(count_lines(short_run.out, "^[0-9]+\timages/sec"), 1) << short_run.out;
  EXPECT_EQ(summary("short").at("steps"), 1);
  const auto manifest = [&](const std::string& name) {
    return files().read_file(temp_.file(name + "/model.ckpt-6/manifest.json"));
  };
  EXPECT_EQ(manifest("warm"), manifest("cold"));
}

std::vector<std::string> step_and_phase(const std::vector<nlohmann::json>& rows) {
  std::vector<std::string> found;
  for (const auto& row : rows) {
    found.push_back(row.at("phase").get<std::string>() + " " + std::to_string(row.at("global_step").get<int64_t>()));
  }
  return found;
}

// Lines, rows, saves and evaluations of a training that was interrupted are those of one that was not.
TEST_F(Dialects, AResumedTrainingGoesOnInTheSameCounts) {
  const Arguments plan = {"--display_every=2", "--save_model_steps=3", "--max_ckpts_to_keep=0",
                          "--eval_during_training_every_n_steps=4"};
  const auto with = [&](const std::string& batches) {
    Arguments all = plan;
    all.push_back(batches);
    return all;
  };
  ASSERT_EQ(run("train", "whole", with("--num_batches=9")).code, kSuccess);
  ASSERT_EQ(run("train", "parts", with("--num_batches=5")).code, kSuccess);
  // A run that was killed had got further than its last checkpoint.
  const auto file = files().open_append(temp_.file("parts/metrics.jsonl"));
  file->write("{\"global_step\":6,\"epoch\":0.4,\"wall_time\":1.0,\"phase\":\"train\",\"total_loss\":77.0}\n");
  file->close();
  const CommandResult resumed = run("train", "parts", with("--num_batches=9"));
  ASSERT_EQ(resumed.code, kSuccess) << resumed.err;
  EXPECT_THAT(step_and_phase(metrics("whole")), ElementsAre("train 1", "train 2", "train 4", "eval 4", "train 6",
                                                            "train 8", "eval 8", "train 9", "eval 9"));
  // The first part ended at 5, which it displayed and evaluated.
  EXPECT_THAT(step_and_phase(metrics("parts")),
              ElementsAre("train 1", "train 2", "train 4", "eval 4", "train 5", "eval 5", "train 6", "train 8",
                          "eval 8", "train 9", "eval 9"));
  for (const auto& row : metrics("parts")) EXPECT_NE(row.value("total_loss", 0.0), 77.0);
  for (const int saved : {3, 6, 9}) {
    EXPECT_TRUE(files().exists(temp_.file("whole/model.ckpt-" + std::to_string(saved)))) << saved;
    EXPECT_TRUE(files().exists(temp_.file("parts/model.ckpt-" + std::to_string(saved)))) << saved;
  }
  EXPECT_EQ(count_lines(resumed.out, "^[6-9]\timages/sec"), 3) << resumed.out;  // 6, 8 and 9
}

}  // namespace
}  // namespace trainyard::cli::dialects_test
