#include "trainyard/recipes/benchmark.h"

#include <memory>
#include <ostream>

#include <fmt/format.h>

#include "trainyard/core/base/build_info.h"
#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/recipes/benchmark_evaluation.h"
#include "trainyard/recipes/benchmark_settings.h"
#include "trainyard/recipes/benchmark_training.h"
#include "trainyard/recipes/run_header.h"
#include "trainyard/train/step/device_room.h"

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

BenchmarkOutcome run(const core::FlagValues& values, const BenchmarkSettings& settings, std::ostream& out,
                     const core::StopToken& stop) {
  const std::shared_ptr<void> on_device = settings.device.use();
  if (settings.dialect == Dialect::kTfCnnBenchmarks) {
    // Its lines do not say so.
    core::log::info("Trainyard {} ({})", core::build_info().version, core::build_info().git_revision);
  }
  print_run_header(run_header_rows(values, settings), out);
  // Evaluation and forward passes run on this thread, with all cores; replicas have threads of their own.
  const ThreadSettings& threads = settings.threads;
  if (threads.print || (threads.affinity && threads.affinity->verbose)) {
    for (const std::string& line : threads.lines()) core::log::info("{}", line);
  }
  core::apply_thread_options(
      {.name = "trainyard", .intra_op_threads = threads.intra_op_threads, .placement = threads.main});
  const std::shared_ptr<nn::Accelerator> accelerator = settings.device.accelerator();
  if (accelerator == nullptr) return run_mode(values, settings, out, stop);
  BenchmarkOutcome outcome{};
  // Steps say more; this is for models that are made, weights that are read, evaluations.
  train::run_or_explain(*accelerator, {}, [&] { outcome = run_mode(values, settings, out, stop); });
  return outcome;
}

}  // namespace

BenchmarkOutcome run_benchmark(const core::FlagValues& values, Dialect dialect, std::ostream& out,
                               const core::StopToken& stop) {
  const BenchmarkSettings settings = read_benchmark_settings(values, dialect);
  parallel::Rendezvous* const processes = settings.device.processes.get();
  if (processes == nullptr) return run(values, settings, out, stop);
  std::ostream nowhere(nullptr);
  try {
    const BenchmarkOutcome outcome = run(values, settings, settings.device.is_chief() ? out : nowhere, stop);
    processes->leave();
    return outcome;
  } catch (const core::Error& error) {
    // The others hear why this one ends, unless it ends because of them.
    if (error.code() != core::ErrorCode::kPeerFailed) processes->report(error);
    throw error.in(fmt::format("rank {} of {}", processes->rank(), processes->size()));
  }
}

}  // namespace trainyard::recipes
