#include "trainyard/cli/report/report_run.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "trainyard/cli/report/evaluation_file.h"
#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/frontends/tf_cnn/next_commands.h"
#include "trainyard/train/checkpoint/checkpoint_listing.h"

namespace trainyard::cli {
namespace {

using RunJson = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr uint64_t kLargestSummary = uint64_t{1} << 21;
constexpr size_t kMostCheckpoints = 200;

bool has_file(const std::string& directory, const char* name) {
  std::error_code unknown;  // also keeps pipes out, which would wait for a writer
  return fs::is_regular_file(core::join_path(directory, name), unknown);
}

// Reads a file that holds one JSON object. Returns null and notes a problem when it does not.
RunJson read_object(ReportRun& run, const char* name, uint64_t limit) {
  if (!has_file(run.directory, name)) return {};
  try {
    RunJson json = RunJson::parse(core::local_file_system().read_file(core::join_path(run.directory, name), limit),
                                  nullptr, false);
    if (json.is_object()) return json;
    run.problems.push_back(fmt::format("{} is damaged: it is no JSON object", name));
  } catch (const core::Error& error) {
    run.problems.emplace_back(error.what());
  }
  return {};
}

double file_seconds(fs::file_time_type time) {
  const auto system = std::chrono::file_clock::to_sys(time);
  return std::chrono::duration<double>(system.time_since_epoch()).count();
}

// Fills in sizes and times of what lies in the checkpoint's folder.
void measure_checkpoint(const std::string& directory, ReportCheckpoint& checkpoint) {
  std::error_code unknown;
  for (fs::directory_iterator file(core::join_path(directory, checkpoint.name), unknown), end; !unknown && file != end;
       file.increment(unknown)) {
    std::error_code ignored;
    if (!file->is_regular_file(ignored)) continue;
    const uint64_t size = file->file_size(ignored);
    if (!ignored) checkpoint.bytes += size;
    const fs::file_time_type time = file->last_write_time(ignored);
    if (!ignored) checkpoint.saved_at = std::max(checkpoint.saved_at, file_seconds(time));
  }
}

void read_checkpoints(ReportRun& run) {
  const auto add = [&run](std::string name, int64_t step, std::string damage) {
    run.checkpoints.push_back({.name = std::move(name), .global_step = step, .damage = std::move(damage)});
    measure_checkpoint(run.directory, run.checkpoints.back());
  };
  train::CheckpointListing listing = train::list_checkpoints(run.directory, core::local_file_system());
  if (listing.intact.size() > kMostCheckpoints) {
    run.problems.push_back(
        fmt::format("of {} checkpoints the last {} are listed", listing.intact.size(), kMostCheckpoints));
    listing.intact.erase(listing.intact.begin(), listing.intact.end() - kMostCheckpoints);
  }
  for (const train::CheckpointInfo& info : listing.intact) add(core::base_name(info.path), info.global_step, "");
  for (const train::DamagedCheckpoint& damaged : listing.damaged) {
    if (run.checkpoints.size() == 2 * kMostCheckpoints) break;
    add(core::base_name(damaged.info.path), damaged.info.global_step, damaged.error.what());
  }
  if (has_file(run.directory, "best/manifest.json")) {
    const RunJson& best = object_at(run.summary, "best_checkpoint");
    add("best", static_cast<int64_t>(number_at(best, "global_step").value_or(-1)), "");
  }
}

// Returns the flag's value as a command line has it; nothing for null.
std::optional<std::string> flag_text(const RunJson& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean() || value.is_number()) return value.dump();
  if (!value.is_array()) return std::nullopt;
  std::string list;
  for (const RunJson& each : value) {
    const std::optional<std::string> word = each.is_array() ? std::nullopt : flag_text(each);
    if (!word) return std::nullopt;
    list += (list.empty() ? "" : ",") + *word;
  }
  return list;
}

bool is_flag_name(const RunJson& name) {
  if (!name.is_string()) return false;
  const auto& text = name.get_ref<const std::string&>();
  return !text.empty() && text.size() < 100 &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string::npos;
}

// The flags that name what a training reads, but for data_dir, whose full path is recorded.
constexpr std::array<std::string_view, 5> kInputPaths = {"labels_csv", "weights", "distill_from", "backbone_model_path",
                                                         "data_index_dir"};

// Returns the folder in which the run was started, by what is known both as it was given and whole; empty: not known.
std::string folder_of_start(const ReportRun& run) {
  const RunJson& flags = object_at(run.summary, "flags");
  const auto in_front = [](const std::string& whole, const std::string& given) -> std::string {
    const std::string path = core::without_slashes(fs::path(given).lexically_normal().string());
    if (path == ".") return whole;
    if (path.empty() || path.starts_with('/') || !whole.ends_with("/" + path)) return "";
    return whole.substr(0, whole.size() - path.size() - 1);
  };
  const std::string data = core::without_slashes(text_at(object_at(run.summary, "data"), "directory").value_or(""));
  std::string folder = in_front(data, text_at(flags, "data_dir").value_or(""));
  if (folder.empty()) folder = in_front(core::real_path(run.directory), text_at(flags, "train_dir").value_or(""));
  return folder;
}

// Returns the path from any folder; as it is where nothing is there.
std::string path_from_anywhere(const std::string& folder, const std::string& path) {
  if (folder.empty() || path.empty() || path.starts_with('/')) return path;
  std::error_code unknown;
  const std::string whole = fs::path(core::join_path(folder, path)).lexically_normal().string();
  return fs::exists(whole, unknown) ? whole : path;
}

}  // namespace

std::optional<std::string> text_at(const RunJson& object, const char* name) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  if (found == object.end() || !found->is_string()) return std::nullopt;
  return found->get<std::string>();
}

std::optional<double> number_at(const RunJson& object, const char* name) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  if (found == object.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

const RunJson& object_at(const RunJson& object, const char* name) {
  static const RunJson kEmpty = RunJson::object();
  const auto found = object.is_object() ? object.find(name) : object.end();
  return found == object.end() || !found->is_object() ? kEmpty : *found;
}

bool is_run_folder(const std::string& directory) {
  return has_file(directory, "run_summary.json") || has_file(directory, "metrics.jsonl");
}

ReportRun read_report_run(const std::string& directory) {
  ReportRun run{.directory = directory};
  if (RunJson summary = read_object(run, "run_summary.json", kLargestSummary); summary.is_object()) {
    run.summary = std::move(summary);
  } else if (run.problems.empty()) {
    run.problems.emplace_back("run_summary.json is missing: settings, machine and totals are not known");
  }
  run.metrics = read_run_metrics(core::join_path(directory, "metrics.jsonl"));
  if (run.metrics.damaged_lines > 0) {
    run.problems.push_back(
        fmt::format("metrics.jsonl has {} lines that are no rows; they are left out", run.metrics.damaged_lines));
  }
  if (run.metrics.cut) {
    run.problems.push_back(fmt::format("metrics.jsonl is long: its first {} MiB are shown", kMostMetricBytes >> 20));
  }
  try {
    read_checkpoints(run);
  } catch (const core::Error& error) {
    run.problems.emplace_back(error.what());
  }
  if (RunJson evaluation = read_object(run, "evaluation.json", kLargestEvaluation); evaluation.is_object()) {
    run.evaluation = checked_evaluation(evaluation, run.problems);
  }
  return run;
}

std::string repeat_command(const ReportRun& run) {
  const std::string command = text_at(run.summary, "command").value_or("");
  if (command != "trainyard train" && command != "trainyard") return "";
  const auto given = run.summary.find("given_flags");
  if (given == run.summary.end() || !given->is_array()) return "";
  const RunJson& flags = object_at(run.summary, "flags");
  std::string line = command;
  const std::string folder = folder_of_start(run);
  const auto add = [&line](const std::string& name, const std::string& value) {
    line += " " + frontends::shell_word(fmt::format("--{}={}", name, value));
  };
  for (const RunJson& each : *given) {
    if (!is_flag_name(each)) continue;
    const auto name = each.get<std::string>();
    if (name == "train_dir" || name == "existing_run" || name == "config") continue;
    const auto value = flags.find(name);
    const std::optional<std::string> text = value == flags.end() ? std::nullopt : flag_text(*value);
    if (!text) continue;
    // The full path holds from any folder.
    if (name == "data_dir") {
      add(name, text_at(object_at(run.summary, "data"), "directory").value_or(*text));
    } else {
      const bool is_input = std::find(kInputPaths.begin(), kInputPaths.end(), name) != kInputPaths.end();
      add(name, is_input ? path_from_anywhere(folder, *text) : *text);
    }
  }
  add("train_dir", core::without_slashes(run.directory) + "-again");
  return line;
}

std::string evaluate_command(const ReportRun& run) {
  const RunJson& flags = object_at(run.summary, "flags");
  frontends::EvaluatedData data{.data_dir = text_at(object_at(run.summary, "data"), "directory").value_or("")};
  data.data_name = text_at(flags, "data_name").value_or(data.data_name);
  data.labels_csv = path_from_anywhere(folder_of_start(run), text_at(flags, "labels_csv").value_or(data.labels_csv));
  data.on_unlabelled_file = text_at(flags, "on_unlabelled_file").value_or(data.on_unlabelled_file);
  data.on_unknown_class = text_at(flags, "on_unknown_class").value_or(data.on_unknown_class);
  const auto splits = flags.find("split_class_folders");
  data.split_class_folders = splits == flags.end() || !splits->is_boolean() || splits->get<bool>();
  return "trainyard " + frontends::evaluation_command(core::without_slashes(run.directory), data);
}

}  // namespace trainyard::cli
