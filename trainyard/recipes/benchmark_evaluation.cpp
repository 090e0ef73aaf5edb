#include "trainyard/recipes/benchmark_evaluation.h"

#include <chrono>
#include <ostream>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ostream.h>

#include "trainyard/core/error.h"
#include "trainyard/core/log.h"
#include "trainyard/recipes/trained_model.h"
#include "trainyard/recipes/validation_run.h"
#include "trainyard/train/step_log.h"
#include "trainyard/train/summary_callback.h"
#include "trainyard/train/tensorboard_monitor.h"

namespace trainyard::recipes {
namespace {

train::Print print_to(std::ostream& out) {
  return [&out](std::string_view lines) { out << lines << std::endl; };
}

void evaluate_checkpoint(const core::FlagValues& values, const BenchmarkSettings& settings, std::ostream& out) {
  TrainedModel trained = load_trained_model({.path = settings.weights.empty() ? settings.train_dir : settings.weights,
                                             .model = settings.model->name,
                                             .dataset = settings.dataset,
                                             .num_classes = settings.weights.empty() ? 0 : settings.num_classes,
                                             .kernels = settings.kernels,
                                             .device = settings.device.device()});
  if (trained.identity.num_classes != settings.num_classes) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "the checkpoint has another number of classes",
                       .where = trained.checkpoint.path,
                       .expected = std::to_string(settings.num_classes),
                       .actual = std::to_string(trained.identity.num_classes),
                       .remedy = fmt::format("pass --num_classes={}", trained.identity.num_classes)});
  }
  ValidationRun validation(settings, *trained.parameters, values.integer("display_every"), print_to(out));
  const train::Evaluation evaluation = validation.run();
  out << train::evaluation_line({evaluation.top_1, evaluation.top_5}, evaluation.samples) << '\n'
      << train::total_lines(static_cast<double>(evaluation.samples) / evaluation.seconds) << std::endl;

  // The default is where upstream puts them; a run that names no place asks for no events.
  if (!values.given("eval_dir")) return;
  core::local_file_system().make_directories(settings.eval_dir);
  train::TensorBoardMonitor monitor(settings.eval_dir, trained.checkpoint.global_step);
  monitor.write(
      {.global_step = trained.checkpoint.global_step,
       .epoch = 0,
       .wall_time = train::system_wall_clock(),
       .phase = "eval",
       .values = {
           {"top_1_accuracy", evaluation.top_1}, {"top_5_accuracy", evaluation.top_5}, {"loss", evaluation.loss}}});
  monitor.close();
}

}  // namespace

BenchmarkOutcome run_evaluation(const core::FlagValues& values, const BenchmarkSettings& settings, std::ostream& out,
                                const core::StopToken& stop) {
  for (const char* name : {"trace_file", "tfprof_file"}) {
    if (!values.text(name).empty()) core::log::warning("an evaluation has no steps: --{} writes nothing", name);
  }
  const auto interval = std::chrono::seconds(values.integer("eval_interval_secs"));
  do {
    try {
      evaluate_checkpoint(values, settings, out);
    } catch (const core::Error& error) {
      if (error.code() != core::ErrorCode::kNotFound || interval.count() <= 0) throw;
      fmt::print(out, "Checkpoint not found in {}\n", settings.train_dir);
      out.flush();
    }
    if (interval.count() <= 0) return BenchmarkOutcome::kFinished;
  } while (!stop.wait_for(interval));
  return BenchmarkOutcome::kStoppedBySignal;
}

}  // namespace trainyard::recipes
