#include <memory>
#include <optional>
#include <ostream>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/frontends/tf_cnn/benchmark_log_file.h"
#include "trainyard/frontends/tf_cnn/learning_task.h"
#include "trainyard/frontends/tf_cnn/modes.h"
#include "trainyard/frontends/tf_cnn/output/graph_files.h"
#include "trainyard/frontends/tf_cnn/output/latency.h"
#include "trainyard/frontends/tf_cnn/output/step_log.h"
#include "trainyard/frontends/tf_cnn/quantized_runs.h"
#include "trainyard/frontends/tf_cnn/run_state.h"
#include "trainyard/frontends/tf_cnn/run_statistics.h"
#include "trainyard/frontends/tf_cnn/run_steps.h"
#include "trainyard/frontends/tf_cnn/step_recording.h"
#include "trainyard/frontends/tf_cnn/trainer_options.h"
#include "trainyard/parallel/servers/server_group.h"
#include "trainyard/train/evaluation/evaluator.h"
#include "trainyard/train/profile/machine_limit_share.h"
#include "trainyard/train/step/forward_trainer.h"

namespace trainyard::frontends {
namespace {

// tf_cnn_benchmarks shows them here whether they are asked for or not.
bool shows_accuracies(const PreparedRun& run) {
  return task_of(run).has_step_accuracies() && (!run.own_dialect() || run.options.display.print_training_accuracy);
}

StepLogOptions step_log_options(const PreparedRun& run, std::ostream& out) {
  StepLogOptions log;
  log.batch_size = run.batch_size * run.replicas;  // there are no micro-steps without an update
  log.num_workers = run.device.ranks();
  log.display_every = run.options.display.display_every;
  log.display_perf_ewma = run.options.display.display_perf_ewma;
  log.warmup_steps = run.plan.num_warmup_batches;
  log.loss_name = run.options.loss.loss_type_to_report;
  log.loss = [](const train::StepView&) { return 0.0; };  // there is none, and tf_cnn_benchmarks prints zero
  if (shows_accuracies(run)) log.accuracies = train::batch_accuracies;
  log.top_5 = run.shows_top_5();
  log.print = [&out](std::string_view lines) { out << lines << std::endl; };
  log.every_worker = run.prints() && !run.device.is_chief();
  return log;
}

// For people: what the program says beyond the lines that scripts know.
void log_line(std::string_view line) {
  core::log::info("{}", line);
}

void write_latency(BenchmarkLog& log, const Latency& latency, int64_t global_step) {
  const std::pair<const char*, double> values[] = {{"latency_p50", latency.p50},
                                                   {"latency_p90", latency.p90},
                                                   {"latency_p99", latency.p99},
                                                   {"latency_max", latency.max}};
  for (const auto& [name, seconds] : values) log.write_metric(name, 1e3 * seconds, "ms", global_step);
}

// Throws where the frozen graph takes more memory than --trt_max_workspace_size_bytes allows.
void check_workspace(const PreparedRun& run, train::ForwardTrainer& trainer) {
  if (run.options.trt_mode.empty()) return;
  const std::optional<nn::ExecutorMemory> memory = trainer.prepare(run.batch_size);
  const int64_t limit = run.options.trt_max_workspace_size_bytes;
  if (!memory) {
    core::log::warning(
        "the executor {} does not say how much memory it takes: trt_max_workspace_size_bytes is not checked",
        trainer.options().devices.executor);
  } else if (memory->activations > limit) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "the frozen graph needs more memory than --trt_max_workspace_size_bytes",
                       .where = fmt::format("{}, batches of {}", run.model->name, run.batch_size),
                       .expected = fmt::format("at most {} bytes", limit),
                       .actual = fmt::format("{} bytes of activations and scratch", memory->activations),
                       .remedy = "allow more, or use a smaller --batch_size"});
  }
}

// Lets parameter servers hold the values, too: workers compute with what the chief has written there.
void take_values_of_servers(const PreparedRun& run, nn::ParameterSet& parameters) {
  if (run.device.servers == nullptr) return;
  const std::unique_ptr<optim::Optimizer> optimizer = make_optimizer(run.options)(parameters);
  run.device.servers->join(parameters, {optimizer.get()});
  run.device.servers->start(parameters, {optimizer.get()}, 0);
}

}  // namespace

RunStatistics run_forward_only(const PreparedRun& run, std::ostream& out, const core::StopToken& stop) {
  train::ForwardOptions options{.graph = run.graph,
                                .devices = run.device,
                                .frozen = run.options.freeze_when_forward_only,
                                .seed = run.input.seed,
                                .keep_outputs = shows_accuracies(run),
                                .start = make_start(run),
                                .saved_by_caller = {"data/", "run/"},
                                .replicas = train::replica_thread_options(
                                    run.eval_replicas(), run.threads.intra_op_threads, run.threads.replica)};
  if (run.options.trt_mode == "INT8") quantize_forward_passes(run, options);
  train::ForwardTrainer trainer(std::move(options), make_source(run, data::Subset::kTrain));
  trainer.set_stop_token(stop);
  train::TrainingSession session(trainer, session_options(run, make_saved_run(trainer, run)));
  session.open();  // before anything is read there that another run may be changing
  out << "Generating training model\n";
  check_workspace(run, trainer);
  StepLogOptions log = step_log_options(run, out);
  std::shared_ptr<StepLog> step_log;
  const bool chief = run.device.is_chief();
  const auto benchmark_log = chief ? open_benchmark_log(run) : nullptr;
  if (benchmark_log) {
    log.on_line = [&](const StepReport& report) { benchmark_log->write(report); };
    log.on_total = [&](double speed) {
      benchmark_log->write_total(speed,
                                 run.own_dialect() ? trainer.global_step() : step_log->steps() * run.device.ranks());
    };
  }
  // Before the total, which scripts look for at the end.
  session.print(std::make_shared<LatencyLog>(
      LatencyLog::Options{.batch_size = run.batch_size,
                          .warmup_steps = log.warmup_steps,
                          .seconds = [&]() -> const std::vector<double>& { return trainer.batch_seconds(); },
                          .print = run.own_dialect() ? log.print : log_line,
                          .on_latency =
                              [&](const Latency& latency) {
                                if (benchmark_log) write_latency(*benchmark_log, latency, trainer.global_step());
                              }}));
  step_log = std::make_shared<StepLog>(log);
  session.print(step_log);
  if (chief) {
    add_recordings(
        trainer, [&](train::StepRecorder* recorder) { trainer.record(recorder); },
        {.executor = trainer.options().devices.executor,
         .replicas = run.eval_replicas(),
         .images = run.batch_size,
         .warmup_steps = log.warmup_steps,
         .parameters = [&] { return std::vector<nn::ParameterSet*>{&trainer.parameters()}; }},
        run, log.print);
  }
  if (run.compliance) run.compliance->begin_training();
  session.resume();
  take_values_of_servers(run, trainer.parameters());
  if (run.counts_all_workers()) {
    trainer.count_global_steps([workers = run.device.ranks()](int64_t before) { return before + workers; });
  }
  train::SessionSteps saving;
  set_checkpoint_steps(run, saving);
  session.prepare(std::move(saving));
  const int64_t first_step = trainer.global_step();
  const int64_t steps = remaining_steps(run, first_step);
  out << "Initializing graph\n";
  print_rounded_warmup(run, out);
  if (const std::string& path = run.options.display.graph_file; !path.empty() && chief) {
    write_graph_file(path, run.graph, trainer.parameters(), "GraphDef", log.print);
  }
  if (steps == 0) {
    if (run.compliance) run.compliance->write_empty_loop(first_step);
    return {};
  }
  if (run.compliance) run.compliance->enter_loop(first_step);
  session.train({.steps_per_epoch = first_step + run.plan.num_warmup_batches + steps, .starting_step = first_step});
  if (run.compliance) {
    run.compliance->leave_loop(trainer.global_step());
    run.compliance->end(false);  // nothing was asked of it
  }
  if (benchmark_log) benchmark_log->close();
  if (run.other_sizes.empty()) {  // images of several sizes cost differently
    train::log_compute_rate(
        train::compute_rate(run.graph, /*trains=*/false, run.device, step_log->images_per_second()));
  }
  RunStatistics statistics = statistics_of(*step_log, run.device.ranks());
  // A signal of any process ends all of them.
  statistics.stopped_by_signal = run.device.processes == nullptr ? stop.stop_requested() : trainer.stopped_by_signal();
  return statistics;
}

}  // namespace trainyard::frontends
