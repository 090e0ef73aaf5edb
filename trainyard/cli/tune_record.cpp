#include "trainyard/cli/tune_record.h"

#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"

namespace trainyard::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMostBytes = uint64_t{1} << 30;
constexpr const char* kKind = "trainyard tune";

Json json_of(const Trial& trial) {
  Json flags = Json::object(), results = Json::array();
  for (const auto& [name, value] : trial.flags) flags[name] = value;
  for (const TuneResult& result : trial.results) {
    results.push_back({{"epochs", result.epochs},
                       {"global_step", result.global_step},
                       {"value", result.value},
                       {"seconds", result.seconds}});
  }
  Json json = {{"number", trial.number},        {"directory", trial_name(trial.number)},
               {"started", trial.started},      {"failure", trial.failure.empty() ? Json() : Json(trial.failure)},
               {"results", std::move(results)}, {"flags", std::move(flags)}};
  if (trial.part_seconds > 0) json["part_seconds"] = trial.part_seconds;
  return json;
}

// What a report draws the trials over.
Json json_of(const TuneRange& range) {
  const char* const scale = range.kind == TuneRange::Kind::kChoice ? "choice"
                            : range.logarithmic()                  ? "logarithmic"
                                                                   : "linear";
  return {{"flag", range.flag}, {"scale", scale}, {"choices", range.choices}};
}

Trial trial_of(const Json& json, size_t levels) {
  Trial trial{.number = json.at("number").get<int64_t>(), .started = json.at("started").get<size_t>()};
  if (json.contains("part_seconds")) trial.part_seconds = json["part_seconds"].get<double>();
  if (!json.at("failure").is_null()) trial.failure = json.at("failure").get<std::string>();
  for (const Json& result : json.at("results")) {
    trial.results.push_back({.epochs = result.at("epochs").get<double>(),
                             .global_step = result.at("global_step").get<int64_t>(),
                             .value = result.at("value").get<double>(),
                             .seconds = result.at("seconds").get<double>()});
  }
  for (const auto& [name, value] : json.at("flags").items()) trial.flags.emplace_back(name, value.get<std::string>());
  if (trial.started > levels || trial.results.size() > trial.started) {
    throw Json::other_error::create(501, "a trial has more results than levels", &json);
  }
  return trial;
}

}  // namespace

std::string trial_name(int64_t number) {
  return fmt::format("trial-{:03}", number);
}

std::string tune_record(const TuneFile& file, const std::vector<Trial>& trials) {
  Json all = Json::array(), ranges = Json::array();
  for (const TuneRange& range : file.ranges) ranges.push_back(json_of(range));
  for (const Trial& trial : trials) all.push_back(json_of(trial));
  const std::vector<size_t> ranked = ranked_trials(file, trials);
  const Json record = {{"kind", kKind},
                       {"metric", file.metric},
                       {"goal", file.highest ? "highest" : "lowest"},
                       {"levels", tune_levels(file)},
                       {"ranges", std::move(ranges)},
                       {"best", ranked.empty() ? Json() : Json(trials[ranked[0]].number)},
                       {"trials", std::move(all)},
                       {"search", search_text(file)}};
  return record.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::vector<Trial> read_tune_record(const std::string& directory, const TuneFile& file) {
  core::FileSystem& files = core::local_file_system();
  const std::string path = core::join_path(directory, kTuneRecord);
  if (!files.exists(path)) return {};
  const auto damaged = [&](const std::string& why) {
    return core::Error(core::ErrorCode::kCorruptData, {.problem = "the record of a search cannot be read: " + why,
                                                       .where = path,
                                                       .remedy = "name another folder with --tune_dir"});
  };
  std::vector<Trial> trials;
  std::string search;
  try {
    const Json record = Json::parse(files.read_file(path, kMostBytes));
    if (record.at("kind") != kKind) throw damaged("it is of another kind");
    search = record.at("search").get<std::string>();
    for (const Json& trial : record.at("trials")) trials.push_back(trial_of(trial, record.at("levels").size()));
  } catch (const Json::exception& error) {
    throw damaged(error.what());
  }
  if (search != search_text(file)) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "the folder holds another search: only the number of trials may change",
                       .where = path,
                       .remedy = "name another folder with --tune_dir, or remove this one"});
  }
  for (size_t t = 0; t < trials.size(); ++t) {
    if (trials[t].number != static_cast<int64_t>(t)) throw damaged("its trials are not in order");
  }
  return trials;
}

}  // namespace trainyard::cli
