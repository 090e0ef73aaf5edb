#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/train/monitors/line_file.h"
#include "trainyard/train/monitors/monitors.h"

namespace trainyard::train {
namespace {

const std::vector<std::string>& first_columns() {
  static const auto* const columns = new std::vector<std::string>{"global_step", "epoch", "wall_time", "phase"};
  return *columns;
}

std::string cell(std::string_view text) {
  if (text.find_first_of(",\"") == std::string_view::npos) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

std::string line_of(const std::vector<std::string>& cells) {
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i) line += (i == 0 ? "" : ",") + cell(cells[i]);
  return line;
}

void refuse_line_break(std::string_view text) {
  if (text.find_first_of("\r\n") == std::string_view::npos) return;
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = "a metric's name or phase has a line break", .where = std::string(text)});
}

}  // namespace

std::vector<std::string> split_csv_line(std::string_view line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"') {
      cells.back() += '"';
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      cells.emplace_back();
    } else {
      cells.back() += c;
    }
  }
  return cells;
}

CsvMonitor::CsvMonitor(std::string path, core::FileSystem& files, int64_t start_step, bool evaluates_again)
    : path_(std::move(path)), files_(files) {
  // Before anything is changed in it.
  const std::string begin = read_beginning(path_, files_);
  const size_t header = begin.find('\n');
  const std::vector<std::string>& first = first_columns();
  if (header != std::string::npos) columns_ = split_csv_line(std::string_view(begin).substr(0, header));
  const bool own = header == std::string::npos
                       ? is_torn_from(begin, line_of(first))
                       : columns_.size() >= first.size() && std::equal(first.begin(), first.end(), columns_.begin());
  if (!own) refuse_foreign_file(path_, "a first line " + line_of(first) + ",...", begin);
  lines_ = std::make_shared<LineFile>(path_, files_);
  if (start_step == std::numeric_limits<int64_t>::max()) return;
  lines_->close();
  keep_lines(path_, files_, [start_step, evaluates_again](std::string_view line) {
    int64_t step = 0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), step);
    if (error != std::errc()) return true;  // the header
    if (!evaluates_again || step != start_step) return step <= start_step;
    const std::vector<std::string> cells = split_csv_line(line);
    return cells.size() > 3 && cells[3] == "train";
  });
  lines_ = std::make_shared<LineFile>(path_, files_);
}

void CsvMonitor::add_columns(const Scalars& scalars) {
  const size_t before = columns_.size();
  if (columns_.empty()) columns_ = first_columns();
  for (const auto& [name, value] : scalars.values) {
    refuse_line_break(name);
    const auto found = std::find(columns_.begin(), columns_.end(), name);
    if (found == columns_.end()) {
      columns_.push_back(name);
    } else if (found - columns_.begin() < static_cast<ptrdiff_t>(first_columns().size())) {
      columns_.resize(before);
      throw core::Error(core::ErrorCode::kInvalidArgument,
                        {.problem = "a metric's name is taken", .where = name, .remedy = "give it another name"});
    }
  }
  if (columns_.size() == before) return;
  lines_->close();
  const std::string content = files_.read_file(path_);
  std::string extended = line_of(columns_) + "\n";
  const std::string empty_cells(columns_.size() - before, ',');
  for (size_t begin = content.find('\n'); begin != std::string::npos && begin + 1 < content.size();) {
    const size_t end = content.find('\n', begin + 1);
    extended += content.substr(begin + 1, end - begin - 1) + empty_cells + "\n";
    begin = end;
  }
  files_.write_file_atomically(path_, extended);
  lines_ = std::make_shared<LineFile>(path_, files_);
}

void CsvMonitor::write(const Scalars& scalars) {
  refuse_line_break(scalars.phase);
  add_columns(scalars);
  std::vector<std::string> cells(columns_.size());
  cells[0] = fmt::format("{}", scalars.global_step);
  cells[1] = fmt::format("{}", scalars.epoch);
  cells[2] = fmt::format("{:.3f}", scalars.wall_time);
  cells[3] = scalars.phase;
  for (const auto& [name, value] : scalars.values) {
    const auto column = std::find(columns_.begin(), columns_.end(), name) - columns_.begin();
    cells[static_cast<size_t>(column)] = fmt::format("{}", std::isnan(value) ? std::abs(value) : value);  // no "-nan"
  }
  lines_->append(line_of(cells));
}

void CsvMonitor::close() {
  lines_->close();
}

}  // namespace trainyard::train
