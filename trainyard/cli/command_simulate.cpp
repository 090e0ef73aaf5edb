// Predicts the step time of N workers (parallel/simulation).
#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ostream.h>
#include <nlohmann/json.hpp>

#include "trainyard/cli/command.h"
#include "trainyard/cli/command_flags.h"
#include "trainyard/cli/simulate_inputs.h"
#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/files/output_path.h"
#include "trainyard/parallel/simulation/simulated_algorithm.h"
#include "trainyard/parallel/simulation/step_prediction.h"

namespace trainyard::cli {
namespace {

using core::Error, core::ErrorCode;
using Json = nlohmann::ordered_json;

struct NamedPrediction {
  std::string algorithm;
  int servers = 0;  // 0: an all-reduce
  parallel::StepPrediction step;
};

struct Simulation {
  parallel::ComputeProfile profile;
  parallel::LinkModel link;
  std::vector<NamedPrediction> rows;
};

void declare_simulate_flags(core::FlagTable& table) {
  constexpr const char *kWorkers = "Workers", *kNetwork = "Network", *kCompute = "Compute", *kOutput = "Output";
  constexpr double kLongest = 1e6;
  table.list("workers", "numbers of workers, a machine each; unset: 1,2,4,8,16,32,64").group(kWorkers);
  table
      .list("algorithm",
            "how gradients are exchanged: chain (unset), an all_reduce_spec such as ring or shuffle#n, with #n for a "
            "shard "
            "a worker, hierarchical_copy, or parameter_server; several, separated by commas")
      .group(kWorkers);
  table.integer("servers", 1, "servers of parameter_server, with a machine each").bounds(1, 1 << 20).group(kWorkers);
  table.text("bandwidth", std::nullopt, "of each machine's link in each direction: 10gbit; unset: by --fit")
      .group(kNetwork);
  table.text("latency", std::nullopt, "of a message: 50us; unset: by --fit").group(kNetwork);
  table
      .text(
          "fit", std::nullopt,
          "a file of `trainyard bench allreduce --json`, measured between machines, by which bandwidth and latency are "
          "found")
      .group(kNetwork);
  table
      .text("compute", std::nullopt,
            "a file of `trainyard bench layers --json`, or of a run's --tfprof_file=FILE.json: how long a worker "
            "computes")
      .group(kCompute);
  table.text("model", std::nullopt, "the model, without --compute").group(kCompute);
  table.text("data_name", std::nullopt, "imagenet or cifar10; unset: the first that has the model").group(kCompute);
  table
      .integer("batch_size", std::nullopt,
               "images of a worker and step; unset: those of --compute, or 1; another number than that of --compute "
               "needs --forward and --backward, too")
      .bounds(1, 1 << 20)
      .group(kCompute);
  table.real("forward", std::nullopt, "milliseconds before the backward, input included")
      .bounds(0, kLongest)
      .group(kCompute);
  table.real("backward", std::nullopt, "milliseconds of the backward").bounds(0, kLongest).group(kCompute);
  table.real("update", std::nullopt, "milliseconds of the update; unset: those of --compute, or 0")
      .bounds(0, kLongest)
      .group(kCompute);
  table.text("json", std::nullopt, "write the same as JSON into this file").group(kOutput);
}

std::string read_text(const std::string& flag, const core::FlagValues& values) {
  constexpr size_t kMostBytes = size_t{64} << 20;
  const std::string path = values.text(flag);
  if (path.empty()) return "";
  require_no_folder(flag, path);
  return core::local_file_system().read_file(path, kMostBytes);
}

parallel::LinkModel read_link(const core::FlagValues& values) {
  parallel::LinkModel link;
  if (values.given("bandwidth") && values.given("latency")) refuse_given(values, {"fit"}, "--bandwidth and --latency");
  if (values.given("fit")) {
    const MeasuredLink measured = read_measured_link(values.text("fit"), read_text("fit", values));
    link = parallel::fit_link(parallel::simulated_choice(measured.algorithm, measured.ranks), measured.ranks,
                              measured.all_reduces);
  } else if (!values.given("bandwidth") || !values.given("latency")) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "a prediction needs to know the network",
                                              .remedy = "pass --bandwidth and --latency, or --fit"});
  }
  if (values.given("bandwidth")) link.bytes_per_second = parse_bandwidth(values.text("bandwidth"));
  if (values.given("latency")) link.latency_seconds = parse_latency(values.text("latency"));
  return link;
}

parallel::ComputeProfile read_profile(const core::FlagValues& values) {
  const auto seconds = [&values](const char* flag) {
    const auto milliseconds = values.optional_real(flag);
    return milliseconds ? std::optional(1e-3 * *milliseconds) : std::nullopt;
  };
  return read_compute(values.text("compute"), read_text("compute", values),
                      {.model = values.text("model"),
                       .dataset = values.text("data_name"),
                       .forward_seconds = seconds("forward"),
                       .backward_seconds = seconds("backward"),
                       .update_seconds = seconds("update"),
                       .batch_size = values.optional_integer("batch_size")});
}

std::string bandwidth_text(double bytes_per_second) {
  const double bits = 8 * bytes_per_second;
  return bits < 1e9 ? fmt::format("{:.4g} Mbit/s", 1e-6 * bits) : fmt::format("{:.4g} Gbit/s", 1e-9 * bits);
}

void print_table(const Simulation& simulation, std::ostream& out) {
  const parallel::ComputeProfile& profile = simulation.profile;
  fmt::print(
      out,
      "{}, batch {}: {:.1f} ms before the backward, {:.1f} ms backward, {:.1f} ms after it; {:.1f} MB of gradients "
      "in {} buckets\n",
      profile.model, profile.batch_size, 1e3 * profile.before_seconds, 1e3 * profile.backward_seconds,
      1e3 * profile.after_seconds, 4e-6 * static_cast<double>(profile.elements()), profile.buckets.size());
  fmt::print(out, "links of {} and {:.4g} us\n\n", bandwidth_text(simulation.link.bytes_per_second),
             1e6 * simulation.link.latency_seconds);
  size_t width = 9;
  for (const NamedPrediction& row : simulation.rows) width = std::max(width, row.algorithm.size());
  fmt::print(out, "{:{}}  {:>7}  {:>11}  {:>12}  {:>10}  {:>12}\n", "algorithm", width, "workers", "ms a step",
             "images/s", "efficiency", "not hidden");
  for (const NamedPrediction& row : simulation.rows) {
    fmt::print(out, "{:{}}  {:7}  {:11.2f}  {:12.2f}  {:8.1f} %  {:9.2f} ms\n", row.algorithm, width, row.step.workers,
               1e3 * row.step.step_seconds, row.step.images_per_second, 100 * row.step.efficiency,
               1e3 * row.step.exposed_seconds);
  }
}

std::string simulation_json(const Simulation& simulation) {
  const parallel::ComputeProfile& profile = simulation.profile;
  Json buckets = Json::array(), rows = Json::array();
  for (const parallel::ProfiledBucket& bucket : profile.buckets) {
    buckets.push_back({{"bytes", 4 * bucket.elements}, {"ready_seconds", bucket.ready_seconds}});
  }
  for (const NamedPrediction& row : simulation.rows) {
    rows.push_back({{"algorithm", row.algorithm},
                    {"servers", row.servers > 0 ? Json(row.servers) : Json()},
                    {"workers", row.step.workers},
                    {"step_seconds", row.step.step_seconds},
                    {"images_per_second", row.step.images_per_second},
                    {"efficiency", row.step.efficiency},
                    {"exposed_seconds", row.step.exposed_seconds}});
  }
  const Json json{{"model", profile.model},
                  {"batch_size", profile.batch_size},
                  {"before_seconds", profile.before_seconds},
                  {"backward_seconds", profile.backward_seconds},
                  {"after_seconds", profile.after_seconds},
                  {"buckets", buckets},
                  {"bytes_per_second", simulation.link.bytes_per_second},
                  {"latency_seconds", simulation.link.latency_seconds},
                  {"predictions", rows}};
  return json.dump(2) + "\n";
}

NamedPrediction predict(const parallel::ComputeProfile& profile, const parallel::LinkModel& link,
                        const std::string& algorithm, int workers, int servers) {
  if (algorithm == parallel::kParameterServerName) {
    return {algorithm, servers, parallel::predict_server_step(profile, workers, servers, link)};
  }
  const auto costs = parallel::all_reduce_costs(profile, parallel::simulated_choice(algorithm, workers), workers);
  return {algorithm, 0, parallel::predict_all_reduce_step(profile, costs, workers, link)};
}

}  // namespace

int run_simulate(const Arguments& arguments, Console& console) {
  core::FlagTable table;
  declare_simulate_flags(table);
  const auto parsed =
      parse_command({"simulate", "predict the step time of N workers on a network", ""}, table, arguments, console);
  if (!parsed) return kSuccess;
  const core::FlagValues& values = parsed->values;
  const std::string path = values.text("json");
  if (!path.empty()) require_no_folder("json", path);
  std::vector<std::string> counts = values.list("workers"), algorithms = values.list("algorithm");
  if (counts.empty()) counts = {"1", "2", "4", "8", "16", "32", "64"};
  if (algorithms.empty()) algorithms = {"chain"};
  const std::vector<int> workers = parse_workers(counts);
  const auto servers = static_cast<int>(values.integer("servers"));
  const bool has_servers = std::count(algorithms.begin(), algorithms.end(), parallel::kParameterServerName) > 0;
  if (values.given("servers") && !has_servers) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "--servers is of --algorithm=parameter_server alone"});
  }
  Simulation simulation{.profile = read_profile(values), .link = read_link(values)};
  for (const std::string& algorithm : algorithms) {
    for (const int count : workers) {
      simulation.rows.push_back(predict(simulation.profile, simulation.link, algorithm, count, servers));
    }
  }
  print_table(simulation, console.out);
  if (!path.empty()) core::write_user_output(path, simulation_json(simulation));
  return kSuccess;
}

}  // namespace trainyard::cli
