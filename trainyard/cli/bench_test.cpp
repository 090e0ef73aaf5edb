// Where the time goes, through the command line: bench layers, traces, profiles, the machine's limits.
#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainyard/cli/bench_data.h"
#include "trainyard/cli/doctor_report.h"
#include "trainyard/cli/testing/cli.h"
#include "trainyard/core/testing/environment.h"
#include "trainyard/core/testing/golden.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/core/threads/stop_token.h"

namespace trainyard::cli::bench_test {
namespace {

using Json = nlohmann::json;

// No test reads or writes the user's own limits.
class Bench : public ::testing::Test {
 protected:
  std::string read(const char* name) const { return core::local_file_system().read_file(temp_.file(name)); }
  // A short run on synthetic images.
  static CommandResult train(const Arguments& more) {
    Arguments arguments = {
        "train",          "--model=lenet", "--data_name=imagenet", "--synthetic",           "--train_dir=",
        "--batch_size=4", "--device=cpu",  "--num_batches=3",      "--num_intra_threads=1", "--executor=reference"};
    return run_command(with_flags(arguments, more));
  }

  // Writes 60 training and 12 validation images below "folders", a folder a class.
  void write_class_folders() const {
    ASSERT_EQ(run_command({"data", "make-shapes", "--output=" + temp_.file("shapes"), "--train_count=60",
                           "--validation_count=12"})
                  .code,
              kSuccess);
    ASSERT_EQ(run_command({"data", "convert", "--from=" + temp_.file("shapes"), "--to=folder",
                           "--output=" + temp_.file("folders")})
                  .code,
              kSuccess);
  }

  core::TempDir temp_;

 private:
  const core::EnvironmentVariable cache_{"XDG_CACHE_HOME", temp_.file("cache")};
};

TEST_F(Bench, LayersPrintsATableAndWritesJson) {
  const CommandResult result =
      run_command({"bench", "layers", "--model=lenet", "--data_name=imagenet", "--batch_size=2", "--num_batches=2",
                   "--num_intra_threads=1", "--executor=reference", "--json=" + temp_.file("layers.json")});
  EXPECT_EQ(result.code, kSuccess) << result.err;
  EXPECT_EQ(count_lines(result.out, "^lenet, 2 images a step, executor reference: .* ms a step, .* images/s"), 1);
  EXPECT_EQ(count_lines(result.out, "^conv1 +convolution( +[0-9.]+){5}  convolution, ConvolutionBackward0"), 1)
      << result.out;
  EXPECT_EQ(count_lines(result.out, "doctor --limits"), 1);
  const Json json = Json::parse(read("layers.json"));
  EXPECT_EQ(json["model"], "lenet");
  EXPECT_GT(json["layers"].size(), 8u);
}

TEST_F(Bench, ShowsLayersThatRunAsOneInOneLine) {
  const CommandResult result = run_command({"bench", "layers", "--model=lenet", "--data_name=imagenet",
                                            "--batch_size=2", "--num_batches=2", "--num_intra_threads=1"});
  EXPECT_EQ(result.code, kSuccess) << result.err;
  EXPECT_EQ(count_lines(result.out, "^lenet, 2 images a step, executor cpu: "), 1) << result.out;
  EXPECT_EQ(count_lines(result.out, "^conv1 \\+ relu1 +convolution \\+ activation( +[0-9.]+){5} "), 1) << result.out;
}

TEST_F(Bench, LayersSaysWhichConvolutionsWereTried) {
  const CommandResult result = run_command({"bench", "layers", "--model=resnet20", "--data_name=cifar10",
                                            "--batch_size=8", "--num_batches=1", "--num_intra_threads=1"});
  EXPECT_EQ(result.code, kSuccess) << result.err;
  const std::string times =
      "winograd4 [0-9.e-]+ ms, (winograd [0-9.e-]+ ms, )?winograd2 [0-9.e-]+ ms, direct [0-9.e-]+ ms";
  const std::string line =
      "^  float 8x32x16x16 to 32x16x16, 3x3 pad 1 1 1 1, forward, 1 threads, AVX.*: (direct|winograd[24]?) \\((" +
      times + "|by the rule)\\)$";
  EXPECT_EQ(count_lines(result.out, line), 1) << result.out;
}

// The plan is another one, layer by layer; nn/cpu's conformance suite holds its numbers to the reference.
TEST_F(Bench, SwitchesOfKernelsChangeThePlan) {
  const auto lines = [](const Arguments& more) {
    const CommandResult result =
        run_command(with_flags({"bench", "layers", "--model=resnet20", "--data_name=cifar10", "--batch_size=2",
                                "--num_batches=1", "--num_warmup_batches=1", "--num_intra_threads=1"},
                               more));
    EXPECT_EQ(result.code, kSuccess) << result.err;
    const auto count = [&](const std::string& kind) {
      return count_lines(result.out, " " + kind + "( +[0-9.-]+){4,} ");
    };
    return std::vector<int64_t>{count("batch_norm"), count("batch_norm \\+ activation"), count("batch_norm \\+ add"),
                                count("batch_norm \\+ add \\+ activation"),
                                count("convolution \\+ batch_norm \\+ activation")};
  };
  // The stem's batch norm, which has no activation; and nine blocks of two, the second one with the addition. A
  // kind is counted where another one ends with it, too.
  using Counts = std::vector<int64_t>;
  EXPECT_EQ(lines({}), (Counts{1, 9, 0, 9, 0}));
  EXPECT_EQ(lines({"--noenable_optimizations"}), (Counts{19, 0, 0, 0, 0}));
  EXPECT_EQ(lines({"--nobatchnorm_persistent"}), (Counts{19, 0, 0, 0, 0}));
  EXPECT_EQ(lines({"--rewriter_config=norm_addition: OFF"}), (Counts{10, 9, 0, 0, 0}));
  EXPECT_EQ(lines({"--rewriter_config=norm_activation: OFF"}), (Counts{10, 0, 9, 0, 0}));
  const Arguments frozen = {"--forward_only", "--freeze_when_forward_only"};
  EXPECT_EQ(lines(frozen), (Counts{1, 9, 0, 9, 9}));
  EXPECT_EQ(lines(with_flags(frozen, {"--rewriter_config=constant_folding:OFF"})), (Counts{1, 9, 0, 9, 0}));
}

TEST_F(Bench, SaysWhatIsWrong) {
  EXPECT_EQ(run_command({"bench"}).code, kUsage);
  EXPECT_EQ(run_command({"bench", "layers", "--help"}).code, kSuccess);
  const CommandResult unknown = run_command({"bench", "layer"});
  EXPECT_EQ(unknown.code, kUsage);
  EXPECT_NE(unknown.err.find("did you mean 'layers'"), std::string::npos) << unknown.err;
  EXPECT_EQ(run_command({"bench", "layers"}).code, kUsage);
  EXPECT_EQ(run_command({"bench", "layers", "--model=lenet", "--num_batches=0"}).code, kUsage);
}

TEST_F(Bench, ATrainingWritesATraceAndAProfile) {
  const CommandResult result =
      train({"--num_batches=6", "--num_warmup_batches=3", "--trace_file=" + temp_.file("new/trace.json"),
             "--tfprof_file=" + temp_.file("profile.json")});
  EXPECT_EQ(result.code, kSuccess) << result.err;
  EXPECT_EQ(count_lines(result.out, "^Dumping trace to .*new/trace.json$"), 1);
  EXPECT_EQ(count_lines(result.out, "^Dumping profile to .*profile.json$"), 1);
  EXPECT_EQ(count_lines(result.out, "^convolution +2 "), 1) << result.out;
  std::set<std::string> names;
  std::set<int64_t> steps;
  const Json trace = Json::parse(read("new/trace.json"));
  for (const Json& event : trace["traceEvents"]) {
    names.insert(event["name"]);
    if (event["name"] == "step") steps.insert(event["args"]["global_step"].get<int64_t>());
  }
  EXPECT_EQ(steps, std::set<int64_t>{1}) << "the last but one of three warm-up steps";
  for (const char* name : {"input", "forward", "loss", "backward", "update", "conv1"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
  EXPECT_EQ(Json::parse(read("profile.json"))["steps"], 3) << "all that a short run has";
}

TEST_F(Bench, ForwardStepsWriteThemToo) {
  const CommandResult result =
      train({"--forward_only", "--num_warmup_batches=0", "--trace_file=" + temp_.file("trace.txt"),
             "--nouse_chrome_trace_format", "--tfprof_file=" + temp_.file("profile.json")});
  EXPECT_EQ(result.code, kSuccess) << result.err;
  const std::string trace = read("trace.txt");
  EXPECT_EQ(count_lines(trace, "^dev_stats"), 2);
  EXPECT_EQ(count_lines(trace, "node_name: \"conv1\""), 1) << "without a warm-up the first step";
  EXPECT_EQ(count_lines(trace, "node_name: \"backward\""), 0);
  EXPECT_EQ(Json::parse(read("profile.json"))["layers"][1]["backward"]["seconds"], 0.0);
}

TEST_F(Bench, DataTellsImagesASecondByStage) {
  ASSERT_EQ(run_command({"data", "make-shapes", "--output=" + temp_.file("shapes"), "--train_count=60",
                         "--validation_count=12"})
                .code,
            kSuccess);
  const Arguments command = {"bench",           "data",          "--data_dir=" + temp_.file("shapes"),
                             "--batch_size=16", "--seconds=0.2", "--num_threads=2"};
  const CommandResult result = run_command(command);
  EXPECT_EQ(result.code, kSuccess) << result.err;
  EXPECT_EQ(count_lines(result.out, "^shapes: 60 images, batches of 16 x 3 x 32 x 32 float32, 2 threads, "), 1);
  for (const char* line : {"read", "decode", "resize", "augment", "collate", "wait"}) {
    EXPECT_EQ(count_lines(result.out, std::string("^") + line + " +[0-9.]+ +[0-9.]+% +[0-9.]+$"), 1) << line;
  }
  for (const char* line : {"synthetic", "decode only", "full"}) {
    EXPECT_EQ(count_lines(result.out, std::string("^") + line + " +[0-9.]+ images/s$"), 1) << line;
  }
  const std::string last = result.out.substr(result.out.rfind('\n', result.out.size() - 2) + 1);
  EXPECT_EQ(last.substr(0, 18), "total images/sec: ");
  EXPECT_GT(std::stod(last.substr(18)), 0);

  // Every flag of train's input counts here, too.
  EXPECT_EQ(count_lines(run_command({"bench", "data", "--data_dir=" + temp_.file("shapes"), "--batch_size=16",
                                     "--seconds=0", "--datasets_num_private_threads=3", "--batch_group_size=5"})
                            .out,
                        "^shapes: .*, 3 threads, "),
            1);
  EXPECT_EQ(run_command({"bench", "data", "--data_dir=" + temp_.file("shapes"), "--batch_group_size=0"}).code, kUsage);

  core::StopSource stop;
  stop.request_stop(core::StopReason::kSignal, "SIGINT");
  const CommandResult stopped = run_command(command, stop.token());
  EXPECT_EQ(stopped.code, kStoppedBySignal);
  EXPECT_NE(stopped.err.find("the measurement was stopped"), std::string::npos) << stopped.err;

  Arguments cached = command;
  cached.push_back("--decoded_cache_dir=" + temp_.file("decoded"));
  EXPECT_EQ(run_command(cached).code, kSuccess);
  EXPECT_FALSE(core::local_file_system().list(temp_.file("decoded/train")).empty());
  // New data behind an old cache.
  ASSERT_EQ(run_command({"data", "make-shapes", "--output=" + temp_.file("shapes2"), "--train_count=61",
                         "--validation_count=12"})
                .code,
            kSuccess);
  cached[2] = "--data_dir=" + temp_.file("shapes2");
  const CommandResult stale = run_command(cached);
  EXPECT_NE(stale.code, kSuccess);
  EXPECT_NE(stale.err.find("cached decoded images are of other data"), std::string::npos) << stale.err;
}

// The images of the last class are broken. In an order that is not shuffled, a whole pass alone comes to them.
TEST_F(Bench, DataPassesOverAllImagesBeforeTheTimeIsTaken) {
  core::FileSystem& files = core::local_file_system();
  ASSERT_NO_FATAL_FAILURE(write_class_folders());
  const std::string last = core::join_path(temp_.file("folders/train"), files.list(temp_.file("folders/train")).back());
  for (const std::string& name : files.list(last)) {
    files.write_file_atomically(core::join_path(last, name), "no image");
  }
  Arguments command = {"bench",
                       "data",
                       "--data_dir=" + temp_.file("folders"),
                       "--data_name=imagenet",
                       "--batch_size=4",
                       "--seconds=0",
                       "--image_size=24",
                       "--shuffle_buffer=1",
                       "--num_threads=1"};
  const CommandResult without = run_command(command);
  EXPECT_EQ(without.code, kSuccess) << without.err;
  command.emplace_back("--warmup_epochs=1");
  const CommandResult whole = run_command(command);
  EXPECT_NE(whole.code, kSuccess) << whole.out;
  EXPECT_NE(whole.err.find(last), std::string::npos) << whole.err;
}

// Without an order of its own a measurement of no time takes the first batch, three to warm up and one that is timed:
// what is behind them is never read.
TEST_F(Bench, DataTakesThreeBatchesBeforeTheTimeIsTaken) {
  core::FileSystem& files = core::local_file_system();
  ASSERT_NO_FATAL_FAILURE(write_class_folders());
  // The images in the order of the data set.
  const auto sorted = [&](const std::string& folder) {
    std::vector<std::string> names = files.list(folder);
    std::sort(names.begin(), names.end());
    return names;
  };
  std::vector<std::string> images;
  for (const std::string& name : sorted(temp_.file("folders/train"))) {
    const std::string folder = core::join_path(temp_.file("folders/train"), name);
    for (const std::string& image : sorted(folder)) images.push_back(core::join_path(folder, image));
  }
  ASSERT_EQ(images.size(), 60U);
  const Arguments command = {"bench",
                             "data",
                             "--data_dir=" + temp_.file("folders"),
                             "--data_name=imagenet",
                             "--batch_size=4",
                             "--seconds=0",
                             "--image_size=24",
                             "--shuffle_buffer=1",
                             "--num_threads=1"};
  files.write_file_atomically(images[20], "no image");
  const CommandResult without = run_command(command);
  EXPECT_EQ(without.code, kSuccess) << without.err;
  files.write_file_atomically(images[19], "no image");
  const CommandResult last = run_command(command);
  EXPECT_NE(last.code, kSuccess) << last.out;
  EXPECT_NE(last.err.find(images[19]), std::string::npos) << last.err;
}

TEST_F(Bench, DataRefusesWhatItCannotDo) {
  EXPECT_EQ(run_command({"bench", "data"}).code, kUsage);
  EXPECT_EQ(run_command({"bench", "data", "--data_dir=x/imagenet", "--decoded_cache_dir=x/imagenet/cache"}).code,
            kUsage);
  EXPECT_EQ(run_command({"bench", "data", "--data_dir=./x/imagenet/", "--decoded_cache_dir=x/imagenet/cache"}).code,
            kUsage);
  EXPECT_EQ(run_command({"bench", "data", "--data_dir=x/imagenet", "--datasets_prefetch_buffer_size=5000"}).code,
            kUsage);
  EXPECT_EQ(run_command({"bench", "data", "--data_dir=x/imagenet", "--record_cache_mib=5"}).code, kUsage);
  EXPECT_EQ(run_command({"bench", "data", "--data_dir=x/imagenet", "--dali_mode=GPU"}).code, kUsage);
  EXPECT_EQ(run_command({"bench", "data", "--data_dir=x/imagenet", "--scaled_decode", "--decoded_cache_mib=5"}).code,
            kUsage);
  EXPECT_EQ(
      run_command({"bench", "data", "--data_dir=x/imagenet", "--input_preprocessor=dali", "--decoded_cache_mib=5"})
          .code,
      kFailure)
      << "the directory is missing; nobody asked for scaled decoding";
  EXPECT_NE(run_command({"bench", "data", "--data_dir=" + temp_.file("imagenet")}).code, kSuccess);
}

TEST(BenchData, EachFlagReachesItsOption) {
  core::FlagTable table;
  declare_bench_data_flags(table);
  const auto read = [&](const std::vector<std::string>& arguments) {
    return read_bench_data_options(core::parse_flags(table, arguments));
  };
  const DataBenchOptions options =
      read({"--data_dir=x", "--data_name=cifar10", "--model=lenet", "--image_size=20x24", "--batch_size=5",
            "--num_threads=3", "--seconds=0.25", "--warmup_epochs=2", "--batch_group_size=4", "--tf_random_seed=9"});
  EXPECT_EQ(options.input.data_dir, "x");
  EXPECT_EQ(options.input.data_name, "cifar10");
  EXPECT_EQ(options.input.seed, 9U);
  EXPECT_TRUE(options.input.images.turns_by_exif) << "as in a training";
  EXPECT_EQ(options.model, "lenet");
  EXPECT_EQ(options.image_size, nn::Size2d(20, 24));
  EXPECT_EQ(options.batch_size, 5);
  EXPECT_EQ(options.threads, 3);
  EXPECT_EQ(options.seconds, 0.25);
  EXPECT_EQ(options.warmup_epochs, 2);
  EXPECT_EQ(options.batch_group_size, 4);
  const DataBenchOptions plain = read({});
  EXPECT_EQ(plain.model, "");
  EXPECT_EQ(plain.image_size, nn::Size2d(0));
  EXPECT_EQ(plain.batch_size, 64);
  EXPECT_EQ(plain.threads, std::nullopt);
  EXPECT_EQ(plain.seconds, 10);
  EXPECT_EQ(plain.warmup_epochs, 0);
}

TEST_F(Bench, DoctorMeasuresTheLimitsThatRunsAreComparedWith) {
  EXPECT_EQ(count_lines(run_command({"doctor"}).out, "not measured +trainyard doctor --limits"), 1);
  EXPECT_EQ(count_lines(train({}).err, "compute: .* GFLOP/s of the model \\(trainyard doctor --limits"), 1);
  const CommandResult measured = run_command({"doctor", "--limits"});
  EXPECT_EQ(measured.code, kSuccess) << measured.err;
  EXPECT_EQ(count_lines(measured.out, "memory read +[0-9.]+ GB/s"), 1) << measured.out;
  EXPECT_EQ(count_lines(run_command({"doctor"}).out, "multiply-add fp32 +[0-9.]+ GFLOP/s, one thread [0-9.]+"), 1);
  EXPECT_EQ(count_lines(train({}).err, "compute: .* GFLOP/s of the model, [0-9]+ % of the machine's limit"), 1);
}

TEST_F(Bench, LimitsHaveAFixedForm) {
  core::MachineLimits limits{.threads = 2,
                             .fp32_flops_one = 1.2e11,
                             .fp32_flops_all = 2.375e11,
                             .bf16_flops_one = 2.4e11,
                             .bf16_flops_all = 4.8e11,
                             .read_bytes = 4.2e10,
                             .copy_bytes = 4.1e10,
                             .triad_bytes = 4.05e10,
                             .processor_share = 0.99,
                             .measured_at = 1'700'000'000};
  std::ostringstream out;
  DoctorReport report{{limits_section(limits)}};
  limits.bf16_flops_one = limits.bf16_flops_all = 0;
  limits.processor_share = 0.6;
  report.sections.push_back(limits_section(limits));
  report.sections.push_back(limits_section(std::nullopt));
  print_report(report, out);
  EXPECT_TRUE(core::matches_golden(out.str(), "trainyard/cli/testdata/doctor_limits.txt"));
}

}  // namespace
}  // namespace trainyard::cli::bench_test
