#include "trainyard/cli/report/run_metrics.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <set>
#include <span>
#include <string_view>
#include <system_error>

#include <nlohmann/json.hpp>

#include "trainyard/core/files/file_system.h"

namespace trainyard::cli {
namespace {

constexpr size_t kMostColumns = 64, kMostPhases = 8, kLongestName = 100;
constexpr uint64_t kLongestLine = uint64_t{1} << 16;
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

bool is_loss_name(std::string_view name) {
  return name == "total_loss" || name == "base_loss" || name == "loss";
}

MetricTable* table_of_phase(RunMetrics& metrics, const std::string& phase) {
  for (MetricTable& table : metrics.phases) {
    if (table.phase == phase) return &table;
  }
  if (metrics.phases.size() == kMostPhases) return nullptr;
  metrics.phases.push_back({.phase = phase});
  return &metrics.phases.back();
}

std::vector<double>* column_of(MetricTable& table, const std::string& name) {
  for (auto& [own, values] : table.columns) {
    if (own == name) return &values;
  }
  if (table.columns.size() == kMostColumns) return nullptr;
  table.columns.emplace_back(name, std::vector<double>(table.step.size() - 1, kNone));
  return &table.columns.back().second;
}

double number_of(const nlohmann::json& row, const char* name) {
  const auto found = row.find(name);
  return found != row.end() && found->is_number() ? found->get<double>() : kNone;
}

// Adds the row. Returns false for a line that is none.
bool add_row(RunMetrics& metrics, std::string_view line) {
  const auto row = nlohmann::json::parse(line, nullptr, false);
  if (!row.is_object()) return false;
  const auto step = row.find("global_step"), phase = row.find("phase");
  if (step == row.end() || !step->is_number_integer() || phase == row.end() || !phase->is_string()) return false;
  const auto name = phase->get<std::string>();
  MetricTable* table = name.size() > kLongestName ? nullptr : table_of_phase(metrics, name);
  if (table == nullptr) return false;
  table->step.push_back(step->get<int64_t>());
  table->epoch.push_back(number_of(row, "epoch"));
  table->time.push_back(number_of(row, "wall_time"));
  bool lost = false;
  for (const auto& [key, value] : row.items()) {
    if (key == "global_step" || key == "phase" || key == "epoch" || key == "wall_time") continue;
    const bool word = value.is_string();  // "nan", "inf", "-inf"
    lost = lost || (word && is_loss_name(key));
    if ((!value.is_number() && !word) || key.size() > kLongestName) continue;
    std::vector<double>* column = column_of(*table, key);
    if (column == nullptr) continue;
    column->resize(table->step.size(), kNone);
    if (!word) column->back() = value.get<double>();
  }
  for (auto& [key, values] : table->columns) values.resize(table->step.size(), kNone);
  if (lost && metrics.non_finite_losses++ == 0) metrics.first_non_finite = table->step.back();
  return true;
}

void add_line(RunMetrics& metrics, std::string_view line) {
  if (line.empty()) return;
  if (!add_row(metrics, line)) ++metrics.damaged_lines;
}

// Adds the indices of the least and the greatest value among rows [begin, end).
void keep_extremes(const std::vector<double>& values, size_t begin, size_t end, std::set<size_t>& kept) {
  size_t least = end, most = end;
  for (size_t i = begin; i < end; ++i) {
    if (std::isnan(values[i])) continue;
    if (least == end || values[i] < values[least]) least = i;
    if (most == end || values[i] > values[most]) most = i;
  }
  if (least != end) kept.insert({least, most});
}

template <typename T>
void keep_rows(std::vector<T>& values, const std::set<size_t>& rows) {
  size_t at = 0;
  for (const size_t row : rows) values[at++] = values[row];
  values.resize(at);
}

}  // namespace

const std::vector<double>* MetricTable::find(const std::string& name) const {
  for (const auto& [own, values] : columns) {
    if (own == name) return &values;
  }
  return nullptr;
}

const MetricTable* RunMetrics::find(const std::string& phase) const {
  for (const MetricTable& table : phases) {
    if (table.phase == phase) return &table;
  }
  return nullptr;
}

std::string loss_column(const MetricTable& table) {
  for (const auto& [name, values] : table.columns) {
    if (is_loss_name(name)) return name;
  }
  return "";
}

RunMetrics read_run_metrics(const std::string& path) {
  RunMetrics metrics;
  // Opening a pipe would wait for a writer.
  std::error_code unknown;
  if (!std::filesystem::is_regular_file(path, unknown)) return metrics;
  const std::unique_ptr<core::ReadableFile> file = core::local_file_system().open_read(path);
  const uint64_t size = std::min(file->size(), kMostMetricBytes);
  metrics.cut = file->size() > size;
  std::string text;
  bool skipping = false;  // in a line that is longer than any row
  constexpr uint64_t kBlock = uint64_t{1} << 20;
  for (uint64_t offset = 0; offset < size;) {
    const size_t kept = text.size();
    const uint64_t count = std::min(kBlock, size - offset);
    text.resize(kept + count);
    file->read_at(offset, std::as_writable_bytes(std::span(text).subspan(kept)));
    offset += count;
    size_t begin = 0;
    for (size_t end = text.find('\n', begin); end != std::string::npos; end = text.find('\n', begin)) {
      if (!skipping) add_line(metrics, std::string_view(text).substr(begin, end - begin));
      skipping = false;
      begin = end + 1;
    }
    text.erase(0, begin);
    if (text.size() > kLongestLine) {
      if (!skipping) ++metrics.damaged_lines;
      skipping = true;
      text.clear();
    }
  }
  // What a running training is about to complete is no damage.
  if (!skipping && !text.empty()) add_row(metrics, text);
  for (MetricTable& table : metrics.phases) table.rows_in_file = table.step.size();
  return metrics;
}

void thin_out(MetricTable& table, size_t most_rows) {
  const size_t rows = table.step.size();
  if (rows <= most_rows) return;
  std::vector<const std::vector<double>*> watched;
  for (const std::string& name : {loss_column(table), std::string("images_per_second")}) {
    if (const std::vector<double>* values = table.find(name)) watched.push_back(values);
  }
  const size_t stretches = std::max<size_t>(1, most_rows / (1 + 2 * watched.size()));
  std::set<size_t> kept{rows - 1};
  for (size_t s = 0; s < stretches; ++s) {
    const size_t begin = s * rows / stretches, end = (s + 1) * rows / stretches;
    kept.insert(begin);
    for (const std::vector<double>* values : watched) keep_extremes(*values, begin, end, kept);
  }
  keep_rows(table.step, kept);
  keep_rows(table.epoch, kept);
  keep_rows(table.time, kept);
  for (auto& [name, values] : table.columns) keep_rows(values, kept);
}

}  // namespace trainyard::cli
