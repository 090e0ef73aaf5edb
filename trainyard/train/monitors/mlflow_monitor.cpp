#include "trainyard/train/monitors/mlflow_monitor.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <functional>
#include <system_error>

#include <fmt/format.h>

#include "trainyard/core/random/random.h"
#include "trainyard/core/sockets/random_token.h"

namespace trainyard::train {
namespace {

constexpr int kRunning = 1, kFinished = 3;  // RunStatus of MLflow's service.proto
constexpr size_t kLongestParameter = 6000;  // characters, MLflow's limit

int64_t now_in_milliseconds() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// Returns the text as a YAML scalar in single quotes, on one line.
std::string yaml_text(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'') quoted += '\'';
    quoted += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return quoted + "'";
}

std::string whole_path(const std::string& path) {
  std::error_code unknown;
  const std::filesystem::path whole = std::filesystem::absolute(path, unknown).lexically_normal();
  return unknown ? path : whole.string();
}

// Returns the value of a key in a file of MLflow's, without quotes; empty where it has none.
std::string yaml_value(const std::string& text, const std::string& key) {
  const std::string begin = key + ": ";
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    at = end + 1;
    if (!line.starts_with(begin)) continue;
    line.erase(0, begin.size());
    if (line.size() < 2 || line.front() != '\'' || line.back() != '\'') return line;
    std::string value;
    for (size_t i = 1; i + 1 < line.size(); ++i) {
      value += line[i];
      if (line[i] == '\'' && line[i + 1] == '\'') ++i;
    }
    return value;
  }
  return "";
}

std::string experiment_meta(const std::string& store, const std::string& id, const std::string& name) {
  const int64_t now = now_in_milliseconds();
  return fmt::format(
      "artifact_location: {}\ncreation_time: {}\nexperiment_id: {}\nlast_update_time: {}\nlifecycle_stage: active\n"
      "name: {}\n",
      yaml_text("file://" + whole_path(core::join_path(store, id))), now, yaml_text(id), now, yaml_text(name));
}

// A value as Python's float() reads it. The sign that some NaNs have says nothing.
std::string python_float(double value) {
  return std::isnan(value) ? "nan" : fmt::format("{}", value);
}

// Returns the step of a line "milliseconds value step"; -1 for another one.
int64_t step_of(std::string_view line) {
  const size_t blank = line.rfind(' ');
  int64_t step = -1;
  if (blank != std::string_view::npos) std::from_chars(line.data() + blank + 1, line.data() + line.size(), step);
  return step;
}

// Calls `use` with the path of each file in and below a folder.
void for_each_file(core::FileSystem& files, const std::string& folder,
                   const std::function<void(const std::string&)>& use) {
  if (!files.exists(folder)) return;
  for (const std::string& name : files.list(folder)) {
    const std::string path = core::join_path(folder, name);
    files.info(path).is_directory ? for_each_file(files, path, use) : use(path);
  }
}

}  // namespace

std::string mlflow_name(std::string_view name) {
  std::string result;
  for (const char c : name) {
    const bool taken =
        std::isalnum(static_cast<unsigned char>(c)) != 0 || std::string_view("_-./ ").find(c) != std::string_view::npos;
    result += taken ? c : '_';
  }
  // A name is a path in the store: none leads out of it.
  for (size_t at = result.find(".."); at != std::string::npos; at = result.find("..")) result.replace(at, 2, "__");
  if (result.empty() || result.front() == '/') result.insert(0, "_");
  return result;
}

MlflowMonitor::MlflowMonitor(MlflowOptions options, core::FileSystem& files)
    : options_(std::move(options)), files_(files), start_time_(now_in_milliseconds()) {
  if (files_.exists(options_.run_file)) {
    folder_ = files_.read_file(options_.run_file, 1 << 16);
    while (folder_.ends_with('\n')) folder_.pop_back();
    const std::string meta = core::join_path(folder_, "meta.yaml");
    if (files_.exists(meta)) {
      const std::string text = files_.read_file(meta, 1 << 20);
      experiment_id_ = yaml_value(text, "experiment_id");
      run_id_ = yaml_value(text, "run_id");
      const std::string start = yaml_value(text, "start_time");
      std::from_chars(start.data(), start.data() + start.size(), start_time_);
    }
  }
  if (run_id_.empty() || experiment_id_.empty()) {
    experiment_id_ = find_or_make_experiment();
    run_id_ = core::random_token();
    folder_ = whole_path(core::join_path(core::join_path(options_.store, experiment_id_), run_id_));
  }
  for (const char* part : {"metrics", "params", "tags", "artifacts"}) {
    files_.make_directories(core::join_path(folder_, part));
  }
  const std::string metrics = core::join_path(folder_, "metrics"), evaluations = core::join_path(metrics, "eval/");
  for_each_file(files_, metrics, [&](const std::string& path) {
    const int64_t last = options_.start_step - (options_.evaluates_again && path.starts_with(evaluations) ? 1 : 0);
    keep_lines(path, files_, [last](std::string_view line) { return step_of(line) <= last; });
  });
  for (const auto& [name, value] : options_.params) {
    files_.write_file_atomically(core::join_path(core::join_path(folder_, "params"), mlflow_name(name)),
                                 value.substr(0, kLongestParameter));
  }
  const auto tag = [&](const char* name, const std::string& value) {
    files_.write_file_atomically(core::join_path(core::join_path(folder_, "tags"), name), value);
  };
  tag("mlflow.runName", options_.run_name);
  tag("mlflow.source.name", "trainyard");
  tag("mlflow.source.type", "LOCAL");
  write_meta(kRunning, "null");
  files_.write_file_atomically(options_.run_file, folder_ + "\n");
}

std::string MlflowMonitor::find_or_make_experiment() {
  files_.make_directories(options_.store);
  const auto meta_of = [&](const std::string& id) {
    return core::join_path(core::join_path(options_.store, id), "meta.yaml");
  };
  for (const std::string& id : files_.list(options_.store)) {
    if (!files_.exists(meta_of(id))) continue;
    const std::string text = files_.read_file(meta_of(id), 1 << 20);
    if (yaml_value(text, "name") == options_.experiment && yaml_value(text, "lifecycle_stage") == "active") return id;
  }
  // MLflow numbers experiments; 0 is the default one, which its client expects.
  const auto make = [&](const std::string& id, const std::string& name) {
    if (files_.exists(meta_of(id))) return;
    files_.make_directories(core::join_path(options_.store, id));
    files_.write_file_atomically(meta_of(id), experiment_meta(options_.store, id, name));
  };
  make("0", "Default");
  constexpr uint64_t kDigits = 900'000'000'000'000'000;
  std::string id;
  for (uint64_t hash = core::stable_hash(options_.experiment); id.empty() || files_.exists(meta_of(id)); ++hash) {
    id = std::to_string(kDigits / 9 + hash % kDigits);
  }
  make(id, options_.experiment);
  return id;
}

void MlflowMonitor::write_meta(int status, const std::string& end_time) {
  files_.write_file_atomically(
      core::join_path(folder_, "meta.yaml"),
      fmt::format("artifact_uri: {}\nend_time: {}\nentry_point_name: ''\nexperiment_id: {}\nlifecycle_stage: active\n"
                  "run_id: {}\nrun_name: {}\nsource_name: ''\nsource_type: 4\nsource_version: ''\nstart_time: {}\n"
                  "status: {}\ntags: []\nuser_id: unknown\n",
                  yaml_text("file://" + core::join_path(folder_, "artifacts")), end_time, yaml_text(experiment_id_),
                  yaml_text(run_id_), yaml_text(options_.run_name), start_time_, status));
}

std::string MlflowMonitor::path_of(std::string metric) const {
  const std::string metrics = core::join_path(folder_, "metrics");
  const auto is_folder = [&](const std::string& name) {
    return files_.info(core::join_path(metrics, name)).is_directory;
  };
  for (size_t at = metric.find('/'); at != std::string::npos; at = metric.find('/', at + 1)) {
    const std::string before = metric.substr(0, at);
    if (files_.exists(core::join_path(metrics, before)) && !is_folder(before)) metric[at] = '_';
  }
  while (files_.exists(core::join_path(metrics, metric)) && is_folder(metric)) metric += '_';
  return core::join_path(metrics, metric);
}

LineFile& MlflowMonitor::file_of(const std::string& metric) {
  std::unique_ptr<LineFile>& file = metrics_[metric];
  if (file == nullptr) file = std::make_unique<LineFile>(path_of(metric), files_);
  return *file;
}

void MlflowMonitor::write(const Scalars& scalars) {
  const auto milliseconds = static_cast<int64_t>(scalars.wall_time * 1000);
  for (const auto& [name, value] : scalars.values) {
    file_of(mlflow_name(full_name(scalars.phase, name)))
        .append(fmt::format("{} {} {}", milliseconds, python_float(value), scalars.global_step));
  }
}

void MlflowMonitor::close() {
  for (auto& [name, file] : metrics_) file->close();
  metrics_.clear();
  write_meta(kFinished, std::to_string(now_in_milliseconds()));
}

}  // namespace trainyard::train
