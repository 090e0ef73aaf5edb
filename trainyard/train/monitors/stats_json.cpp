#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/output_path.h"
#include "trainyard/train/monitors/monitors.h"

namespace trainyard::train {

using core::Error;
using core::ErrorCode;
using Json = nlohmann::ordered_json;

namespace {

constexpr const char* kEpochNum = "epoch_num";
constexpr const char* kGlobalStep = "global_step";

// Returns the objects of a list that are complete; what a cut has left of the last one is none.
std::vector<Json> complete_objects(std::string_view text) {
  std::vector<Json> objects;
  size_t begin = 0;
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{') {
      if (depth++ == 0) begin = i;
    } else if (c == '}' && depth > 0 && --depth == 0) {
      Json object = Json::parse(text.substr(begin, i + 1 - begin), nullptr, false);
      if (object.is_object()) objects.push_back(std::move(object));
    }
  }
  return objects;
}

StatsEnd end_of(const Json& entry, const std::string& path) {
  const auto number = [&](const char* name) {
    const auto found = entry.find(name);
    if (found != entry.end() && found->is_number_integer()) return found->get<int64_t>();
    throw Error(ErrorCode::kCorruptData, {.problem = "an entry of the statistics does not tell its epoch",
                                          .where = path,
                                          .expected = fmt::format("{} and {} in each", kEpochNum, kGlobalStep),
                                          .actual = fmt::format("no whole number as {}", name)});
  };
  return {number(kEpochNum), number(kGlobalStep)};
}

std::vector<Json> read_entries(const std::string& path, core::FileSystem& files) {
  core::require_plain_output(path);
  if (!files.exists(path)) return {};
  const std::string text = files.read_file(path);
  const size_t begin = text.find_first_not_of(std::string_view(" \t\r\n\0", 5));
  if (begin != std::string::npos && text[begin] != '[') {
    throw Error(ErrorCode::kCorruptData, {.problem = "not a file of statistics",
                                          .where = path,
                                          .expected = "a list of objects",
                                          .actual = text.substr(begin, 80),
                                          .remedy = "move it away"});
  }
  return complete_objects(text);
}

void put(Json& entry, const std::string& name, double value) {
  if (std::isfinite(value)) {
    entry[name] = value;
  } else {
    entry[name] = fmt::format("{}", std::isnan(value) ? std::abs(value) : value);
  }
}

}  // namespace

std::optional<StatsEnd> read_stats_end(const std::string& path, core::FileSystem& files, int64_t start_step) {
  const std::vector<Json> entries = read_entries(path, files);
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    const StatsEnd end = end_of(*entry, path);
    if (end.global_step <= start_step) return end;
  }
  return std::nullopt;
}

struct StatsJsonMonitor::Entries {
  std::vector<Json> complete;
  Json next = Json::object();  // of the epoch that runs
};

StatsJsonMonitor::StatsJsonMonitor(std::string path, core::FileSystem& files, int64_t start_step)
    : path_(std::move(path)), files_(files), entries_(std::make_unique<Entries>()) {
  files_.make_directories(core::parent_path(path_));
  entries_->complete = read_entries(path_, files_);
  std::erase_if(entries_->complete, [&](const Json& entry) { return end_of(entry, path_).global_step > start_step; });
}

StatsJsonMonitor::~StatsJsonMonitor() = default;

void StatsJsonMonitor::write(const Scalars& scalars) {
  auto& complete = entries_->complete;
  const bool of_last = !complete.empty() && complete.back()[kGlobalStep] == scalars.global_step;
  Json& entry = of_last ? complete.back() : entries_->next;
  for (const auto& [name, value] : scalars.values) {
    const std::string full = full_name(scalars.phase, name);
    if (full == kEpochNum || full == kGlobalStep) {
      throw Error(ErrorCode::kInvalidArgument,
                  {.problem = "a metric's name is taken", .where = full, .remedy = "give it another name"});
    }
    put(entry, full, value);
  }
  if (of_last) write_file();
}

void StatsJsonMonitor::end_epoch(int64_t epoch, int64_t global_step) {
  Json entry{{kEpochNum, epoch}, {kGlobalStep, global_step}};
  entry.update(entries_->next);
  entries_->next = Json::object();
  entries_->complete.push_back(std::move(entry));
  write_file();
}

void StatsJsonMonitor::write_file() {
  std::string text = "[";
  for (const Json& entry : entries_->complete) {
    text += text.size() == 1 ? "\n" : ",\n";
    text += entry.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  files_.write_file_atomically(path_, text + "\n]\n");
}

}  // namespace trainyard::train
