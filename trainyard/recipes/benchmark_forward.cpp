#include <memory>
#include <ostream>
#include <string_view>
#include <utility>
#include <vector>

#include "trainyard/core/base/log.h"
#include "trainyard/recipes/benchmark_evaluation.h"
#include "trainyard/recipes/benchmark_log_file.h"
#include "trainyard/recipes/benchmark_state.h"
#include "trainyard/recipes/compute_rate.h"
#include "trainyard/recipes/forward_trainer.h"
#include "trainyard/recipes/run_steps.h"
#include "trainyard/recipes/step_recording.h"
#include "trainyard/train/callbacks/latency.h"
#include "trainyard/train/callbacks/step_log.h"

namespace trainyard::recipes {
namespace {

// tf_cnn_benchmarks shows them here whether they are asked for or not.
bool shows_accuracies(const core::FlagValues& values, const BenchmarkSettings& settings) {
  return settings.dialect == Dialect::kTfCnnBenchmarks || values.boolean("print_training_accuracy");
}

train::StepLogOptions step_log_options(const core::FlagValues& values, const BenchmarkSettings& settings,
                                       std::ostream& out) {
  train::StepLogOptions log;
  log.batch_size = settings.batch_size * settings.replicas;  // there are no micro-steps without an update
  log.display_every = values.integer("display_every");
  log.display_perf_ewma = values.optional_real("display_perf_ewma");
  log.warmup_steps = settings.plan.num_warmup_batches;
  log.loss_name = values.text("loss_type_to_report");
  log.loss = [](const train::StepView&) { return 0.0; };  // there is none, and upstream prints zero
  if (shows_accuracies(values, settings)) log.accuracies = train::batch_accuracies;
  log.print = [&out](std::string_view lines) { out << lines << std::endl; };
  return log;
}

// For people: what the program says beyond the lines that scripts know.
void log_line(std::string_view line) {
  core::log::info("{}", line);
}

void write_latency(train::BenchmarkLog& log, const train::Latency& latency, int64_t global_step) {
  const std::pair<const char*, double> values[] = {{"latency_p50", latency.p50},
                                                   {"latency_p90", latency.p90},
                                                   {"latency_p99", latency.p99},
                                                   {"latency_max", latency.max}};
  for (const auto& [name, seconds] : values) log.write_metric(name, 1e3 * seconds, "ms", global_step);
}

}  // namespace

BenchmarkOutcome run_forward_only(const core::FlagValues& values, const BenchmarkSettings& settings, std::ostream& out,
                                  const core::StopToken& stop) {
  // Before anything is read there that another run may be changing; given back when all is written.
  const auto lock = settings.train_dir.empty() ? nullptr : lock_train_dir(settings);
  out << "Generating training model\n";
  ForwardTrainer trainer({.graph = settings.graph,
                          .executor = settings.executor,
                          .dtype = settings.dtype,
                          .frozen = values.boolean("freeze_when_forward_only"),
                          .kernels = settings.kernels,
                          .accelerator = settings.device.accelerator(),
                          .seed = settings.seed,
                          .keep_outputs = shows_accuracies(values, settings),
                          .start = make_start(settings)},
                         make_source(settings, data::Subset::kTrain));
  trainer.set_stop_token(stop);
  train::StepLogOptions log = step_log_options(values, settings, out);
  const auto benchmark_log = open_benchmark_log(values, settings, log.batch_size);
  if (benchmark_log) {
    log.on_line = [&](const train::StepReport& report) { benchmark_log->write(report); };
    log.on_total = [&](double speed) { benchmark_log->write_total(speed, trainer.global_step()); };
  }
  // Before the total, which scripts look for at the end.
  trainer.add(std::make_shared<train::LatencyLog>(
      train::LatencyLog::Options{.batch_size = settings.batch_size,
                                 .warmup_steps = log.warmup_steps,
                                 .seconds = [&]() -> const std::vector<double>& { return trainer.batch_seconds(); },
                                 .print = settings.dialect == Dialect::kTrainyard ? log.print : log_line,
                                 .on_latency =
                                     [&](const train::Latency& latency) {
                                       if (benchmark_log) write_latency(*benchmark_log, latency, trainer.global_step());
                                     }}));
  const auto step_log = std::make_shared<train::StepLog>(log);
  trainer.add(step_log);
  add_recordings(
      trainer, [&](train::StepRecorder* recorder) { trainer.record(recorder); },
      {.executor = trainer.options().executor,
       .replicas = 1,
       .images = log.batch_size,
       .warmup_steps = log.warmup_steps},
      values, settings, log.print);
  if (!settings.train_dir.empty()) {
    const auto state = std::make_shared<BenchmarkState>(trainer, settings);
    resume(values, settings, *state);
    trainer.add(make_checkpoint_callback(values, settings, state));
  }
  const int64_t first_step = trainer.global_step();
  const int64_t steps = remaining_steps(values, settings, first_step);
  out << "Initializing graph\n";
  print_rounded_warmup(settings, out);
  if (steps == 0) return BenchmarkOutcome::kFinished;
  trainer.train(
      {.steps_per_epoch = first_step + settings.plan.num_warmup_batches + steps, .starting_step = first_step});
  if (benchmark_log) benchmark_log->close();
  log_compute_rate(compute_rate(settings, step_log->images_per_second()));
  return stop.stop_requested() ? BenchmarkOutcome::kStoppedBySignal : BenchmarkOutcome::kFinished;
}

}  // namespace trainyard::recipes
