// What `trainyard bench allreduce` has measured, as text, JSON and an image.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trainyard/cli/bench_all_reduce.h"
#include "trainyard/cli/bench_timing.h"
#include "trainyard/train/monitors/curve_svg.h"

namespace trainyard::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string ranks_text(const AllReduceBenchReport& report) {
  return report.processes > 1 ? fmt::format("{} ranks in {} processes", report.ranks, report.processes)
                              : fmt::format("{} ranks on threads of a process", report.ranks);
}

// A line for each operation over the sizes.
std::vector<train::CurveSeries> series_of(const AllReduceBenchReport& report,
                                          double (*value)(const AllReduceTiming&, int)) {
  std::vector<train::CurveSeries> all;
  for (const AllReduceTiming& timing : report.timings) {
    auto series = std::find_if(all.begin(), all.end(), [&](const auto& each) { return each.name == timing.operation; });
    if (series == all.end()) series = all.insert(all.end(), {.name = timing.operation});
    series->x.push_back(std::log2(static_cast<double>(timing.bytes)));
    series->y.push_back(value(timing, report.ranks));
  }
  return all;
}

Json json_of(const AllReduceTiming& timing) {
  return {{"bytes", timing.bytes},
          {"operation", timing.operation},
          {"times", timing.times},
          {"median_seconds", timing.median_seconds},
          {"p95_seconds", timing.p95_seconds}};
}

}  // namespace

std::string bytes_text(int64_t bytes) {
  for (const auto& [unit, name] :
       {std::pair{int64_t{1} << 30, "G"}, {int64_t{1} << 20, "M"}, {int64_t{1} << 10, "K"}}) {
    if (bytes % unit == 0) return fmt::format("{}{}", bytes / unit, name);
  }
  return std::to_string(bytes);
}

std::string time_text(double seconds) {
  return seconds < 1e-3 ? fmt::format("{:.1f} us", 1e6 * seconds) : fmt::format("{:.2f} ms", 1e3 * seconds);
}

std::string all_reduce_bench_table(const AllReduceBenchReport& report) {
  if (report.timings.empty()) return "";
  std::string text = fmt::format("\n{}, float32, sum{}; each time is that of the slowest rank\n", ranks_text(report),
                                 report.algorithm.empty() ? "" : " by " + report.algorithm);
  text += report.mpi.empty() ? fmt::format("MPI_Allreduce was not measured: {}\n", report.mpi_absent)
                             : fmt::format("MPI_Allreduce is that of {}\n", report.mpi);
  text += fmt::format("\n{:>8}  {:<14}{:>6}{:>12}{:>12}{:>10}{:>10}\n", "bytes", "operation", "times", "median", "p95",
                      "GB/s", "bus GB/s");
  for (const AllReduceTiming& timing : report.timings) {
    text += fmt::format("{:>8}  {:<14}{:>6}{:>12}{:>12}{:>10.2f}{:>10.2f}\n", bytes_text(timing.bytes),
                        timing.operation, timing.times, time_text(timing.median_seconds), time_text(timing.p95_seconds),
                        1e-9 * timing.algorithm_bandwidth(), 1e-9 * timing.bus_bandwidth(report.ranks));
  }
  return text;
}

std::string all_reduce_bench_json(const AllReduceBenchReport& report) {
  const auto text_or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  Json timings = Json::array(), updates = Json::array();
  for (const AllReduceTiming& timing : report.timings) {
    timings.push_back(json_of(timing));
    timings.back()["bytes_per_second"] = timing.algorithm_bandwidth();
    timings.back()["bus_bytes_per_second"] = timing.bus_bandwidth(report.ranks);
  }
  for (const AllReduceTiming& timing : report.updates) updates.push_back(json_of(timing));
  const Json json{{"ranks", report.ranks},
                  {"processes", report.processes},
                  {"model", report.model},
                  {"algorithm", text_or_null(report.algorithm)},
                  {"gradient_bytes", report.gradient_bytes},
                  {"iters_per_step", report.iters_per_step},
                  {"average_step_seconds", report.step_seconds},
                  {"mpi", text_or_null(report.mpi)},
                  {"mpi_absent", text_or_null(report.mpi_absent)},
                  {"timings", timings},
                  {"optimizer", text_or_null(report.optimizer)},
                  {"updates", updates}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string all_reduce_bench_svg(const AllReduceBenchReport& report) {
  const std::vector<train::CurveAxis> axis = {{"log2 of the tensor's bytes"}};
  const auto bandwidth = [](const AllReduceTiming& timing, int ranks) { return 1e-9 * timing.bus_bandwidth(ranks); };
  const auto latency = [](const AllReduceTiming& timing, int) { return std::log10(1e6 * timing.median_seconds); };
  return train::curve_svg("all-reduce, " + ranks_text(report),
                          {{.title = "bus GB/s", .series = series_of(report, bandwidth), .x_axes = axis},
                           {.title = "log10 of us", .series = series_of(report, latency), .x_axes = axis}});
}

}  // namespace trainyard::cli
