#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trainyard/cli/bench_latency.h"

namespace trainyard::cli {
namespace {

using Json = nlohmann::ordered_json;

// Above this part of the time the queue hardly ever empties, and the waits grow with the length of the measurement.
constexpr double kOverload = 0.98;

std::string columns(const Percentiles& seconds) {
  return fmt::format("{:>10.2f}{:>10.2f}{:>10.2f}", 1e3 * seconds.p50, 1e3 * seconds.p90, 1e3 * seconds.p99);
}

std::string conclusion(const LatencyBenchReport& report) {
  if (!report.p99_seconds) return "";
  const double bound = 1e3 * *report.p99_seconds;
  if (!report.best) {
    return fmt::format(
        "\nno size of batch answers 99 of 100 requests within {:.4g} ms{}; a single image alone takes {:.2f} ms\n",
        bound, report.arrivals.empty() ? " at any rate" : "", 1e3 * report.batches.front().seconds.p50);
  }
  const ArrivalLatency& best = report.arrivals[*report.best];
  return fmt::format(
      "\n99 of 100 requests are answered within {:.4g} ms at {:.1f} requests/s with batches of at most {}\n", bound,
      best.rate, best.most);
}

Json percentiles_json(const Percentiles& seconds) {
  return {{"p50", seconds.p50}, {"p90", seconds.p90}, {"p99", seconds.p99}};
}

}  // namespace

std::string latency_bench_text(const LatencyBenchReport& report) {
  std::string text =
      fmt::format("{}, images of {}, {}, executor {}, {} threads, frozen\n\n", report.model, report.image_size,
                  report.dtype.empty() ? "float32" : report.dtype, report.executor, report.threads);
  text += fmt::format("one batch after the other\n{:>10}{:>10}{:>10}{:>10}{:>12}{:>10}\n", "batch", "p50 ms", "p90 ms",
                      "p99 ms", "images/s", "batches");
  for (const BatchLatency& row : report.batches) {
    text += fmt::format("{:>10}{}{:>12.1f}{:>10}\n", row.batch_size, columns(row.seconds), row.images_per_second,
                        row.batches);
  }
  if (!report.arrivals.empty()) {
    text += fmt::format(
        "\nrequests that arrive at random, and are answered in batches of those that wait\n"
        "{:>10}{:>10}{:>10}{:>10}{:>12}{:>10}{:>12}{:>8}\n",
        "at most", "p50 ms", "p90 ms", "p99 ms", "requests/s", "requests", "mean batch", "busy");
  }
  for (const ArrivalLatency& row : report.arrivals) {
    text += fmt::format("{:>10}{}{:>12.1f}{:>10}{:>12.1f}{:>6.0f} %{}\n", row.most, columns(row.seconds), row.rate,
                        row.requests, row.mean_batch, 100 * row.busy,
                        row.busy > kOverload ? "  too many: the longer it runs, the longer they wait" : "");
  }
  return text + conclusion(report);
}

std::string latency_bench_json(const LatencyBenchReport& report) {
  Json batches = Json::array(), arrivals = Json::array();
  for (const BatchLatency& row : report.batches) {
    batches.push_back({{"batch_size", row.batch_size},
                       {"batches", row.batches},
                       {"seconds", percentiles_json(row.seconds)},
                       {"images_per_second", row.images_per_second}});
  }
  for (const ArrivalLatency& row : report.arrivals) {
    arrivals.push_back({{"most", row.most},
                        {"rate", row.rate},
                        {"requests", row.requests},
                        {"seconds", percentiles_json(row.seconds)},
                        {"mean_batch", row.mean_batch},
                        {"busy", row.busy}});
  }
  const Json json{{"model", report.model},
                  {"image_size", report.image_size},
                  {"dtype", report.dtype.empty() ? "float32" : report.dtype},
                  {"executor", report.executor},
                  {"threads", report.threads},
                  {"p99_bound_seconds", report.p99_seconds ? Json(*report.p99_seconds) : Json()},
                  {"batches", batches},
                  {"arrivals", arrivals},
                  {"best", report.best ? Json(*report.best) : Json()}};
  return json.dump(2) + "\n";
}

}  // namespace trainyard::cli
