#include <cmath>
#include <sstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/base/error.h"
#include "trainyard/train/monitors/line_file.h"
#include "trainyard/train/monitors/monitors.h"

namespace trainyard::train {

std::string json_line(const Scalars& scalars) {
  nlohmann::ordered_json line{{"global_step", scalars.global_step},
                              {"epoch", scalars.epoch},
                              {"wall_time", scalars.wall_time},
                              {"phase", scalars.phase}};
  for (const auto& [name, value] : scalars.values) {
    if (line.contains(name)) {
      throw core::Error(core::ErrorCode::kInvalidArgument,
                        {.problem = "a metric's name is taken", .where = name, .remedy = "give it another name"});
    }
    if (std::isfinite(value)) {
      line[name] = value;
    } else {
      line[name] = fmt::format("{}", std::isnan(value) ? std::abs(value) : value);
    }
  }
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

namespace {

// Whether json_line() can have written the line.
bool is_own_line(const std::string& text) {
  const auto row = nlohmann::json::parse(text, nullptr, false);
  const auto has = [&row](const char* name, bool (*is)(const nlohmann::json&)) {
    const auto found = row.find(name);
    return found != row.end() && is(*found);
  };
  const auto number = [](const nlohmann::json& value) { return value.is_number(); };
  return row.is_object() && has("global_step", [](const nlohmann::json& value) { return value.is_number_integer(); }) &&
         has("epoch", number) && has("wall_time", number) &&
         has("phase", [](const nlohmann::json& value) { return value.is_string(); });
}

// One row tells: what others have added to the file may be in front of it.
bool is_own_file(const std::string& begin) {
  std::istringstream lines(begin);
  for (std::string line; std::getline(lines, line);) {
    if (is_own_line(line)) return true;
  }
  return begin.find('\n') == std::string::npos && is_torn_from(begin, R"({"global_step":)");
}

const std::string& without_later_rows(const std::string& path, core::FileSystem& files, int64_t start_step,
                                      bool evaluates_again) {
  if (const std::string begin = read_beginning(path, files); !is_own_file(begin)) {
    refuse_foreign_file(path, R"(lines {"global_step":...,"epoch":...,"wall_time":...,"phase":...,...})", begin);
  }
  if (start_step == std::numeric_limits<int64_t>::max()) return path;
  keep_lines(path, files, [start_step, evaluates_again](std::string_view line) {
    const auto row = nlohmann::json::parse(line, nullptr, false);
    const auto step = row.is_object() ? row.find("global_step") : row.end();
    if (!row.is_object() || step == row.end() || !step->is_number_integer()) return true;
    if (evaluates_again && step->get<int64_t>() == start_step) {
      const auto phase = row.find("phase");
      return phase != row.end() && *phase == "train";
    }
    return step->get<int64_t>() <= start_step;
  });
  return path;
}

}  // namespace

JsonLinesMonitor::JsonLinesMonitor(const std::string& path, core::FileSystem& files, int64_t start_step,
                                   bool evaluates_again)
    : lines_(std::make_shared<LineFile>(without_later_rows(path, files, start_step, evaluates_again), files)) {}

void JsonLinesMonitor::write(const Scalars& scalars) {
  lines_->append(json_line(scalars));
}

void JsonLinesMonitor::close() {
  lines_->close();
}

}  // namespace trainyard::train
