#include "trainyard/recipes/benchmark_evaluation.h"

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ostream.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/base/progress.h"
#include "trainyard/recipes/benchmark_log_file.h"
#include "trainyard/recipes/benchmark_state.h"
#include "trainyard/recipes/class_accuracy.h"
#include "trainyard/recipes/run_files.h"
#include "trainyard/recipes/trained_model.h"
#include "trainyard/recipes/validation_run.h"
#include "trainyard/train/callbacks/step_log.h"
#include "trainyard/train/callbacks/summary_callback.h"
#include "trainyard/train/monitors/tensorboard_monitor.h"

namespace trainyard::recipes {
namespace {

// Writes lines to `out`, in front of the bar that shows how far an evaluation is.
class EvaluationDisplay {
 public:
  EvaluationDisplay(const core::FlagValues& values, const BenchmarkSettings& settings, std::ostream& out)
      : out_(out), label_(settings.model->name + " evaluating"), bar_(label_, 0, shows_progress(values)) {}

  train::Print print() {
    return [this](std::string_view lines) {
      bar_.clear();
      out_ << lines << std::endl;
    };
  }
  std::function<void(int64_t, int64_t)> progress() {
    return [this](int64_t done, int64_t all) { bar_.show(fmt::format("{} {}/{}", label_, done, all)); };
  }

 private:
  std::ostream& out_;
  std::string label_;
  core::ProgressBar bar_;
};

// The data were opened for the classes of the checkpoint that was there then: another one may number others.
BenchmarkSettings for_newest_checkpoint(const core::FlagValues& values, const BenchmarkSettings& settings) {
  BenchmarkSettings own = settings;
  const auto saved = read_saved_classes(settings.weights.empty() ? settings.train_dir : settings.weights,
                                        damaged_checkpoints(values, false));
  if (saved && (!settings.saved_classes || !saved->same_classes(*settings.saved_classes))) open_data(values, own);
  return own;
}

// Console and file say how right each class was.
void tell_classes(const core::FlagValues& values, const BenchmarkSettings& settings, const TrainedModel& trained,
                  const train::Evaluation& evaluation, const train::Print& print) {
  std::vector<std::string> names = trained.label_names;
  if (names.empty() && settings.validation_data) {
    names = class_names_of(*settings.validation_data, models::find_dataset(settings.dataset), settings.num_classes)
                .by_output();
  }
  std::string table = class_accuracy_table(evaluation.classes, names);
  if (table.ends_with('\n')) table.pop_back();
  if (!table.empty()) print(table);
  const std::string folder = values.given("eval_dir") ? settings.eval_dir : settings.train_dir;
  if (folder.empty()) return;
  core::FileSystem& files = core::local_file_system();
  try {
    files.make_directories(folder);
    files.write_file_atomically(core::join_path(folder, "class_accuracy.json"),
                                class_accuracy_json(evaluation, names, trained.checkpoint));
  } catch (const core::Error& error) {
    if (values.given("eval_dir")) throw;
    core::log::warning("the accuracy of each class is on stdout only: {}", error.what());  // a train_dir to read from
  }
}

TrainedModel load(const core::FlagValues& values, const BenchmarkSettings& settings) {
  TrainedModel trained = load_trained_model({.path = settings.weights.empty() ? settings.train_dir : settings.weights,
                                             .model = settings.model->name,
                                             .dataset = settings.dataset,
                                             .num_classes = settings.weights.empty() ? 0 : settings.num_classes,
                                             .damaged = damaged_checkpoints(values, false),
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
  return trained;
}

void evaluate(TrainedModel& trained, const core::FlagValues& values, const BenchmarkSettings& settings,
              std::ostream& out, train::BenchmarkLog* log, const core::StopToken& stop) {
  EvaluationDisplay display(values, settings, out);
  ValidationRun validation(settings, *trained.parameters, values.integer("display_every"), display.print(),
                           display.progress(), stop);
  const train::Evaluation evaluation = validation.run();
  const train::Print print = display.print();
  print(train::evaluation_line({evaluation.top_1, evaluation.top_5, evaluation.shows_top_5}, evaluation.samples));
  print(train::total_lines(static_cast<double>(evaluation.samples) / evaluation.seconds));
  if (settings.dialect == Dialect::kTrainyard) tell_classes(values, settings, trained, evaluation, print);
  if (log != nullptr) log->write(evaluation, trained.checkpoint.global_step);

  // The default is where tf_cnn_benchmarks puts them; `trainyard eval` writes no events where none are asked for.
  if (settings.dialect == Dialect::kTrainyard && !values.given("eval_dir")) return;
  core::local_file_system().make_directories(settings.eval_dir);
  // TensorBoard drops what an earlier evaluation said of this step.
  train::TensorBoardMonitor monitor(settings.eval_dir, trained.checkpoint.global_step - 1);
  train::Scalars scalars{.global_step = trained.checkpoint.global_step,
                         .epoch = 0,
                         .wall_time = train::system_wall_clock(),
                         .phase = "eval",
                         .values = {{"top_1_accuracy", evaluation.top_1}, {"loss", evaluation.loss}}};
  if (evaluation.shows_top_5) scalars.values.emplace_back("top_5_accuracy", evaluation.top_5);
  monitor.write(scalars);
  monitor.close();
}

}  // namespace

BenchmarkOutcome run_evaluation(const core::FlagValues& values, const BenchmarkSettings& settings, std::ostream& out,
                                const core::StopToken& stop) {
  for (const char* name : {"trace_file", "tfprof_file"}) {
    if (!values.text(name).empty()) core::log::warning("an evaluation has no steps: --{} writes nothing", name);
  }
  const bool tf = settings.dialect == Dialect::kTfCnnBenchmarks;
  if (tf) out << "Generating evaluation model" << std::endl;
  const std::unique_ptr<train::BenchmarkLog> log =
      open_benchmark_log(values, settings, settings.eval_batch_size * settings.replicas);
  const auto interval = std::chrono::seconds(values.integer("eval_interval_secs"));
  do {
    const BenchmarkSettings own = for_newest_checkpoint(values, settings);
    std::optional<TrainedModel> trained;
    try {
      trained = load(values, own);
    } catch (const core::Error& error) {
      // tf_cnn_benchmarks ends normally then.
      if (error.code() != core::ErrorCode::kNotFound || (interval.count() <= 0 && !tf)) throw;
      fmt::print(out, "Checkpoint not found in {}\n", settings.train_dir);
      out.flush();
    }
    if (trained && tf) fmt::print(out, "Successfully loaded model from {}.\n", trained->checkpoint.path);
    try {
      if (trained) evaluate(*trained, values, own, out, log.get(), stop);
    } catch (const core::Error& error) {
      if (error.code() != core::ErrorCode::kCancelled) throw;
      return BenchmarkOutcome::kStoppedBySignal;
    }
    if (interval.count() <= 0) return BenchmarkOutcome::kFinished;
  } while (!stop.wait_for(interval));
  return BenchmarkOutcome::kStoppedBySignal;
}

}  // namespace trainyard::recipes
