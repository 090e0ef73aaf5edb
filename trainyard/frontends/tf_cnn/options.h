// Everything that a run of this door can be asked for, as one plain struct. read_options.h fills it from flags; a
// program that has no flags fills it by hand and runs the same:
//
//   TfCnnOptions options;
//   options.model = "resnet20";
//   options.input.data_name = "cifar10";
//   options.steps.num_batches = 2;
//   BenchmarkCnn(options).run(std::cout);  // benchmark_cnn.h
//
// Members are called as the flags are (docs/flags.md), which say what the values mean.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/frontends/options/average_options.h"
#include "trainyard/frontends/options/device_settings.h"
#include "trainyard/frontends/options/input_settings.h"
#include "trainyard/frontends/options/learning_rate_options.h"
#include "trainyard/frontends/options/thread_settings.h"
#include "trainyard/frontends/options/update_options.h"
#include "trainyard/frontends/session/run_directory.h"
#include "trainyard/frontends/tf_cnn/dialect.h"
#include "trainyard/nn/graph/ops.h"
#include "trainyard/train/callbacks/run_record.h"
#include "trainyard/train/loop/step_plan.h"
#include "trainyard/train/step/distillation.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::frontends {

enum class RunMode { kTraining, kEvaluation, kTrainingAndEvaluation, kForwardOnly };
// Returns tf_cnn_benchmarks' name of the mode: "training", "training + evaluation", ...
[[nodiscard]] std::string_view run_mode_name(RunMode mode);

// TfCnnOptions::batch_size that the run finds out itself.
inline constexpr int64_t kLargestBatch = -1;

// A teacher, whose outputs are learned beside the labels (train/step/distillation.h).
struct TeacherOptions {
  std::string from{};   // a file of weights, a checkpoint or a train directory; empty: no teacher
  std::string model{};  // empty: what `from` says
  train::DistillationOptions loss{};
};

struct SavingOptions {
  std::string train_dir{};  // empty: nothing is saved, or new_runs_in says where
  // With an empty train_dir: a training makes a folder MODEL-N of its own in this one. Empty: it does not.
  std::string new_runs_in{};
  // What becomes of a run that train_dir holds. None: somebody is asked on a terminal, and elsewhere it is kept.
  std::optional<ExistingRun> existing_run = ExistingRun::kKeep;
  int64_t save_model_secs = 0;
  std::optional<int64_t> save_model_steps{};
  bool save_each_epoch = false;  // of a training, beside save_model_secs
  int64_t max_ckpts_to_keep = 5;
  // A number of evaluations: "top_1", "top_5", "loss", "mean_class_accuracy", "none"; or of the model's own,
  // "NAME:highest" or "NAME:lowest". read_best_by() (run_state.h) reads it.
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
  std::optional<int64_t> save_summaries_steps{};  // unset: none, in `trainyard train` the steps that are displayed
  std::string benchmark_log_dir{}, benchmark_test_id{};
  std::string trace_file{}, tfprof_file{};  // empty: none
  std::string graph_file{}, partitioned_graph_file_prefix{};
  bool use_chrome_trace_format = true;
  bool ml_perf_compliance_logging = false;  // lines of mlperf/compliance_log.h, on stderr
};

// The flags, for files that tell of a run. Empty where the options were filled by hand.
struct FlagRecord {
  decltype(train::RunRecord::flags) all;
  std::vector<std::pair<std::string, std::string>> given{};    // names and values as text
  std::vector<std::pair<std::string, std::string>> command{};  // those of the command line alone
};

struct TfCnnOptions {
  Dialect dialect = Dialect::kTfCnnBenchmarks;
  RunMode mode = RunMode::kTraining;
  std::string model = "trivial";         // empty, in our dialect: what the checkpoint or file of weights says
  std::optional<int64_t> num_classes{};  // outputs; unset: as many as the data name
  bool auxiliary_heads = false;          // of the model, in training
  std::optional<double> stochastic_depth{}, dropout{}, batch_norm_decay{};  // unset: the model's own
  nn::Size2d image_size = 0;  // of the model's images, pixels; 0: the checkpoint's, else the model's own
  std::string weights{};      // a file to start from, or a checkpoint or file to evaluate; empty: none
  // A device; 0: the model's. kLargestBatch: as many as there is memory for, by train::search_largest_batch().
  int64_t batch_size = 0;
  std::optional<int64_t>
      batch_memory_bytes{};     // with kLargestBatch, over all devices; unset: train::usual_memory_budget
  int64_t eval_batch_size = 0;  // a device; 0: batch_size
  int micro_steps = 1;
  std::string data_format = "NCHW";  // what is printed; both are the same here

  InputOptions input{};
  DeviceOptions device{};
  ThreadOptions threads{};
  // Batch sizes and numbers of examples are filled in by the run.
  train::StepPlanOptions steps{};
  // With mode kTraining and where no steps.eval_* is set: evaluate behind each epoch, where the data have validation
  // images and the training has a whole epoch.
  bool evaluate_each_epoch = false;
  LearningRateOptions learning_rate{};
  std::string plot_schedule{};  // a file: the learning rate is drawn there, and nothing is trained; empty: training
  UpdateOptions update{};
  AverageOptions average{};
  TeacherOptions distillation{};
  SavingOptions saving{};
  DisplayOptions display{};

  std::optional<bool> eval_exact{};       // unset: the dialect's
  int64_t eval_interval_secs = 0;         // 0: one evaluation
  std::optional<std::string> eval_dir{};  // unset: an evaluation writes no summaries
  std::optional<double> stop_at_top_1_accuracy{};
  std::optional<int64_t> early_stop{};  // evaluations without a new best one, 1 or more; unset: they stop nothing
  std::vector<std::string> freeze{};    // patterns of the parameters that do not train
  bool freeze_when_forward_only = false;
  // Precision of the frozen graph: "FP32", or "FP16", which is bfloat16 on a CPU; empty: as device says.
  std::string trt_mode{};
  int64_t trt_max_workspace_size_bytes = int64_t{4} << 30;  // with trt_mode: of activations and scratch, a device

  FlagRecord flags{};
  std::vector<std::string> warnings{};  // logged when the run begins

  // Throws kInvalidArgument for a member that is out of its range and for modes that need what is not set.
  void validate() const;
};

}  // namespace trainyard::frontends
TRAINYARD_EXPORT_END
