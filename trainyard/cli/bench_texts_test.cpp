// What benchmarks print of a report whose numbers are known, byte for byte: which number stands where, its unit, and
// the lines that depend on it.
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainyard/cli/bench_all_reduce.h"
#include "trainyard/cli/bench_data.h"
#include "trainyard/cli/bench_latency.h"
#include "trainyard/cli/bench_quantization.h"
#include "trainyard/cli/bench_timing.h"
#include "trainyard/cli/bench_update.h"
#include "trainyard/train/monitors/curve_svg.h"

namespace trainyard::cli::bench_texts_test {
namespace {

using Json = nlohmann::json;

TEST(BenchTexts, OfData) {
  DataBenchReport report{.dataset = "shapes", .samples = 60, .batch_size = 16, .height = 32, .width = 48, .threads = 2};
  report.seconds = 2.5;
  report.first_batch_seconds = 0.75;
  report.images = 500;
  report.bytes = 30'000'000;
  report.stages.seconds = {1, 2, 0.5, 0.25, 0, 0.125, 4};
  report.waited_seconds = 0.5;
  report.peak_memory_bytes = 3 << 20;
  report.rates = {{"synthetic", 9000.26}, {"decode only", 800}, {"full", 200.125}};
  EXPECT_EQ(data_bench_text(report),
            "shapes: 60 images, batches of 16 x 3 x 32 x 48 float32, 2 threads, 2.5 s\n"
            "\n"
            "stage          seconds     share    us/image\n"
            "read              1.00     12.7%      2000.0\n"
            "decode            2.00     25.4%      4000.0\n"
            "resize            0.50      6.3%      1000.0\n"
            "augment           0.25      3.2%       500.0\n"
            "mix               0.00      0.0%         0.0\n"
            "collate           0.12      1.6%       250.0\n"
            "wait              4.00     50.8%      8000.0\n"
            "\n"
            "synthetic         9000.3 images/s\n"
            "decode only        800.0 images/s\n"
            "full               200.1 images/s\n"
            "\n"
            "read 12.0 MB/s of encoded images; the consumer waited 20 % of the time; first batch after 0.75 s; peak "
            "memory 3 MiB\n"
            "total images/sec: 200.12\n");
}

TEST(BenchTexts, OfDataOfWhichNothingWasMeasured) {
  DataBenchReport report{.dataset = "x", .seconds = 1, .rates = {{"full", 0}}};
  const std::string text = data_bench_text(report);
  EXPECT_NE(text.find("read              0.00      0.0%         0.0\n"), std::string::npos) << text;
}

LatencyBenchReport latencies() {
  LatencyBenchReport report{.model = "m", .executor = "cpu", .dtype = "bfloat16", .image_size = "8 x 9", .threads = 3};
  report.batches = {{.batch_size = 1, .batches = 70, .seconds = {0.001, 0.002, 0.003}, .images_per_second = 900.04},
                    {.batch_size = 4, .batches = 40, .seconds = {0.004, 0.005, 0.006}, .images_per_second = 2000}};
  report.arrivals = {
      {.most = 1, .rate = 50.5, .requests = 101, .seconds = {0.010, 0.020, 0.030}, .mean_batch = 1, .busy = 0.98},
      {.most = 4, .rate = 60.25, .requests = 121, .seconds = {0.0075, 0.008, 0.009}, .mean_batch = 2.5, .busy = 0.985}};
  return report;
}

TEST(BenchTexts, OfLatency) {
  LatencyBenchReport report = latencies();
  const std::string table =
      "m, images of 8 x 9, bfloat16, executor cpu, 3 threads, frozen\n"
      "\n"
      "one batch after the other\n"
      "     batch    p50 ms    p90 ms    p99 ms    images/s   batches\n"
      "         1      1.00      2.00      3.00       900.0        70\n"
      "         4      4.00      5.00      6.00      2000.0        40\n"
      "\n"
      "requests that arrive at random, and are answered in batches of those that wait\n"
      "   at most    p50 ms    p90 ms    p99 ms  requests/s  requests  mean batch    busy\n"
      "         1     10.00     20.00     30.00        50.5       101         1.0    98 %\n"
      "         4      7.50      8.00      9.00        60.2       121         2.5    98 %  too many: the longer it "
      "runs, the longer they wait\n";
  EXPECT_EQ(latency_bench_text(report), table) << "no bound, no conclusion";
  report.p99_seconds = 0.0125;
  EXPECT_EQ(latency_bench_text(report),
            table +
                "\n"
                "no size of batch answers 99 of 100 requests within 12.5 ms; a single image alone takes 1.00 ms\n");
  report.best = 1;
  EXPECT_EQ(latency_bench_text(report),
            table +
                "\n"
                "99 of 100 requests are answered within 12.5 ms at 60.2 requests/s with batches of at most 4\n");
  report.best.reset();
  report.arrivals.clear();
  report.dtype = "";
  const std::string alone = latency_bench_text(report);
  EXPECT_EQ(alone.find("m, images of 8 x 9, float32, executor cpu, 3 threads, frozen\n"), 0U) << alone;
  EXPECT_EQ(alone.find("requests that arrive"), std::string::npos) << alone;
  EXPECT_NE(alone.find("within 12.5 ms at any rate; a single image alone takes 1.00 ms\n"), std::string::npos) << alone;
}

TEST(BenchTexts, OfLatencyAsJson) {
  LatencyBenchReport report = latencies();
  const Json open = Json::parse(latency_bench_json(report));
  EXPECT_TRUE(open["p99_bound_seconds"].is_null() && open["best"].is_null());
  report.p99_seconds = 0.0125;
  report.best = 1;
  EXPECT_EQ(Json::parse(latency_bench_json(report)), Json::parse(R"({
    "model": "m", "image_size": "8 x 9", "dtype": "bfloat16", "executor": "cpu", "threads": 3,
    "p99_bound_seconds": 0.0125, "best": 1,
    "batches": [
      {"batch_size": 1, "batches": 70, "seconds": {"p50": 0.001, "p90": 0.002, "p99": 0.003}, "images_per_second": 900.04},
      {"batch_size": 4, "batches": 40, "seconds": {"p50": 0.004, "p90": 0.005, "p99": 0.006}, "images_per_second": 2000.0}],
    "arrivals": [
      {"most": 1, "rate": 50.5, "requests": 101, "seconds": {"p50": 0.01, "p90": 0.02, "p99": 0.03}, "mean_batch": 1.0,
       "busy": 0.98},
      {"most": 4, "rate": 60.25, "requests": 121, "seconds": {"p50": 0.0075, "p90": 0.008, "p99": 0.009}, "mean_batch": 2.5,
       "busy": 0.985}]})"));
}

TEST(BenchTexts, OfUpdates) {
  AllReduceBenchReport report{.ranks = 3, .optimizer = "sgd"};
  EXPECT_EQ(update_bench_table(report), "");
  report.updates = {{4096, "copy", 7, 0.0005, 0.0006},
                    {4096, "optimizer", 8, 0.002, 0.003},
                    {4096, "reduce and update", 9, 0.004, 0.005}};
  EXPECT_EQ(
      update_bench_table(report),
      "\n"
      "4096 bytes of parameters, sgd, 3 ranks; each time is that of the slowest rank; copies more than the optimizer\n"
      "\n"
      "operation            times      median         p95    copies      more\n"
      "copy                     7    500.0 us    600.0 us      1.00     -3.00\n"
      "optimizer                8     2.00 ms     3.00 ms      4.00      0.00\n"
      "reduce and update        9     4.00 ms     5.00 ms      8.00      4.00\n");
}

AllReduceBenchReport all_reduces() {
  AllReduceBenchReport report{
      .ranks = 4, .model = "m", .gradient_bytes = 88, .iters_per_step = 5, .step_seconds = 0.25};
  report.mpi_absent = "it is not built in";
  report.timings = {{3 << 20, "all-reduce", 7, 0.001, 0.0011}, {1000, "copy", 9, 0.0000005, 0.000001}};
  return report;
}

TEST(BenchTexts, OfAllReduces) {
  EXPECT_EQ(all_reduce_bench_table({}), "");
  AllReduceBenchReport report = all_reduces();
  EXPECT_EQ(all_reduce_bench_table(report),
            "\n"
            "4 ranks on threads of a process, float32, sum; each time is that of the slowest rank\n"
            "MPI_Allreduce was not measured: it is not built in\n"
            "\n"
            "   bytes  operation      times      median         p95      GB/s  bus GB/s\n"
            "      3M  all-reduce         7     1.00 ms     1.10 ms      3.15      4.72\n"
            "    1000  copy               9      0.5 us      1.0 us      2.00      2.00\n");
  report.processes = 2;
  report.algorithm = "ring";
  report.mpi = "Open MPI v4";
  EXPECT_EQ(all_reduce_bench_table(report),
            "\n"
            "4 ranks in 2 processes, float32, sum by ring; each time is that of the slowest rank\n"
            "MPI_Allreduce is that of Open MPI v4\n"
            "\n"
            "   bytes  operation      times      median         p95      GB/s  bus GB/s\n"
            "      3M  all-reduce         7     1.00 ms     1.10 ms      3.15      4.72\n"
            "    1000  copy               9      0.5 us      1.0 us      2.00      2.00\n");
}

TEST(BenchTexts, OfAllReducesAsJson) {
  AllReduceBenchReport report = all_reduces();
  report.timings = {{1000, "all-reduce", 7, 0.5, 0.75}};
  report.updates = {{4096, "copy", 8, 0.125, 0.25}};
  report.optimizer = "sgd";
  EXPECT_EQ(Json::parse(all_reduce_bench_json(report)), Json::parse(R"({
    "ranks": 4, "processes": 1, "model": "m", "algorithm": null, "gradient_bytes": 88, "iters_per_step": 5,
    "average_step_seconds": 0.25, "mpi": null, "mpi_absent": "it is not built in", "optimizer": "sgd",
    "timings": [{"bytes": 1000, "operation": "all-reduce", "times": 7, "median_seconds": 0.5, "p95_seconds": 0.75,
                 "bytes_per_second": 2000.0, "bus_bytes_per_second": 3000.0}],
    "updates": [{"bytes": 4096, "operation": "copy", "times": 8, "median_seconds": 0.125, "p95_seconds": 0.25}]})"));
}

// The points of each series, over the logarithm of the bytes; how they are drawn has tests of its own.
TEST(BenchTexts, OfAllReducesAsAPicture) {
  AllReduceBenchReport report = all_reduces();
  report.timings = {{1 << 20, "all-reduce", 7, 0.001, 0.002},
                    {1 << 10, "copy", 9, 0.00001, 0.00002},
                    {1 << 12, "all-reduce", 7, 0.0001, 0.0002}};
  const auto bandwidth = [&](size_t timing) { return 1e-9 * report.timings[timing].bus_bandwidth(4); };
  const std::vector<train::CurveAxis> axis = {{"log2 of the tensor's bytes"}};
  const std::vector<train::CurveSeries> bandwidths = {
      {.name = "all-reduce", .x = {20, 12}, .y = {bandwidth(0), bandwidth(2)}},
      {.name = "copy", .x = {10}, .y = {bandwidth(1)}}};
  const std::vector<train::CurveSeries> latencies = {{.name = "all-reduce", .x = {20, 12}, .y = {3, 2}},
                                                     {.name = "copy", .x = {10}, .y = {1}}};
  EXPECT_EQ(all_reduce_bench_svg(report),
            train::curve_svg("all-reduce, 4 ranks on threads of a process",
                             {{.title = "bus GB/s", .series = bandwidths, .x_axes = axis},
                              {.title = "log10 of us", .series = latencies, .x_axes = axis}}));
}

TEST(BenchTexts, OfQuantization) {
  const double exact = std::numeric_limits<double>::infinity(), none = std::nan("");
  QuantizationBenchReport report{.model = "m",
                                 .method = "smooth",
                                 .signal_to_noise = 31.5,
                                 .images = 32,
                                 .batch_size = 4,
                                 .images_per_second = 120.26};
  report.layers = {{.noise = {"conv1", true, 40, 45.5}, .time_share = 0.25},
                   {.noise = {"conv_2", true, exact, 44.5}, .time_share = 0.5},
                   {.noise = {"fc", false, 38, none}, .time_share = 0.125, .in_float = "it is small"},
                   {.noise = {"sum", false, 37, none}}};
  EXPECT_EQ(quantization_bench_text(report),
            "m in 8 bits by smooth: 31.5 dB of the logits; 120.3 images/s at batch 4; noise on 32 images\n"
            "\n"
            "layer         dB   alone, dB    time  computes in\n"
            "conv1       40.0        45.5  25.0 %  8 bits\n"
            "conv_2     exact        44.5  50.0 %  8 bits\n"
            "fc          38.0           -  12.5 %  float: it is small\n"
            "sum         37.0           -   0.0 %  float\n"
            "\n"
            "the layer that costs most: conv_2, 44.5 dB alone\n");
  const Json json = Json::parse(quantization_bench_json(report));
  EXPECT_EQ(json["signal_to_noise_db"], 31.5);
  EXPECT_EQ(json["images"], 32);
  EXPECT_EQ(json["batch_size"], 4);
  EXPECT_EQ(json["method"], "smooth");
  EXPECT_EQ(json["layers"][0], Json::parse(R"({"name": "conv1", "in_8_bits": true, "signal_to_noise_db": 40.0,
      "own_signal_to_noise_db": 45.5, "time_share": 0.25, "in_float": ""})"));
  EXPECT_TRUE(json["layers"][1]["signal_to_noise_db"].is_null()) << "JSON has no infinity";
  report.layers.erase(report.layers.begin(), report.layers.begin() + 2);
  const std::string of_floats = quantization_bench_text(report);
  EXPECT_EQ(of_floats.find("costs most"), std::string::npos) << of_floats;
  EXPECT_NE(of_floats.find("\nlayer        dB"), std::string::npos) << of_floats;
}

TEST(BenchTexts, OfQuantizationAsAPicture) {
  QuantizationBenchReport report{.model = "m", .method = "smooth"};
  report.layers = {{.noise = {"conv1", true, 40, 45.5}, .time_share = 0.25},
                   {.noise = {"fc", false, 38, std::nan("")}, .time_share = 0.125}};
  const std::vector<train::CurveAxis> axis = {{"layer"}};
  const std::vector<train::CurveSeries> noise = {
      {.name = "with all before it", .x = {1, 2}, .y = {40, 38}},
      {.name = "alone", .x = {1, 2}, .y = {45.5, std::nan("")}, .joined = false}};
  const std::vector<train::CurveSeries> times = {{.name = "% of the time", .x = {1, 2}, .y = {25, 12.5}}};
  EXPECT_EQ(
      quantization_bench_svg(report),
      train::curve_svg("m in 8 bits by smooth", {{.title = "signal to noise, dB", .series = noise, .x_axes = axis},
                                                 {.title = "time", .series = times, .x_axes = axis}}));
}

TEST(BenchTexts, OfNumbers) {
  EXPECT_EQ(bytes_text(0), "0G");
  EXPECT_EQ(bytes_text(1023), "1023");
  EXPECT_EQ(bytes_text(1024), "1K");
  EXPECT_EQ(bytes_text(1536), "1536");
  EXPECT_EQ(bytes_text(5 << 20), "5M");
  EXPECT_EQ(bytes_text(int64_t{3} << 30), "3G");
  EXPECT_EQ(time_text(0.0009994), "999.4 us");
  EXPECT_EQ(time_text(0.001), "1.00 ms");
  EXPECT_EQ(time_text(2.5), "2500.00 ms");
}

}  // namespace
}  // namespace trainyard::cli::bench_texts_test
