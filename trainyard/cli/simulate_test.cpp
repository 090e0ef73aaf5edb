// `trainyard simulate`: its table, its JSON, what it reads and refuses.
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainyard/cli/simulate_inputs.h"
#include "trainyard/cli/testing/cli.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"

namespace trainyard::cli::simulate_test {
namespace {

using core::ErrorCode;
using Json = nlohmann::json;
using ::testing::HasSubstr;

const Arguments kByHand = {"simulate",   "--model=trivial", "--data_name=cifar10", "--forward=2",   "--backward=4",
                           "--update=1", "--batch_size=8",  "--bandwidth=1gbit",   "--latency=50us"};

Json simulated(const Arguments& more) {
  const core::TempDir temp;
  const std::string file = temp.file("simulation.json");
  Arguments arguments = with_flags(kByHand, more);
  arguments.push_back("--json=" + file);
  const CommandResult result = run_command(arguments);
  EXPECT_EQ(result.code, kSuccess) << result.err;
  return Json::parse(core::local_file_system().read_file(file, 1 << 24));
}

std::string error_of(const Arguments& more) {
  const CommandResult result = run_command(with_flags(kByHand, more));
  EXPECT_EQ(result.code, kUsage) << result.err;
  EXPECT_EQ(result.out, "");
  return result.err;
}

TEST(Simulate, OneWorkerTakesWhatItComputes) {
  const Json json = simulated({"--workers=1"});
  ASSERT_EQ(json["predictions"].size(), 1U);
  EXPECT_DOUBLE_EQ(json["predictions"][0]["step_seconds"].get<double>(), 7e-3);
  EXPECT_DOUBLE_EQ(json["predictions"][0]["images_per_second"].get<double>(), 8 / 7e-3);
  EXPECT_EQ(json["predictions"][0]["efficiency"], 1);
  EXPECT_EQ(json["predictions"][0]["servers"], nullptr);
}

// The only bucket, 17 MB, leaves at the end of the backward: a ring of 4 sends 1.5 times its bytes, after 6 messages of
// the agreement and with 6 of its own.
TEST(Simulate, ARingOfFourTakesWhatItsClosedFormSays) {
  const Json json = simulated({"--workers=4", "--algorithm=ring", "--data_name=imagenet", "--bandwidth=100mbit"});
  double exchanged = 0;
  for (const Json& bucket : json["buckets"]) exchanged += 1.5 * bucket["bytes"].get<double>() / 12.5e6;
  const Json& step = json["predictions"][0];
  // The first bucket is ready before the backward ends.
  EXPECT_NEAR(step["step_seconds"].get<double>() - 2e-3 - 1e-3 - 12 * 50e-6, exchanged, 4.001e-3);
  EXPECT_NEAR(step["exposed_seconds"].get<double>(), step["step_seconds"].get<double>() - 7e-3, 1e-12);
}

TEST(Simulate, PrintsARowForEachAlgorithmAndNumberOfWorkers) {
  const CommandResult result = run_command(
      with_flags(kByHand, {"--workers=1,2,8", "--algorithm=ring,shuffle#n,parameter_server", "--servers=2"}));
  ASSERT_EQ(result.code, kSuccess) << result.err;
  EXPECT_EQ(count_lines(result.out, "^ring "), 3);
  EXPECT_EQ(count_lines(result.out, "^shuffle#n +8 "), 1);
  EXPECT_EQ(count_lines(result.out, "^parameter_server +2 "), 1);
  EXPECT_THAT(result.out, HasSubstr("trivial, batch 8: 2.0 ms before the backward, 4.0 ms backward, 1.0 ms after it"));
  EXPECT_THAT(result.out, HasSubstr("links of 1 Gbit/s and 50 us"));
}

TEST(Simulate, TheTableOfOneWorkerIsThatOfItsTimes) {
  const CommandResult result = run_command(with_flags(kByHand, {"--workers=1", "--bandwidth=64mbit"}));
  ASSERT_EQ(result.code, kSuccess) << result.err;
  EXPECT_THAT(result.out, HasSubstr("links of 64 Mbit/s and 50 us\n\n"
                                    "algorithm  workers    ms a step      images/s  efficiency    not hidden\n"
                                    "chain            1         7.00       1142.86     100.0 %       0.00 ms\n"));
}

TEST(Simulate, WritesWhatItPredictsFrom) {
  const core::TempDir temp;
  const std::string file = temp.file("simulation.json");
  const CommandResult result = run_command(with_flags(kByHand, {"--workers=1,2", "--json=" + file}));
  ASSERT_EQ(result.code, kSuccess) << result.err;
  const Json json = Json::parse(core::local_file_system().read_file(file, 1 << 24));
  EXPECT_EQ(json["model"], "trivial");
  EXPECT_EQ(json["batch_size"], 8);
  EXPECT_DOUBLE_EQ(json["before_seconds"].get<double>(), 2e-3);
  EXPECT_DOUBLE_EQ(json["backward_seconds"].get<double>(), 4e-3);
  EXPECT_DOUBLE_EQ(json["after_seconds"].get<double>(), 1e-3);
  EXPECT_DOUBLE_EQ(json["bytes_per_second"].get<double>(), 1e9 / 8);
  EXPECT_DOUBLE_EQ(json["latency_seconds"].get<double>(), 50e-6);
  double bytes = 0, ready = 0;
  for (const Json& bucket : json["buckets"]) {
    bytes += bucket["bytes"].get<double>();
    EXPECT_GE(bucket["ready_seconds"].get<double>(), ready) << "in the order of the backward";
    ready = bucket["ready_seconds"].get<double>();
  }
  EXPECT_GT(ready, 0);
  EXPECT_LE(ready, 4e-3 + 1e-12) << "the last one is ready when the backward ends";
  EXPECT_THAT(result.out,
              HasSubstr(fmt::format("; {:.1f} MB of gradients in {} buckets\n", 1e-6 * bytes, json["buckets"].size())));
  ASSERT_EQ(json["predictions"].size(), 2U);
  for (size_t i = 0; i < 2; ++i) {
    const Json& row = json["predictions"][i];
    EXPECT_EQ(row["algorithm"], "chain");
    EXPECT_EQ(row["workers"], i + 1);
    const double step = row["step_seconds"], images = row["images_per_second"], efficiency = row["efficiency"],
                 exposed = row["exposed_seconds"];
    EXPECT_THAT(result.out, HasSubstr(fmt::format("chain      {:7}  {:11.2f}  {:12.2f}  {:8.1f} %  {:9.2f} ms\n", i + 1,
                                                  1e3 * step, images, 100 * efficiency, 1e3 * exposed)));
  }
}

TEST(Simulate, ReadsWhatBenchLayersHasMeasured) {
  const core::TempDir temp;
  const std::string file = temp.file("layers.json");
  const CommandResult bench = run_command({"bench", "layers", "--model=lenet", "--batch_size=4", "--device=cpu",
                                           "--num_batches=2", "--num_warmup_batches=1", "--json=" + file});
  ASSERT_EQ(bench.code, kSuccess) << bench.err;
  const CommandResult result = run_command({"simulate", "--compute=" + file, "--workers=1", "--bandwidth=1gbit",
                                            "--latency=1us", "--json=" + temp.file("out")});
  ASSERT_EQ(result.code, kSuccess) << result.err;
  const Json measured = Json::parse(core::local_file_system().read_file(file, 1 << 24));
  const Json json = Json::parse(core::local_file_system().read_file(temp.file("out"), 1 << 24));
  EXPECT_EQ(json["model"], "lenet");
  EXPECT_EQ(json["batch_size"], 4);
  EXPECT_NEAR(json["predictions"][0]["step_seconds"].get<double>(),
              measured["step_seconds"].get<double>() - measured["outside_seconds"]["reduce"].get<double>(), 1e-9);
  EXPECT_LE(json["buckets"].back()["ready_seconds"].get<double>(), json["backward_seconds"].get<double>());
  EXPECT_EQ(measured["image_size"], (Json{28, 28}));
  const auto with = [&](const Arguments& more) {
    return run_command(with_flags({"simulate", "--compute=" + file, "--bandwidth=1gbit", "--latency=1us"}, more));
  };
  EXPECT_THAT(with({"--model=trivial"}).err, HasSubstr("the times are those of another model"));
  // The times are those of four images.
  for (const Arguments& more : {Arguments{"--batch_size=8"}, {"--batch_size=8", "--forward=1", "--update=1"}}) {
    const CommandResult refused = with(more);
    EXPECT_EQ(refused.code, kUsage) << refused.out;
    EXPECT_THAT(refused.err, HasSubstr("another batch: " + file + ": expected 8 images of a worker and step, got 4"));
  }
  EXPECT_EQ(with({"--batch_size=4"}).code, kSuccess);
  EXPECT_THAT(with({"--batch_size=8", "--forward=1", "--backward=2"}).out, HasSubstr("batch 8: 1.0 ms before"));
}

// A linear layer behind a flattening has a weight for each pixel.
TEST(Simulate, CountsTheGradientsOfTheImagesThatWereMeasured) {
  const auto elements = [](const std::string& size) {
    const std::string text = R"({"model": "trivial", "conditions": [], "batch_size": 4, )" + size +
                             R"("step_seconds": 1, "layers": [{"nodes": ["affine0"], "backward": {"seconds": 0.5}}],
                               "outside_seconds": {"update": 0.1}})";
    return static_cast<double>(read_compute("layers.json", text, {.dataset = "cifar10"}).elements());
  };
  const double own = elements("");
  EXPECT_EQ(elements(R"("image_size": [32, 32], )"), own);
  EXPECT_NEAR(own - elements(R"("image_size": [24, 20], )"), 3 * (32 * 32 - 24 * 20), 64) << "up to an alignment";
  for (const std::string size : {R"("image_size": 24, )", R"("image_size": [24], )", R"("image_size": ["x", 1], )"}) {
    EXPECT_THROW(elements(size), core::Error) << size;
  }
}

// What is neither backward, exchange nor update is before the backward.
TEST(Simulate, DividesTheMeasuredStepIntoItsParts) {
  const std::string text = R"({"model": "trivial", "conditions": [], "batch_size": 4, "step_seconds": 1.5,
    "layers": [{"nodes": ["affine0", "affine1"], "backward": {"seconds": 0.5}},
               {"nodes": ["affine2"], "backward": {"seconds": 0.25}}],
    "outside_seconds": {"reduce": 0.125, "update": 0.0625}})";
  const parallel::ComputeProfile measured = read_compute("layers.json", text, {.dataset = "cifar10"});
  EXPECT_EQ(measured.batch_size, 4);
  EXPECT_DOUBLE_EQ(measured.before_seconds, 0.5625);
  EXPECT_DOUBLE_EQ(measured.backward_seconds, 0.75);
  EXPECT_DOUBLE_EQ(measured.after_seconds, 0.0625);
  const parallel::ComputeProfile given =
      read_compute("layers.json", text, {.dataset = "cifar10", .forward_seconds = 2, .update_seconds = 3});
  EXPECT_DOUBLE_EQ(given.before_seconds, 2);
  EXPECT_DOUBLE_EQ(given.backward_seconds, 0.75);
  EXPECT_DOUBLE_EQ(given.after_seconds, 3);
}

std::string bench_of_link(int processes, const std::string& algorithm) {
  // Two ranks of a chain or a ring send the tensor once: 10 MB/s.
  return fmt::format(R"({{"ranks": 2, "processes": {}, "algorithm": {}, "timings": [
    {{"operation": "copy", "bytes": 1000000, "median_seconds": 1e-6}},
    {{"operation": "all-reduce", "bytes": 10000000, "median_seconds": 1.0}},
    {{"operation": "all-reduce", "bytes": 100000000, "median_seconds": 10.0}}]}})",
                     processes, algorithm);
}

TEST(Simulate, FindsTheLinkThatWasMeasured) {
  const core::TempDir temp;
  core::local_file_system().write_file_atomically(temp.file("link.json"), bench_of_link(2, "\"ring\""));
  Arguments arguments = kByHand;
  std::erase_if(arguments, [](const std::string& flag) { return flag.starts_with("--ba") && flag.ends_with("gbit"); });
  std::erase(arguments, "--latency=50us");
  arguments.insert(arguments.end(), {"--fit=" + temp.file("link.json"), "--json=" + temp.file("out")});
  ASSERT_EQ(run_command(arguments).code, kSuccess);
  const Json json = Json::parse(core::local_file_system().read_file(temp.file("out"), 1 << 24));
  EXPECT_NEAR(json["bytes_per_second"].get<double>() / 10e6, 1, 1e-2);
  EXPECT_LT(json["latency_seconds"].get<double>(), 1e-2);
  // What is given replaces what was found.
  arguments.emplace_back("--bandwidth=10mbit");
  ASSERT_EQ(run_command(arguments).code, kSuccess);
  EXPECT_EQ(Json::parse(core::local_file_system().read_file(temp.file("out"), 1 << 24))["bytes_per_second"], 1.25e6);
}

TEST(Simulate, RefusesWhatIsNoMeasurementOfALink) {
  EXPECT_EQ(read_measured_link("x", bench_of_link(2, "null")).algorithm, "chain");
  const auto error = [](const std::string& text, ErrorCode code) {
    return core::message_of([&] { (void)read_measured_link("link.json", text); }, code);
  };
  EXPECT_THAT(error(bench_of_link(1, "null"), ErrorCode::kInvalidArgument), HasSubstr("two machines"));
  EXPECT_THAT(error(bench_of_link(2, "\"auto (ring)\""), ErrorCode::kInvalidArgument), HasSubstr("while it ran"));
  for (const std::string text : {"", "{}", "[1]", R"({"ranks": "two"})", "\xff"}) {
    EXPECT_THAT(error(text, ErrorCode::kCorruptData), HasSubstr("link.json")) << text;
  }
}

TEST(Simulate, ReadsTheTimesOfALinkOfEachSize) {
  const MeasuredLink link = read_measured_link("x", bench_of_link(2, "\"ring\""));
  EXPECT_EQ(link.ranks, 2);
  ASSERT_EQ(link.all_reduces.size(), 2U);
  EXPECT_EQ(link.all_reduces[1].bytes, 100'000'000);
  EXPECT_EQ(link.all_reduces[1].seconds, 10);
  const auto of_three = [](int processes, const std::string& algorithm) {
    return fmt::format(R"({{"ranks": 3, "processes": {}, "algorithm": {}, "timings": []}})", processes, algorithm);
  };
  EXPECT_EQ(read_measured_link("x", of_three(3, "\"ring\"")).ranks, 3);
  EXPECT_THAT(core::message_of([&] { (void)read_measured_link("x", of_three(3, "null")); }), HasSubstr("while it ran"))
      << "the algorithm counts between three";
  EXPECT_THAT(core::message_of([&] { (void)read_measured_link("x", of_three(2, "\"ring\"")); }),
              HasSubstr("two machines"));
}

TEST(Simulate, RefusesTimesThatAreNone) {
  const auto error = [](const std::string& text, ErrorCode code) {
    return core::message_of([&] { (void)read_compute("layers.json", text, {}); }, code);
  };
  for (const std::string text : {"", "{}", R"({"conditions": [], "batch_size": 1e99})"}) {
    EXPECT_THAT(error(text, ErrorCode::kCorruptData), HasSubstr("layers.json")) << text;
  }
  EXPECT_THAT(error(R"({"conditions": ["forward only"]})", ErrorCode::kInvalidArgument), HasSubstr("inference"));
  EXPECT_THAT(error(R"({"model": "trivial", "conditions": [], "batch_size": 1, "layers": [], "outside_seconds": {},
                        "step_seconds": 1})",
                    ErrorCode::kInvalidArgument),
              HasSubstr("no time"));
}

TEST(Simulate, RefusesImpossibleFlags) {
  for (const auto& [flag, message] : {std::pair{"--bandwidth=fast", "10gbit"},
                                      {"--bandwidth=0mbit", "carries nothing"},
                                      {"--bandwidth=-1mbit", "no bandwidth"},
                                      {"--bandwidth=nangbit", "no bandwidth"},
                                      {"--latency=50", "50us"},
                                      {"--latency=infs", "no time"},
                                      {"--workers=0", "from 1 to"},
                                      {"--workers=2x", "2x"},
                                      {"--workers=99999999999", "from 1 to"},
                                      {"--algorithm=rong", "rong"},
                                      {"--algorithm=auto", "named"},
                                      {"--algorithm=nccl", "is for GPUs"},
                                      {"--algorithm=ring:1k", "all_reduce_spec"},
                                      {"--servers=2", "parameter_server alone"},
                                      {"--fit=link.json", "--fit has no use with --bandwidth and --latency"},
                                      {"--model=resnet9000", "resnet"}}) {
    EXPECT_THAT(error_of({flag}), HasSubstr(message)) << flag;
  }
  EXPECT_THAT(run_command({"simulate", "--model=trivial", "--forward=1", "--backward=1"}).err, HasSubstr("--fit"));
  EXPECT_THAT(run_command({"simulate", "--bandwidth=1gbit", "--latency=1us"}).err, HasSubstr("--compute=FILE"));
  EXPECT_NE(run_command({"simulate", "--model=trivial", "--forward=1", "--backward=1", "--fit=missing.json"}).code,
            kSuccess);
}

TEST(Simulate, ReadsUnitsOfNetworks) {
  EXPECT_DOUBLE_EQ(parse_bandwidth("100mbit"), 12.5e6);
  EXPECT_DOUBLE_EQ(parse_bandwidth("1.5Gbit"), 187.5e6);
  EXPECT_DOUBLE_EQ(parse_bandwidth("64kbit"), 8000);
  EXPECT_DOUBLE_EQ(parse_latency("50us"), 50e-6);
  EXPECT_DOUBLE_EQ(parse_latency("2ms"), 2e-3);
  EXPECT_DOUBLE_EQ(parse_latency("0s"), 0);
  EXPECT_DOUBLE_EQ(parse_bandwidth("1000000000kbit"), 125e9);
  EXPECT_THROW(parse_bandwidth("1000000001kbit"), core::Error);
}

TEST(Simulate, ReadsNumbersOfWorkers) {
  EXPECT_EQ(parse_workers({"1", "8192", "3"}), (std::vector<int>{1, 8192, 3}));
  EXPECT_EQ(core::message_of([] {
              parse_workers({"1", "8193"});
            }),
            "--workers has an impossible number: expected numbers from 1 to 8192, separated by commas, got 8193");
  EXPECT_EQ(core::message_of([] { parse_workers({}); }), "--workers names no number: expected such as 1,2,4");
}

}  // namespace
}  // namespace trainyard::cli::simulate_test
