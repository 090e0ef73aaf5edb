// What `trainyard train` requires and does where no flag says so: a model and images, evaluations and checkpoints at
// the end of each epoch, a folder for the run.
#include "trainyard/frontends/tf_cnn/trainer_defaults.h"

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/system/cgroup.h"
#include "trainyard/core/system/system_files.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/cache/cached_dataset.h"
#include "trainyard/data/codecs/png_writer.h"
#include "trainyard/data/testing/coco_folder.h"
#include "trainyard/data/testing/test_images.h"
#include "trainyard/frontends/tf_cnn/benchmark_cnn.h"
#include "trainyard/frontends/tf_cnn/flags.h"
#include "trainyard/frontends/tf_cnn/next_commands.h"
#include "trainyard/frontends/tf_cnn/own_header.h"
#include "trainyard/frontends/tf_cnn/read_options.h"
#include "trainyard/frontends/tf_cnn/schedule.h"
#include "trainyard/train/profile/machine_limit_share.h"
#include "trainyard/train/session/run_directory.h"

namespace trainyard::frontends::trainer_defaults_test {
namespace {

using ::testing::AllOf, ::testing::HasSubstr, ::testing::Not;
using Arguments = std::vector<std::string>;

TfCnnOptions read(const Arguments& arguments, Dialect dialect = Dialect::kTrainyard) {
  return read_options(core::parse_flags(tf_cnn_flags(dialect), arguments), dialect);
}

// 40 images of two classes, in one folder: 32 train, 8 validate.
class TrainerDefaults : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* kind : {"dark", "light"}) {
      const std::string folder = core::join_path(photos_, kind);
      files_.make_directories(folder);
      for (int i = 0; i < 20; ++i) {
        const auto bytes = data::encode_png(data::flat_image(24, 24, (kind[0] == 'd' ? 20 : 200) + i));
        files_.write_file_atomically(core::join_path(folder, std::to_string(i) + ".png"),
                                     {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
      }
    }
  }
  Arguments arguments(const Arguments& more = {}) const {
    Arguments all = {
        "--model=lenet",   "--data_dir=" + photos_,     "--device=cpu", "--batch_size=8", "--num_intra_threads=1",
        "--deterministic", "--init_learning_rate=0.001"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::string run(const Arguments& more) {
    std::ostringstream out;
    testing::internal::CaptureStderr();
    BenchmarkCnn(read(arguments(more))).run(out);
    log_ = testing::internal::GetCapturedStderr();
    return out.str();
  }
  nlohmann::json summary(const std::string& run) const {
    return nlohmann::json::parse(files_.read_file(core::join_path(temp_.file(run), "run_summary.json")));
  }
  static int count(const std::string& text, const std::string& part) {
    int count = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
    return count;
  }

  core::TempDir temp_;
  core::FileSystem& files_ = core::local_file_system();
  const std::string photos_ = temp_.file("photos");
  std::string log_;
};

TEST_F(TrainerDefaults, AModelAndImagesAreAskedFor) {
  EXPECT_THAT(core::message_of([] { read({"--data_dir=x"}); }), HasSubstr("no model is named"));
  EXPECT_THAT(core::message_of([] {
                read({"--model=resnet20", "--data_name=cifar10"});
              }),
              AllOf(HasSubstr("there are no images to train on"), HasSubstr("--synthetic")));
  EXPECT_NO_THROW(read({"--model=resnet20", "--data_name=cifar10", "--synthetic"}));
  EXPECT_NO_THROW(read({"--model=resnet20", "--forward_only"})) << "nothing learns from them";
  EXPECT_THAT(core::message_of([] {
                read({"--model=resnet20", "--data_dir=x", "--synthetic"});
              }),
              HasSubstr("exclude each other"));
  EXPECT_THAT(core::message_of([] {
                read({"--eval", "--data_dir=x"});
              }),
              AllOf(HasSubstr("Trained model directory not specified"), HasSubstr("--train_dir=RUN")));
  // tf_cnn_benchmarks measures trivial on synthetic images.
  EXPECT_EQ(read({}, Dialect::kTfCnnBenchmarks).model, "trivial");
}

// In the working directory, where a training without --train_dir makes them; no more than five are named.
TEST_F(TrainerDefaults, AnEvaluationOfNothingNamesTheRunsThatThereAre) {
  const auto remedy = [] { return core::thrown_by([] { read({"--eval", "--data_dir=x"}); }).detail().remedy; };
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(temp_.path());
  const std::string without = remedy();
  for (const char* name : {"lenet-1", "lenet-2", "lenet-3", "lenet-4", "lenet-5", "lenet-6"}) {
    files_.make_directories(temp_.file(std::string("runs/") + name));
  }
  const std::string with = remedy();
  std::filesystem::current_path(before);
  EXPECT_EQ(without, "pass one of them");
  EXPECT_EQ(with, "there are runs/lenet-1, runs/lenet-2, runs/lenet-3, runs/lenet-4, runs/lenet-5");
}

TEST_F(TrainerDefaults, AreThoseOfABenchmarkWithoutACommand) {
  const TfCnnOptions benchmark = read(arguments(), Dialect::kTfCnnBenchmarks);
  EXPECT_FALSE(benchmark.evaluate_each_epoch);
  EXPECT_FALSE(benchmark.saving.save_each_epoch);
  EXPECT_EQ(benchmark.saving.save_model_secs, 0);
  EXPECT_EQ(benchmark.saving.new_runs_in, "");
  const TfCnnOptions own = read(arguments());
  EXPECT_TRUE(own.evaluate_each_epoch);
  EXPECT_TRUE(own.saving.save_each_epoch);
  EXPECT_EQ(own.saving.save_model_secs, 600);
  EXPECT_EQ(own.saving.new_runs_in, "runs");
  // What is asked for counts.
  const TfCnnOptions asked =
      read(arguments({"--save_model_steps=5", "--train_dir=", "--eval_during_training_every_n_epochs=0"}));
  EXPECT_FALSE(asked.evaluate_each_epoch);
  EXPECT_FALSE(asked.saving.save_each_epoch);
  EXPECT_EQ(asked.saving.save_model_secs, 0);
  EXPECT_EQ(asked.saving.new_runs_in, "");
}

TEST_F(TrainerDefaults, EachEpochIsEvaluatedOnImagesThatAreNotTrainedOnAndSaved) {
  const std::string out = run({"--num_epochs=3", "--train_dir=" + temp_.file("run")});
  EXPECT_EQ(count(out, "Accuracy @ 1 = "), 3) << out;
  EXPECT_EQ(count(out, "[8 examples]"), 3) << out;
  for (const char* name : {"run/model.ckpt-4", "run/model.ckpt-8", "run/model.ckpt-12", "run/best"}) {
    EXPECT_TRUE(files_.exists(temp_.file(name))) << name;
  }
  EXPECT_EQ(summary("run")["data"]["validation_examples"], 8);
  EXPECT_EQ(summary("run")["data"]["train_examples"], 32);
  EXPECT_THAT(log_, HasSubstr("has no folder val: a fifth of each class"));
}

// Forward and backward passes count.
TEST_F(TrainerDefaults, TheReportHasTheOperationsOfTheTraining) {
  const Arguments one_epoch = {"--num_epochs=1", "--train_dir=" + temp_.file("run")};
  run(one_epoch);
  const nlohmann::json report = summary("run");
  const double an_image = train::image_flops(prepare(read(arguments(one_epoch))).graph, /*trains=*/true);
  const auto images = report["images_per_second"].get<double>();
  ASSERT_GT(images, 0);
  EXPECT_NEAR(report["model_flops_per_second"].get<double>() / images, an_image, 1e-3 * an_image);
}

TEST_F(TrainerDefaults, WhatIsNotEvaluatedIsSaid) {
  const std::string out = run({"--num_batches=3", "--train_dir=" + temp_.file("short")});
  EXPECT_THAT(out, Not(HasSubstr("Accuracy @ 1")));
  EXPECT_THAT(log_, HasSubstr("nothing is evaluated during the training: it has no whole epoch"));
  EXPECT_EQ(summary("short")["data"]["validation_examples"], 0);
  std::filesystem::create_directory(temp_.file("divided"));
  std::filesystem::rename(photos_, temp_.file("divided/train"));
  Arguments train = arguments({"--num_epochs=2", "--train_dir=" + temp_.file("alone")});
  train[1] = "--data_dir=" + temp_.file("divided");
  std::ostringstream none;
  testing::internal::CaptureStderr();
  BenchmarkCnn(read(train)).run(none);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("divided has no validation images"));
  EXPECT_EQ(summary("alone")["data"]["train_examples"], 40);
  EXPECT_EQ(summary("alone")["data"]["validation_examples"], 0);
  // A goal that nothing could reach is an error.
  train.push_back("--stop_at_top_1_accuracy=0.5");
  EXPECT_THAT(core::message_of([&] { BenchmarkCnn(read(train)).run(none); }), HasSubstr("waits for evaluations"));
}

TEST_F(TrainerDefaults, EvaluationsFollowFromTheLength) {
  const auto prepared = [&](const char* length) { return prepare(read(arguments({length, "--train_dir="}))); };
  EXPECT_EQ(prepared("--num_batches=3").mode(), RunMode::kTraining);
  EXPECT_EQ(prepared("--num_batches=4").mode(), RunMode::kTrainingAndEvaluation) << "a whole epoch";
  EXPECT_EQ(prepared("--num_epochs=100000").options.steps.eval_every_n_epochs, 1);
  EXPECT_EQ(prepared("--num_epochs=100001").options.steps.eval_every_n_epochs, 2) << "a list of no more";
}

// Training and validation images have a cache each, of half of the free memory together.
TEST_F(TrainerDefaults, CachesOfRecordsShareTheFreeMemory) {
  const auto cache = [&](const std::string& more) {
    const Arguments train = arguments({"--num_epochs=1", "--datasets_use_caching", "--train_dir=", more});
    return prepare(read(train)).input.record_cache_bytes;
  };
  const int64_t half = data::default_record_cache_bytes();
  EXPECT_GT(cache("--tf_random_seed=1"), 0);
  EXPECT_LT(cache("--tf_random_seed=1"), half / 4 * 3);
  EXPECT_EQ(cache("--record_cache_mib=4"), 4 << 20);
}

// Annotations of the validation images are there, and no box is in them.
TEST_F(TrainerDefaults, SaysThatValidationImagesOfCocoHaveNoBoxes) {
  const std::string coco = temp_.file("coco");
  data::write_small_coco(coco);
  data::CocoAnnotations empty = data::small_validation_annotations();
  empty.boxes.clear();
  data::write_coco_subset(coco, "val2017", empty);
  PreparedRun run;
  run.input.dataset = "coco";
  run.input.data_dir = coco;
  run.batch_size = 1;
  run.options.steps.num_epochs = 1;
  run.options.evaluate_each_epoch = true;
  run.train_data = open_dataset(run.input, data::Subset::kTrain);
  testing::internal::CaptureStderr();
  settle_evaluations(run);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("coco has no validation images with boxes"));
}

// 0 asks for no length, as for --num_batches.
TEST_F(TrainerDefaults, AnEvaluationIsExactUnlessALengthIsAskedFor) {
  const auto prepared = [&](const char* length) {
    return prepare(read(arguments({"--num_epochs=1", "--train_dir=", length})));
  };
  for (const char* none : {"--num_eval_batches=0", "--num_eval_epochs=0"}) {
    const PreparedRun run = prepared(none);
    EXPECT_TRUE(run.eval_exact) << none;
    EXPECT_EQ(run.plan.num_eval_batches, 1) << none << ": 8 images, 8 a batch";
  }
  EXPECT_FALSE(prepared("--num_eval_batches=2").eval_exact);
  EXPECT_FALSE(prepared("--num_eval_epochs=2").eval_exact);
}

// What --dump_config prints is a file with which the same run is made: it gives what was given, and nothing else.
TEST_F(TrainerDefaults, AFileOfTheFlagsLeavesThemOpen) {
  const auto file_of = [&](const Arguments& more) {
    const std::string path = temp_.file("run.yaml");
    const core::FlagTable& table = tf_cnn_flags(Dialect::kTrainyard);
    files_.write_file_atomically(path, core::dump_config(core::parse_flags(table, arguments(more))));
    return "--config=" + path;
  };
  std::string file = file_of({"--num_epochs=1", "--train_dir=" + temp_.file("run")});
  std::ostringstream out;
  testing::internal::CaptureStderr();
  BenchmarkCnn(read({file})).run(out);
  testing::internal::GetCapturedStderr();
  EXPECT_EQ(count(out.str(), "Accuracy @ 1 = "), 1) << out.str();
  EXPECT_TRUE(files_.exists(temp_.file("run/best")));
  const TfCnnOptions options = read({file, "--num_eval_batches=2", "--fp16_loss_scale=64"});
  EXPECT_EQ(options.eval_exact, std::nullopt);
  EXPECT_EQ(options.device.fp16_loss_scale, 64);
  EXPECT_FALSE(options.device.log_all_ranks);
  file = file_of({"--input_preprocessor=torchvision"});
  EXPECT_EQ(read({file}).input.images.input_preprocessor, "torchvision");
}

// Micro-steps are parts of an update, and forward passes have none.
TEST_F(TrainerDefaults, ForwardPassesSeeAnEpochWithAndWithoutMicroSteps) {
  const auto passes = [&](const char* micro_steps) {
    std::ostringstream out;
    testing::internal::CaptureStderr();
    const RunStatistics statistics =
        BenchmarkCnn(read(arguments({"--forward_only", "--num_epochs=1", "--num_warmup_batches=0", micro_steps})))
            .run(out);
    testing::internal::GetCapturedStderr();
    EXPECT_THAT(out.str(), AllOf(HasSubstr(" of 8 images, 1.00 epochs\n"), Not(HasSubstr("micro-steps"))));
    return statistics.num_steps;
  };
  const int64_t without = passes("--micro_steps=1");
  EXPECT_GE(without, 4);
  EXPECT_EQ(passes("--micro_steps=4"), without);
  EXPECT_THAT(run({"--num_epochs=1", "--micro_steps=4", "--train_dir="}),
              AllOf(HasSubstr("Steps:       1 of 32 images, 1.00 epochs, sgd\n"), HasSubstr(", 4 micro-steps, ")));
}

TEST_F(TrainerDefaults, ViewsAreAveragedAtTheEnd) {
  const std::string out = run({"--num_epochs=1", "--tta=flip", "--train_dir="});
  EXPECT_THAT(out, HasSubstr("Test-time augmentation: flip, 2 views of each image: Accuracy @ 1 = "));
  const std::string message = core::message_of([&] { run({"--num_batches=1", "--tta=flip", "--train_dir="}); });
  testing::internal::GetCapturedStderr();
  EXPECT_THAT(message, AllOf(HasSubstr("--tta is for evaluations, and this run has none"), HasSubstr("--tta=flip")));
}

TEST_F(TrainerDefaults, AGoalMayEndTheTraining) {
  const std::string out = run({"--num_epochs=50", "--stop_at_top_1_accuracy=0.01", "--train_dir=" + temp_.file("run")});
  EXPECT_EQ(count(out, "Accuracy @ 1 = "), 1) << out;
}

// As a run without --train_dir has it, but elsewhere than in the working directory.
TEST_F(TrainerDefaults, ARunHasAFolderOfItsOwn) {
  TfCnnOptions options = read(arguments({"--num_batches=1"}));
  options.saving.new_runs_in = temp_.file("runs");
  for (const char* name : {"lenet-1", "lenet-2"}) {
    std::ostringstream out;
    testing::internal::CaptureStderr();
    BenchmarkCnn(options).run(out);
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr(std::string("/runs/") + name + " (--train_dir"));
    EXPECT_TRUE(files_.exists(temp_.file(std::string("runs/") + name + "/model.ckpt-1")));
    EXPECT_THAT(out.str(), HasSubstr(std::string("/runs/") + name + "/model.ckpt-1\n"));
  }
  files_.make_directories(temp_.file("runs/a-b-7"));
  EXPECT_EQ(train::make_new_run_directory(temp_.file("runs"), "a/b"), temp_.file("runs/a-b-8"));
  files_.write_file_atomically(temp_.file("file"), "");
  EXPECT_THAT(
      core::message_of([&] { train::make_new_run_directory(temp_.file("file/runs"), "a"); }, core::ErrorCode::kIo),
      HasSubstr("--train_dir="));
}

TEST_F(TrainerDefaults, CheckpointsOfAnEpochComeWithItsLastStep) {
  const auto steps = [](int64_t batch, int64_t epoch) {
    std::vector<int64_t> found;
    for (int64_t step = 1; step <= 12; ++step) {
      if (completes_epoch(step, batch, epoch)) found.push_back(step);
    }
    return found;
  };
  EXPECT_EQ(steps(8, 32), (std::vector<int64_t>{4, 8, 12}));
  EXPECT_EQ(steps(10, 32), (std::vector<int64_t>{4, 7, 10}));
  EXPECT_EQ(steps(64, 32).size(), 12U);
}

TEST_F(TrainerDefaults, TheHeaderHasFiveLines) {
  const std::string out = run({"--num_epochs=2", "--train_dir=" + temp_.file("run")});
  const std::string header = out.substr(0, out.find("==========\n"));
  EXPECT_EQ(count(header, "\n"), 5) << header;
  EXPECT_THAT(header,
              AllOf(HasSubstr("Model:       lenet, images of 28x28, 2 classes\n"),
                    HasSubstr("Dataset:     photos, 32 images to train on, 8 images to validate on\n"),
                    HasSubstr("Steps:       8 of 8 images, 2.00 epochs, sgd\n"),
                    HasSubstr("Device:      CPU of 8 images, float32\n"), HasSubstr(", training + evaluation\n")));
}

TEST_F(TrainerDefaults, TheEndSaysWhatToDoNext) {
  const std::string dir = temp_.file("my run");
  const std::string out = run({"--num_epochs=1", "--train_dir=" + dir, "--existing_run=keep"});
  EXPECT_THAT(
      out, AllOf(HasSubstr("Report:       trainyard report '" + dir + "'\n"),
                 HasSubstr("Evaluate:     trainyard eval '--train_dir=" + dir + "' --data_dir=" + photos_ + "\n"),
                 HasSubstr("Predict:      trainyard predict '--train_dir=" + dir + "' IMAGE...\n"),
                 HasSubstr("Export:       trainyard export '--train_dir=" + dir + "' --format=onnx '--output=" + dir +
                           "/lenet.onnx'\n")));
  const size_t at = out.find("Continue:     trainyard train ");
  ASSERT_NE(at, std::string::npos) << out;
  // The command continues the training.
  std::string command = out.substr(at + std::string("Continue:     trainyard train ").size());
  EXPECT_THAT(command,
              AllOf(HasSubstr("--model=lenet "), HasSubstr(" --num_epochs=2\n"), Not(HasSubstr("existing_run"))));
  EXPECT_EQ(shell_word("a'b"), "'a'\\''b'");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("--rate=1e-3"), "--rate=1e-3");
}

TEST_F(TrainerDefaults, AutoBatchesLeaveAnEpochSomeStepsAndTheRateAlone) {
  // 32 images in 16 steps, though there is memory for thousands.
  Arguments automatic = arguments({"--batch_size_memory_mib=2000", "--num_epochs=1"});
  automatic[3] = "--batch_size=auto";
  automatic.erase(automatic.begin() + 6);  // the model's own rate
  automatic[0] = "--model=resnet18";
  const PreparedRun found = prepare(read(automatic));
  EXPECT_EQ(found.batch_size, 2);
  EXPECT_EQ(found.mode(), RunMode::kTrainingAndEvaluation);
  automatic[3] = "--batch_size=0";
  automatic.erase(std::find(automatic.begin(), automatic.end(), "--batch_size_memory_mib=2000"));
  const PreparedRun usual = prepare(read(automatic));
  EXPECT_EQ(usual.batch_size, usual.model->default_batch_size);
  EXPECT_EQ(make_schedule(found).learning_rate(0), make_schedule(usual).learning_rate(0));
  automatic[3] = "--batch_size=2";
  EXPECT_NE(make_schedule(prepare(read(automatic))).learning_rate(0), make_schedule(usual).learning_rate(0));
}

// While the batch is searched for, the memory is planned with evaluations.
TEST_F(TrainerDefaults, AnAutoBatchOfAPartOfAnEpochLeavesNoEvaluations) {
  Arguments part = arguments({"--batch_size_memory_mib=2000", "--num_batches=3", "--train_dir="});
  part[3] = "--batch_size=auto";
  const PreparedRun run = prepare(read(part));
  EXPECT_EQ(run.batch_size, 2);
  EXPECT_EQ(run.mode(), RunMode::kTraining);
  EXPECT_EQ(run.options.steps.eval_every_n_epochs, std::nullopt);
  EXPECT_EQ(run.validation_data, nullptr);
}

TEST_F(TrainerDefaults, ABatchBeyondTheMemoryIsRefusedAtOnce) {
  Arguments large = arguments({"--train_dir="});
  large[3] = "--batch_size=1000000";
  large[0] = "--model=vgg16";
  std::ostringstream out;
  const std::string message = core::message_of([&] { BenchmarkCnn(read(large)).run(out); }, core::ErrorCode::kNoSpace);
  EXPECT_THAT(message,
              AllOf(HasSubstr("a batch of 1000000 images does not fit into memory"), HasSubstr("--batch_size=")));
  auto limit = static_cast<int64_t>(core::memory_info_bytes("MemTotal"));
  std::string whose = "the machine has";
  if (const auto allowed = core::cgroup_limits().memory_bytes; allowed && static_cast<int64_t>(*allowed) < limit) {
    limit = static_cast<int64_t>(*allowed);
    whose = "control groups allow";
  }
  EXPECT_THAT(message,
              HasSubstr("vgg16: expected at most " + std::to_string(limit >> 20) + " MiB, which " + whose + ", got "));
}

TEST_F(TrainerDefaults, AnotherOptimizerIsNamed) {
  const std::string dir = "--train_dir=" + temp_.file("run");
  run({"--num_batches=2", dir, "--optimizer=sgd"});
  const auto go_on = [&](const std::string& optimizer) {
    return [&, optimizer] { run({"--num_batches=4", dir, "--optimizer=" + optimizer}); };
  };
  std::string message = core::message_of(go_on("momentum"));
  testing::internal::GetCapturedStderr();
  EXPECT_THAT(message, AllOf(HasSubstr("--optimizer=sgd, as it was"), HasSubstr("got --optimizer=tf_nesterov")));
  run({"--num_batches=3", dir, "--optimizer=sgd"});
  EXPECT_THAT(log_, Not(HasSubstr("the optimizer was")));
}

TEST_F(TrainerDefaults, ATrainingStartsFromTheFolderOfACheckpoint) {
  run({"--num_batches=2", "--train_dir=" + temp_.file("first")});
  for (const char* from : {"first", "first/model.ckpt-2"}) {
    run({"--num_batches=1", "--init_learning_rate=0", "--weight_decay=0", "--weights=" + temp_.file(from),
         "--train_dir=" + temp_.file("second"), "--existing_run=delete"});
    EXPECT_THAT(log_, HasSubstr("starts from the weights of " + temp_.file("first/model.ckpt-2")));
  }
  const auto crc = [&](const std::string& run) {
    const auto manifest = nlohmann::json::parse(files_.read_file(temp_.file(run + "/manifest.json")));
    for (const auto& tensor : manifest["tensors"]) {
      if (tensor["name"] == "model/conv1.weight") return tensor["crc32c"].get<uint64_t>();
    }
    return uint64_t{0};
  };
  EXPECT_NE(crc("first/model.ckpt-2"), 0U);
  EXPECT_EQ(crc("second/model.ckpt-1"), crc("first/model.ckpt-2"));
  EXPECT_THAT(core::message_of([&] {
                Arguments other = arguments({"--weights=" + temp_.file("first"), "--train_dir="});
                other[0] = "--model=trivial";
                std::ostringstream out;
                BenchmarkCnn(read(other)).run(out);
              }),
              HasSubstr("the weights are of another model"));
}

TEST(CommonFlags, AreDeclaredAndFew) {
  for (const RunMode mode : {RunMode::kTraining, RunMode::kEvaluation}) {
    EXPECT_LE(common_flags(mode).size(), 30U);
    EXPECT_NO_THROW(core::help_text(tf_cnn_flags(Dialect::kTrainyard), common_flags(mode)));
  }
  for (const auto& [wrong, right] : {std::pair{"lr", "init_learning_rate"},
                                     {"epochs", "num_epochs"},
                                     {"learning_rate", "init_learning_rate"},
                                     {"batch", "batch_size"},
                                     {"data", "data_dir"},
                                     {"output", "train_dir"}}) {
    EXPECT_EQ(tf_cnn_flags(Dialect::kTrainyard).suggestion(wrong), right);
  }
}

}  // namespace
}  // namespace trainyard::frontends::trainer_defaults_test
