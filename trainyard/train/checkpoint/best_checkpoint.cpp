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

std::string_view best_metric_name(BestMetric metric) {
  return metric == BestMetric::kLoss ? "loss" : "top_1_accuracy";
}

BestKeeper::BestKeeper(CheckpointStore store, BestKeeperOptions options)
    : store_(std::move(store)), options_(std::move(options)), best_(read_best(store_, options_.identity)) {
  if (!best_) return;
  if (best_->metric == best_metric_name(options_.metric)) {
    core::log::info("the best checkpoint so far, of step {}: {} {:.4f}", best_->info.global_step, best_->metric,
                    best_->value);
  } else {
    core::log::warning("{} is the best by {}: the next evaluation replaces it by the best by {}", best_->info.path,
                       best_->metric, best_metric_name(options_.metric));
    best_.reset();
  }
}

void BestKeeper::offer(const Evaluation& evaluation, int64_t global_step) {
  const bool lower = options_.metric == BestMetric::kLoss;
  if (!lower && !evaluation.has_accuracies) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "the best checkpoint by accuracy needs evaluations that count accuracies",
                       .actual = "an evaluation with a loss alone",
                       .remedy = "keep the best by BestMetric::kLoss"});
  }
  const double value = lower ? evaluation.loss : evaluation.top_1;
  if (!std::isfinite(value)) return;
  if (best_ && (lower ? value >= best_->value : value <= best_->value)) return;
  const std::string metric(best_metric_name(options_.metric));
  try {
    CheckpointInfo saved = store_.save_best(global_step, options_.identity, BestState(*options_.state, metric, value));
    best_ = {.info = std::move(saved), .metric = metric, .value = value};
  } catch (const NonFiniteState& error) {
    core::log::warning("{}", error.what());
  }
}

}  // namespace trainyard::train
