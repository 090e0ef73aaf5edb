#include "trainyard/train/checkpoint/best_checkpoint.h"

#include <cmath>
#include <utility>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/train/checkpoint/checkpoint_names.h"

namespace trainyard::train {
namespace {

const std::string kMetric = "best/metric", kValue = "best/value";

// A run's state with what it is the best by.
class BestState : public core::Stateful {
 public:
  BestState(const core::Stateful& state, std::string metric, double value)
      : state_(state), metric_(std::move(metric)), value_(value) {}
  void save(core::StateWriter& writer) const override {
    state_.save(writer);
    writer.text(kMetric, metric_);
    writer.real(kValue, value_);
  }
  void load(const core::StateReader&) override {}  // never: it is made to be saved once

 private:
  const core::Stateful& state_;
  std::string metric_;
  double value_;
};

// What an earlier run has kept; none: nothing, or what is no use any more.
std::optional<BestCheckpoint> read_best(CheckpointStore& store, const CheckpointIdentity& identity) {
  const std::string path = core::join_path(store.directory(), kBestCheckpoint);
  try {
    BestCheckpoint best{.info = find_checkpoint(path, store.files())};
    const auto reader = open_checkpoint(best.info, &identity, store.files());
    best.metric = reader->text(kMetric);
    best.value = reader->real(kValue);
    return best;
  } catch (const core::Error& error) {
    if (error.code() == core::ErrorCode::kNotFound) return std::nullopt;
    if (error.code() != core::ErrorCode::kCorruptData || !store.files().exists(path)) throw;
    core::log::warning("{}; it is kept as {}, and the next evaluation is the best so far", error.what(),
                       store.set_aside(path));
    return std::nullopt;
  }
}

}  // namespace

BestKeeper::BestKeeper(CheckpointStore store, BestKeeperOptions options)
    : store_(std::move(store)),
      options_(std::move(options)),
      lowest_(lowest_is_best(options_.by)),
      best_(read_best(store_, options_.identity)) {
  if (!best_) return;
  if (best_->metric == options_.by.name) {
    core::log::info("the best checkpoint so far, of step {}: {} {:.4f}", best_->info.global_step, best_->metric,
                    best_->value);
  } else {
    core::log::warning("{} is the best by {}: the next evaluation replaces it by the best by {}", best_->info.path,
                       best_->metric, options_.by.name);
    best_.reset();
  }
}

void BestKeeper::offer(const Evaluation& evaluation, int64_t global_step) {
  offer(value_to_compare(evaluation, options_.by), global_step);
}

void BestKeeper::offer(double value, int64_t global_step) {
  if (!std::isfinite(value)) return;
  if (best_ && (lowest_ ? value >= best_->value : value <= best_->value)) return;
  const std::string& name = options_.by.name;
  try {
    CheckpointInfo saved = store_.save_best(global_step, options_.identity, BestState(*options_.state, name, value));
    best_ = {.info = std::move(saved), .metric = name, .value = value};
  } catch (const NonFiniteState& error) {
    core::log::warning("{}", error.what());
  }
}

}  // namespace trainyard::train
