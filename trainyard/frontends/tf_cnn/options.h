// All options of a run of this front end, as one plain struct. read_options.h fills it from flags; a program without
// flags fills it by hand and runs the same:
//
//   TfCnnOptions options;
//   options.model = "resnet20";
//   options.input.data_name = "cifar10";
//   options.steps.num_batches = 2;
//   BenchmarkCnn(options).run(std::cout);  // benchmark_cnn.h
//
// Members have the names of the flags, which document the values (docs/flags.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trainyard/frontends/options/average_options.h"
#include "trainyard/frontends/options/device_settings.h"
#include "trainyard/frontends/options/input_settings.h"
#include "trainyard/frontends/options/learning_rate_options.h"
#include "trainyard/frontends/options/thread_settings.h"
#include "trainyard/frontends/options/update_options.h"
#include "trainyard/frontends/tf_cnn/dialect.h"
#include "trainyard/nn/graph/ops.h"
#include "trainyard/train/callbacks/run_record.h"
#include "trainyard/train/loop/step_plan.h"
#include "trainyard/train/session/run_directory.h"
#include "trainyard/train/step/distillation.h"

namespace trainyard::frontends {

enum class RunMode { kTraining, kEvaluation, kTrainingAndEvaluation, kForwardOnly };
// Returns tf_cnn_benchmarks' name of the mode: "training", "training + evaluation", ...
[[nodiscard]] std::string_view run_mode_name(RunMode mode);

// The TfCnnOptions::batch_size that makes the run find the largest batch.
inline constexpr int64_t kLargestBatch = -1;

// A teacher, whose outputs are learned in addition to the labels (train/step/distillation.h).
struct TeacherOptions {
  std::string from{};   // a file of weights, a checkpoint or a train directory; empty: no teacher
  std::string model{};  // empty: from the metadata of `from`
  train::DistillationOptions loss{};
};

struct SavingOptions {
  std::string train_dir{};  // empty: nothing is saved, unless new_runs_in is set
  // With an empty train_dir, a training makes a new folder MODEL-N in this one. Empty: it does not.
  std::string new_runs_in{};
  // What to do with a run that train_dir contains. Unset: asks on a terminal, and keeps the run otherwise.
  std::optional<train::ExistingRun> existing_run = train::ExistingRun::kKeep;
  int64_t save_model_secs = 0;
  std::optional<int64_t> save_model_steps{};
  bool save_each_epoch = false;  // in a training, in addition to save_model_secs
  int64_t max_ckpts_to_keep = 5;
  // The metric of the best checkpoint: "top_1", "top_5", "loss", "mean_class_accuracy", "none"; or a custom model's
  // metric, "NAME:highest" or "NAME:lowest". read_best_by() (run_state.h) reads it.
  std::string keep_best = "none";
  bool ignore_damaged_checkpoints = false;
};

struct DisplayOptions {
  int64_t display_every = 10;
  std::optional<double> display_perf_ewma{};
  bool print_training_accuracy = false;
  std::string loss_type_to_report = "total_loss";  // "base_loss"
  std::string progress = "auto";                   // "on", "off"
  int64_t summary_verbosity = 0;
  std::optional<int64_t> save_summaries_steps{};  // unset: none; in `trainyard train` the displayed steps
  std::string benchmark_log_dir{}, benchmark_test_id{};
  std::string trace_file{}, tfprof_file{};  // empty: none
  std::string graph_file{}, partitioned_graph_file_prefix{};
  bool use_chrome_trace_format = true;
  bool ml_perf_compliance_logging = false;  // lines of mlperf/compliance_log.h, on stderr
};

// The flags, for files that describe a run. Empty when the options were filled by hand.
struct FlagRecord {
  decltype(train::RunRecord::flags) all;
  std::vector<std::pair<std::string, std::string>> given{};    // names and values as text
  std::vector<std::pair<std::string, std::string>> command{};  // those of the command line alone
};

struct TfCnnOptions {
  Dialect dialect = Dialect::kTfCnnBenchmarks;
  RunMode mode = RunMode::kTraining;
  std::string model = "trivial";         // empty, in our dialect: from the checkpoint or file of weights
  std::optional<int64_t> num_classes{};  // outputs; unset: the number of classes of the data
  bool auxiliary_heads = false;          // of the model, in training
  std::optional<double> stochastic_depth{}, dropout{}, batch_norm_decay{};  // unset: the model's own
  nn::Size2d image_size = 0;  // of the model's images, pixels; 0: the checkpoint's, else the model's own
  std::string weights{};      // file of initial weights, or checkpoint or file to evaluate; empty: none
  // Per device; 0: the model's. kLargestBatch: the largest that fits into memory, by train::search_largest_batch().
  int64_t batch_size = 0;
  std::optional<int64_t>
      batch_memory_bytes{};     // with kLargestBatch, over all devices; unset: train::usual_memory_budget
  int64_t eval_batch_size = 0;  // per device; 0: batch_size
  int micro_steps = 1;
  std::string data_format = "NCHW";  // only printed; both formats compute the same

  InputOptions input{};
  DeviceOptions device{};
  ThreadOptions threads{};
  // Batch sizes and numbers of examples are filled in by the run.
  train::StepPlanOptions steps{};
  // With mode kTraining and no steps.eval_*: evaluates after each epoch, if the data have validation images and the
  // training has a whole epoch.
  bool evaluate_each_epoch = false;
  LearningRateOptions learning_rate{};
  std::string plot_schedule{};  // file for a plot of the learning rate, instead of training; empty: trains
  UpdateOptions update{};
  AverageOptions average{};
  TeacherOptions distillation{};
  SavingOptions saving{};
  DisplayOptions display{};

  std::optional<bool> eval_exact{};       // unset: the dialect's
  int64_t eval_interval_secs = 0;         // 0: one evaluation
  std::optional<std::string> eval_dir{};  // unset: an evaluation writes no summaries
  std::optional<double> stop_at_top_1_accuracy{};
  std::optional<int64_t> early_stop{};  // evaluations without a new best one, 1 or more; unset: no early stopping
  std::vector<std::string> freeze{};    // patterns of the parameters that do not train
  bool freeze_when_forward_only = false;
  // Precision of the frozen graph: "FP32", or "FP16", which is bfloat16 on a CPU; empty: from `device`.
  std::string trt_mode{};
  int64_t trt_max_workspace_size_bytes = int64_t{4} << 30;  // with trt_mode: activations and scratch, per device

  FlagRecord flags{};
  std::vector<std::string> warnings{};  // logged when the run begins

  // Throws kInvalidArgument for a member out of range, and when an option that the mode requires is not set.
  void validate() const;
};

}  // namespace trainyard::frontends
