#include <algorithm>
#include <cmath>
#include <ctime>
#include <ostream>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/files/output_path.h"
#include "trainyard/frontends/paddle/executor.h"
#include "trainyard/train/callbacks/summary_time.h"
#include "trainyard/train/monitors/line_file.h"

namespace trainyard::frontends::program {
namespace {

using Json = nlohmann::ordered_json;

// "2026-11-23 02:50:44.123456", the local time.
std::string date_and_time(double seconds) {
  const auto microseconds = static_cast<int64_t>(std::llround(seconds * 1e6));
  const auto whole = static_cast<std::time_t>(microseconds / 1'000'000);
  std::tm local{};
  ::localtime_r(&whole, &local);
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02}.{:06}", local.tm_year + 1900, local.tm_mon + 1, local.tm_mday,
                     local.tm_hour, local.tm_min, local.tm_sec, microseconds % 1'000'000);
}

// A number as Python prints it.
std::string number_text(double value) {
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

// An option as Python prints it.
std::string option_text(const Json& value) {
  if (value.is_null()) return "None";
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return number_text(value.get<double>());
  if (!value.is_array()) return value.dump();
  std::vector<std::string> texts;
  for (const Json& element : value) {
    texts.push_back(element.is_string() ? "'" + element.get<std::string>() + "'" : option_text(element));
  }
  return fmt::format("[{}]", fmt::join(texts, ", "));
}

std::string step_text(const Step& step) {
  if (step.empty()) return "Summary:";
  std::string text = fmt::format("Epoch: {} ", step[0]);
  if (step.size() > 1) text += fmt::format("Iteration: {} ", step[1]);
  return text;
}

bool larger_is_better(const std::string& metric) {
  return metric == "top1" || metric == "top5" || metric == "ips";
}

}  // namespace

Report::Report(std::ostream& out, const std::string& path, bool append)
    : out_(out), path_(path), clock_(train::system_wall_clock) {
  start_ = clock_();
  if (path.empty()) return;
  const core::UserOutput output = core::resolve_user_output(path);
  path_ = output.path;
  if (output.is_stream) {
    file_ = std::make_unique<train::LineFile>(core::open_stream(path_));
    return;
  }
  file_ = std::make_unique<train::LineFile>(path_, core::local_file_system());
  truncates_ = !append;
}

void Report::write(const std::string& shown_step, const std::string& json_step,
                   const std::vector<std::pair<std::string, std::string>>& shown, const std::string& json) {
  const double now = clock_();
  std::vector<std::string> texts;
  for (const auto& [name, value] : shown) texts.push_back(fmt::format("{} : {} ", name, value));
  if (file_ && std::exchange(truncates_, false)) {
    core::FileSystem& files = core::local_file_system();
    files.write_file_atomically(path_, "");
    file_ = std::make_unique<train::LineFile>(path_, files);
  }
  // In front of the console: a line that was seen is kept.
  if (file_)
    file_->append(fmt::format(
        R"({{"timestamp": "{:.6f}", "elapsedtime": "{:.6f}", "datetime": "{}", "type": "LOG", "step": {}, "data": {}}})",
        now, now - start_, date_and_time(now), json_step, json));
  out_ << fmt::format("DLL {} - {} {}\n", date_and_time(now), shown_step, fmt::join(texts, " ")) << std::flush;
}

void Report::parameters(const std::vector<std::pair<std::string, std::string>>& options) {
  std::vector<std::pair<std::string, std::string>> shown;
  std::vector<std::string> members;
  for (const auto& [name, value] : options) {
    shown.emplace_back(name, option_text(Json::parse(value)));
    members.push_back(fmt::format("\"{}\": {}", name, value));
  }
  write("PARAMETER", "\"PARAMETER\"", shown, fmt::format("{{{}}}", fmt::join(members, ", ")));
}

void Report::log(const Step& step, const Metrics& metrics) {
  std::vector<std::pair<std::string, std::string>> shown;
  std::vector<std::string> members;
  for (const auto& [name, value] : metrics) {
    const std::string text = number_text(value);
    // The example shows the time of an epoch as its meter does.
    shown.emplace_back(name, name.ends_with(".epoch_time") ? fmt::format("{:.5f} s,", value) : text);
    members.push_back(std::isfinite(value) ? fmt::format("\"{}\": {}", name, text)
                                           : fmt::format("\"{}\": \"{}\"", name, text));
  }
  write(step_text(step), fmt::format("[{}]", fmt::join(step, ", ")), shown,
        fmt::format("{{{}}}", fmt::join(members, ", ")));
}

void log_info(Report& report, const Step& step, const Metrics& metrics, Mode mode) {
  Metrics named;
  for (const auto& [name, value] : metrics) {
    named.emplace_back((mode == Mode::kTrain ? "train." : "val.") + name, value);
  }
  report.log(step, named);
}

void MetricSummary::update(const Metrics& metrics) {
  for (const auto& metric : metrics) {
    const auto found =
        std::find_if(best_.begin(), best_.end(), [&](const auto& known) { return known.first == metric.first; });
    if (found == best_.end()) {
      best_.push_back(metric);
      continue;
    }
    const double value = metric.second;
    double& best = found->second;
    const bool better = larger_is_better(metric.first) ? value > best : value < best;
    if (better || std::isnan(best)) best = value;
  }
}

}  // namespace trainyard::frontends::program
