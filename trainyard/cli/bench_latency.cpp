#include "trainyard/cli/bench_latency.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <thread>
#include <tuple>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/randn.h>
#include <fmt/format.h>

#include "trainyard/cli/request_queue.h"
#include "trainyard/core/base/elapsed.h"
#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/random/random.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/frontends/input/image_size.h"
#include "trainyard/nn/execution/accelerator.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/train/profile/percentile.h"

namespace trainyard::cli {
namespace {

constexpr int64_t kLargestBatch = 4096;
constexpr int64_t kFewestTimes = 20;          // of a batch size, however long they take
constexpr int64_t kFewestRequests = 200;      // so that the 99th percentile is not the longest of all
constexpr int64_t kMostRequests = 1'000'000;  // whatever the rate
constexpr int64_t kForecastRequests = 20'000;
constexpr double kExactSleep = 0.05;     // seconds
constexpr double kLongMeasurement = 10;  // seconds; a line says in front that it takes longer
constexpr int kSearchSteps = 20;         // halvings of the range of rates
constexpr double kNextTry = 0.95;        // of a rate that was found by forecast and measured as too high
constexpr int kTries = 8;

Percentiles percentiles(std::span<const double> seconds) {
  const std::vector<double> sorted = train::sorted_values(seconds);
  return {train::nearest_rank(sorted, 50), train::nearest_rank(sorted, 90), train::nearest_rank(sorted, 99)};
}

// The frozen network, prepared for each batch size.
class Network {
 public:
  Network(const LatencyBenchOptions& options, const train::OpenDevices& devices, const BenchedNetwork& network)
      : devices_(devices), stop_(options.stop), parameters_({.device = devices.device()}) {
    const nn::Size2d image = frontends::image_size_of(network.graph);
    for (const int64_t size : options.batch_sizes) {
      executors_.push_back(nn::make_executor(devices.executor, nn::main_output_graph(network.graph),
                                             {.device = devices.device(),
                                              .dtype = devices.dtype,
                                              .mode = nn::Mode::kInference,
                                              .frozen = true,
                                              .kernels = devices.kernels,
                                              .parameters = &parameters_,
                                              .quantization = network.quantization}));
      inputs_.push_back(at::randn({size, 3, image.height, image.width}, at::device(devices.device())));
      if (executors_.size() == 1) {  // which says what parameters there are
        parameters_.allocate();
        start_benched(network, options.seed, parameters_);
      }
    }
  }

  [[nodiscard]] const core::StopToken& stop() const { return stop_; }
  // Runs a batch of the size at this place of the options.
  void run(size_t place) {
    if (stop_.stop_requested()) throw core::Error(core::ErrorCode::kCancelled, "the measurement was stopped");
    const at::NoGradGuard no_grad;
    at::Tensor logits = executors_[place]->forward(inputs_[place], {});
    if (const auto accelerator = devices_.accelerator()) accelerator->wait();
  }

 private:
  const train::OpenDevices& devices_;
  const core::StopToken stop_;
  nn::ParameterSet parameters_;
  std::vector<std::unique_ptr<nn::Executor>> executors_;
  std::vector<at::Tensor> inputs_;
};

// Returns the seconds of each batch of the size at `place`.
std::vector<double> time_batches(Network& network, size_t place, double seconds) {
  network.run(place);  // chooses kernels and takes memory
  network.run(place);
  std::vector<double> times;
  const auto begin = std::chrono::steady_clock::now();
  while (core::seconds_since(begin) < seconds || std::ssize(times) < kFewestTimes) {
    const auto start = std::chrono::steady_clock::now();
    network.run(place);
    times.push_back(core::seconds_since(start));
  }
  return times;
}

std::chrono::nanoseconds nanoseconds_of(double seconds) {
  constexpr double kMostSeconds = 1e9;  // 30 years
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(std::min(seconds, kMostSeconds)));
}

size_t place_for(const std::vector<int64_t>& batch_sizes, int64_t requests) {
  return std::lower_bound(batch_sizes.begin(), batch_sizes.end(), requests) - batch_sizes.begin();
}

// The network itself, on the machine's clock.
class MeasuredServer final : public BatchServer {
 public:
  MeasuredServer(Network& network, const std::vector<int64_t>& batch_sizes)
      : network_(network), batch_sizes_(batch_sizes) {}
  double now() override { return core::seconds_since(begin_); }
  void wait_until(double time) override {
    // A stop ends a long gap, and the next run() then throws. The rest is slept as exactly as the system can.
    const double early = time - now() - kExactSleep;
    if (early > 0 && network_.stop().wait_for(nanoseconds_of(early))) return;
    std::this_thread::sleep_until(
        begin_ + std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(time)));
    while (now() < time) {  // the rest of a tick
    }
  }
  void run(int64_t requests) override { network_.run(place_for(batch_sizes_, requests)); }

 private:
  Network& network_;
  const std::vector<int64_t>& batch_sizes_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// A clock on which each batch takes as long as one of those that were timed, drawn at random.
class ForecastServer final : public BatchServer {
 public:
  ForecastServer(const std::vector<std::vector<double>>& times, const std::vector<int64_t>& batch_sizes, uint64_t seed)
      : times_(times), batch_sizes_(batch_sizes), random_(seed, "forecast") {}
  double now() override { return now_; }
  void wait_until(double time) override { now_ = std::max(now_, time); }
  void run(int64_t requests) override {
    const std::vector<double>& times = times_[place_for(batch_sizes_, requests)];
    now_ += times[random_.below(times.size())];
  }

 private:
  const std::vector<std::vector<double>>& times_;
  const std::vector<int64_t>& batch_sizes_;
  core::RandomStream random_;
  double now_ = 0;
};

ArrivalLatency measure_arrivals(Network& network, const LatencyBenchOptions& options, int64_t most, double rate) {
  const auto wanted = static_cast<int64_t>(rate * options.seconds);
  const std::vector<double> arrivals =
      poisson_arrivals(rate, std::clamp(wanted, kFewestRequests, kMostRequests), options.seed);
  if (wanted < kFewestRequests && arrivals.back() > kLongMeasurement) {
    core::log::info("batches of at most {}: a 99th percentile needs {} requests, which take {:.0f} s", most,
                    kFewestRequests, arrivals.back());
  }
  MeasuredServer server(network, options.batch_sizes);
  const QueueTimes times = serve_requests(arrivals, most, server);
  return {.most = most,
          .rate = rate,
          .requests = std::ssize(arrivals),
          .seconds = percentiles(times.waits),
          .mean_batch = static_cast<double>(arrivals.size()) / static_cast<double>(times.batches),
          .busy = times.busy_seconds / times.end};
}

// Returns the highest rate whose 99th percentile is forecast to be within the bound with batches of at most `most`; 0
// where a single request takes longer.
double forecast_rate(const std::vector<std::vector<double>>& times, const LatencyBenchOptions& options, size_t place,
                     double images_per_second) {
  const auto p99 = [&](double rate) {
    ForecastServer server(times, options.batch_sizes, options.seed);
    const std::vector<double> arrivals = poisson_arrivals(rate, kForecastRequests, options.seed);
    return percentiles(serve_requests(arrivals, options.batch_sizes[place], server).waits).p99;
  };
  double low = 0, high = images_per_second;
  for (int step = 0; step < kSearchSteps; ++step) {
    const double middle = (low + high) / 2;
    (p99(middle) <= *options.p99_seconds ? low : high) = middle;
  }
  return low > images_per_second / (1 << (kSearchSteps / 2)) ? low : 0;
}

// Measures at the highest rate of any batch size, and at lower ones until the bound is met.
void find_rate(Network& network, const LatencyBenchOptions& options, const std::vector<std::vector<double>>& times,
               LatencyBenchReport& report) {
  size_t place = 0;
  double rate = 0;
  for (size_t i = 0; i < times.size(); ++i) {
    const double found = forecast_rate(times, options, i, report.batches[i].images_per_second);
    if (found > rate) std::tie(rate, place) = std::pair(found, i);
  }
  for (int i = 0; rate > 0 && i < kTries; ++i, rate *= kNextTry) {
    report.arrivals.push_back(measure_arrivals(network, options, options.batch_sizes[place], rate));
    if (report.arrivals.back().seconds.p99 <= *options.p99_seconds) {
      report.best = report.arrivals.size() - 1;
      return;
    }
  }
}

void check(const LatencyBenchOptions& options) {
  const auto refuse = [](const char* problem, const char* expected, std::string actual) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = problem, .expected = expected, .actual = std::move(actual)});
  };
  const std::vector<int64_t>& sizes = options.batch_sizes;
  if (sizes.empty() || sizes.front() < 1 || sizes.back() > kLargestBatch ||
      std::adjacent_find(sizes.begin(), sizes.end(), std::greater_equal<>()) != sizes.end()) {
    refuse("these batch sizes cannot be timed", "different ones from 1 to 4096, ascending",
           fmt::format("{}", fmt::join(sizes, ",")));
  }
  const auto positive = [](double value) { return value > 0 && std::isfinite(value); };
  if (options.rate && !positive(*options.rate)) {
    refuse("requests cannot arrive at this rate", "more than 0 a second", fmt::format("{}", *options.rate));
  }
  if (options.p99_seconds && !positive(*options.p99_seconds)) {
    refuse("this is no bound on a latency", "more than 0 ms", fmt::format("{} ms", 1e3 * *options.p99_seconds));
  }
  if (!(options.seconds >= 0)) refuse("this is no duration", "0 s or more", fmt::format("{} s", options.seconds));
}

}  // namespace

void declare_bench_latency_flags(core::FlagTable& table) {
  constexpr const char* kGroup = "Latency";
  declare_benched_model_flags(table, kGroup);
  table.list("batch_sizes", "images a batch; with arrivals, the most that one takes; unset: 1,2,4,8,16,32")
      .group(kGroup);
  table
      .real("rate", std::nullopt,
            "requests of an image each that arrive a second, at random (Poisson); unset: none, or what p99_ms allows")
      .bounds(0, 1e6)
      .group(kGroup);
  table
      .real("p99_ms", std::nullopt,
            "a bound: which size of batch meets it at this rate; without rate: the highest rate that meets it")
      .bounds(0, 1e6)
      .group(kGroup);
  table.real("seconds", 5, "of each measurement, which has 20 batches, or 200 requests that arrive, or more")
      .bounds(0, 86'400)
      .group(kGroup);
  table.integer("tf_random_seed", 1234, "of weights and arrivals").group(kGroup);
  table.text("json", std::nullopt, "write the same as JSON into this file").group(kGroup);
}

LatencyBenchOptions read_bench_latency_options(const core::FlagValues& values) {
  LatencyBenchOptions options{.benched = read_benched_model(values, "bench latency"),
                              .seconds = values.real("seconds"),
                              .seed = static_cast<uint64_t>(values.integer("tf_random_seed"))};
  if (values.given("batch_sizes")) options.batch_sizes.clear();
  for (const std::string& text : values.list("batch_sizes")) {
    int64_t size = 0;  // which check() refuses
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
    options.batch_sizes.push_back(end == text.data() + text.size() ? size : 0);
  }
  options.rate = values.optional_real("rate");
  if (const auto bound = values.optional_real("p99_ms")) options.p99_seconds = 1e-3 * *bound;
  return options;
}

LatencyBenchReport bench_latency(const LatencyBenchOptions& options) {
  check(options);
  BenchedModel benched = options.benched;
  const BenchedNetwork benched_network = build_benched_network(benched, options.seed);
  const train::OpenDevices devices = open_benched_device(benched);
  const nn::AcceleratorScope on_device = devices.use();
  const nn::Size2d image = frontends::image_size_of(benched_network.graph);
  LatencyBenchReport report{.model = benched.model,
                            .executor = devices.executor,
                            .dtype = benched_dtype_text(devices, benched_network.quantization != nullptr),
                            .image_size = fmt::format("{} x {}", image.height, image.width),
                            .threads = benched_threads(options.benched),
                            .p99_seconds = options.p99_seconds};
  core::apply_thread_options({.name = "trainyard", .intra_op_threads = report.threads});
  Network network(options, devices, benched_network);
  std::vector<std::vector<double>> times;
  for (size_t i = 0; i < options.batch_sizes.size(); ++i) {
    times.push_back(time_batches(network, i, options.seconds));
    const Percentiles taken = percentiles(times[i]);
    report.batches.push_back({.batch_size = options.batch_sizes[i],
                              .batches = std::ssize(times[i]),
                              .seconds = taken,
                              .images_per_second = static_cast<double>(options.batch_sizes[i] * std::ssize(times[i])) /
                                                   std::reduce(times[i].begin(), times[i].end())});
  }
  if (options.rate) {
    for (const int64_t most : options.batch_sizes) {
      report.arrivals.push_back(measure_arrivals(network, options, most, *options.rate));
    }
    if (options.p99_seconds) {
      const auto shortest =
          std::min_element(report.arrivals.begin(), report.arrivals.end(),
                           [](const auto& a, const auto& b) { return a.seconds.p99 < b.seconds.p99; });
      if (shortest->seconds.p99 <= *options.p99_seconds) report.best = shortest - report.arrivals.begin();
    }
  } else if (options.p99_seconds) {
    find_rate(network, options, times, report);
  }
  return report;
}

}  // namespace trainyard::cli
