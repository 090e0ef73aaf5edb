#include <algorithm>
#include <ostream>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/frontends/suite/suite.h"
#include "trainyard/frontends/tf_cnn/benchmark_cnn.h"
#include "trainyard/frontends/tf_cnn/prepare.h"

namespace trainyard::frontends {
namespace {

constexpr int64_t kProbedBatch = 8, kProbedSteps = 2;
constexpr int64_t kDefaultSteps = 100, kDefaultWarmup = 10;
constexpr int64_t kSearchedSteps = 10;  // that the original runs with each batch it tries, without a warm-up

RunStatistics run_quietly(const TfCnnOptions& options, const core::StopToken& stop) {
  std::ostream nowhere(nullptr);
  const RunStatistics statistics = BenchmarkCnn(options).run(nowhere, stop);
  if (statistics.stopped_by_signal) throw core::Error(core::ErrorCode::kCancelled, "the suite was stopped");
  return statistics;
}

// Returns the seconds that an image costs, of all devices together.
double image_seconds(TfCnnOptions options, const core::StopToken& stop) {
  options.batch_size = std::min(options.batch_size, kProbedBatch);
  options.steps.num_batches = kProbedSteps;
  options.steps.num_warmup_batches = 1;
  const RunStatistics statistics = run_quietly(options, stop);
  return 1 / std::max(statistics.images_per_sec, 1e-9);
}

// Cuts batch and steps to what there is time for.
void fit(TfCnnOptions& options, double seconds, double of_image, std::vector<std::string>& changes) {
  const int64_t batch = options.batch_size, steps = options.steps.num_batches.value_or(kDefaultSteps);
  const int64_t warmup = options.steps.num_warmup_batches.value_or(kDefaultWarmup);
  const auto step_seconds = [&] {
    return of_image * static_cast<double>(options.batch_size * options.device.replicas);
  };
  while (options.batch_size > 1 && 3 * step_seconds() > seconds) options.batch_size /= 2;
  const auto affordable = static_cast<int64_t>(std::min(seconds / step_seconds(), 1e9));
  options.steps.num_warmup_batches = std::clamp<int64_t>(affordable / 10, std::min<int64_t>(warmup, 1), warmup);
  options.steps.num_batches = std::clamp<int64_t>(affordable - *options.steps.num_warmup_batches, 1, steps);
  if (options.batch_size != batch) changes.push_back(fmt::format("batch_size {} -> {}", batch, options.batch_size));
  if (*options.steps.num_batches != steps) {
    changes.push_back(fmt::format("num_batches {} -> {}", steps, *options.steps.num_batches));
  }
  if (*options.steps.num_warmup_batches != warmup) {
    changes.push_back(fmt::format("num_warmup_batches {} -> {}", warmup, *options.steps.num_warmup_batches));
  }
}

// Replaces the batch that is to be found by what is found.
void find_batch(TfCnnOptions& options, SuiteResult& result) {
  result.max_batch_size = prepare(options).batch_size;
  result.changes.push_back(fmt::format("the largest batch_size is {}", *result.max_batch_size));
  options.batch_size = *result.max_batch_size;
  options.batch_memory_bytes.reset();
  options.steps.num_batches = kSearchedSteps;
  options.steps.num_warmup_batches = 0;
}

void run_into(SuiteResult& result, double seconds, const core::StopToken& stop) {
  TfCnnOptions options = read_suite_options(result.arguments);
  if (options.batch_size == kLargestBatch) find_batch(options, result);
  fit(options, seconds, image_seconds(options, stop), result.changes);
  const RunStatistics statistics = run_quietly(options, stop);
  result.iters = statistics.num_steps;
  result.wall_time = statistics.average_wall_time;
  result.examples_per_sec = statistics.images_per_sec;
  result.last_average_loss = statistics.last_average_loss;
  result.top_1 = statistics.top_1_accuracy;
  result.top_5 = statistics.top_5_accuracy;
}

}  // namespace

SuiteResult run_suite_entry(const SuiteEntry& entry, const SuiteMachine& machine, double seconds,
                            const core::StopToken& stop) {
  const ScaledEntry scaled = scale_entry(entry, machine);
  SuiteResult result{.name = std::string(entry.name), .arguments = scaled.arguments, .changes = scaled.changes};
  if (!scaled.refusal.empty()) {
    result.error = scaled.refusal;
    result.refused = true;
    return result;
  }
  try {
    run_into(result, seconds, stop);
  } catch (const core::Error& error) {
    if (error.code() == core::ErrorCode::kCancelled) throw;
    result.error = error.what();
  }
  return result;
}

}  // namespace trainyard::frontends
