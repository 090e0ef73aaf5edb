// `trainyard bench latency`: its queue against closed forms, its measurements against each other.
#include "trainyard/cli/bench_latency.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainyard/cli/request_queue.h"
#include "trainyard/cli/testing/cli.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/core/threads/stop_token.h"

namespace trainyard::cli::bench_latency_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

// A made clock: a batch of n takes fixed + n * each.
class MadeServer final : public BatchServer {
 public:
  MadeServer(double fixed, double each) : fixed_(fixed), each_(each) {}
  double now() override { return now_; }
  void wait_until(double time) override { now_ = std::max(now_, time); }
  void run(int64_t requests) override {
    sizes.push_back(requests);
    now_ += fixed_ + each_ * static_cast<double>(requests);
  }
  std::vector<int64_t> sizes;

 private:
  double fixed_, each_, now_ = 0;
};

double mean(const std::vector<double>& values) {
  return std::reduce(values.begin(), values.end()) / static_cast<double>(values.size());
}

TEST(RequestQueue, TakesWhatHasArrivedWhenItIsFree) {
  const std::vector<double> arrivals{0, 1, 2, 2.5, 3, 20};
  MadeServer server(3, 0);
  const QueueTimes times = serve_requests(arrivals, 3, server);
  EXPECT_THAT(server.sizes, ElementsAre(1, 3, 1, 1));  // the request of 3.0 has arrived at 3, as the fourth
  EXPECT_THAT(times.waits, ElementsAre(3, 5, 4, 3.5, 6, 3));
  EXPECT_EQ(times.batches, 4);
  EXPECT_DOUBLE_EQ(times.busy_seconds, 12);
  EXPECT_DOUBLE_EQ(times.end, 23);
}

TEST(RequestQueue, NoRequestsTakeNoTime) {
  MadeServer server(1, 1);
  EXPECT_EQ(serve_requests({}, 4, server).batches, 0);
}

TEST(RequestQueue, ArrivalsAreAPoissonProcess) {
  constexpr int64_t kCount = 100'000;
  const std::vector<double> arrivals = poisson_arrivals(50, kCount, 7);
  ASSERT_EQ(std::ssize(arrivals), kCount);
  std::vector<double> gaps(arrivals.size());
  std::adjacent_difference(arrivals.begin(), arrivals.end(), gaps.begin());
  EXPECT_NEAR(mean(gaps), 1.0 / 50, 4 / std::sqrt(kCount) / 50);
  // A gap is longer than t with probability exp(-50 t).
  for (const double t : {0.002, 0.02, 0.06}) {
    const double share = std::exp(-50 * t);
    const auto longer = std::count_if(gaps.begin(), gaps.end(), [&](double gap) { return gap > t; });
    EXPECT_NEAR(static_cast<double>(longer) / kCount, share, 4 * std::sqrt(share * (1 - share) / kCount)) << t;
  }
  EXPECT_EQ(poisson_arrivals(50, 10, 7), std::vector(arrivals.begin(), arrivals.begin() + 10));
  EXPECT_NE(poisson_arrivals(50, 10, 8), poisson_arrivals(50, 10, 7));
}

// Pollaczek and Khinchine: with one server, no batches and a constant service time s, requests wait
// s + rho s / (2 (1 - rho)) on the mean.
TEST(RequestQueue, WaitsAsTheClosedFormOfConstantServiceSays) {
  for (const double load : {0.3, 0.6, 0.8}) {
    constexpr double kService = 0.01;
    MadeServer server(kService, 0);
    const QueueTimes times = serve_requests(poisson_arrivals(load / kService, 400'000, 11), 1, server);
    const double expected = kService + load * kService / (2 * (1 - load));
    EXPECT_NEAR(mean(times.waits), expected, 0.02 * expected) << load;
    EXPECT_NEAR(times.busy_seconds / times.end, load, 0.01);
  }
}

TEST(RequestQueue, LargerBatchesServeMoreThanSingleRequests) {
  MadeServer single(0.009, 0.001), batched(0.009, 0.001);  // 100 a second alone, 640 a second in batches of 16
  const std::vector<double> arrivals = poisson_arrivals(300, 20'000, 3);
  EXPECT_GT(mean(serve_requests(arrivals, 1, single).waits), 10);
  EXPECT_LT(mean(serve_requests(arrivals, 16, batched).waits), 0.03);
}

LatencyBenchOptions small_bench() {
  return {.benched = {.model = "lenet", .dataset = "imagenet", .device = {.gpu = false}, .intra_op_threads = 1},
          .batch_sizes = {1, 4},
          .seconds = 0.02};
}

TEST(BenchLatency, TimesEachBatchSize) {
  const LatencyBenchReport report = bench_latency(small_bench());
  EXPECT_EQ(report.image_size, "28 x 28");
  EXPECT_TRUE(report.arrivals.empty());
  EXPECT_FALSE(report.best.has_value());
  ASSERT_EQ(report.batches.size(), 2u);
  for (const BatchLatency& row : report.batches) {
    EXPECT_GE(row.batches, 20);
    EXPECT_GT(row.seconds.p50, 0);
    EXPECT_LE(row.seconds.p50, row.seconds.p90);
    EXPECT_LE(row.seconds.p90, row.seconds.p99);
    EXPECT_GT(row.images_per_second, 0);
  }
  EXPECT_EQ(report.batches[1].batch_size, 4);
}

TEST(BenchLatency, EndsWhereItIsStopped) {
  core::StopSource stop;
  stop.request_stop(core::StopReason::kSignal, "SIGINT");
  LatencyBenchOptions options = small_bench();
  options.stop = stop.token();
  EXPECT_EQ(core::code_of([&] { static_cast<void>(bench_latency(options)); }), core::ErrorCode::kCancelled);
}

TEST(BenchLatency, AStopEndsALongWaitForARequest) {
  core::StopSource stop;
  LatencyBenchOptions options = small_bench();
  options.rate = 1e-3;  // 200 requests take two days
  options.stop = stop.token();
  std::thread stopper([&stop] {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    stop.request_stop(core::StopReason::kSignal, "SIGINT");
  });
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(core::code_of([&] { static_cast<void>(bench_latency(options)); }), core::ErrorCode::kCancelled);
  stopper.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
}

TEST(BenchLatency, MeasuresArrivalsForEachLimit) {
  LatencyBenchOptions options = small_bench();
  options.rate = 2000;
  options.p99_seconds = 60;  // which any machine meets
  const LatencyBenchReport report = bench_latency(options);
  ASSERT_EQ(report.arrivals.size(), 2u);
  for (const ArrivalLatency& row : report.arrivals) {
    EXPECT_EQ(row.requests, 200);  // at least, however short the measurement
    EXPECT_EQ(row.rate, 2000);
    EXPECT_GE(row.mean_batch, 1);
    EXPECT_GT(row.busy, 0);
    EXPECT_LE(row.busy, 1);
  }
  EXPECT_EQ(report.arrivals[0].mean_batch, 1);
  ASSERT_TRUE(report.best.has_value());
  EXPECT_EQ(report.arrivals[*report.best].seconds.p99,
            std::min(report.arrivals[0].seconds.p99, report.arrivals[1].seconds.p99));
}

TEST(BenchLatency, FindsTheHighestRateWithinTheBound) {
  LatencyBenchOptions options = small_bench();
  options.p99_seconds = 0.5;
  const LatencyBenchReport report = bench_latency(options);
  ASSERT_TRUE(report.best.has_value()) << latency_bench_text(report);
  const ArrivalLatency& best = report.arrivals[*report.best];
  EXPECT_LE(best.seconds.p99, 0.5);
  EXPECT_GT(best.rate, 0.1 * report.batches[0].images_per_second);
  EXPECT_LT(best.rate, std::max(report.batches[0].images_per_second, report.batches[1].images_per_second));
}

TEST(BenchLatency, SaysThatNothingMeetsTheBound) {
  LatencyBenchOptions options = small_bench();
  options.p99_seconds = 1e-7;
  const LatencyBenchReport found = bench_latency(options);
  EXPECT_FALSE(found.best.has_value());
  EXPECT_THAT(latency_bench_text(found),
              HasSubstr("no size of batch answers 99 of 100 requests within 0.0001 ms at any"));
  options.rate = 500;
  const LatencyBenchReport at_rate = bench_latency(options);
  EXPECT_FALSE(at_rate.best.has_value());
  EXPECT_EQ(at_rate.arrivals.size(), 2u);
}

// More requests than the machine can answer: the waits are those of the queue, which the text says.
TEST(BenchLatency, SaysThatThereAreTooManyRequests) {
  LatencyBenchOptions options = small_bench();
  options.batch_sizes = {1};
  options.rate = 500'000;
  const LatencyBenchReport report = bench_latency(options);
  EXPECT_GT(report.arrivals[0].busy, 0.98);
  EXPECT_THAT(latency_bench_text(report), HasSubstr("too many: the longer it runs, the longer they wait"));
}

TEST(BenchLatency, PrintsItsTableAndWritesJson) {
  const core::TempDir temp;
  const CommandResult result = run_command({"bench", "latency", "--model=lenet", "--data_name=imagenet", "--device=cpu",
                                            "--batch_sizes=1,3", "--rate=300", "--p99_ms=60000", "--seconds=0.02",
                                            "--num_intra_threads=1", "--json=" + temp.file("latency.json")});
  ASSERT_EQ(result.code, kSuccess) << result.err;
  EXPECT_THAT(result.out, HasSubstr("lenet, images of 28 x 28, float32, executor cpu, 1 threads, frozen"));
  EXPECT_EQ(count_lines(result.out, "^ +[13]( +[0-9.]+){5}$"), 2) << result.out;
  EXPECT_EQ(count_lines(result.out, "^ +[13]( +[0-9.]+){7} %"), 2) << result.out;
  EXPECT_EQ(count_lines(result.out, "^99 of 100 requests are answered within 6e\\+04 ms at 300.0 requests/s"), 1);
  const Json json = Json::parse(core::local_file_system().read_file(temp.file("latency.json"), 1 << 20));
  EXPECT_EQ(json["batches"][1]["batch_size"], 3);
  EXPECT_EQ(json["arrivals"][0]["rate"], 300);
  EXPECT_EQ(json["p99_bound_seconds"], 60);
  EXPECT_TRUE(json["best"].is_number());
}

TEST(BenchLatency, TakesKernelsAndSeedOfTheFlags) {
  const auto options_of = [](const Arguments& more) {
    core::FlagTable table;
    declare_bench_latency_flags(table);
    return read_bench_latency_options(
        core::parse_flags(table, with_flags({"--model=resnet20", "--data_name=cifar10", "--device=cpu"}, more)));
  };
  const auto fusions = [&](const Arguments& more) {
    return open_benched_device(options_of(more).benched).kernels.fusions;
  };
  EXPECT_EQ(fusions({}), nn::Fusions());
  EXPECT_EQ(fusions({"--noenable_optimizations"}), nn::Fusions::none());
  nn::Fusions norms_alone;
  norms_alone.norm_addition = norms_alone.norm_activation = false;
  EXPECT_EQ(fusions({"--nobatchnorm_persistent"}), norms_alone);
  EXPECT_EQ(options_of({}).seed, 1234U);
  EXPECT_EQ(options_of({"--tf_random_seed=5"}).seed, 5U);
}

TEST(BenchLatency, RefusesWhatCannotBeTimed) {
  const auto error = [](const Arguments& more) {
    const CommandResult result =
        run_command(with_flags({"bench", "latency", "--model=lenet", "--data_name=imagenet", "--device=cpu"}, more));
    EXPECT_EQ(result.code, kUsage) << result.err;
    return result.err;
  };
  for (const char* sizes : {"0", "1,1", "4,2", "1,x", "1.5", "-3", "5000", "1,99999999999999999999"}) {
    EXPECT_THAT(error({std::string("--batch_sizes=") + sizes}), HasSubstr("different ones from 1 to 4096, ascending"));
  }
  EXPECT_THAT(error({"--rate=0"}), HasSubstr("more than 0 a second"));
  EXPECT_THAT(error({"--p99_ms=0"}), HasSubstr("more than 0 ms"));
  EXPECT_THAT(error({"--model="}), HasSubstr("trainyard bench latency needs a model"));
}

LatencyBenchOptions options_of(const Arguments& arguments) {
  core::FlagTable table;
  declare_bench_latency_flags(table);
  return read_bench_latency_options(core::parse_flags(table, arguments));
}

TEST(BenchLatency, EachFlagReachesItsOption) {
  const LatencyBenchOptions options =
      options_of({"--model=lenet", "--data_name=imagenet", "--image_size=20x24", "--device=gpu", "--executor=reference",
                  "--use_bf16", "--num_intra_threads=1", "--batch_sizes=2,5", "--rate=7.5", "--p99_ms=250",
                  "--seconds=0.5", "--tf_random_seed=9"});
  EXPECT_EQ(options.benched.model, "lenet");
  EXPECT_EQ(options.benched.dataset, "imagenet");
  EXPECT_EQ(options.benched.image_size, nn::Size2d(20, 24));
  EXPECT_EQ(options.benched.weights, "");
  EXPECT_EQ(options.benched.precision, frontends::Precision::kAuto);
  EXPECT_EQ(options.benched.device.gpu, true);
  EXPECT_EQ(options.benched.device.executor, "reference");
  EXPECT_TRUE(options.benched.device.use_bf16);
  EXPECT_FALSE(options.benched.device.use_fp16);
  EXPECT_EQ(options.benched.intra_op_threads, 1);
  EXPECT_EQ(options.batch_sizes, (std::vector<int64_t>{2, 5}));
  EXPECT_EQ(options.rate, 7.5);
  EXPECT_EQ(options.p99_seconds, 0.25);
  EXPECT_EQ(options.seconds, 0.5);
  EXPECT_EQ(options.seed, 9U);
  const LatencyBenchOptions plain = options_of({"--weights=run"});
  EXPECT_EQ(plain.benched.weights, "run");
  EXPECT_EQ(plain.benched.device.gpu, std::nullopt) << "a GPU where there is one";
  EXPECT_EQ(plain.benched.device.executor, "auto");
  EXPECT_EQ(plain.benched.intra_op_threads, 0);
  EXPECT_FALSE(plain.benched.device.use_bf16 || plain.benched.device.use_fp16);
  EXPECT_EQ(plain.batch_sizes, (std::vector<int64_t>{1, 2, 4, 8, 16, 32}));
  EXPECT_FALSE(plain.rate || plain.p99_seconds);
  EXPECT_EQ(plain.seconds, 5);
}

TEST(BenchLatency, TypesThatExcludeEachOther) {
  const auto message = [](const Arguments& more) {
    return core::message_of([&] { static_cast<void>(options_of(with_flags({"--model=lenet"}, more))); });
  };
  EXPECT_EQ(message({"--use_bf16", "--use_fp16"}), "--use_fp16 and --use_bf16 exclude each other");
  EXPECT_EQ(message({"--precision=float32", "--use_bf16"}), "--precision=float32 and --use_bf16 exclude each other");
  EXPECT_EQ(message({"--precision=int8", "--use_fp16"}), "--precision=int8 and --use_fp16 exclude each other");
  EXPECT_EQ(message({"--precision=int8", "--use_bf16"}), "no error") << "8 bits, and what stays in float in bfloat16";
  const LatencyBenchOptions half = options_of({"--model=lenet", "--precision=bfloat16"});
  EXPECT_TRUE(half.benched.device.use_bf16);
  EXPECT_EQ(half.benched.precision, frontends::Precision::kBfloat16);
}

TEST(BenchLatency, TheTypeIsSaidInWords) {
  train::OpenDevices devices;
  devices.dtype = at::kFloat;
  EXPECT_EQ(benched_dtype_text(devices), "");
  EXPECT_EQ(benched_dtype_text(devices, true), "int8");
  devices.dtype = at::kBFloat16;
  EXPECT_EQ(benched_dtype_text(devices), "bfloat16");
  EXPECT_EQ(benched_dtype_text(devices, true), "int8 and bfloat16");
  devices.dtype = at::kHalf;
  EXPECT_EQ(benched_dtype_text(devices), "float16");
}

}  // namespace
}  // namespace trainyard::cli::bench_latency_test
