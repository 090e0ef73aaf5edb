#include "trainyard/frontends/tf_cnn/output/latency.h"

#include <utility>

#include <fmt/format.h>

#include "trainyard/train/profile/percentile.h"

namespace trainyard::frontends {

Latency latency_of(std::span<const double> seconds) {
  const std::vector<double> sorted = train::sorted_values(seconds);
  return {train::nearest_rank(sorted, 50), train::nearest_rank(sorted, 90), train::nearest_rank(sorted, 99),
          sorted.back()};
}

std::string latency_line(int64_t batch_size, const Latency& latency) {
  return fmt::format("latency of a batch of {}: p50 {:.2f} ms, p90 {:.2f} ms, p99 {:.2f} ms, max {:.2f} ms", batch_size,
                     1e3 * latency.p50, 1e3 * latency.p90, 1e3 * latency.p99, 1e3 * latency.max);
}

LatencyLog::LatencyLog(Options options) : options_(std::move(options)), local_steps_(options_.warmup_steps) {}

void LatencyLog::before_train(train::Trainer& trainer) {
  local_steps_.begin(trainer);
  seconds_.clear();
}

void LatencyLog::after_step(train::Trainer&, const train::StepView& view) {
  if (local_steps_.of(view) < 0) return;
  const std::vector<double>& batches = options_.seconds();
  seconds_.insert(seconds_.end(), batches.begin(), batches.end());
}

void LatencyLog::after_train(train::Trainer&) {
  if (seconds_.empty()) return;
  const Latency latency = latency_of(std::exchange(seconds_, {}));
  options_.print(latency_line(options_.batch_size, latency));
  if (options_.on_latency) options_.on_latency(latency);
}

}  // namespace trainyard::frontends
