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
#include <fmt/ranges.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/base/progress.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/frontends/model/class_accuracy.h"
#include "trainyard/frontends/model/evaluation_files.h"
#include "trainyard/frontends/model/trained_model.h"
#include "trainyard/frontends/tf_cnn/benchmark_log_file.h"
#include "trainyard/frontends/tf_cnn/modes.h"
#include "trainyard/frontends/tf_cnn/output/evaluation_lines.h"
#include "trainyard/frontends/tf_cnn/output/step_log.h"
#include "trainyard/frontends/tf_cnn/quantized_runs.h"
#include "trainyard/frontends/tf_cnn/run_files.h"
#include "trainyard/frontends/tf_cnn/run_state.h"
#include "trainyard/frontends/tf_cnn/run_statistics.h"
#include "trainyard/frontends/tf_cnn/validation_run.h"
#include "trainyard/parallel/process_group/process_group.h"
#include "trainyard/train/callbacks/summary_time.h"
#include "trainyard/train/checkpoint/checkpoint_manifest.h"
#include "trainyard/train/checkpoint/checkpoint_names.h"
#include "trainyard/train/evaluation/image_views.h"
#include "trainyard/train/monitors/monitors.h"

namespace trainyard::frontends {
namespace {

// Writes lines to `out`, in front of the bar that shows how far an evaluation is.
class EvaluationDisplay {
 public:
  EvaluationDisplay(const PreparedRun& run, std::ostream& out)
      : out_(out),
        label_(run.model->name + " evaluating"),
        bar_(label_, 0, shows_progress(run) && run.device.is_chief()) {}

  Print print() {
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

bool same_input(const OpenedModel& a, const OpenedModel& b) {
  if (!a.input || !b.input) return a.input.has_value() == b.input.has_value();
  return evaluation_differences(a.input->input, b.input->input).empty() && a.averaged_weights == b.averaged_weights;
}

// Takes the newest checkpoint. The data were opened for the classes of the previous checkpoint: another one may have
// other classes, or come from a training that continued with images of another size.
void take_newest(PreparedRun& run) {
  std::shared_ptr<const OpenedModel> before = run.checkpoint;
  run.checkpoint = open_evaluated_model(run);
  const bool same = before != nullptr && run.checkpoint != nullptr && run.checkpoint->same_classes(*before) &&
                    run.checkpoint->image_size == before->image_size && same_input(*run.checkpoint, *before);
  if (run.checkpoint == nullptr || same) return;
  run.saved = read_saved_choices(run);
  take_saved_choices(run);
  settle_images(run);
  open_data(run);
}

// Returns the folder of the run of which `path` may be a checkpoint's folder: that holds nothing else. Empty for a
// folder of TensorFlow, into which nothing is written.
std::string run_folder(const std::string& path) {
  if (holds_tensorflow_weights(path)) return "";
  const std::string folder = core::without_slashes(path), name = core::base_name(folder);
  const bool is_checkpoint = train::parse_checkpoint_name(name) &&
                             core::local_file_system().exists(core::join_path(folder, train::kManifestFile));
  return is_checkpoint ? core::parent_path(folder) : folder;
}

// Console and files say how right each class was, and what the evaluation predicted.
void tell_details(const PreparedRun& run, const TrainedModel& trained, const train::Evaluation& evaluation,
                  const train::PredictionCounts* counts, const Print& print) {
  std::vector<std::string> names = trained.label_names;
  if (names.empty() && run.validation_data) {
    names = class_names_of(*run.validation_data, models::find_dataset(run.input.dataset), run.num_classes).by_output();
  }
  const bool counts_classes = run.own_dialect() && evaluation.has_accuracies;
  if (counts_classes) {
    std::string table = class_accuracy_table(evaluation.classes, names);
    if (table.ends_with('\n')) table.pop_back();
    if (!table.empty()) print(table);
  }
  if (counts != nullptr) print(fmt::format("{}", fmt::join(evaluation_detail_lines(*counts), "\n")));
  const std::string folder = run.options.eval_dir.has_value() ? *run.options.eval_dir : run_folder(run.train_dir());
  if (folder.empty()) return;
  core::FileSystem& files = core::local_file_system();
  try {
    files.make_directories(folder);
    if (counts_classes) {
      files.write_file_atomically(core::join_path(folder, "class_accuracy.json"),
                                  class_accuracy_json(evaluation, names, trained.checkpoint));
    }
    if (counts == nullptr) return;
    const auto written = write_evaluation_files(folder, {.evaluation = evaluation,
                                                         .counts = *counts,
                                                         .names = names,
                                                         .checkpoint = trained.checkpoint.path,
                                                         .global_step = trained.checkpoint.global_step,
                                                         .images = run.validation_data.get(),
                                                         .exif_orientation = run.input.transform.exif_orientation});
    print(fmt::format("In {}: {}", folder, fmt::join(written, ", ")));
  } catch (const core::Error& error) {
    if (run.options.eval_dir.has_value()) throw;
    core::log::warning("what the evaluation explains is on stdout only: {}", error.what());  // a train_dir to read from
  }
}

// Throws where images would be made in a way that neither the model nor a flag says.
void require_known_input(const PreparedRun& run, const TrainedModel& trained) {
  const EvaluationImageOptions& images = run.options.input.images;
  if (trained.input_known || !run.own_dialect() || run.input.synthetic()) return;
  if (images.input_preprocessor || images.normalization) return;
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = "the model does not say how an image becomes its input: its training had tensors",
                     .where = trained.checkpoint.path,
                     .expected = "FitOptions::input of the training, or ModelDescription::input where it was saved",
                     .actual = "none",
                     .remedy = "pass --input_preprocessor or --normalization as its images were made"});
}

// Throws kNotFound where there is no checkpoint yet.
TrainedModel load(const PreparedRun& run) {
  const TrainedModelOptions options = evaluated_model(run);
  if (run.checkpoint == nullptr && run.device.processes != nullptr) {
    throw core::Error(core::ErrorCode::kNotFound, {.problem = "No checkpoint file found in dir:" + run.train_dir(),
                                                   .remedy = "check --train_dir of rank 0, or train first"});
  }
  TrainedModel trained =
      run.checkpoint == nullptr ? load_trained_model(options) : load_trained_model(*run.checkpoint, options);
  if (trained.identity.num_classes != run.num_classes) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "the checkpoint has another number of classes",
                       .where = trained.checkpoint.path,
                       .expected = std::to_string(run.num_classes),
                       .actual = std::to_string(trained.identity.num_classes),
                       .remedy = fmt::format("pass --num_classes={}", trained.identity.num_classes)});
  }
  require_known_input(run, trained);
  return trained;
}

train::Evaluation evaluate(TrainedModel& trained, const PreparedRun& run, std::ostream& out, BenchmarkLog* log,
                           const core::StopToken& stop) {
  EvaluationDisplay display(run, out);
  ValidationRun validation(run, *trained.parameters, run.options.display.display_every, display.print(),
                           display.progress(), stop);
  if (run.compliance) run.compliance->begin_evaluation(trained.checkpoint.global_step);
  train::Evaluation evaluation = validation.run();
  if (run.compliance) {
    run.compliance->end_evaluation(evaluation.samples, compared_accuracy(evaluation), trained.checkpoint.global_step);
  }
  const Print print = display.print();
  if (const std::string line = result_line(evaluation); !line.empty()) print(line);
  if (run.options.tta != train::TestTimeAugmentation::kNone) {
    print(fmt::format("Test-time augmentation: {}, {} views of each image", train::name_of(run.options.tta),
                      train::view_count(run.options.tta)));
  }
  print(total_lines(static_cast<double>(evaluation.samples) / evaluation.seconds));
  if (!run.device.is_chief()) return evaluation;
  tell_details(run, trained, evaluation, validation.predictions(), print);
  if (log != nullptr) log->write(evaluation, trained.checkpoint.global_step);

  if (!run.options.eval_dir) return evaluation;
  core::local_file_system().make_directories(*run.options.eval_dir);
  // TensorBoard drops what an earlier evaluation said of this step.
  train::TensorBoardMonitor monitor(*run.options.eval_dir, trained.checkpoint.global_step - 1);
  train::Scalars scalars{.global_step = trained.checkpoint.global_step,
                         .epoch = 0,
                         .wall_time = train::system_wall_clock(),
                         .phase = "eval",
                         .values = {}};
  if (evaluation.has_loss) scalars.values.emplace_back("loss", evaluation.loss);
  if (evaluation.has_accuracies) scalars.values.emplace_back("top_1_accuracy", evaluation.top_1);
  if (evaluation.has_accuracies && evaluation.shows_top_5) {
    scalars.values.emplace_back("top_5_accuracy", evaluation.top_5);
  }
  scalars.values.insert(scalars.values.end(), evaluation.more.begin(), evaluation.more.end());
  monitor.write(scalars);
  monitor.close();
  return evaluation;
}

// Waits for the next evaluation. Returns true where the run was stopped meanwhile; of several processes, any of them.
bool wait_for_next(const PreparedRun& run, std::chrono::seconds interval, const core::StopToken& stop) {
  parallel::ProcessGroup* const ranks = run.device.processes.get();
  if (ranks == nullptr) return stop.wait_for(interval);
  // Ranks say from time to time that they are there.
  constexpr auto kLook = std::chrono::milliseconds(500);
  const auto end = std::chrono::steady_clock::now() + interval;
  for (bool told = false;;) {
    const bool stopped = stop.wait_for(kLook);
    if (ranks->rank() != 0 && stopped && !told) {
      ranks->send_note_to_rank_0("stop");
      told = true;
    }
    std::string answer;
    if (std::chrono::steady_clock::now() >= end) answer = "evaluate";
    if (stopped || ranks->told()) answer = "stop";
    answer = ranks->from_first("whether to evaluate again", answer);
    if (!answer.empty()) return answer == "stop";
  }
}

}  // namespace

RunStatistics run_evaluation(const PreparedRun& prepared, std::ostream& out, const core::StopToken& stop) {
  const DisplayOptions& display = prepared.options.display;
  for (const auto& [flag, file] : {std::pair{"trace_file", &display.trace_file},
                                   {"tfprof_file", &display.tfprof_file},
                                   {"graph_file", &display.graph_file},
                                   {"partitioned_graph_file_prefix", &display.partitioned_graph_file_prefix}}) {
    if (!file->empty()) core::log::warning("an evaluation has no steps: --{} writes nothing", flag);
  }
  const bool tf = !prepared.own_dialect();
  if (tf) out << "Generating evaluation model" << std::endl;
  if (prepared.compliance) prepared.compliance->begin_evaluations();
  std::unique_ptr<BenchmarkLog> log;
  if (prepared.device.is_chief()) {
    log = open_benchmark_log(prepared);
  }
  const auto interval = std::chrono::seconds(prepared.options.eval_interval_secs);
  PreparedRun run = prepared;
  RunStatistics statistics;
  for (bool first = true;; first = false) {
    if (!first) take_newest(run);  // prepare() took the first one
    std::optional<TrainedModel> trained;
    try {
      trained = load(run);
    } catch (const core::Error& error) {
      // tf_cnn_benchmarks ends normally then.
      if (error.code() != core::ErrorCode::kNotFound || (interval.count() <= 0 && !tf)) throw;
      fmt::print(out, "Checkpoint not found in {}\n", run.train_dir());
      out.flush();
      if (first) core::log::warning("{}", error.what());  // it says what was found there
    }
    if (trained && tf) fmt::print(out, "Successfully loaded model from {}.\n", trained->checkpoint.path);
    try {
      if (trained) {
        settle_evaluated_precision(run, *trained);
        const train::Evaluation evaluation = evaluate(*trained, run, out, log.get(), stop);
        statistics.images_per_sec = static_cast<double>(evaluation.samples) / evaluation.seconds;
        set_accuracies(evaluation, statistics);
      }
    } catch (const core::Error& error) {
      if (error.code() != core::ErrorCode::kCancelled) throw;
      statistics.stopped_by_signal = true;
    }
    if (!statistics.stopped_by_signal && interval.count() <= 0) return statistics;
    statistics.stopped_by_signal = statistics.stopped_by_signal || wait_for_next(run, interval, stop);
    if (statistics.stopped_by_signal) return statistics;
  }
}

}  // namespace trainyard::frontends
