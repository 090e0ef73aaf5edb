#include "trainyard/recipes/benchmark.h"

#include <memory>
#include <ostream>

#include "trainyard/core/log.h"
#include "trainyard/core/thread.h"
#include "trainyard/recipes/benchmark_evaluation.h"
#include "trainyard/recipes/benchmark_settings.h"
#include "trainyard/recipes/benchmark_training.h"
#include "trainyard/recipes/run_header.h"
#include "trainyard/train/device_room.h"

namespace trainyard::recipes {

namespace {

BenchmarkOutcome run_mode(const core::FlagValues& values, const BenchmarkSettings& settings, std::ostream& out,
                          const core::StopToken& stop) {
  switch (settings.mode) {
    case BenchmarkMode::kEvaluation:
      return run_evaluation(values, settings, out, stop);
    case BenchmarkMode::kForwardOnly:
      return run_forward_only(values, settings, out, stop);
    case BenchmarkMode::kTraining:
    case BenchmarkMode::kTrainingAndEvaluation:
      break;
  }
  return run_training(values, settings, out, stop);
}

}  // namespace

BenchmarkOutcome run_benchmark(const core::FlagValues& values, std::ostream& out, const core::StopToken& stop) {
  const BenchmarkSettings settings = read_benchmark_settings(values);
  const std::shared_ptr<void> on_device = settings.device.use();
  print_run_header(run_header_rows(values, settings), out);
  // Evaluation and forward passes run on this thread, with all cores; replicas have threads of their own.
  const ThreadSettings& threads = settings.threads;
  if (threads.print || (threads.affinity && threads.affinity->verbose)) {
    for (const std::string& line : threads.lines()) core::log::info("{}", line);
  }
  core::apply_thread_options(
      {.name = "trainyard", .intra_op_threads = threads.intra_op_threads, .placement = threads.main});
  if (settings.device.accelerator == nullptr) return run_mode(values, settings, out, stop);
  BenchmarkOutcome outcome{};
  // Steps say more; this is for models that are made, weights that are read, evaluations.
  train::run_or_explain(*settings.device.accelerator, {}, [&] { outcome = run_mode(values, settings, out, stop); });
  return outcome;
}

}  // namespace trainyard::recipes
