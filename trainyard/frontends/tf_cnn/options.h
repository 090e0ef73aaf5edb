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
#include "trainyard/frontends/options/display_options.h"
#include "trainyard/frontends/options/fine_tune_options.h"
#include "trainyard/frontends/options/freeze_options.h"
#include "trainyard/frontends/options/input_settings.h"
#include "trainyard/frontends/options/learning_rate_options.h"
#include "trainyard/frontends/options/loss_options.h"
#include "trainyard/frontends/options/precision_options.h"
#include "trainyard/frontends/options/saving_options.h"
#include "trainyard/frontends/options/teacher_options.h"
#include "trainyard/frontends/options/thread_settings.h"
#include "trainyard/frontends/options/update_options.h"
#include "trainyard/frontends/tf_cnn/dialect.h"
#include "trainyard/nn/graph/ops.h"
#include "trainyard/optim/schedules/rate_range.h"
#include "trainyard/train/callbacks/run_record.h"
#include "trainyard/train/evaluation/evaluator.h"
#include "trainyard/train/loop/step_plan.h"

namespace trainyard::frontends {

enum class RunMode { kTraining, kEvaluation, kTrainingAndEvaluation, kForwardOnly };
// Returns tf_cnn_benchmarks' name of the mode: "training", "training + evaluation", ...
[[nodiscard]] std::string_view run_mode_name(RunMode mode);

// The TfCnnOptions::batch_size that makes the run find the largest batch.
inline constexpr int64_t kLargestBatch = -1;

// The flags, for files that describe a run. Empty when the options were filled by hand.
struct FlagRecord {
  decltype(train::RunRecord::flags) all;
  std::vector<std::pair<std::string, std::string>> given{};    // names and values as text
  std::vector<std::pair<std::string, std::string>> command{};  // those of the command line alone
};

// A range test of learning rates, which runs instead of a training.
struct RangeTestRequest {
  optim::RangeTestOptions rates{};
  std::string picture{};  // file for the plot; its numbers are written next to it
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
  // TensorFlow checkpoint with the values that the backbone of a detector begins with; empty: none.
  std::string backbone_model_path{};
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
  bool describe_input = false;  // prints the operations on images instead of training
  std::optional<RangeTestRequest> range_test{};  // with mode kTraining; unset: trains
  UpdateOptions update{};
  LossOptions loss{};
  AverageOptions average{};
  TeacherOptions distillation{};
  SavingOptions saving{};
  DisplayOptions display{};

  std::optional<bool> eval_exact{};         // unset: the dialect's
  int64_t eval_interval_secs = 0;           // 0: one evaluation
  std::optional<std::string> eval_dir{};    // unset: an evaluation writes no summaries
  bool collect_eval_results_async = false;  // numbers of a detector's evaluations come while the training continues
  std::optional<double> stop_at_top_1_accuracy{};
  std::optional<int64_t> early_stop{};  // evaluations without a new best one, 1 or more; unset: no early stopping
  double early_stop_min_delta = 0;      // smallest improvement that counts
  std::string early_stop_metric{};      // as SavingOptions::keep_best; empty: what that names
  // What evaluations explain (train/evaluation/prediction_counts.h). Unset: PredictionCountsOptions' defaults, and
  // nothing is explained in the dialect of tf_cnn_benchmarks.
  std::vector<int64_t> top_k{};
  std::optional<int64_t> calibration_bins{}, most_wrong{};
  train::TestTimeAugmentation tta =
      train::TestTimeAugmentation::kNone;  // of kEvaluation, and the end of kTrainingAndEvaluation
  // Ends a run after so many epochs of the training, whose length and schedule stay those of `steps`; another run
  // continues it. In our dialect. Unset: at the training's end.
  std::optional<double> stop_after_epochs{};
  FreezeOptions freeze{};  // parameters that do not train
  // Training images whose patches the first convolution whitens from the first step on; 0: it begins as the others.
  int64_t whiten_images = 0;
  // Quantization-aware training from `weights`, or of a checkpoint of one (nn/quantization/quantization_aware.h). In
  // our dialect.
  bool qat = false;
  std::optional<FineTuneOptions> fine_tune{};  // in our dialect; unset: the options are what they say
  bool freeze_when_forward_only = false;
  // Precision of the frozen graph: "FP32", or "FP16", which is bfloat16 on a CPU, or "INT8", on a CPU, whose other
  // layers have the precision of `device`; empty: from `device`.
  std::string trt_mode{};
  int64_t trt_max_workspace_size_bytes = int64_t{4} << 30;  // with trt_mode: activations and scratch, per device
  Precision precision = Precision::kAuto;                   // of kEvaluation
  // Batches of input that the scales of 8 bits follow from, with trt_mode "INT8", Precision::kInt8 and qat. Unset:
  // kCalibrationBatches.
  std::optional<int64_t> calibration_batches{};

  FlagRecord flags{};
  std::vector<std::string> warnings{};  // logged when the run begins

  // Returns whether --num_eval_batches or --num_eval_epochs gives the length of evaluations.
  [[nodiscard]] bool gives_eval_length() const {
    return steps.num_eval_batches.value_or(0) != 0 || steps.num_eval_epochs.value_or(0) != 0;
  }
  // Returns whether evaluations explain more than their dialect does.
  [[nodiscard]] bool explains_on_request() const { return !top_k.empty() || calibration_bins || most_wrong; }

  // Throws kInvalidArgument for a member out of range, and when an option that the mode requires is not set.
  void validate() const;
};

}  // namespace trainyard::frontends
