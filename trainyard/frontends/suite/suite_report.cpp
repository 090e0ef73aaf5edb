#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/base/error.h"
#include "trainyard/frontends/suite/suite.h"
#include "trainyard/train/callbacks/run_record_json.h"
#include "trainyard/train/callbacks/summary_time.h"

namespace trainyard::frontends {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson json_of(const SuiteResult& result) {
  OrderedJson json{{"name", result.name}, {"arguments", result.arguments}, {"changes", result.changes}};
  if (!result.error.empty()) {
    json["error"] = result.error;
    json["refused"] = result.refused;
    return json;
  }
  json["iters"] = result.iters;
  json["wall_time"] = result.wall_time;
  json["examples_per_sec"] = result.examples_per_sec;
  if (result.max_batch_size) json["max_batch_size"] = *result.max_batch_size;
  const std::pair<const char*, std::optional<double>> optional[] = {
      {"last_average_loss", result.last_average_loss}, {"top_1", result.top_1}, {"top_5", result.top_5}};
  for (const auto& [name, value] : optional) {
    if (value) json[name] = *value;
  }
  return json;
}

OrderedJson parse_history(const std::string& text) {
  if (text.empty()) return OrderedJson{{"runs", OrderedJson::array()}};
  OrderedJson json = OrderedJson::parse(text, nullptr, false);
  if (json.is_discarded() || !json.is_object() || !json.contains("runs") || !json["runs"].is_array()) {
    throw core::Error(core::ErrorCode::kCorruptData, {.problem = "the file does not hold results of the suite",
                                                      .expected = "{\"runs\": [...]}",
                                                      .remedy = "name another --output"});
  }
  return json;
}

}  // namespace

SuiteHistory::SuiteHistory(const std::string& text) : text_(text) {
  parse_history(text_);
}

std::optional<double> SuiteHistory::examples_per_sec(const std::string& name) const {
  const OrderedJson history = parse_history(text_);
  std::optional<double> newest;
  for (const OrderedJson& run : history["runs"]) {
    if (!run.is_object() || !run.contains("results")) continue;
    for (const OrderedJson& result : run["results"]) {
      if (!result.is_object() || !result.contains("name") || result["name"] != name) continue;
      const auto speed = result.find("examples_per_sec");
      if (speed != result.end() && speed->is_number()) newest = speed->get<double>();
    }
  }
  return newest;
}

std::string SuiteHistory::with(const std::vector<SuiteResult>& results, const SuiteMachine& machine) const {
  OrderedJson history = parse_history(text_);
  OrderedJson run{{"date", train::utc_date(train::system_wall_clock())},
                  {"gpus", machine.gpus},
                  {"cores", machine.cores},
                  {"results", OrderedJson::array()}};
  for (const SuiteResult& result : results) run["results"].push_back(json_of(result));
  history["runs"].push_back(std::move(run));
  return history.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

std::string suite_table(const std::vector<SuiteResult>& results, const SuiteHistory& before) {
  size_t width = 4;
  for (const SuiteResult& result : results) width = std::max(width, result.name.size());
  std::string table =
      fmt::format("{:<{}}  {:>11}  {:>11}  {:>6}  changed\n", "name", width, "examples/s", "before", "ratio");
  for (const SuiteResult& result : results) {
    const std::optional<double> old = before.examples_per_sec(result.name);
    const std::string was = old ? fmt::format("{:.2f}", *old) : "-";
    if (!result.error.empty()) {
      table += fmt::format("{:<{}}  {:>11}  {:>11}  {:>6}  {}{}\n", result.name, width, "-", was, "-",
                           result.refused ? "" : "failed: ", result.error);
      continue;
    }
    const std::string ratio = old && *old > 0 ? fmt::format("{:.2f}", result.examples_per_sec / *old) : "-";
    table += fmt::format("{:<{}}  {:>11.2f}  {:>11}  {:>6}  {}\n", result.name, width, result.examples_per_sec, was,
                         ratio, fmt::join(result.changes, ", "));
  }
  return table;
}

}  // namespace trainyard::frontends
