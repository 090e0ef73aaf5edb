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

// What a state is the best by.
class BestValues : public core::Stateful {
 public:
  BestValues(std::string metric, double value) : metric_(std::move(metric)), value_(value) {}
  void save(core::StateWriter& writer) const override {
    writer.text(kMetric, metric_);
    writer.real(kValue, value_);
  }
  void load(const core::StateReader&) override {}  // never: it is made to be saved once

 private:
  std::string metric_;
  double value_;
};

// A run's state with what it is the best by.
class BestState : public core::Stateful {
 public:
  BestState(const core::Stateful& state, const BestCheckpoint& best)
      : state_(state), values_(best.metric, best.value) {}
  void save(core::StateWriter& writer) const override {
    state_.save(writer);
    values_.save(writer);
  }
  void load(const core::StateReader&) override {}  // never: it is made to be saved once

 private:
  const core::Stateful& state_;
  BestValues values_;
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
      written_(read_best(store_, options_.identity)),
      time_(options_.clock) {
  if (!written_) return;
  if (written_->metric == options_.by.name) {
    core::log::info("the best checkpoint so far, of step {}: {} {:.4f}", written_->info.global_step, written_->metric,
                    written_->value);
  } else {
    core::log::warning("{} is the best by {}: the next evaluation replaces it by the best by {}", written_->info.path,
                       written_->metric, options_.by.name);
    written_.reset();
  }
}

void BestKeeper::offer(const Evaluation& evaluation, int64_t global_step) {
  offer(value_to_compare(evaluation, options_.by), global_step);
}

void BestKeeper::offer(double value, int64_t global_step) {
  if (!std::isfinite(value)) return;
  settle();
  const std::optional<BestCheckpoint> before = best();
  if (before && (lowest_ ? value >= before->value : value <= before->value)) return;
  const BestCheckpoint offered{
      .info = {.path = core::join_path(store_.directory(), kBestCheckpoint), .global_step = global_step},
      .metric = options_.by.name,
      .value = value};
  try {
    if (options_.queue != nullptr || !time_.allows()) {
      copy_state(offered);
    } else {
      write_state(offered);
    }
  } catch (const NonFiniteState& error) {
    core::log::warning("{}", error.what());
  }
}

// The copy replaces one that is not written yet.
void BestKeeper::copy_state(const BestCheckpoint& offered) {
  const int64_t step = offered.info.global_step;
  std::shared_ptr<const CheckpointCopy> copy =
      options_.queue ? options_.queue->copy(*options_.state, step)
                     : CheckpointCopy::of(*options_.state, step, nullptr, checkpoint_copy_budget());
  if (copy == nullptr) return write_state(offered);
  copied_ = std::move(copy);
  copied_best_ = offered;
  if (options_.queue == nullptr || !queued_.empty()) return;
  if (copied_->bytes() <= SavingTime::kSmallBytes || time_.allows(SavingTime::kBackgroundPart)) write_copy();
}

void BestKeeper::write_state(const BestCheckpoint& offered) {
  if (options_.queue) options_.queue->drain();
  settle();
  copied_.reset();
  time_.measure([&] {
    store_.save_best(offered.info.global_step, options_.identity, BestState(*options_.state, offered));
    written_ = offered;
  });
}

void BestKeeper::write_copy() {
  const std::shared_ptr<const CheckpointCopy> copy = std::move(copied_);
  copied_.reset();
  auto write = [store = store_, copy, best = copied_best_, identity = options_.identity]() mutable {
    store.save_best_copy(copy->global_step(), identity, *copy, BestValues(best.metric, best.value));
  };
  if (options_.queue) {
    const double begin = time_.now();
    queued_.push_back({options_.queue->submit(write), copied_best_, begin});
  } else {
    time_.measure([&] { write(); });
    written_ = copied_best_;
  }
}

// Takes note of the writes that have ended. A best one whose write failed is none.
void BestKeeper::settle() {
  for (; !queued_.empty() && queued_.front().write->state() != QueuedWrite::State::kPending; queued_.pop_front()) {
    const Queued& ended = queued_.front();
    if (ended.write->state() == QueuedWrite::State::kFailed) continue;
    written_ = ended.checkpoint;
    time_.note(ended.begin, ended.write->seconds());
  }
}

void BestKeeper::flush() {
  settle();
  if (copied_ != nullptr) write_copy();
}

void BestKeeper::finish() {
  flush();
  if (options_.queue) options_.queue->drain();
  settle();
}

std::optional<BestCheckpoint> BestKeeper::best() const {
  if (copied_ != nullptr) return copied_best_;
  for (auto queued = queued_.rbegin(); queued != queued_.rend(); ++queued) {
    if (queued->write->state() != QueuedWrite::State::kFailed) return queued->checkpoint;
  }
  return written_;
}

BestKeeper::~BestKeeper() {
  try {
    finish();
  } catch (const std::exception& error) {
    core::log::error("the best checkpoint is lost: {}", error.what());
  }
}

}  // namespace trainyard::train
