#include "trainyard/frontends/suite/suite.h"

#include <algorithm>
#include <set>
#include <sstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/frontends/options/device_settings.h"
#include "trainyard/frontends/tf_cnn/flags.h"
#include "trainyard/frontends/tf_cnn/read_options.h"
#include "trainyard/models/registry/model_registry.h"

namespace trainyard::frontends::suite_test {
namespace {

using ::testing::Contains, ::testing::ElementsAre, ::testing::HasSubstr, ::testing::IsEmpty, ::testing::Not;

const SuiteEntry& entry_called(std::string_view name) {
  const auto entries = suite_entries();
  return *std::find_if(entries.begin(), entries.end(), [&](const SuiteEntry& entry) { return entry.name == name; });
}

TEST(Suite, HasTheOriginalsEntriesWithFlagsThatThereAre) {
  EXPECT_EQ(suite_entries().size(), 98U);
  const std::vector<std::string> flags = tf_cnn_flags().names();
  std::set<std::string_view> names;
  for (const SuiteEntry& entry : suite_entries()) {
    EXPECT_TRUE(names.insert(entry.name).second) << entry.name << " twice";
    std::istringstream words{std::string(entry.arguments)};
    for (std::string word; words >> word;) {
      ASSERT_TRUE(word.starts_with("--")) << entry.name << ": " << word;
      const std::string name = word.substr(2, word.find('=') - 2);
      const std::string without = name.starts_with("no") ? name.substr(2) : name;
      EXPECT_TRUE(std::find(flags.begin(), flags.end(), name) != flags.end() ||
                  std::find(flags.begin(), flags.end(), without) != flags.end())
          << entry.name << ": " << word;
    }
  }
  // By the original's text.
  EXPECT_EQ(entry_called("Resnet50Benchmarks.fp16_synth_1gpu_gpuparams_batch128").arguments,
            "--model=resnet50 --batch_size=128 --nodistortions --use_fp16 --optimizer=momentum "
            "--loss_type_to_report=base_loss --compute_lr_on_cpu --single_l2_loss_op --num_gpus=1 "
            "--variable_update=parameter_server");
  EXPECT_TRUE(entry_called("InceptionV3Benchmarks.xla_synth_1gpu_max_batch_size").searches_batch);
}

TEST(Suite, ScalesToTheMachineAndSaysHow) {
  const SuiteEntry& eight = entry_called("Resnet50Benchmarks.fp16_synth_8gpu_gpureplicated");
  const ScaledEntry on_cpu = scale_entry(eight, {.cores = 2, .bfloat16 = true});
  EXPECT_EQ(on_cpu.refusal, "");
  EXPECT_THAT(on_cpu.changes,
              ElementsAre("use_fp16 -> use_bf16", "num_gpus 8 -> 2", "all_reduce_spec left out", "device gpu -> cpu"));
  EXPECT_THAT(on_cpu.arguments, Contains("--gradient_repacking=2"));
  EXPECT_THAT(on_cpu.arguments, Contains("--num_gpus=2"));
  EXPECT_THAT(on_cpu.arguments, Contains("--use_bf16"));
  EXPECT_THAT(scale_entry(eight, {.cores = 2}).arguments, Not(Contains("--use_bf16")));
  const ScaledEntry on_gpus = scale_entry(eight, {.gpus = 8, .cores = 2});
  EXPECT_THAT(on_gpus.changes, IsEmpty());
  EXPECT_THAT(on_gpus.arguments, Contains("--all_reduce_spec=nccl"));
  EXPECT_THAT(scale_entry(entry_called("Resnet50BenchmarksInferenceCpu.synth_forward_batch1"), {}).changes, IsEmpty());
}

TEST(Suite, WritesTheWholeCommandLineOfAnEntry) {
  constexpr SuiteEntry kEntry{"A.one",
                              "--model=lenet --num_gpus=8 --batch_size=64 --use_fp16 --data_dir=FAKE --xla "
                              "--all_reduce_spec=nccl --backbone_model_path=B --nodistortions"};
  const ScaledEntry on_cpu = scale_entry(kEntry, {.cores = 3, .bfloat16 = true, .data_dir = "/data"});
  EXPECT_THAT(on_cpu.arguments, ElementsAre("--model=lenet", "--num_gpus=3", "--batch_size=64", "--use_bf16",
                                            "--data_dir=/data", "--nodistortions", "--device=cpu"));
  EXPECT_THAT(on_cpu.changes,
              ElementsAre("num_gpus 8 -> 3", "use_fp16 -> use_bf16", "xla left out", "all_reduce_spec left out",
                          "backbone_model_path left out", "device gpu -> cpu"));
  const ScaledEntry on_gpus = scale_entry(kEntry, {.gpus = 5, .cores = 3, .data_dir = "/data"});
  EXPECT_THAT(on_gpus.arguments, ElementsAre("--model=lenet", "--num_gpus=5", "--batch_size=64", "--use_fp16",
                                             "--data_dir=/data", "--xla", "--all_reduce_spec=nccl", "--nodistortions"));
  EXPECT_THAT(on_gpus.changes, ElementsAre("num_gpus 8 -> 5", "backbone_model_path left out"));
  const ScaledEntry without = scale_entry(kEntry, {.gpus = 8});
  EXPECT_EQ(without.refusal, "it needs data: pass --data_dir");
  EXPECT_THAT(without.arguments, Contains("--data_dir="));

  constexpr SuiteEntry kSearch{"A.two", "--num_gpus=2 --batch_size=64 --device=cpu --model=lenet", true};
  const ScaledEntry search = scale_entry(kSearch, {.cores = 2});
  EXPECT_THAT(search.arguments, ElementsAre("--num_gpus=2", "--batch_size=auto", "--device=cpu", "--model=lenet"));
  EXPECT_THAT(search.changes, IsEmpty());
  EXPECT_THAT(scale_entry(kSearch, {.cores = 0}).arguments, Contains("--num_gpus=1"));
}

// A flag that does not exist, or a value of one, is the program's refusal.
TEST(Suite, RefusesWhatTheProgramRefuses) {
  constexpr SuiteEntry kUnknown{"A.one", "--model=lenet --telepathy=1 --device=cpu"};
  const ScaledEntry unknown = scale_entry(kUnknown, {.cores = 2});
  EXPECT_THAT(unknown.refusal, HasSubstr("telepathy"));
  constexpr SuiteEntry kWrong{"A.two", "--model=lenet --batch_size=many --device=cpu"};
  const ScaledEntry wrong = scale_entry(kWrong, {.cores = 2});
  EXPECT_THAT(wrong.refusal, HasSubstr("batch_size"));
  constexpr SuiteEntry kForward{"A.three", "--model=lenet --forward_only --num_gpus=2"};
  EXPECT_THAT(scale_entry(kForward, {.gpus = 2}).refusal,
              HasSubstr("--forward_only runs on one GPU, and --num_gpus=2 asks for more"));
}

// Whatever machine: what the suite would start passes the program's own checks, or it is listed with why it does not.
TEST(Suite, WhatIsListedAsRunnableIsWhatTheProgramAccepts) {
  const core::TempDir data;
  core::local_file_system().write_file_atomically(data.file("train-00000-of-00001"), "");
  core::local_file_system().write_file_atomically(data.file("validation-00000-of-00001"), "");
  for (const int gpus : {0, 1, 2, 4, 8}) {
    for (const std::string& data_dir : {std::string(), data.path()}) {
      const SuiteMachine machine{.gpus = gpus, .cores = 8, .bfloat16 = true, .data_dir = data_dir};
      int runnable = 0, on_eight = 0;
      for (const SuiteEntry& entry : suite_entries()) {
        const ScaledEntry scaled = scale_entry(entry, machine);
        if (!scaled.refusal.empty()) continue;
        ++runnable;
        const bool trains = entry.arguments.find("forward_only") == std::string_view::npos;
        if (trains && entry.arguments.find("--num_gpus=8") != std::string_view::npos) ++on_eight;
        const auto refused = core::error_of([&] {
          const core::FlagValues values = core::parse_flags(tf_cnn_flags(), scaled.arguments);
          const TfCnnOptions options = read_options(values, Dialect::kTfCnnBenchmarks);
          options.validate();
          models::find_model(options.model, options.input.data_name.empty() ? "imagenet" : options.input.data_name);
          plan_devices(options.device, {.forward_only = options.mode == RunMode::kForwardOnly}, gpus);
        });
        EXPECT_FALSE(refused) << entry.name << " with " << gpus << " GPUs: " << refused->what();
      }
      EXPECT_GT(runnable, data_dir.empty() ? 30 : 40) << gpus;
      EXPECT_GT(on_eight, 0) << "no training on eight devices with " << gpus << " GPUs";
    }
  }
}

TEST(Suite, SaysWhatCannotRun) {
  const SuiteEntry& trivial = entry_called("TrivialBenchmarks.fake_64batch");
  EXPECT_THAT(scale_entry(trivial, {}).refusal, HasSubstr("--data_dir"));
  EXPECT_THAT(scale_entry(trivial, {.data_dir = "/data"}).arguments, Contains("--data_dir=/data"));
  const SuiteResult speech =
      run_suite_entry(entry_called("DeepSpeech2Benchmarks.synth_1gpu_gpuparams"), {}, 1, core::StopSource().token());
  EXPECT_THAT(speech.error, HasSubstr("librispeech"));
  EXPECT_TRUE(speech.refused);
}

TEST(Suite, TellsAnEntryThatFailedFromOneThatWasRefused) {
  const core::TempDir data;
  core::local_file_system().write_file_atomically(data.file("train-00000-of-00001"), "");
  core::local_file_system().write_file_atomically(data.file("validation-00000-of-00001"), "");
  const SuiteMachine machine{.cores = 2, .data_dir = data.path()};
  const SuiteEntry& trivial = entry_called("TrivialBenchmarks.fake_64batch");
  ASSERT_EQ(scale_entry(trivial, machine).refusal, "");
  const SuiteResult failed = run_suite_entry(trivial, machine, 0.01, core::StopSource().token());
  EXPECT_NE(failed.error, "");
  EXPECT_FALSE(failed.refused);
  EXPECT_THAT(suite_table({failed}, SuiteHistory("")), HasSubstr("-  failed: "));
  EXPECT_THAT(SuiteHistory("").with({failed}, machine), HasSubstr("\"refused\": false"));
  const SuiteResult refused = run_suite_entry(trivial, {.cores = 2}, 0.01, core::StopSource().token());
  EXPECT_THAT(suite_table({refused}, SuiteHistory("")), HasSubstr("-  it needs data"));
  EXPECT_THAT(SuiteHistory("").with({refused}, machine), HasSubstr("\"refused\": true"));
}

TEST(Suite, CutsBatchAndStepsToTheTime) {
  constexpr SuiteEntry kSmall{"Small.lenet", "--model=lenet --batch_size=64 --num_gpus=1 --device=cpu"};
  const SuiteResult result = run_suite_entry(kSmall, {}, 0.01, core::StopSource().token());
  EXPECT_EQ(result.error, "");
  EXPECT_GE(result.iters, 1);
  EXPECT_LT(result.iters, 100);
  EXPECT_GT(result.examples_per_sec, 0);
  EXPECT_GT(result.wall_time, 0);
  EXPECT_TRUE(result.last_average_loss.has_value());
  EXPECT_THAT(result.changes, Contains(HasSubstr("num_batches 100 -> ")));
}

TEST(Suite, FindsTheLargestBatch) {
  int searching = 0;
  for (const SuiteEntry& entry : suite_entries()) {
    if (!entry.searches_batch) continue;
    ++searching;
    EXPECT_TRUE(entry.name.ends_with("_max_batch_size")) << entry.name;
    const ScaledEntry scaled = scale_entry(entry, {});
    EXPECT_EQ(scaled.refusal, "");
    EXPECT_THAT(scaled.arguments, Contains("--batch_size=auto"));
    EXPECT_THAT(scaled.arguments, Not(Contains(HasSubstr("--batch_size=1")))) << "the number is where a search begins";
  }
  EXPECT_EQ(searching, 4);

  constexpr SuiteEntry kSmall{
      "Small.max", "--model=lenet --batch_size=64 --batch_size_memory_mib=540 --num_gpus=1 --device=cpu", true};
  const SuiteResult result = run_suite_entry(kSmall, {}, 100, core::StopSource().token());
  EXPECT_EQ(result.error, "");
  ASSERT_TRUE(result.max_batch_size.has_value());
  EXPECT_GT(*result.max_batch_size, 1);
  EXPECT_EQ(result.iters, 10);
  EXPECT_THAT(result.changes, ElementsAre(fmt::format("the largest batch_size is {}", *result.max_batch_size)));
  EXPECT_THAT(SuiteHistory("").with({result}, {}),
              HasSubstr(fmt::format("\"max_batch_size\": {}", *result.max_batch_size)));
  // The size is that of the memory, whatever is run of it in the time.
  const SuiteResult cut = run_suite_entry(kSmall, {}, 1e-4, core::StopSource().token());
  EXPECT_EQ(cut.max_batch_size, result.max_batch_size);
  EXPECT_THAT(cut.changes, Contains(HasSubstr(fmt::format("batch_size {} -> ", *result.max_batch_size))));
}

TEST(Suite, ResultsStandBesideThoseOfTheRunBefore) {
  const SuiteResult fast{.name = "A.one", .iters = 10, .wall_time = 0.5, .examples_per_sec = 200};
  SuiteResult slow = fast;
  slow.examples_per_sec = 100;
  const SuiteResult failed{.name = "A.two", .error = "it needs data"};
  const SuiteHistory none("");
  EXPECT_FALSE(none.examples_per_sec("A.one").has_value());
  const SuiteHistory one(none.with({slow, failed}, {}));
  EXPECT_EQ(one.examples_per_sec("A.one"), 100);
  EXPECT_FALSE(one.examples_per_sec("A.two").has_value());
  const std::string table = suite_table({fast, failed}, one);
  EXPECT_EQ(table,
            "name    examples/s       before   ratio  changed\n"
            "A.one       200.00       100.00    2.00  \n"
            "A.two            -            -       -  failed: it needs data\n");
  EXPECT_EQ(SuiteHistory(one.with({fast}, {})).examples_per_sec("A.one"), 200) << "the newest run";
}

TEST(Suite, TheFileHoldsEachNumberOfAResult) {
  const SuiteResult result{.name = "A.one",
                           .arguments = {"--model=lenet"},
                           .changes = {"num_gpus 8 -> 2"},
                           .iters = 10,
                           .wall_time = 0.5,
                           .examples_per_sec = 200,
                           .max_batch_size = 48,
                           .last_average_loss = 2.5,
                           .top_1 = 0.25,
                           .top_5 = 0.75};
  auto run = nlohmann::json::parse(SuiteHistory("").with({result}, {.gpus = 3, .cores = 4}))["runs"][0];
  run.erase("date");
  EXPECT_EQ(run, nlohmann::json::parse(R"({"gpus": 3, "cores": 4, "results": [
      {"name": "A.one", "arguments": ["--model=lenet"], "changes": ["num_gpus 8 -> 2"], "iters": 10, "wall_time": 0.5,
       "examples_per_sec": 200, "max_batch_size": 48, "last_average_loss": 2.5, "top_1": 0.25, "top_5": 0.75}]})"));
  SuiteResult nothing = result;
  nothing.examples_per_sec = 0;
  EXPECT_THAT(suite_table({result}, SuiteHistory("")),
              HasSubstr("A.one       200.00            -       -  num_gpus 8 -> 2\n"));
  EXPECT_THAT(suite_table({result}, SuiteHistory(SuiteHistory("").with({nothing}, {}))),
              HasSubstr("A.one       200.00         0.00       -  num_gpus 8 -> 2\n"))
      << "no ratio to nothing";
}

TEST(Suite, LeavesOutWhatIsOfGpus) {
  const SuiteEntry& xla = entry_called("Resnet50Benchmarks.fp16_xla_synth_1gpu_gpuparams");
  const ScaledEntry on_cpu = scale_entry(xla, {.cores = 2});
  EXPECT_THAT(on_cpu.changes, ElementsAre("use_fp16 left out", "xla left out", "device gpu -> cpu"));
  EXPECT_THAT(on_cpu.arguments, Not(Contains("--xla")));
  EXPECT_THAT(on_cpu.arguments, Not(Contains("--use_fp16")));
  const ScaledEntry on_gpu = scale_entry(xla, {.gpus = 1, .cores = 2});
  EXPECT_THAT(on_gpu.changes, IsEmpty());
  EXPECT_THAT(on_gpu.arguments, Contains("--xla"));
  const ScaledEntry on_three =
      scale_entry(entry_called("Resnet50Benchmarks.synth_8gpu_gpureplicated"), {.gpus = 3, .cores = 2});
  EXPECT_THAT(on_three.changes, ElementsAre("num_gpus 8 -> 3")) << "of the GPUs, not of the cores";
  const ScaledEntry ssd = scale_entry(entry_called("SsdBenchmarks.xla_compile_real_1gpu_gpuparams"), {.cores = 2});
  EXPECT_THAT(ssd.changes, ElementsAre("backbone_model_path left out", "xla_compile left out", "device gpu -> cpu"));
  EXPECT_THAT(ssd.arguments, Not(Contains(HasSubstr("backbone_model_path"))));
}

TEST(Suite, RefusesFilesOfOthers) {
  for (const char* text : {"{", "[]", "{\"runs\": 3}"}) {
    EXPECT_EQ(core::code_of([&] { SuiteHistory history(text); }), core::ErrorCode::kCorruptData) << text;
  }
  EXPECT_FALSE(SuiteHistory("{\"runs\": [3, {\"results\": [4, {\"name\": 5}]}]}").examples_per_sec("A").has_value());
}

}  // namespace
}  // namespace trainyard::frontends::suite_test
