#include "trainyard/frontends/tensorpack/existing_run.h"

#include <algorithm>
#include <iostream>
#include <utility>
#include <variant>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/sockets/frame.h"
#include "trainyard/core/threads/stop_token.h"
#include "trainyard/parallel/process_group/shared_outcome.h"
#include "trainyard/train/callbacks/summary_time.h"
#include "trainyard/train/checkpoint/checkpoint_manifest.h"
#include "trainyard/train/checkpoint/checkpoint_names.h"
#include "trainyard/train/checkpoint/checkpoint_reader.h"
#include "trainyard/train/session/run_directory.h"

namespace trainyard::frontends {

using core::Error, core::ErrorCode;

namespace {

constexpr const char* kEpochLength = "tensorpack_epochs";
constexpr const char* kSavedSteps = "steps_per_epoch";

// Returns whether the training begins from a checkpoint of the run in its directory.
bool continues_run(const TrainConfig& config) {
  if (config.checkpoint.empty()) return false;
  const std::string run = core::real_path(config.run_directory), checkpoint = core::real_path(config.checkpoint);
  return checkpoint == run || core::parent_path(checkpoint) == run;
}

// Returns whether callbacks may save into a directory that they were made with. Wrappers have the names of what they
// wrap.
bool may_save(const TrainConfig& config) {
  return config.extra_callbacks || std::any_of(config.callbacks.begin(), config.callbacks.end(), [](const auto& each) {
           const std::string name = each->name();
           return name == "checkpoint" || name == "model_saver" || name.starts_with("min_saver_") ||
                  name.starts_with("max_saver_");
         });
}

train::ExistingRun choice_for(const TrainConfig& config) {
  if (const auto given = train::parse_existing_run(config.existing_run)) return *given;
  if (train::can_ask()) {
    return train::ask_existing_run(config.run_directory, std::cout, core::StopSource().token(),
                                   /*offers_new_name=*/!may_save(config));
  }
  throw Error(ErrorCode::kInvalidArgument,
              {.problem = "the run directory holds a run, which this training would overwrite",
               .where = config.run_directory,
               .expected = "an answer in TrainConfig::existing_run, as there is no terminal to ask on",
               .actual = config.existing_run,
               .remedy = "continue the run with AutoResumeTrainConfig, name another directory, or set existing_run to "
                         "keep, back_up, delete or new_name"});
}

TrainConfig settle_own_run(TrainConfig config) {
  // Monitors of the caller's own may write anywhere.
  if (config.run_directory.empty() || config.monitors || continues_run(config)) return config;
  if (!train::holds_run(config.run_directory)) return config;
  const train::ExistingRun choice = choice_for(config);
  if (choice == train::ExistingRun::kKeep) return AutoResumeTrainConfig(std::move(config));
  if (choice == train::ExistingRun::kNewName && may_save(config)) {
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = "callbacks that save would not know the run's new name",
                 .where = config.run_directory,
                 .expected = "existing_run = keep, back_up or delete",
                 .actual = config.existing_run,
                 .remedy = "or name a new directory, as run_directory and in the callbacks"});
  }
  config.run_directory = train::settle_existing_run(config.run_directory, choice, train::system_wall_clock());
  return config;
}

}  // namespace

TrainConfig settle_run(TrainConfig config, parallel::ProcessGroup* ranks) {
  if (ranks == nullptr) return settle_own_run(std::move(config));
  const std::string settled = parallel::on_first(*ranks, "what becomes of an existing run", [&] {
    const TrainConfig own = settle_own_run(config);
    return core::BodyWriter().text(own.run_directory).text(own.checkpoint).number(own.starting_epoch).take();
  });
  core::BodyReader reader(settled);
  config.run_directory = reader.text();
  config.checkpoint = reader.text();
  config.starting_epoch = reader.number();
  return config;
}

std::string EpochLength::name() const {
  return kEpochLength;
}

void EpochLength::save(core::StateWriter& writer) const {
  writer.integer(kSavedSteps, steps_);
}

void EpochLength::load(const core::StateReader& reader) {
  static_cast<void>(reader.integer(kSavedSteps));
}

std::optional<int64_t> ended_epoch(const train::CheckpointInfo& checkpoint) {
  const train::Manifest manifest = train::read_manifest(checkpoint.path, core::local_file_system());
  const auto number = [&](const std::string& name) -> std::optional<int64_t> {
    const auto found = manifest.values.find(name);
    if (found == manifest.values.end()) return std::nullopt;
    const int64_t* const value = std::get_if<int64_t>(&found->second);
    return value == nullptr ? std::nullopt : std::optional<int64_t>(*value);
  };
  const std::optional<int64_t> steps = number("callback/" + std::string(kEpochLength) + "/" + kSavedSteps);
  const std::optional<int64_t> done = number("trainer/step_in_epoch");
  if (!steps || !done || *done < *steps) return std::nullopt;
  return number("trainer/epoch");
}

}  // namespace trainyard::frontends
