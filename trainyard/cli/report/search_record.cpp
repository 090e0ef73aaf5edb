#include "trainyard/cli/report/search_record.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"

namespace trainyard::cli {
namespace {

using SearchJson = nlohmann::ordered_json;

constexpr uint64_t kLargestRecord = uint64_t{1} << 26;  // bytes of the file
constexpr size_t kMostShownTrials = 2000, kMostShownRanges = 64, kMostShownLevels = 64, kMostShownChoices = 200;
constexpr size_t kLongestSearchText = 300;

const SearchJson& list_in(const SearchJson& object, const char* name) {
  static const SearchJson kEmptyList = SearchJson::array();
  const auto found = object.find(name);
  return found != object.end() && found->is_array() ? *found : kEmptyList;
}

std::string short_text(const SearchJson& value) {
  return value.is_string() ? value.get_ref<const std::string&>().substr(0, kLongestSearchText) : "";
}

std::string text_in(const SearchJson& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() ? "" : short_text(*found);
}

std::optional<double> number_in(const SearchJson& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_number() || !std::isfinite(found->get<double>())) return std::nullopt;
  return found->get<double>();
}

SearchJson checked_range(const SearchJson& file) {
  SearchJson range{{"flag", text_in(file, "flag")}, {"scale", text_in(file, "scale")}};
  if (range["scale"] != "logarithmic" && range["scale"] != "choice") range["scale"] = "linear";
  SearchJson& choices = range["choices"] = SearchJson::array();
  for (const SearchJson& choice : list_in(file, "choices")) {
    if (choices.size() < kMostShownChoices) choices.push_back(short_text(choice));
  }
  return range;
}

// Returns nothing for what is no trial.
std::optional<SearchJson> checked_trial(const SearchJson& file, const SearchJson& ranges, size_t levels) {
  if (!file.is_object()) return std::nullopt;
  const auto number = number_in(file, "number");
  const auto flags = file.find("flags");
  if (!number || *number < 0 || *number > 1e9 || flags == file.end() || !flags->is_object()) return std::nullopt;
  SearchJson results = SearchJson::array(), values = SearchJson::array();
  for (const SearchJson& each : list_in(file, "results")) {
    if (!each.is_object() || results.size() == kMostShownLevels) break;
    const auto epochs = number_in(each, "epochs"), value = number_in(each, "value");
    if (!epochs || !value) break;
    results.push_back({*epochs, *value, number_in(each, "global_step").value_or(0),
                       std::round(1e3 * number_in(each, "seconds").value_or(0)) / 1e3});
  }
  for (const SearchJson& range : ranges) {
    values.push_back(text_in(*flags, range["flag"].get_ref<const std::string&>().c_str()));
  }
  const std::string reason = text_in(file, "failure");
  const bool begun = number_in(file, "started").value_or(0) > static_cast<double>(results.size());
  const char* state = !reason.empty()            ? "failed"
                      : results.size() >= levels ? "finished"
                      : begun                    ? "unfinished"
                                                 : "stopped";
  return SearchJson{{"number", static_cast<int64_t>(*number)},
                    {"directory", text_in(file, "directory")},
                    {"state", state},
                    {"reason", reason},
                    {"results", std::move(results)},
                    {"values", std::move(values)}};
}

}  // namespace

nlohmann::ordered_json checked_search(const nlohmann::ordered_json& file, std::vector<std::string>& problems) {
  SearchJson record{{"metric", ""},
                    {"goal", "highest"},
                    {"levels", SearchJson::array()},
                    {"ranges", SearchJson::array()},
                    {"left_out", 0},
                    {"trials", SearchJson::array()}};
  if (!file.is_object() || text_in(file, "kind") != "trainyard tune") {
    problems.emplace_back("it is no record of a search");
    return record;
  }
  record["metric"] = text_in(file, "metric");
  if (text_in(file, "goal") == "lowest") record["goal"] = "lowest";
  for (const SearchJson& level : list_in(file, "levels")) {
    if (level.is_number() && record["levels"].size() < kMostShownLevels)
      record["levels"].push_back(level.get<double>());
  }
  for (const SearchJson& range : list_in(file, "ranges")) {
    if (range.is_object() && record["ranges"].size() < kMostShownRanges)
      record["ranges"].push_back(checked_range(range));
  }
  const SearchJson& trials = list_in(file, "trials");
  const size_t levels = std::max<size_t>(1, record["levels"].size());
  size_t damaged = 0, left_out = 0;
  for (const SearchJson& each : trials) {
    if (record["trials"].size() == kMostShownTrials) {
      ++left_out;
    } else if (auto trial = checked_trial(each, record["ranges"], levels)) {
      record["trials"].push_back(*std::move(trial));
    } else {
      ++damaged;
    }
  }
  record["left_out"] = left_out;
  if (damaged > 0) problems.push_back(fmt::format("{} entries are no trials; they are left out", damaged));
  return record;
}

std::optional<ReportSearch> read_report_search(const std::string& path) {
  std::error_code unknown;  // opening a pipe would wait for a writer
  if (!std::filesystem::is_regular_file(path, unknown)) return std::nullopt;
  ReportSearch search{.directory = std::string(core::parent_path(path))};
  try {
    const SearchJson file =
        SearchJson::parse(core::local_file_system().read_file(path, kLargestRecord), nullptr, false);
    search.record = checked_search(file, search.problems);
  } catch (const core::Error& error) {
    search.problems.emplace_back(error.what());
    search.record = checked_search({{"kind", "trainyard tune"}}, search.problems);
  }
  for (std::string& problem : search.problems) problem = fmt::format("{}: {}", core::base_name(path), problem);
  return search;
}

}  // namespace trainyard::cli
