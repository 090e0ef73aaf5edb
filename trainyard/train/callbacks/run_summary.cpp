#include "trainyard/train/callbacks/run_summary.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/base/build_info.h"
#include "trainyard/train/callbacks/run_record_json.h"
#include "trainyard/train/callbacks/summary_time.h"

namespace trainyard::train {
namespace {

using Json = nlohmann::ordered_json;

Json path_or_null(const std::string& path) {
  return path.empty() ? Json() : Json(path);
}

Json number(double value) {
  if (std::isfinite(value)) return value;
  return fmt::format("{}", std::isnan(value) ? std::abs(value) : value);  // no "-nan"
}

double waiting_share(const StepTimes& times) {
  return times.total > 0 ? times.waiting / times.total : 0;
}

// What the ranks other than `slowest` waited of their time.
double waiting_share_of_others(const std::vector<StepTimes>& rank_seconds, int slowest) {
  StepTimes others;
  for (size_t r = 0; r < rank_seconds.size(); ++r) {
    if (static_cast<int>(r) == slowest) continue;
    others.total += rank_seconds[r].total;
    others.waiting += rank_seconds[r].waiting;
  }
  return waiting_share(others);
}

// Null of one process alone.
Json ranks_to_json(const std::vector<StepTimes>& rank_seconds) {
  if (rank_seconds.empty()) return {};
  Json ranks = Json::array();
  for (const StepTimes& times : rank_seconds) {
    ranks.push_back({{"seconds", number(times.total)},
                     {"input", number(times.input)},
                     {"compute", number(times.compute)},
                     {"communication", times.on_accelerator ? Json() : number(times.communication)},
                     {"waiting", times.on_accelerator ? Json() : number(times.waiting)},
                     {"update", times.on_accelerator ? Json() : number(times.update)}});
  }
  const int slowest = slowest_rank(rank_seconds);
  return {{"slowest", slowest < 0 ? Json() : Json(slowest)}, {"seconds", ranks}};
}

// Null where gradients are not compressed.
Json gradient_bytes_to_json(const std::optional<parallel::GradientBytes>& bytes) {
  if (!bytes) return {};
  return {{"exchanged", bytes->exchanged}, {"uncompressed", bytes->uncompressed}};
}

Json best_to_json(const std::optional<BestCheckpoint>& best) {
  if (!best) return {};
  return {{"path", best->info.path},
          {"global_step", best->info.global_step},
          {"metric", best->metric},
          {"value", number(best->value)}};
}

}  // namespace

std::string time_shares_text(const StepTimes& shares) {
  if (shares.on_accelerator) {
    return fmt::format("waiting for input {:.0f} %, all else {:.0f} %: the device's work, update included",
                       100 * shares.input, 100 * shares.compute);
  }
  const std::string waiting =
      shares.communication > 0 ? fmt::format(" (waiting {:.0f} %)", 100 * shares.waiting) : std::string();
  return fmt::format("input {:.0f} %, compute {:.0f} %, communication {:.0f} %{}, update {:.0f} %", 100 * shares.input,
                     100 * shares.compute, 100 * shares.communication, waiting, 100 * shares.update);
}

int slowest_rank(const std::vector<StepTimes>& rank_seconds) {
  if (rank_seconds.size() < 2 || rank_seconds[0].on_accelerator) return -1;
  const auto less = [](const auto& a, const auto& b) { return waiting_share(a) < waiting_share(b); };
  const auto [slowest, fastest] = std::minmax_element(rank_seconds.begin(), rank_seconds.end(), less);
  return waiting_share(*fastest) > 0 ? static_cast<int>(slowest - rank_seconds.begin()) : -1;
}

std::string rank_times_text(const std::vector<StepTimes>& rank_seconds) {
  if (rank_seconds.size() < 2) return {};
  const int slowest = slowest_rank(rank_seconds);
  if (slowest < 0) return fmt::format("{} ranks", rank_seconds.size());
  StepTimes all;
  for (const StepTimes& times : rank_seconds) {
    all.total += times.total;
    all.communication += times.communication;
    all.waiting += times.waiting;
  }
  return fmt::format(
      "waiting for others {:.0f} % and moving numbers {:.0f} % of the time of {} ranks, slowest rank {} (it waited "
      "{:.0f} %, the others {:.0f} %)",
      100 * waiting_share(all), 100 * (all.communication - all.waiting) / all.total, rank_seconds.size(), slowest,
      100 * waiting_share(rank_seconds[static_cast<size_t>(slowest)]),
      100 * waiting_share_of_others(rank_seconds, slowest));
}

std::optional<std::string> slow_rank_warning(const std::vector<StepTimes>& rank_seconds, int64_t steps) {
  constexpr double kMostWaiting = 0.1;
  const int slowest = slowest_rank(rank_seconds);
  if (slowest < 0) return std::nullopt;
  const double own = waiting_share(rank_seconds[static_cast<size_t>(slowest)]);
  const double others = waiting_share_of_others(rank_seconds, slowest);
  if (others - own <= kMostWaiting) return std::nullopt;
  return fmt::format(
      "rank {} is slow: the others waited for it for {:.0f} % of the time of the last {} steps, and it waited for "
      "{:.0f} "
      "%; look at what else runs on its machine, at its cores, and at its input",
      slowest, 100 * others, steps, 100 * own);
}

void write_run_summary(const RunSummary& summary, const std::string& path, core::FileSystem& files) {
  const core::BuildInfo& build = core::build_info();
  Json metrics = Json::object();
  for (const auto& [name, value] : summary.metrics) metrics[name] = number(value);
  const bool accelerator = summary.shares.on_accelerator;
  const Json limit = summary.compute.limit_flops > 0 ? number(summary.compute.limit_flops) : Json();
  Json json{{"status", run_status_name(summary.status)},
            {"error", path_or_null(summary.error)},
            {"started", utc_date(summary.record.started_at)},
            {"ended", summary.ended_at > 0 ? Json(utc_date(summary.ended_at)) : Json()},
            {"model", summary.model},
            {"dataset", summary.dataset},
            {"mode", summary.mode},
            {"global_step", summary.global_step},
            {"steps", summary.steps},
            {"seconds", number(summary.seconds)},
            {"images_per_second", number(summary.images_per_second)},
            {"model_flops_per_second", number(summary.compute.model_flops)},
            {"limit_flops_per_second", limit},
            {"time_shares",
             {{"input", summary.shares.input},
              {"compute", summary.shares.compute},
              {"communication", accelerator ? Json() : Json(summary.shares.communication)},
              {"waiting", accelerator ? Json() : Json(summary.shares.waiting)},
              {"update", accelerator ? Json() : Json(summary.shares.update)}}},
            {"ranks", ranks_to_json(summary.rank_seconds)},
            {"gradient_bytes", gradient_bytes_to_json(summary.gradient_bytes)},
            {"bad_samples", summary.bad_samples},
            {"skipped_steps", summary.skipped_steps},
            {"peak_memory_bytes", summary.peak_memory_bytes > 0 ? Json(summary.peak_memory_bytes) : Json()},
            {"stopped_by", path_or_null(summary.stopped_by)},
            {"metrics", metrics},
            {"checkpoint", path_or_null(summary.checkpoint)},
            {"best_checkpoint", best_to_json(summary.best)},
            {"tensorboard_directory", path_or_null(summary.tensorboard_directory)},
            {"metrics_json", path_or_null(summary.metrics_json)},
            {"metrics_csv", path_or_null(summary.metrics_csv)},
            {"curve", path_or_null(summary.curve)},
            {"version", fmt::format("{} ({})", build.version, build.git_revision)},
            {"date", utc_date(system_wall_clock())}};
  add_run_record(summary.record, json);
  files.make_directories(core::parent_path(path));
  files.write_file_atomically(path, json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

std::string gradient_bytes_text(const parallel::GradientBytes& bytes) {
  const auto exchanged = static_cast<double>(bytes.exchanged), uncompressed = static_cast<double>(bytes.uncompressed);
  return fmt::format("{:.1f} MB of gradients, {:.1f} times less than the {:.1f} MB without compression",
                     exchanged / 1e6, exchanged > 0 ? uncompressed / exchanged : 1.0, uncompressed / 1e6);
}

std::string run_summary_text(const RunSummary& summary, const std::string& path) {
  std::string text;
  const auto line = [&](std::string_view what, const std::string& value) {
    if (!value.empty()) text += fmt::format("{}{:<14}{}", text.empty() ? "" : "\n", fmt::format("{}:", what), value);
  };
  line("Trained", fmt::format("{} on {}, {} steps in {:.1f} s, {:.1f} images/s", summary.model, summary.dataset,
                              summary.steps, summary.seconds, summary.images_per_second));
  line("Compute", compute_rate_text(summary.compute));
  line("Time", time_shares_text(summary.shares));
  line("Ranks", rank_times_text(summary.rank_seconds));
  if (summary.gradient_bytes) line("Exchange", gradient_bytes_text(*summary.gradient_bytes));
  std::string metrics;
  for (const auto& [name, value] : summary.metrics) {
    metrics += fmt::format("{}{} {:.4f}", metrics.empty() ? "" : ", ", name, value);
  }
  line("Result", metrics);
  if (summary.bad_samples > 0) line("Bad samples", fmt::format("{}", summary.bad_samples));
  if (summary.skipped_steps > 0) {
    line("Skipped", fmt::format("{} steps whose loss or gradient was not finite", summary.skipped_steps));
  }
  line("Stopped by", summary.stopped_by);
  line("Checkpoint", summary.checkpoint);
  if (summary.best) {
    line("Best", fmt::format("{} (step {}, {} {:.4f})", summary.best->info.path, summary.best->info.global_step,
                             summary.best->metric, summary.best->value));
  }
  line("TensorBoard", summary.tensorboard_directory);
  line("Metrics", summary.metrics_json);
  line("Curve", summary.curve);
  line("Run summary", path);
  return text;
}

}  // namespace trainyard::train
