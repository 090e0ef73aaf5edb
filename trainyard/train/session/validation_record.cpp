#include "trainyard/train/session/validation_record.h"

#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"

namespace trainyard::train {

ValidationRecord::ValidationRecord(BestBy by, std::optional<EarlyStop> early_stop)
    : by_(std::move(by)), lowest_(lowest_is_best(by_)), early_stop_(early_stop) {}

void ValidationRecord::add(const Evaluation& evaluation, int64_t global_step) {
  const double value = value_to_compare(evaluation, by_);
  const double least = early_stop_ ? early_stop_->min_delta : 0;
  const auto improves = [&](const std::optional<BestValue>& before, double by) {
    if (!std::isfinite(value)) return false;
    return !before || (lowest_ ? value < before->value - by : value > before->value + by);
  };
  const BestValue now{.value = value, .global_step = global_step};
  if (improves(best_, 0)) best_ = now;
  if (improves(counted_, least)) {
    counted_ = now;
    not_better_ = 0;
  } else {
    ++not_better_;
  }
}

std::optional<std::string> ValidationRecord::stop_reason() const {
  if (!early_stop_ || not_better_ < early_stop_->patience) return std::nullopt;
  if (!counted_) return fmt::format("no evaluation of {} gave a finite {}", not_better_, by_.name);
  const std::string least = early_stop_->min_delta > 0 ? fmt::format(" by more than {:g}", early_stop_->min_delta) : "";
  return fmt::format("{} has not been better{} than {:.6g}, of step {}, in {} evaluations", by_.name, least,
                     counted_->value, counted_->global_step, not_better_);
}

void ValidationRecord::save(core::StateWriter& writer) const {
  writer.text("metric", by_.name);
  writer.integer("not_better", not_better_);
  if (!best_) return;
  writer.real("best", best_->value);
  writer.integer("best_step", best_->global_step);
  writer.real("counted", counted_->value);
  writer.integer("counted_step", counted_->global_step);
}

void ValidationRecord::load(const core::StateReader& reader) {
  best_.reset();
  counted_.reset();
  not_better_ = 0;
  if (const std::string metric = reader.text("metric"); metric != by_.name) {
    core::log::warning("evaluations were compared by {} so far: the next one is the first by {}", metric, by_.name);
    return;
  }
  not_better_ = reader.integer("not_better");
  if (!reader.has("best")) return;
  best_ = {.value = reader.real("best"), .global_step = reader.integer("best_step")};
  counted_ = best_;  // earlier versions have saved this one alone
  if (reader.has("counted")) {
    counted_ = {.value = reader.real("counted"), .global_step = reader.integer("counted_step")};
  }
}

}  // namespace trainyard::train
