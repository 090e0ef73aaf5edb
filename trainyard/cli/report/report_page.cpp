#include "trainyard/cli/report/report_page.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <string_view>

#include <fmt/format.h>

#include "trainyard/cli/report/evaluation_file.h"
#include "trainyard/cli/report/page_text.h"
#include "trainyard/cli/report/run_alerts.h"
#include "trainyard/core/base/build_info.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/sockets/random_token.h"
#include "trainyard/data/datasets/folder_dataset.h"
#include "trainyard/train/callbacks/run_record_json.h"

namespace trainyard::cli {
namespace {

using PageJson = nlohmann::ordered_json;

// What the page of some runs may hold at most. A number of a curve takes about 8 bytes, a cell about 9.
constexpr size_t kCurveNumbers = 100'000, kFewestCurveNumbers = 1'200;  // all runs, and each
constexpr size_t kMatrixCells = 30'000, kFewestMatrixCells = 300;       // all runs, and each
constexpr size_t kImageBytes = 400'000, kFewestImageBytes = 4'000;      // all runs, and each
constexpr size_t kFewestRows = 40, kLongestPageText = 4000, kMostEntries = 1024, kDeepest = 5;

// Returns the value without what would make a page large: long texts, long lists, deep nesting.
PageJson bounded(const PageJson& value, size_t depth = 0) {
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    return text.size() > kLongestPageText ? PageJson(text.substr(0, kLongestPageText) + "...") : value;
  }
  if (!value.is_structured()) return value;
  if (depth == kDeepest) return {};
  PageJson copy = value.is_array() ? PageJson::array() : PageJson::object();
  size_t entries = 0;
  for (const auto& [key, each] : value.items()) {
    if (entries++ == kMostEntries) break;
    if (value.is_array()) {
      copy.push_back(bounded(each, depth + 1));
    } else {
      copy[key.substr(0, kLongestPageText)] = bounded(each, depth + 1);
    }
  }
  return copy;
}

// Returns the number in `format`, "{:.6g}" as an example; null for one that is not finite, which JSON has not.
PageJson shortened(double value, const char* format) {
  if (!std::isfinite(value)) return {};
  const double rounded = std::strtod(fmt::format(fmt::runtime(format), value).c_str(), nullptr);
  if (rounded == std::floor(rounded) && std::abs(rounded) < 1e15) return static_cast<int64_t>(rounded);
  return rounded;
}

PageJson phase_json(const MetricTable& table, double begin) {
  PageJson epochs = PageJson::array(), times = epochs, values = PageJson::object();
  for (const double epoch : table.epoch) epochs.push_back(shortened(epoch, "{:.5g}"));
  for (const double time : table.time) times.push_back(shortened(time - begin, "{:.1f}"));
  for (const auto& [name, column] : table.columns) {
    PageJson& list = values[name] = PageJson::array();
    // Shares of time are drawn, and not compared to the last digit.
    const char* format = name.ends_with("_share") ? "{:.3f}" : name.ends_with("_per_second") ? "{:.4g}" : "{:.6g}";
    for (const double value : column) list.push_back(shortened(value, format));
  }
  return {{"phase", table.phase}, {"rows", table.rows_in_file},
          {"step", table.step},   {"epoch", epochs},
          {"time", times},        {"values", values}};
}

// Returns the time of the run's first row.
double begin_of(const RunMetrics& metrics) {
  double begin = 0;
  for (const MetricTable& table : metrics.phases) {
    for (const double time : table.time) {
      if (std::isfinite(time)) begin = begin == 0 ? time : std::min(begin, time);
    }
  }
  return begin;
}

void thin_out_run(RunMetrics& metrics, size_t most_numbers) {
  size_t numbers = 0;
  for (const MetricTable& table : metrics.phases) numbers += table.step.size() * (table.columns.size() + 3);
  if (numbers <= most_numbers) return;
  const double ratio = static_cast<double>(most_numbers) / static_cast<double>(numbers);
  for (MetricTable& table : metrics.phases) {
    const auto rows = static_cast<size_t>(ratio * static_cast<double>(table.step.size()));
    thin_out(table, std::max(kFewestRows, rows));
  }
}

PageJson checkpoints_json(const ReportRun& run) {
  PageJson list = PageJson::array();
  for (const ReportCheckpoint& each : run.checkpoints) {
    list.push_back({{"name", each.name},
                    {"step", each.global_step < 0 ? PageJson() : PageJson(each.global_step)},
                    {"bytes", each.bytes},
                    {"saved", each.saved_at > 0 ? PageJson(train::utc_date(each.saved_at)) : PageJson()},
                    {"damage", each.damage}});
  }
  return list;
}

PageJson run_json(ReportRun& run, const ReportPageOptions& options, size_t runs) {
  PageJson json{{"name", run.name}, {"path", run.directory}};
  for (const char* name : {"status",
                           "error",
                           "started",
                           "ended",
                           "model",
                           "dataset",
                           "mode",
                           "global_step",
                           "steps",
                           "seconds",
                           "images_per_second",
                           "model_flops_per_second",
                           "limit_flops_per_second",
                           "time_shares",
                           "ranks",
                           "bad_samples",
                           "skipped_steps",
                           "peak_memory_bytes",
                           "metrics",
                           "best_checkpoint",
                           "version",
                           "data",
                           "seed",
                           "machine"}) {
    if (const auto found = run.summary.find(name); found != run.summary.end()) json[name] = bounded(*found);
  }
  PageJson& alerts = json["alerts"] = PageJson::array();
  for (const RunAlert& alert : find_alerts(run, options.now)) {
    alerts.push_back({{"level", alert.level}, {"kind", alert.kind}, {"text", alert.text}, {"advice", alert.advice}});
  }
  const double begin = begin_of(run.metrics);
  thin_out_run(run.metrics, std::max(kFewestCurveNumbers, kCurveNumbers / runs));
  PageJson& phases = json["phases"] = PageJson::array();
  for (const MetricTable& table : run.metrics.phases) phases.push_back(phase_json(table, begin));
  json["checkpoints"] = checkpoints_json(run);
  shorten_evaluation(run.evaluation, std::max(kFewestMatrixCells, kMatrixCells / runs),
                     std::max(kFewestImageBytes, kImageBytes / runs));
  json["evaluation"] = run.evaluation;
  json["evaluate"] = evaluate_command(run);
  json["repeat"] = repeat_command(run);
  return json;
}

// Where settings are in a summary, and what the page calls them.
constexpr std::pair<const char*, const char*> kSettingGroups[] = {
    {"flags", "flag"}, {"choices", "chosen"}, {"machine", "machine"}, {"versions", "version"}};

// Returns [{"name", "group", "values", "given"}]: one value where all runs have the same, else one for each run.
PageJson settings_json(const std::vector<ReportRun>& runs) {
  PageJson settings = PageJson::array();
  for (const auto& [member, group] : kSettingGroups) {
    std::vector<std::string> names;
    std::map<std::string, std::vector<PageJson>> values;
    for (size_t r = 0; r < runs.size(); ++r) {
      for (const auto& [name, value] : object_at(runs[r].summary, member).items()) {
        if (name.size() > 200) continue;
        auto& row = values[name];
        if (row.empty()) {
          if (names.size() == kMostEntries) continue;
          names.push_back(name);
          row.resize(runs.size());
        }
        if (!row.empty()) row[r] = bounded(value);
      }
    }
    for (const std::string& name : names) {
      std::vector<PageJson>& row = values[name];
      const bool same = std::all_of(row.begin(), row.end(), [&row](const PageJson& each) { return each == row[0]; });
      if (same) row.resize(1);
      PageJson given = PageJson::array();
      for (size_t r = 0; r < runs.size() && std::string_view(group) == "flag"; ++r) {
        const auto list = runs[r].summary.find("given_flags");
        if (list != runs[r].summary.end() && list->is_array() &&
            std::find(list->begin(), list->end(), name) != list->end()) {
          given.push_back(r);
        }
      }
      settings.push_back({{"name", name}, {"group", group}, {"values", row}, {"given", given}});
    }
  }
  return settings;
}

PageJson searches_json(const std::vector<ReportRun>& runs, const std::vector<ReportSearch>& searches) {
  std::map<std::string, size_t> places;
  for (size_t r = 0; r < runs.size(); ++r) places.emplace(data::full_path(runs[r].directory), r);
  PageJson list = PageJson::array();
  for (const ReportSearch& search : searches) {
    PageJson json = search.record;
    for (PageJson& trial : json["trials"]) {
      const auto place =
          places.find(data::full_path(core::join_path(search.directory, trial["directory"].get<std::string>())));
      trial["run"] = place == places.end() ? PageJson() : PageJson(place->second);
    }
    json["name"] = core::base_name(data::full_path(search.directory));
    json["path"] = search.directory;
    json["problems"] = search.problems;
    list.push_back(std::move(json));
  }
  return list;
}

// "<" could begin an end of the script's element.
std::string escaped(const std::string& json) {
  std::string text;
  text.reserve(json.size() + json.size() / 64);
  for (const char c : json) {
    if (c == '<') {
      text += "\\u003c";
    } else {
      text += c;
    }
  }
  return text;
}

// Replaces each "{{name}}" of the template by its text, once: what a text holds is not looked at again.
std::string filled(std::string_view form, const std::map<std::string_view, std::string_view>& texts) {
  std::string page;
  for (size_t at = 0; at < form.size();) {
    const size_t begin = form.find("{{", at);
    const size_t end = begin == std::string_view::npos ? begin : form.find("}}", begin);
    const auto text = end == std::string_view::npos ? texts.end() : texts.find(form.substr(begin + 2, end - begin - 2));
    if (text == texts.end()) {
      page += form.substr(at);
      break;
    }
    page += form.substr(at, begin - at);
    page += text->second;
    at = end + 2;
  }
  return page;
}

}  // namespace

void name_runs(std::vector<ReportRun>& runs) {
  const auto last_parts = [](const std::string& directory, size_t parts) {
    const std::string path = core::without_slashes(directory);
    size_t at = path.size();
    for (; parts > 0 && at != std::string::npos && at != 0; --parts) at = path.rfind('/', at - 1);
    return at == std::string::npos || at == 0 ? path : path.substr(at + 1);
  };
  constexpr size_t kMostParts = 16;
  for (ReportRun& run : runs) run.name = last_parts(run.directory, 1);
  for (size_t parts = 2; parts < kMostParts; ++parts) {
    std::map<std::string, int> uses;
    for (const ReportRun& run : runs) ++uses[run.name];
    if (uses.size() == runs.size()) return;
    for (ReportRun& run : runs) {
      if (uses[run.name] > 1) run.name = last_parts(run.directory, parts);
    }
  }
}

std::string report_json(std::vector<ReportRun> runs, const ReportPageOptions& options,
                        const std::vector<ReportSearch>& searches) {
  const core::BuildInfo& build = core::build_info();
  PageJson json{{"schema", 1},
                {"made", train::utc_date(options.now)},
                {"version", fmt::format("{} ({})", build.version, build.git_revision)},
                {"reload_seconds", options.reload_seconds ? PageJson(*options.reload_seconds) : PageJson()}};
  json["settings"] = settings_json(runs);
  json["searches"] = searches_json(runs, searches);
  PageJson& list = json["runs"] = PageJson::array();
  const size_t count = std::max<size_t>(1, runs.size());
  for (ReportRun& run : runs) {
    list.push_back(run_json(run, options, count));
    run = {};  // 500 of them hold much
  }
  return json.dump(-1, ' ', false, PageJson::error_handler_t::replace);
}

std::string report_page(std::vector<ReportRun> runs, const ReportPageOptions& options,
                        const std::vector<ReportSearch>& searches) {
  const std::string nonce = core::random_token(), data = escaped(report_json(std::move(runs), options, searches));
  return filled(kPageForm, {{"nonce", nonce}, {"style", kPageStyle}, {"code", kPageCode}, {"data", data}});
}

}  // namespace trainyard::cli
