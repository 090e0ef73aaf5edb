#include "trainyard/frontends/tf_cnn/run_flags.h"

#include "trainyard/core/flags/flag_value.h"
#include "trainyard/frontends/options/number_list.h"
#include "trainyard/frontends/options/precision_options.h"
#include "trainyard/train/evaluation/prediction_counts.h"

namespace trainyard::frontends {
namespace {

using core::FlagValues;
using T = TfCnnOptions;
using RunFlags = core::OptionFlags<T>;

constexpr int64_t kMost = int64_t{1} << 40;

template <typename Member>
auto of_steps(Member member) {
  return [member](T & options) -> auto& {
    return options.steps.*member;
  };
}

void add_batch_flags(RunFlags& flags) {
  flags.table()
      .integer("batch_size", 0,
               "images a device and step; 0: the model's default; auto: as many as there is memory for, which a plan "
               "of the memory tells before the first step, and on the CPU trials within a limit of the memory, but at "
               "most a 16th of an epoch; a run that continues keeps the size that was found. The model's own learning "
               "rate is then that of its default batch")
      .word("auto")
      .group(flags.group());
  flags.table()
      .integer(
          "batch_size_memory_mib", std::nullopt,
          "memory that batch_size=auto may fill; unset: three quarters of what the machine or a GPU has and control "
          "groups allow, or what is free of it where that is less")
      .bounds(1, kMost)
      .group(flags.group());
  flags.also([](const FlagValues& values, T& options) {
    options.batch_size = values.is_word("batch_size") ? kLargestBatch : values.integer("batch_size");
    if (const auto mebibytes = values.optional_integer("batch_size_memory_mib")) {
      options.batch_memory_bytes = *mebibytes << 20;
    }
  });
}

void add_step_flags(RunFlags& flags) {
  using S = train::StepPlanOptions;
  flags.add("num_batches", of_steps(&S::num_batches),
            "steps after the warm-up; unset, or 0: 100, or what num_epochs says");
  flags.add("num_epochs", of_steps(&S::num_epochs), "epochs to run, instead of num_batches");
  flags
      .add(
          "stop_after_epochs", &T::stop_after_epochs,
          "end this run, evaluated and saved, after so many epochs of the training; its length and its schedule stay "
          "those of num_epochs or num_batches, and the same command without this flag continues it. In trainyard train")
      .above(0);
  flags.add("num_warmup_batches", of_steps(&S::num_warmup_batches),
            "steps before the clock starts; they train too. Unset: max(10, 5 autotune_threshold^2)");
  flags.add("autotune_threshold", of_steps(&S::autotune_threshold), "how often kernels are tried before one is chosen")
      .translated("it sizes the warm-up, in which kernels are chosen");
  flags.also([](const FlagValues& values, T& options) {
    options.steps.batch_group_size = values.integer("batch_group_size");
  });
  flags.add("micro_steps", &T::micro_steps, "batches of each device that are averaged into one update")
      .bounds(1, 65'536);
}

// Adds the flags of evaluations during a training.
void add_evaluations_between_steps(RunFlags& flags) {
  using S = train::StepPlanOptions;
  flags
      .add("eval_during_training_every_n_steps", of_steps(&S::eval_every_n_steps),
           "evaluate every so many steps of training")
      .bounds(1);
  flags.add("eval_during_training_every_n_epochs", of_steps(&S::eval_every_n_epochs),
            "evaluate every so many epochs of training");
  flags.table()
      .list("eval_during_training_at_specified_steps", "evaluate at these steps of training")
      .group(flags.group());
  flags.table()
      .list("eval_during_training_at_specified_epochs", "evaluate at these epochs of training")
      .group(flags.group());
  flags.also([](const FlagValues& values, T& options) {
    options.steps.eval_at_steps =
        read_numbers<int64_t>(values, "eval_during_training_at_specified_steps", core::FlagKind::kInteger, "integers");
    options.steps.eval_at_epochs =
        read_numbers<double>(values, "eval_during_training_at_specified_epochs", core::FlagKind::kReal, "floats");
  });
  flags.add("stop_at_top_1_accuracy", &T::stop_at_top_1_accuracy,
            "stop once an evaluation during training reaches this; 0: never");
  flags
      .add("early_stop", &T::early_stop,
           "stop after so many evaluations in a row without a new best value of what keep_best names, top_1 with none; "
           "what was counted is saved, and a run that has stopped so stays stopped")
      .bounds(1, kMost);
  flags
      .add("early_stop_min_delta", &T::early_stop_min_delta,
           "with early_stop: a value that is better by no more than this does not count as better")
      .bounds(0.0, 1e9);
  flags.add("early_stop_metric", &T::early_stop_metric,
            "with early_stop: the number that is compared, by a name of keep_best; empty: what keep_best names");
}

// Adds the flags of what an evaluation tells in addition to top-1 and top-5 accuracy.
void add_evaluation_details(RunFlags& flags) {
  using Views = train::TestTimeAugmentation;
  flags.table().list("top_k", "further top-k accuracies that evaluations count: 1,5,10").group(flags.group());
  flags.also([](const FlagValues& values, T& options) {
    options.top_k = read_numbers<int64_t>(values, "top_k", core::FlagKind::kInteger, "integers");
  });
  flags
      .add("calibration_bins", &T::calibration_bins,
           "bins of equal width that predictions are sorted into by their confidence, for the expected calibration "
           "error; unset: 15")
      .bounds(1, train::PredictionCountsOptions::kMostBins);
  flags
      .add("most_wrong", &T::most_wrong,
           "images that evaluations list because they were classified wrongly with the highest confidence; unset: 16")
      .bounds(0, train::PredictionCountsOptions::kMostWrong);
  const std::vector<std::pair<std::string, Views>> views{{"none", Views::kNone},
                                                         {"flip", Views::kFlip},
                                                         {"five_crops", Views::kFiveCrops},
                                                         {"flip_five_crops", Views::kFlipFiveCrops},
                                                         {"flip_shift", Views::kFlipShift}};
  flags.choice(
      "tta", &T::tta, views,
      "in eval, and once more at the end of a training with evaluations: test-time augmentation, the mean of the "
      "probabilities of several views of each image: also mirrored left to right, the corners and the centre of "
      "what is cut to the model's size, or both; flip_shift: the weighted mean of the logits of the image moved "
      "by one pixel and not, each also mirrored");
}

}  // namespace

RunFlags run_flags() {
  RunFlags flags("Run");
  flags.table().boolean("eval", false, "evaluate the checkpoint in train_dir instead of training").group(flags.group());
  flags.table().boolean("forward_only", false, "run the model forward only: speed of inference").group(flags.group());
  add_batch_flags(flags);
  add_step_flags(flags);
  flags.table()
      .choice(
          "on_nan", "ignore", {"stop", "skip", "ignore"},
          "when the loss or a gradient is not finite. stop: end the run, naming the step and the first layer, and save "
          "nothing; skip: leave parameters and statistics as they were, a hundred such steps in a row end the run; "
          "ignore: go on with one warning")
      .group(flags.group());
  flags.table()
      .integer("recalibrate_batch_norm", std::nullopt,
               "at the end, set batch norm statistics to the means of this many batches of training data; unset: 200 "
               "with swa_start_epoch, at most an epoch, otherwise 0, which leaves them as they are")
      .bounds(0, kMost)
      .group(flags.group());
  flags.table()
      .boolean(
          "finetune", false,
          "train a model of --weights further on other images, with settings for that: rate and schedule, length "
          "and batch by the number of images, the last layer new and at first alone, bfloat16 where the CPU has "
          "it, an early stop. Any flag that is given counts instead; the header shows what was chosen. In trainyard "
          "train")
      .group(flags.group());
  flags.add(
      "qat", &T::qat,
      "quantization-aware training: go on with the weights of --weights, for a few epochs at a small rate, as the "
      "network computes in 8-bit integers; the checkpoints hold the scales, which the first calibration_batches "
      "of training images give. In trainyard train, on the CPU");
  declare_freeze_flags(flags.table(), flags.group());
  flags.also([](const FlagValues& values, T& options) { options.freeze = read_freeze_options(values); });
  flags
      .add("whiten_images", &T::whiten_images,
           "begin with a first convolution that whitens patches of this many training images, as they are without "
           "augmentation (the first ones of the data set), and freeze its weight: for models with two filters for each "
           "number of a patch, airbench94 and airbench96, whose authors take 5000. A run that continues has its "
           "checkpoint's. 0: the convolution begins as the others, and trains. On the CPU")
      .bounds(0, kMost);
  flags.table()
      .integer("tf_random_seed", 1234, "seed of everything random: weights, order of records, augmentation, dropout")
      .group(flags.group());
  return flags;
}

RunFlags run_evaluation_flags() {
  using S = train::StepPlanOptions;
  RunFlags flags("Evaluation");
  flags.add("eval_batch_size", &T::eval_batch_size, "images a device and step in evaluation; 0: batch_size");
  flags.add("num_eval_batches", of_steps(&S::num_eval_batches),
            "batches of an evaluation, wrapping around the data; unset: num_eval_epochs, else as in training");
  flags.add("num_eval_epochs", of_steps(&S::num_eval_epochs), "epochs of an evaluation, instead of num_eval_batches");
  flags.given(&T::eval_exact,
              flags.table().boolean("eval_exact", false, "see every validation sample once, the last batch shorter"));
  flags.add("eval_interval_secs", &T::eval_interval_secs,
            "with eval: evaluate the newest checkpoint every so many seconds; 0: once");
  add_evaluations_between_steps(flags);
  add_evaluation_details(flags);
  declare_weights_of_flag(flags.table(), flags.group());
  declare_precision_flag(flags.table(), flags.group());
  flags.also([](const FlagValues& values, T& options) { options.precision = read_precision(values); });
  flags.add(
      "collect_eval_results_async", &T::collect_eval_results_async,
      "with ssd300 and evaluations during the training: compute COCO's numbers on a thread of their own while the "
      "training continues");
  flags.table()
      .text("eval_dir", "/tmp/tf_cnn_benchmarks/eval", "where --eval writes its TensorBoard events; empty: nowhere")
      .group(flags.group());
  flags.also([](const FlagValues& values, T& options) {
    // The default is where tf_cnn_benchmarks puts them; `trainyard eval` writes no summaries where none are asked for,
    // nor where a file of all flags repeats that default.
    const bool asks = values.source("eval_dir") == core::FlagSource::kCommandLine || values.changed("eval_dir");
    // An empty name would be that of the working directory.
    if (values.text("eval_dir").empty()) return;
    if (options.dialect == Dialect::kTfCnnBenchmarks || asks) options.eval_dir = values.text("eval_dir");
  });
  return flags;
}

RunFlags inference_flags() {
  RunFlags flags("Frozen inference");
  flags.add("freeze_when_forward_only", &T::freeze_when_forward_only,
            "with forward_only: variables are constants, and batch norms are folded into the convolutions before them");
  flags.choice("trt_mode", &T::trt_mode, {"", "FP32", "FP16", "INT8"},
               "with freeze_when_forward_only: precision of the frozen graph; FP16 is bfloat16 on a CPU, which has to "
               "have AVX512_BF16; INT8, on a CPU, finds the scales of 8-bit integers with the first "
               "calibration_batches of its input");
  flags.add("trt_max_workspace_size_bytes", &T::trt_max_workspace_size_bytes,
            "with trt_mode: the most memory that activations and the kernels' scratch may take on a device");
  declare_calibration_batches_flag(flags.table(), flags.group(),
                                   "with trt_mode=INT8: batches of the input that the scales of activations follow "
                                   "from (of weights that are not trained, by default some 64 images); with "
                                   "precision=int8 and with qat: batches of 32 training images, drawn at random");
  flags.also(
      [](const FlagValues& values, T& options) { options.calibration_batches = read_calibration_batches(values); });
  return flags;
}

void read_run_flags(const FlagValues& values, TfCnnOptions& options) {
  for (const RunFlags* flags :
       {&core::flags_of<run_flags>(), &core::flags_of<run_evaluation_flags>(), &core::flags_of<inference_flags>()})
    flags->read(values, options);
}

}  // namespace trainyard::frontends
