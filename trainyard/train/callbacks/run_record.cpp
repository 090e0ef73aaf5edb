#include "trainyard/train/callbacks/run_record.h"

#include <cmath>
#include <ctime>
#include <type_traits>
#include <variant>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/base/build_info.h"
#include "trainyard/core/base/enum_name.h"
#include "trainyard/core/machine/machine_info.h"
#include "trainyard/train/callbacks/run_record_json.h"

namespace trainyard::train {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const core::FlagValue& value) {
  return std::visit(
      [](const auto& held) {
        if constexpr (std::is_same_v<std::decay_t<decltype(held)>, std::monostate>)
          return Json();
        else
          return Json(held);
      },
      value);
}

}  // namespace

nlohmann::ordered_json or_null(const std::string& text) {
  return text.empty() ? nlohmann::ordered_json() : Json(text);
}

std::string_view run_status_name(RunStatus status) {
  return core::enum_name<RunStatus::kFailed>(status, {"running", "finished", "stopped", "failed"});
}

Json versions_json() {
  const core::BuildInfo& build = core::build_info();
  Json json{{"trainyard", build.version}, {"git_revision", build.git_revision}, {"compiler", build.compiler}};
  for (const core::LibraryVersion& library : build.libraries) json[std::string(library.name)] = library.version;
  return json;
}

Json machine_json(const std::vector<std::string>& gpus) {
  const core::MachineInfo machine = core::machine_info();
  return {{"name", machine.name},
          {"cpu", machine.processor},
          {"cores", machine.cores},
          {"memory_bytes", machine.memory_bytes},
          {"gpus", gpus}};
}

void add_run_record(const RunRecord& record, Json& json) {
  Json flags = Json::object(), choices = Json::object();
  for (const auto& [name, value] : record.flags) flags[name] = json_of(value);
  for (const auto& [name, value] : record.choices) choices[name] = value;
  json["command"] = record.command;
  json["data"] = {{"directory", or_null(record.data_dir)},
                  {"files", or_null(record.data_digest)},
                  {"num_classes", record.num_classes},
                  {"train_examples", record.train_examples},
                  {"validation_examples", record.validation_examples}};
  json["seed"] = record.seed;
  json["machine"] = machine_json(record.gpus);
  json["machine"]["instruction_set"] = record.instruction_set;
  json["versions"] = versions_json();
  json["choices"] = choices;
  json["given_flags"] = record.given_flags;
  json["flags"] = flags;
}

std::string utc_date(double seconds) {
  const auto milliseconds = static_cast<int64_t>(std::floor(seconds * 1000));
  const auto whole = static_cast<std::time_t>(milliseconds / 1000);
  std::tm date{};
  ::gmtime_r(&whole, &date);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", date.tm_year + 1900, date.tm_mon + 1, date.tm_mday,
                     date.tm_hour, date.tm_min, date.tm_sec, milliseconds % 1000);
}

}  // namespace trainyard::train
