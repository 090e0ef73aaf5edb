#include "trainyard/frontends/tf_cnn/mlperf/compliance_log.h"

#include <cstdio>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trainyard/frontends/tf_cnn/mlperf/detector_lines.h"
#include "trainyard/train/callbacks/summary_time.h"

namespace trainyard::frontends {

void write_to_stderr(std::string_view line) {
  const std::string whole = std::string(line) + "\n";  // one call, so that no other line comes between
  std::fwrite(whole.data(), 1, whole.size(), stderr);
  std::fflush(stderr);
}

ComplianceLog::ComplianceLog(ComplianceLogOptions options) : options_(std::move(options)) {
  if (!options_.write) options_.write = write_to_stderr;
  if (!options_.wall_clock) options_.wall_clock = train::system_wall_clock;
}

ComplianceLogOptions compliance_log_options(std::string_view model) {
  if (model == "ssd300") return {.benchmark = "ssd", .has = is_ssd_tag};
  return {};
}

void ComplianceLog::write(std::string_view tag, std::string_view json, SourceLocation where) const {
  if (options_.has && !options_.has(tag)) return;
  options_.write(fmt::format(":::MLPv0.5.0 {} {:.9f} ({}) {}{}{}", options_.benchmark, options_.wall_clock(),
                             place_in_project(where), tag, json.empty() ? "" : ": ", json));
}

std::string place_in_project(const SourceLocation& where) {
  std::string_view file = where.file;
  if (const size_t begin = file.rfind("trainyard/"); begin != std::string_view::npos) file.remove_prefix(begin);
  return fmt::format("{}:{}", file, where.line);
}

std::string json_text(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace trainyard::frontends
