// What a search has found, as text, CSV and a picture.
#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "trainyard/cli/tune_record.h"
#include "trainyard/train/monitors/curve_svg.h"

namespace trainyard::cli {
namespace {

std::string state_of(const TuneFile& file, const Trial& trial) {
  if (!trial.failure.empty()) return "failed";
  if (trial.results.size() == tune_levels(file).size()) return "finished";
  return trial.started > trial.results.size() ? "unfinished" : "stopped";
}

std::string value_of_flag(const Trial& trial, const std::string& flag) {
  for (const auto& [name, value] : trial.flags) {
    if (name == flag) return value;
  }
  return "";
}

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

double seconds_of(const Trial& trial) {
  double seconds = 0;
  for (const TuneResult& result : trial.results) seconds += result.seconds;
  return seconds;
}

// Columns as wide as their widest cell, two blanks apart; the last one is not filled up.
std::string aligned(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) line += fmt::format("{:<{}}  ", row[i], widths[i]);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

// The place of a trial on the axis of a range: its number, or the index of its choice.
double place_in(const TuneRange& range, const Trial& trial) {
  const std::string value = value_of_flag(trial, range.flag);
  if (range.kind != TuneRange::Kind::kChoice) return std::stod(value);
  return static_cast<double>(std::find(range.choices.begin(), range.choices.end(), value) - range.choices.begin());
}

std::string axis_of(const TuneRange& range) {
  if (range.kind != TuneRange::Kind::kChoice) return range.flag;
  std::string name = range.flag + ":";
  for (size_t i = 0; i < range.choices.size(); ++i) name += fmt::format(" {} {}", i, range.choices[i]);
  return name;
}

}  // namespace

std::string tune_table(const TuneFile& file, const std::vector<Trial>& trials) {
  std::vector<std::vector<std::string>> rows;
  auto& head = rows.emplace_back(std::vector<std::string>{"trial", file.metric, "epochs", "state"});
  for (const TuneRange& range : file.ranges) head.push_back(range.flag);
  const auto row_of = [&](const Trial& trial) {
    const TuneResult* const last = trial.results.empty() ? nullptr : &trial.results.back();
    auto& row = rows.emplace_back(
        std::vector<std::string>{std::to_string(trial.number), last ? fmt::format("{:.4f}", last->value) : "-",
                                 last ? fmt::format("{:.4g}", last->epochs) : "-", state_of(file, trial)});
    for (const TuneRange& range : file.ranges) row.push_back(value_of_flag(trial, range.flag));
  };
  for (const size_t t : ranked_trials(file, trials)) row_of(trials[t]);
  for (const Trial& trial : trials) {
    if (trial.failure.empty() && trial.results.empty()) row_of(trial);
  }
  std::string reasons;
  for (const Trial& trial : trials) {
    if (trial.failure.empty()) continue;
    row_of(trial);
    reasons += fmt::format("trial {} failed: {}\n", trial.number, trial.failure);
  }
  return aligned(rows) + reasons;
}

std::string tune_csv(const TuneFile& file, const std::vector<Trial>& trials) {
  std::string text = "trial,state,epochs,global_step," + csv_cell(file.metric) + ",seconds";
  for (const TuneRange& range : file.ranges) text += "," + range.flag;
  text += ",reason\n";
  for (const Trial& trial : trials) {
    text += fmt::format("{},{},", trial.number, state_of(file, trial));
    if (trial.results.empty()) {
      text += ",,,";
    } else {
      const TuneResult& last = trial.results.back();
      text += fmt::format("{},{},{},{:.3f}", last.epochs, last.global_step, last.value, seconds_of(trial));
    }
    for (const TuneRange& range : file.ranges) text += "," + csv_cell(value_of_flag(trial, range.flag));
    text += "," + csv_cell(trial.failure) + "\n";
  }
  return text;
}

std::string tune_svg(const TuneFile& file, const std::vector<Trial>& trials, const std::string& title) {
  std::vector<train::CurvePanel> panels = {{.title = file.metric + " by epoch", .series = {}, .x_axes = {{"epochs"}}}};
  for (const Trial& trial : trials) {
    train::CurveSeries series;
    for (const TuneResult& result : trial.results) {
      series.x.push_back(result.epochs);
      series.y.push_back(result.value);
    }
    panels[0].series.push_back(std::move(series));
  }
  for (const TuneRange& range : file.ranges) {
    train::CurveSeries last{.name = "run to the end", .joined = false}, early{.name = "stopped", .joined = false};
    for (const Trial& trial : trials) {
      if (trial.results.empty()) continue;
      train::CurveSeries& series = trial.results.size() == tune_levels(file).size() ? last : early;
      series.x.push_back(place_in(range, trial));
      series.y.push_back(trial.results.back().value);
    }
    if (early.x.empty()) last.name.clear();
    std::vector<train::CurveSeries> both{std::move(last)};
    if (!early.x.empty()) both.push_back(std::move(early));
    panels.push_back({.title = file.metric,
                      .series = std::move(both),
                      .x_axes = {{axis_of(range)}},
                      .logarithmic = range.logarithmic()});
  }
  return train::curve_svg(title, panels);
}

}  // namespace trainyard::cli
