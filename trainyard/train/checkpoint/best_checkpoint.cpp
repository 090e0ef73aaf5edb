#include "trainyard/train/checkpoint/best_checkpoint.h"

#include <cmath>
#include <exception>
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

// A copy of a state.
class CopiedState : public core::Stateful {
 public:
  explicit CopiedState(const core::MemoryState& copy) : copy_(copy) {}
  void save(core::StateWriter& writer) const override {
    for (const std::string& name : copy_.names()) copy_.copy(name, writer, name);
  }
  void load(const core::StateReader&) override {}  // never: it is made to be saved once

 private:
  const core::MemoryState& copy_;
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
      best_(read_best(store_, options_.identity)),
      time_(options_.clock) {
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
  if (!time_.allows()) {
    if (copied_ == nullptr) written_ = best_;
    copied_ = std::make_unique<core::MemoryState>();
    options_.state->save(*copied_);
    best_ = {.info = {.path = core::join_path(store_.directory(), kBestCheckpoint), .global_step = global_step},
             .metric = options_.by.name,
             .value = value};
    return;
  }
  if (copied_ != nullptr) best_ = std::move(written_);  // until the better one is written
  copied_.reset();
  write(*options_.state, value, global_step);
}

void BestKeeper::flush() {
  if (copied_ == nullptr) return;
  const std::unique_ptr<core::MemoryState> copy = std::move(copied_);
  const BestCheckpoint offered = *std::exchange(best_, written_);  // until it is written
  write(CopiedState(*copy), offered.value, offered.info.global_step);
}

void BestKeeper::write(const core::Stateful& state, double value, int64_t global_step) {
  const std::string& name = options_.by.name;
  try {
    time_.measure([&] {
      CheckpointInfo saved = store_.save_best(global_step, options_.identity, BestState(state, name, value));
      best_ = {.info = std::move(saved), .metric = name, .value = value};
    });
  } catch (const NonFiniteState& error) {
    core::log::warning("{}", error.what());
  }
}

BestKeeper::~BestKeeper() {
  try {
    flush();
  } catch (const std::exception& error) {
    core::log::error("the best checkpoint is lost: {}", error.what());
  }
}

}  // namespace trainyard::train
