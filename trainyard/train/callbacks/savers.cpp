#include "trainyard/train/callbacks/savers.h"

#include <algorithm>
#include <utility>

#include "trainyard/core/base/log.h"
#include "trainyard/train/checkpoint/best_checkpoint.h"
#include "trainyard/train/loop/trainer.h"

namespace trainyard::train {
namespace {

// Names of callbacks have no "/".
std::string saver_name(const char* kind, std::string statistic) {
  std::replace(statistic.begin(), statistic.end(), '/', '.');
  return std::string(kind) + "_saver_" + statistic;
}

}  // namespace

ModelSaver::ModelSaver(CheckpointStore store, SaverOptions options)
    : store_(std::move(store)), options_(std::move(options)) {}

void ModelSaver::trigger(Trainer& trainer) {
  store_.save(trainer.global_step(), options_.identity, options_.state ? *options_.state : trainer);
}

BestSaver::BestSaver(std::string name, BestBy by, CheckpointStore store, SaverOptions options)
    : name_(std::move(name)), by_(std::move(by)), store_(std::move(store)), options_(std::move(options)) {}

void BestSaver::setup(Trainer& trainer) {
  std::shared_ptr<const core::Stateful> state = options_.state;
  if (!state) state = std::shared_ptr<const core::Stateful>(std::shared_ptr<void>(), &trainer);  // not owned
  keeper_ = std::make_shared<BestKeeper>(
      store_, BestKeeperOptions{.by = by_, .identity = options_.identity, .state = std::move(state)});
  // The value that a checkpoint brought along is one of its weights, not of those of later steps.
  const MonitorSet::History& history = trainer.monitors().history(by_.name);
  if (!history.empty()) offered_ = history.back().first;
}

void BestSaver::trigger(Trainer& trainer) {
  const MonitorSet::History& history = trainer.monitors().history(by_.name);
  if (history.empty()) {
    if (!warned_) core::log::warning("{}: the monitors have no value of '{}'", name_, by_.name);
    warned_ = true;
    return;
  }
  const auto& [step, value] = history.back();
  if (offered_ == step) return;
  offered_ = step;
  keeper_->offer(value, trainer.global_step());
  keeper_->flush();  // other savers' checkpoints, from which a run resumes, do not wait for this one
}

void BestSaver::after_train(Trainer&) {
  if (keeper_) keeper_->flush();
}

std::optional<BestCheckpoint> BestSaver::best() const {
  return keeper_ ? keeper_->best() : std::nullopt;
}

MinSaver::MinSaver(const std::string& statistic, CheckpointStore store, SaverOptions options)
    : BestSaver(saver_name("min", statistic), {statistic, true}, std::move(store), std::move(options)) {}

MaxSaver::MaxSaver(const std::string& statistic, CheckpointStore store, SaverOptions options)
    : BestSaver(saver_name("max", statistic), {statistic, false}, std::move(store), std::move(options)) {}

}  // namespace trainyard::train
