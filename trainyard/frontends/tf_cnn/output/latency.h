// Percentiles of the time of a batch from images to logits.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "trainyard/frontends/tf_cnn/output/step_log.h"
#include "trainyard/train/loop/local_steps.h"

namespace trainyard::frontends {

// In seconds. Percentile p is by nearest rank: the value at position ceil(p / 100 * n), from 1, of n sorted values. It
// is one of the values, and p % of them are not above it.
struct Latency {
  double p50 = 0, p90 = 0, p99 = 0, max = 0;
};

// Computes the percentiles of at least one value, in any order.
Latency latency_of(std::span<const double> seconds);

// "latency of a batch of 32: p50 801.27 ms, p90 ..., p99 ..., max ... ms"
std::string latency_line(int64_t batch_size, const Latency& latency);

// Prints that line at the end of a run, for all batches after the warm-up. If it is added before a StepLog, the line
// precedes the total.
class LatencyLog : public train::Callback {
 public:
  struct Options {
    int64_t batch_size = 0;
    int64_t warmup_steps = 0;
    std::function<const std::vector<double>&()> seconds;  // of each batch of the step that ran
    Print print = print_to_stdout;
    std::function<void(const Latency&)> on_latency;  // after the line
  };
  explicit LatencyLog(Options options);

  std::string name() const override { return "latency"; }
  void before_train(train::Trainer& trainer) override;
  void after_step(train::Trainer& trainer, const train::StepView& view) override;
  void after_train(train::Trainer& trainer) override;

 private:
  Options options_;
  train::LocalSteps local_steps_;
  std::vector<double> seconds_;
};

}  // namespace trainyard::frontends
