#include <algorithm>
#include <utility>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/data/sources/described_source.h"
#include "trainyard/data/sources/round_robin_source.h"
#include "trainyard/data/sources/with_epoch_size.h"
#include "trainyard/formats/tensors/tensorflow_checkpoint.h"
#include "trainyard/frontends/tensorpack/existing_run.h"
#include "trainyard/frontends/tensorpack/trainers.h"
#include "trainyard/nn/execution/accelerator.h"
#include "trainyard/train/callbacks/progress_callbacks.h"
#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/loop/trainer.h"
#include "trainyard/train/monitors/monitors.h"
#include "trainyard/train/session/run_directory.h"

namespace trainyard::frontends {

using core::Error, core::ErrorCode;

namespace {

constexpr const char* kStats = "stats.json";
constexpr const char* kAsk = "ask";
constexpr const char* kKeep = "keep";

}  // namespace

MakeData round_robin(std::shared_ptr<data::BatchSource> source, RoundRobinOptions options) {
  return [source = std::move(source), options](int devices) -> std::shared_ptr<data::BatchSource> {
    if (source != nullptr && data::batches_in_epoch(*source) > 0) {
      return std::make_shared<data::WithEpochSize<data::RoundRobinSource>>(data::batches_in_epoch(*source), source,
                                                                           devices, options.repeat);
    }
    return std::make_shared<data::RoundRobinSource>(source, devices, options.repeat);
  };
}

void TrainConfig::validate() const {
  const auto refuse = [](const char* problem, const char* remedy) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = problem, .where = "TrainConfig", .remedy = remedy});
  };
  if (!weights.empty() && !checkpoint.empty()) {
    refuse("a training begins from weights or from a checkpoint, not from both", "leave one of them out");
  }
  const train::TowerTrainerOptions plain;
  if (model.devices.replicas != plain.devices.replicas || !model.devices.accelerators.empty() ||
      model.exchange.reduction || model.devices.make_communicators ||
      model.exchange.variable_update != plain.exchange.variable_update) {
    refuse("the model says something of devices, which is the trainer's affair",
           "leave out replicas, accelerators, variable_update, reduction and make_communicators, and choose a trainer");
  }
  if (std::any_of(callbacks.begin(), callbacks.end(), [](const auto& callback) { return callback == nullptr; })) {
    refuse("a callback is null", "leave it out");
  }
  if (existing_run != kAsk && !train::parse_existing_run(existing_run)) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "no such thing can be done with an existing run",
                                              .where = "TrainConfig::existing_run",
                                              .expected = "ask, keep, back_up, delete or new_name",
                                              .actual = "'" + existing_run + "'"});
  }
}

AutoResumeTrainConfig::AutoResumeTrainConfig(TrainConfig config, bool always_resume) : TrainConfig(std::move(config)) {
  if (run_directory.empty()) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "there is no run to go on with",
                                              .where = "AutoResumeTrainConfig",
                                              .remedy = "give the config a run_directory"});
  }
  const std::string stats = core::join_path(run_directory, kStats);
  const std::optional<train::CheckpointInfo> newest = train::CheckpointStore(run_directory).latest();
  if (!newest) {
    if (const std::optional<train::StatsEnd> last = train::read_stats_end(stats)) {
      core::log::warning(
          "{} has {} epochs, and there is no checkpoint to resume from: the training begins with epoch {}; add a "
          "ModelSaver to the callbacks to save some",
          stats, last->epoch_num, starting_epoch);
    }
    if (existing_run == kAsk) existing_run = kKeep;
    return;
  }
  if (!always_resume && !(weights.empty() && checkpoint.empty())) return;
  if (existing_run == kAsk) existing_run = kKeep;
  weights.clear();
  checkpoint = newest->path;
  if (!always_resume && starting_epoch != 1) return;
  // Epochs that ended after the checkpoint was saved are not in it.
  const std::optional<train::StatsEnd> last =
      train::read_stats_end(stats, core::local_file_system(), newest->global_step);
  // Statistics of an epoch are written behind its checkpoint: a run that was killed in between has not counted it.
  const int64_t next = last ? last->epoch_num + 1 : starting_epoch;
  const std::optional<train::StatsEnd> newest_stats = train::read_stats_end(stats);
  const bool counted = newest_stats && newest_stats->epoch_num >= next;
  if (ended_epoch(*newest) == next && !counted) {
    core::log::info("epoch {} had ended in {}, and is not in {}: the training continues behind it", next, newest->path,
                    stats);
    starting_epoch = next + 1;
  } else if (last) {
    starting_epoch = last->epoch_num + 1;
  } else {
    core::log::warning("{} has no epoch that had ended at step {}, which {} has: the training begins with epoch {}",
                       stats, newest->global_step, newest->path, starting_epoch);
  }
}

std::vector<std::shared_ptr<train::Callback>> default_callbacks(train::Trainer& trainer, int64_t steps_per_epoch) {
  std::vector<std::shared_ptr<train::Callback>> callbacks{std::make_shared<train::ProgressCallback>()};
  auto* const tower_trainer = dynamic_cast<train::TowerTrainer*>(&trainer);
  if (tower_trainer == nullptr) return callbacks;
  callbacks.push_back(std::make_shared<train::SummaryCallback>(train::SummaryOptions{
      .every_steps = steps_per_epoch,
      .batch_size = tower_trainer->source().batch_size() * tower_trainer->options().devices.replicas *
                    tower_trainer->options().devices.ranks() * tower_trainer->options().micro_steps,
      .values = {
          {"learning_rate", [tower_trainer](const train::StepView&) { return tower_trainer->current_learning_rate(); }},
          {"total_loss", [tower_trainer](const train::StepView&) { return tower_trainer->last_total_loss(); }}}}));
  callbacks.push_back(std::make_shared<train::MovingAverageSummary>(std::vector<std::string>{"total_loss"}));
  return callbacks;
}

std::vector<std::unique_ptr<train::Monitor>> default_monitors(const std::string& run_directory, int64_t start_step) {
  std::vector<std::unique_ptr<train::Monitor>> monitors;
  monitors.push_back(std::make_unique<train::ScalarPrinter>());
  if (run_directory.empty()) return monitors;
  formats::refuse_tensorflow_checkpoint(run_directory);
  core::FileSystem& files = core::local_file_system();
  files.make_directories(run_directory);
  monitors.push_back(std::make_unique<train::TensorBoardMonitor>(run_directory, start_step));
  monitors.push_back(
      std::make_unique<train::JsonLinesMonitor>(core::join_path(run_directory, "metrics.jsonl"), files, start_step));
  monitors.push_back(
      std::make_unique<train::StatsJsonMonitor>(core::join_path(run_directory, kStats), files, start_step));
  return monitors;
}

}  // namespace trainyard::frontends
