#include "trainyard/frontends/tf_cnn/options.h"

#include <fmt/format.h>

#include "trainyard/core/base/enum_name.h"
#include "trainyard/core/base/error.h"
#include "trainyard/models/registry/model_registry.h"

namespace trainyard::frontends {

std::string_view run_mode_name(RunMode mode) {
  return core::enum_name<RunMode::kForwardOnly>(mode,
                                                {"training", "evaluation", "training + evaluation", "forward only"});
}

namespace {

// What makes batches of another kind than the data set's images one by one.
std::string batch_recipe_flag(const InputOptions& input) {
  if (input.mix.mixup_alpha > 0) return "--mixup_alpha";
  if (input.mix.cutmix_alpha > 0) return "--cutmix_alpha";
  if (input.repeated_augmentation > 1) return "--repeated_augmentation";
  return input.epoch_sizes.empty() ? "" : "--progressive_sizes";
}

// An evaluation takes the images one by one whatever these say, so that the flags of a training serve it.
void check_training_alone(const TfCnnOptions& options) {
  if (options.mode == RunMode::kEvaluation) return;
  const auto refuse = [](bool holds, const std::string& flag, const char* why, const char* remedy) {
    if (!holds || flag.empty()) return;
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = flag + " cannot be used", .actual = why, .remedy = remedy});
  };
  const std::string flag = batch_recipe_flag(options.input);
  const std::string teacher = options.distillation.from.empty() ? "" : "--distill_from";
  const bool forward_only = options.mode == RunMode::kForwardOnly;
  for (const std::string& each : {flag, teacher}) {
    refuse(forward_only, each, "forward passes take the images one by one, and nothing learns from them",
           "leave out --forward_only or this");
  }
  refuse(options.input.data_dir.empty(), flag, "synthetic images are always the same", "pass --data_dir");
  const bool profiles = !options.display.tfprof_file.empty();
  refuse(profiles && options.input.epoch_sizes.size() > 1, "--tfprof_file",
         "it counts the work of images of one size, and --progressive_sizes has several",
         "leave one of them out: trainyard bench layers --image_size=N profiles each size");
}

void check_last_size(const TfCnnOptions& options) {
  if (options.input.epoch_sizes.empty() || options.image_size == nn::Size2d(0)) return;
  const data::ImageSize last = options.input.epoch_sizes.back().size;
  if (options.image_size == nn::Size2d(last.height, last.width)) return;
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = "--image_size is not the last one of --progressive_sizes",
                     .expected = fmt::format("{}x{}", last.height, last.width),
                     .actual = fmt::format("{}x{}", options.image_size.height, options.image_size.width),
                     .remedy = "leave --image_size out: evaluations take the last size"});
}

void check_precision(const TfCnnOptions& options) {
  const auto refuse = [](bool holds, const char* problem, const char* remedy) {
    if (holds) throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = problem, .remedy = remedy});
  };
  const Precision precision = options.precision;
  refuse(precision != Precision::kAuto && options.mode != RunMode::kEvaluation,
         "--precision is of evaluations and predictions",
         "pass it to `trainyard eval`; a training has --use_bf16, frozen forward passes have --trt_mode");
  refuse(precision != Precision::kAuto && options.device.use_fp16, "--precision and --use_fp16 exclude each other",
         "leave one of them out");
  refuse(precision == Precision::kFloat32 && options.device.use_bf16,
         "--precision=float32 and --use_bf16 exclude each other", "leave one of them out");
  refuse(options.calibration_batches && options.trt_mode != "INT8" && precision != Precision::kInt8 && !options.qat,
         "--calibration_batches is of --trt_mode=INT8, of --precision=int8 and of --qat", "pass one of them, too");
}

void check_evaluations(const TfCnnOptions& options) {
  const auto refuse = [](bool holds, const char* problem, const char* remedy) {
    if (holds) throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = problem, .remedy = remedy});
  };
  const bool evaluates = options.mode == RunMode::kEvaluation || options.mode == RunMode::kTrainingAndEvaluation;
  // Whether evaluate_each_epoch evaluates is known once the data are open: read_early_stop() checks it then.
  refuse(options.tta != train::TestTimeAugmentation::kNone && !evaluates && !options.evaluate_each_epoch,
         "--tta is for evaluations, and this run has none",
         "pass it to `trainyard eval`, or with --eval_during_training_every_n_epochs");
  refuse(options.eval_exact.value_or(false) && options.gives_eval_length(),
         "--eval_exact sees every image once, and --num_eval_batches or --num_eval_epochs gives another length",
         "pass one of them");
  refuse(options.explains_on_request() && options.mode == RunMode::kForwardOnly,
         "--top_k, --calibration_bins and --most_wrong are of evaluations, and forward passes compare no labels",
         "leave them out");
  refuse(options.early_stop_metric == "none", "--early_stop_metric=none compares nothing",
         "name a number, or leave it out");
  refuse(!options.early_stop && !options.fine_tune &&
             (options.early_stop_min_delta != 0 || !options.early_stop_metric.empty()),
         "--early_stop_min_delta and --early_stop_metric are of --early_stop, which is not set", "pass --early_stop=N");
}

void check_quantization_aware(const TfCnnOptions& options) {
  if (!options.qat) return;
  const auto refuse = [](bool holds, const char* problem, const char* remedy) {
    if (!holds) return;
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = problem, .where = "--qat", .remedy = remedy});
  };
  const bool trains = options.mode == RunMode::kTraining || options.mode == RunMode::kTrainingAndEvaluation;
  refuse(options.dialect == Dialect::kTfCnnBenchmarks, "--qat is a flag of trainyard train", "use `trainyard train`");
  refuse(!trains, "--qat is of trainings",
         "leave it out: evaluations, predictions and exports take a checkpoint's scales by themselves");
  refuse(options.input.data_dir.empty(), "nothing is learned from synthetic images", "pass --data_dir");
  refuse(options.device.use_bf16 || options.device.use_fp16, "quantization-aware training computes in float32",
         "leave --use_bf16 and --use_fp16 out");
  refuse(options.device.executor != "auto", "quantization-aware training has an executor of its own",
         "leave --executor out");
  refuse(options.device.sync_batch_norm, "batch norms are constants in it", "leave --sync_batch_norm out");
  refuse(options.average.recalibrate_batch_norm.value_or(0) > 0, "batch norms are constants in it",
         "leave --recalibrate_batch_norm out");
}

}  // namespace

void TfCnnOptions::validate() const {
  const auto require = [](bool good, const char* problem, const std::string& expected, int64_t actual) {
    if (good) return;
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = problem, .expected = expected, .actual = std::to_string(actual)});
  };
  require(device.replicas >= 1, "replicas is out of range", "at least 1", device.replicas);
  require(micro_steps >= 1, "micro_steps is out of range", "at least 1", micro_steps);
  require(batch_size >= 0 || batch_size == kLargestBatch, "batch_size is out of range", "0 or more, or kLargestBatch",
          batch_size);
  require(batch_memory_bytes.value_or(1) > 0, "batch_memory_bytes is out of range", "at least 1",
          batch_memory_bytes.value_or(1));
  const auto refuse = [](bool holds, const char* problem, const char* remedy) {
    if (holds) throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = problem, .remedy = remedy});
  };
  refuse(batch_memory_bytes && batch_size != kLargestBatch,
         "--batch_size_memory_mib is of --batch_size=auto: pass both, or neither", "");
  refuse(batch_size == kLargestBatch && device.many_processes() && !batch_memory_bytes,
         "--batch_size=auto does not know how much memory each of several processes may take",
         "pass --batch_size_memory_mib, of one process");
  refuse(display.ml_perf_compliance_logging && model != "resnet50_v1.5" && model != "ssd300",
         "--ml_perf_compliance_logging is only compatible when --model is one of the following: resnet50_v1.5, ssd300",
         "");
  refuse(display.ml_perf_compliance_logging && !plot_schedule.empty(),
         "--ml_perf_compliance_logging tells of a run, and --plot_schedule runs nothing", "leave one of them out");
  require(eval_batch_size >= 0, "eval_batch_size is out of range", "0 or more", eval_batch_size);
  require(display.display_every >= 1, "display_every is out of range", "at least 1", display.display_every);
  if (mode == RunMode::kEvaluation && weights.empty() == saving.train_dir.empty()) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "an evaluation needs to know what it evaluates",
                                                          .expected = "either saving.train_dir or weights",
                                                          .actual = weights.empty() ? "none of them" : "both"});
  }
  refuse(range_test && mode != RunMode::kTraining, "a range test of learning rates trains, and nothing else",
         "leave out --eval, --forward_only and evaluations");
  refuse(range_test && !plot_schedule.empty(),
         "--plot_schedule draws the schedule of a training, which find-lr replaces", "leave it out");
  refuse(range_test && !freeze.epochs.empty(), "a range test of learning rates trains the same parameters in all steps",
         "leave out --freeze_until and --freeze_after, or name the parameters by --freeze");
  refuse(range_test && fine_tune, "--finetune chooses a learning rate, which find-lr looks for", "leave it out");
  if (range_test) range_test->rates.validate();
  check_training_alone(*this);
  check_last_size(*this);
  for (const int64_t k : top_k) require(k >= 1, "a k of --top_k is out of range", "at least 1", k);
  check_evaluations(*this);
  if (!trt_mode.empty()) {
    const bool frozen = mode == RunMode::kForwardOnly && freeze_when_forward_only;
    const bool known = trt_mode == "FP32" || trt_mode == "FP16" || trt_mode == "INT8";
    if (!frozen || !known) {
      throw core::Error(core::ErrorCode::kInvalidArgument,
                        {.problem = "trt_mode cannot be used",
                         .expected = "FP32, FP16 or INT8, with mode kForwardOnly and freeze_when_forward_only",
                         .actual = fmt::format("{} in mode {}", trt_mode, run_mode_name(mode))});
    }
    if (trt_mode == "FP32" && (device.use_bf16 || device.use_fp16)) {
      throw core::Error(
          core::ErrorCode::kInvalidArgument,
          {.problem = "--trt_mode=FP32 excludes --use_fp16 and --use_bf16", .remedy = "leave one of them out"});
    }
  }
  refuse(trt_mode == "INT8" && device.many_processes(),
         "--trt_mode=INT8 is for one process: each would find scales of its own", "run it by itself");
  check_precision(*this);
  check_quantization_aware(*this);
  if (describe_input && (mode == RunMode::kEvaluation || mode == RunMode::kForwardOnly)) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "only the input of a training is described",
                                                          .where = "describe_input",
                                                          .actual = fmt::format("mode {}", run_mode_name(mode))});
  }
  if (!plot_schedule.empty() && (mode == RunMode::kEvaluation || mode == RunMode::kForwardOnly)) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "only a training has a schedule to draw",
                                                          .where = "plot_schedule",
                                                          .actual = fmt::format("mode {}", run_mode_name(mode))});
  }
  const bool pauses = steps.eval_every_n_steps.value_or(0) != 0 || steps.eval_every_n_epochs.value_or(0) != 0 ||
                      !steps.eval_at_steps.empty() || !steps.eval_at_epochs.empty();
  if (pauses != (mode == RunMode::kTrainingAndEvaluation)) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "the mode does not fit the steps that are evaluated",
                       .expected = pauses ? "mode kTrainingAndEvaluation" : "another mode, or steps.eval_*",
                       .actual = fmt::format("mode {}", run_mode_name(mode))});
  }
}

}  // namespace trainyard::frontends
