#include <memory>
#include <ostream>
#include <string_view>
#include <utility>
#include <vector>

#include "trainyard/recipes/benchmark_evaluation.h"
#include "trainyard/recipes/benchmark_log_file.h"
#include "trainyard/recipes/benchmark_state.h"
#include "trainyard/recipes/compute_rate.h"
#include "trainyard/recipes/forward_trainer.h"
#include "trainyard/recipes/step_recording.h"
#include "trainyard/train/latency.h"
#include "trainyard/train/step_log.h"

namespace trainyard::recipes {
namespace {

train::StepLogOptions step_log_options(const core::FlagValues& values, const BenchmarkSettings& settings,
                                       std::ostream& out) {
  train::StepLogOptions log;
  log.batch_size = settings.batch_size * settings.replicas;  // there are no micro-steps without an update
  log.display_every = values.integer("display_every");
  log.display_perf_ewma = values.optional_real("display_perf_ewma");
  log.warmup_steps = settings.plan.num_warmup_batches;
  log.loss_name = values.text("loss_type_to_report");
  log.loss = [](const train::StepView&) { return 0.0; };  // there is none, and upstream prints zero
  log.print = [&out](std::string_view lines) { out << lines << std::endl; };
  return log;
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
  out << "Generating training model\n";
  ForwardTrainer trainer({.graph = settings.graph,
                          .executor = settings.executor,
                          .dtype = settings.dtype,
                          .frozen = values.boolean("freeze_when_forward_only"),
                          .kernels = settings.kernels,
                          .accelerator = settings.device.accelerator(),
                          .seed = settings.seed,
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
                                 .print = log.print,
                                 .on_latency =
                                     [&](const train::Latency& latency) {
                                       if (benchmark_log) write_latency(*benchmark_log, latency, trainer.global_step());
                                     }}));
  const auto step_log = std::make_shared<train::StepLog>(log);
  trainer.add(step_log);
  add_recordings(
      trainer, [&](train::StepRecorder* recorder) { trainer.record(recorder); },
      {.executor = trainer.options().executor, .replicas = 1, .images = log.batch_size}, values, settings, log.print);
  if (!settings.train_dir.empty()) {
    const auto state = std::make_shared<BenchmarkState>(trainer, settings);
    resume(settings, *state);
    trainer.add(make_checkpoint_callback(values, settings, state));
  }
  const int64_t first_step = trainer.global_step();
  const int64_t steps = remaining_steps(settings, first_step);
  out << "Initializing graph\n";
  if (steps == 0) return BenchmarkOutcome::kFinished;
  trainer.train(
      {.steps_per_epoch = first_step + settings.plan.num_warmup_batches + steps, .starting_step = first_step});
  if (benchmark_log) benchmark_log->close();
  log_compute_rate(compute_rate(settings, step_log->images_per_second()));
  return stop.stop_requested() ? BenchmarkOutcome::kStoppedBySignal : BenchmarkOutcome::kFinished;
}

}  // namespace trainyard::recipes
