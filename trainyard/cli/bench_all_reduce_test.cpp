#include "trainyard/cli/bench_all_reduce.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainyard/cli/bench_timing.h"
#include "trainyard/cli/testing/cli.h"
#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/parallel/collectives/threads/thread_communicator.h"

namespace trainyard::cli::bench_all_reduce_test {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

const Arguments kShort = {"bench", "allreduce", "--num_warmup_batches=1", "--iters_per_step=2"};

std::string last_line(const std::string& text) {
  const size_t end = text.find_last_not_of('\n');
  return text.substr(text.rfind('\n', end) + 1, end - text.rfind('\n', end));
}

// all_reduce_benchmark_test.py, test_run_benchmark.
TEST(AllReduceBench, LastLineIsThatOfTheOriginalsTest) {
  const CommandResult result = run_command(with_flags(
      kShort, {"--num_batches=10", "--display_every=4", "--variable_update=replicated", "--num_gpus=2", "--sizes="}));
  ASSERT_EQ(result.code, kSuccess) << result.err;
  EXPECT_THAT(last_line(result.out), MatchesRegex("^Average time per step: [0-9.]+$"));
  EXPECT_EQ(count_lines(result.out, "^Building all-reduce ops$"), 1);
  EXPECT_EQ(count_lines(result.out, "^Done building all-reduce ops$"), 1);
  EXPECT_EQ(count_lines(result.out, "^Running warmup$"), 1);
  EXPECT_EQ(count_lines(result.out, "^Running all-reduce ops$"), 1);
  EXPECT_EQ(count_lines(result.out, "^Iteration: [48]. Average time per step so far: [0-9.]+$"), 2);
  EXPECT_EQ(count_lines(result.out, "^"), 7) << result.out;
}

// The same of test_run_benchmark with eight devices.
TEST(AllReduceBench, ReducesPackedGradientsByHierarchicalCopy) {
  const CommandResult result =
      run_command(with_flags(kShort, {"--num_batches=2", "--num_gpus=8", "--hierarchical_copy",
                                      "--gradient_repacking=8", "--image_size=32", "--sizes="}));
  ASSERT_EQ(result.code, kSuccess) << result.err;
  EXPECT_THAT(last_line(result.out), MatchesRegex("^Average time per step: [0-9.]+$"));
  EXPECT_EQ(count_lines(result.out, "^Average time per step: "), 1) << "by the first of eight replicas alone";
  const CommandResult other = run_command(with_flags(
      kShort, {"--num_batches=1", "--num_gpus=2", "--hierarchical_copy", "--network_topology=gcp_v100", "--sizes="}));
  EXPECT_NE(other.code, kSuccess);
  EXPECT_THAT(other.err, HasSubstr("HierarchicalCopy only supports eight devices in gcp_v100"));
  const CommandResult nccl = run_command(with_flags(kShort, {"--num_gpus=2", "--all_reduce_spec=nccl", "--sizes="}));
  EXPECT_EQ(nccl.code, kUsage);
  EXPECT_THAT(nccl.err, HasSubstr("is for GPUs"));
}

// By hand: a tensor of 100 MB in 20 ms is 5 GB/s; of n ranks each sends and receives 2 (n - 1) / n of it.
TEST(AllReduceBench, BusBandwidthIsWhatEachRankMustSend) {
  AllReduceTiming timing{.bytes = 100'000'000, .operation = "all-reduce", .median_seconds = 0.02};
  EXPECT_DOUBLE_EQ(timing.algorithm_bandwidth(), 5e9);
  EXPECT_DOUBLE_EQ(timing.bus_bandwidth(2), 5e9);
  EXPECT_DOUBLE_EQ(timing.bus_bandwidth(4), 7.5e9);
  EXPECT_DOUBLE_EQ(timing.bus_bandwidth(8), 8.75e9);
  EXPECT_DOUBLE_EQ(timing.bus_bandwidth(1), 0) << "nothing is sent";
  timing.operation = "copy";
  EXPECT_DOUBLE_EQ(timing.bus_bandwidth(4), 5e9);
}

TEST(AllReduceBench, SizesAreInPowersOf1024) {
  EXPECT_EQ(parse_tensor_bytes("4"), 4);
  EXPECT_EQ(parse_tensor_bytes("64K"), 65'536);
  EXPECT_EQ(parse_tensor_bytes("1m"), 1'048'576);
  EXPECT_EQ(parse_tensor_bytes("100M"), 104'857'600);
  EXPECT_EQ(parse_tensor_bytes("4G"), int64_t{1} << 32);
  for (const char* wrong :
       {"", "K", "0", "-4", "6", "1.5M", "4KB", "4097M", "5G", "99999999999999999999", "4 K", "M4"}) {
    EXPECT_THAT(core::message_of([&] { parse_tensor_bytes(wrong); }, core::ErrorCode::kInvalidArgument),
                HasSubstr("expected multiples of a float's 4 bytes"))
        << wrong;
  }
}

TEST(AllReduceBench, MeasuresThreadsAndACopyBySize) {
  const core::TempDir folder;
  const std::string json_file = folder.file("times.json"), picture = folder.file("times.svg");
  const CommandResult result =
      run_command(with_flags(kShort, {"--model=lenet", "--num_batches=12", "--num_gpus=3", "--sizes=4K,1M",
                                      "--json=" + json_file, "--output=" + picture}));
  ASSERT_EQ(result.code, kSuccess) << result.err;
  EXPECT_EQ(count_lines(result.out, "^3 ranks on threads of a process, float32, sum; "), 1) << result.out;
  EXPECT_EQ(count_lines(result.out, "^MPI_Allreduce was not measured: .+"), 1);
  EXPECT_EQ(count_lines(result.out, "^ +(4K|1M)  (all-reduce|copy) +1[0-2]( +[0-9.]+ [um]s){2}( +[0-9.]+){2}$"), 4)
      << result.out;
  const Json json = Json::parse(core::local_file_system().read_file(json_file));
  EXPECT_EQ(json["ranks"], 3);
  EXPECT_EQ(json["processes"], 1);
  EXPECT_TRUE(json["mpi"].is_null());
  EXPECT_GT(json["gradient_bytes"], 100'000);
  EXPECT_EQ(json["model"], "lenet");
  EXPECT_EQ(json["iters_per_step"], 2);
  EXPECT_TRUE(json["algorithm"].is_null()) << "the default one";
  EXPECT_TRUE(json["optimizer"].is_null());
  EXPECT_EQ(json["updates"], Json::array());
  EXPECT_THAT(result.out, HasSubstr("MPI_Allreduce was not measured: " + json["mpi_absent"].get<std::string>() + "\n"));
  const std::string average = "Average time per step: ";
  const size_t printed = result.out.find(average);
  ASSERT_NE(printed, std::string::npos) << result.out;
  EXPECT_NEAR(json["average_step_seconds"].get<double>(), std::stod(result.out.substr(printed + average.size())), 1e-9);
  ASSERT_EQ(json["timings"].size(), 4U);
  for (const Json& timing : json["timings"]) {
    const double bytes = timing["bytes"], median = timing["median_seconds"];
    EXPECT_GT(median, 1e-9);
    EXPECT_LE(median, timing["p95_seconds"]);
    EXPECT_DOUBLE_EQ(timing["bytes_per_second"], bytes / median);
    const double sent = timing["operation"] == "copy" ? 1 : 4.0 / 3;
    EXPECT_NEAR(timing["bus_bytes_per_second"], sent * bytes / median, 1e-6 * bytes / median);
  }
  const std::string svg = core::local_file_system().read_file(picture);
  EXPECT_THAT(svg, ::testing::StartsWith("<svg "));
  EXPECT_THAT(svg, HasSubstr("all-reduce, 3 ranks on threads of a process"));
}

TEST(AllReduceBench, ReducesTheGradientsOfTheModelAndItsImages) {
  const core::TempDir folder;
  const std::string json_file = folder.file("times.json");
  const auto bytes = [&](const Arguments& more) {
    const Arguments flags = {"--model=trivial",    "--num_batches=1", "--num_warmup_batches=0",
                             "--iters_per_step=1", "--sizes=4K",      "--json=" + json_file};
    const CommandResult result = run_command(with_flags({"bench", "allreduce"}, with_flags(flags, more)));
    EXPECT_EQ(result.code, kSuccess) << result.err;
    return Json::parse(core::local_file_system().read_file(json_file))["gradient_bytes"].get<int64_t>();
  };
  const int64_t cifar10 = bytes({"--data_name=cifar10"});
  EXPECT_LT(bytes({"--data_name=cifar10", "--image_size=24x20"}), cifar10);
  EXPECT_GT(bytes({"--data_name=imagenet"}), cifar10);
  EXPECT_NE(bytes({"--data_name=cifar10", "--model=resnet20"}), cifar10);
}

TEST(AllReduceBench, MeasuresTheAlgorithmThatIsAskedFor) {
  const CommandResult result = run_command(with_flags(
      kShort, {"--model=lenet", "--num_batches=2", "--num_gpus=2", "--all_reduce_spec=xring", "--sizes=4K"}));
  ASSERT_EQ(result.code, kSuccess) << result.err;
  EXPECT_EQ(count_lines(result.out, "^2 ranks on threads of a process, float32, sum by xring; "), 1) << result.out;
}

TEST(AllReduceBench, MeasuresUpdatesForThemselvesAndInOneWithTheReduction) {
  const core::TempDir folder;
  const std::string json_file = folder.file("times.json");
  const CommandResult result =
      run_command(with_flags(kShort, {"--model=lenet", "--num_batches=3", "--num_gpus=2",
                                      "--sizes=", "--optimizer=tf_momentum", "--json=" + json_file}));
  ASSERT_EQ(result.code, kSuccess) << result.err;
  EXPECT_EQ(count_lines(result.out, "^[0-9]+ bytes of parameters, tf_momentum, 2 ranks; "), 1) << result.out;
  const Json json = Json::parse(core::local_file_system().read_file(json_file));
  EXPECT_EQ(json["optimizer"], "tf_momentum");
  const Json updates = json["updates"];
  std::vector<std::string> operations;
  for (const Json& timing : updates) {
    operations.push_back(timing["operation"]);
    EXPECT_GT(timing["median_seconds"], 1e-9);
    EXPECT_EQ(timing["times"], 3);
    EXPECT_EQ(count_lines(result.out, "^" + operations.back() + " +3( +[0-9.]+ [um]s){2}( +-?[0-9.]+){2}$"), 1)
        << result.out;
  }
  EXPECT_THAT(operations, ::testing::ElementsAre("copy", "optimizer", "optimizer of a part", "reduce, then update",
                                                 "reduce and update", "checked in between"));
}

TEST(AllReduceBench, EachFlagReachesItsOption) {
  core::FlagTable table;
  declare_bench_all_reduce_flags(table);
  const auto read = [&](const std::vector<std::string>& arguments) {
    return read_bench_all_reduce_options(core::parse_flags(table, arguments));
  };
  const AllReduceBenchOptions options =
      read({"--model=lenet", "--data_name=cifar10", "--image_size=20x24", "--num_gpus=3", "--num_batches=7",
            "--num_warmup_batches=2", "--iters_per_step=4", "--display_every=6", "--sizes=4,64K",
            "--optimizer=tf_momentum", "--all_reduce_spec=xring"});
  EXPECT_EQ(options.model, "lenet");
  EXPECT_EQ(options.dataset, "cifar10");
  EXPECT_EQ(options.image_size, nn::Size2d(20, 24));
  EXPECT_EQ(options.device.replicas, 3);
  EXPECT_EQ(options.device.all_reduce_spec, "xring");
  EXPECT_EQ(options.batches, 7);
  EXPECT_EQ(options.warmup_batches, 2);
  EXPECT_EQ(options.iters_per_step, 4);
  EXPECT_EQ(options.display_every, 6);
  EXPECT_EQ(options.sizes, (std::vector<int64_t>{4, 65'536}));
  EXPECT_EQ(options.optimizer, "tf_momentum");
  const AllReduceBenchOptions plain = read({});
  const AllReduceBenchOptions usual{};
  EXPECT_EQ(plain.model, usual.model);
  EXPECT_EQ(plain.dataset, usual.dataset);
  EXPECT_EQ(plain.image_size, nn::Size2d(0));
  EXPECT_EQ(plain.device.replicas, 1);
  EXPECT_EQ(plain.batches, usual.batches);
  EXPECT_EQ(plain.warmup_batches, usual.warmup_batches);
  EXPECT_EQ(plain.iters_per_step, usual.iters_per_step);
  EXPECT_EQ(plain.display_every, usual.display_every);
  EXPECT_EQ(plain.sizes, (std::vector<int64_t>{64 << 10, 1 << 20, 100 << 20}));
  EXPECT_EQ(plain.optimizer, "");
}

// The median and the 95th percentile of the times, of which this rank has the longest.
TEST(AllReduceBench, ATimeIsThatOfTheSlowestRank) {
  const auto communicators = parallel::make_thread_communicators(1);
  std::vector<double> seconds;
  for (int i = 40; i >= 1; --i) seconds.push_back(i);
  const AllReduceTiming timing = slowest_timing(*communicators[0], 4096, "copy", seconds);
  EXPECT_EQ(timing.bytes, 4096);
  EXPECT_EQ(timing.operation, "copy");
  EXPECT_EQ(timing.times, 40);
  EXPECT_EQ(timing.median_seconds, 20.5);
  EXPECT_EQ(timing.p95_seconds, 38) << "two of forty are longer";
  EXPECT_EQ(slowest_timing(*communicators[0], 4, "copy", {3}).p95_seconds, 3);
}

TEST(AllReduceBench, SaysWhatIsWrong) {
  const auto refused = [](const Arguments& more) {
    const CommandResult result = run_command(with_flags(kShort, more));
    EXPECT_EQ(result.code, kUsage) << result.err;
    return result.err;
  };
  EXPECT_THAT(refused({"--variable_update=independent"}),
              HasSubstr("--variable_update=replicated must be specified to use the all-reduce benchmark"));
  EXPECT_THAT(refused({"--variable_consistency=relaxed"}),
              HasSubstr("--variable_consistency=relaxed is not supported"));
  EXPECT_THAT(refused({"--all_reduce_spec=ringg"}), HasSubstr("ringg"));
  EXPECT_THAT(refused({"--model=lenett"}), HasSubstr("lenet"));
  EXPECT_THAT(refused({"--sizes=64K,wide"}), HasSubstr("got wide"));
  EXPECT_THAT(refused({"--sizes=", "--output=x.svg"}), HasSubstr("--output draws times by size"));
  EXPECT_THAT(refused({"--num_batches=0"}), HasSubstr("num_batches"));
  EXPECT_THAT(refused({"--sizes=", "--optimizer=tf_momentun", "--num_gpus=2"}), HasSubstr("tf_momentum"));
}

}  // namespace
}  // namespace trainyard::cli::bench_all_reduce_test
