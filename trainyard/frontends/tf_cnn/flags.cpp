#include "trainyard/frontends/tf_cnn/flags.h"

#include <array>
#include <utility>

#include "trainyard/core/flags/core_flags.h"
#include "trainyard/core/flags/option_flags.h"
#include "trainyard/frontends/options/average_options.h"
#include "trainyard/frontends/options/device_options.h"
#include "trainyard/frontends/options/display_options.h"
#include "trainyard/frontends/options/input_options.h"
#include "trainyard/frontends/options/learning_rate_options.h"
#include "trainyard/frontends/options/loss_options.h"
#include "trainyard/frontends/options/saving_options.h"
#include "trainyard/frontends/options/teacher_options.h"
#include "trainyard/frontends/options/thread_options.h"
#include "trainyard/frontends/options/update_options.h"
#include "trainyard/frontends/tf_cnn/run_flags.h"
#include "trainyard/models/flags.h"
#include "trainyard/optim/flags.h"

namespace trainyard::frontends {
namespace {

struct Default {
  const char* flag;
  const char* value;
};

// What `trainyard train` and `trainyard eval` do otherwise than tf_cnn_benchmarks unless a flag says so.
constexpr std::array<Default, 5> kTrainyardDefaults = {{
    {"eval_exact", "true"},
    {"existing_run", "ask"},
    {"keep_best", "top_1"},
    {"on_nan", "stop"},
    {"summary_verbosity", "1"},
}};

// The same where the default is a rule.
constexpr std::array<Default, 9> kTrainyardRules = {{
    {"eval_dir", "none: an evaluation writes no events"},
    {"eval_during_training_every_n_epochs", "1, where there are validation images"},
    {"input_preprocessor", "that of the checkpoint or of --weights, else default"},
    {"model", "that of the checkpoint or of --weights; a training from nothing must name one"},
    {"num_warmup_batches", "0; with forward_only max(10, 5 autotune_threshold^2)"},
    {"save_model_secs", "600, and at the end of each epoch"},
    {"save_summaries_steps", "the steps that are displayed"},
    {"train_dir", "runs/MODEL-N of a training; empty: nothing is saved"},
    {"weights_of", "those that the training of the checkpoint evaluated, else average"},
}};

// What other programs call flags of ours.
constexpr std::array<std::pair<const char*, const char*>, 66> kOtherNames = {{
    {"lr", "init_learning_rate"},
    {"lr0", "init_learning_rate"},
    {"rate", "init_learning_rate"},
    {"learning_rate", "init_learning_rate"},
    {"base_lr", "init_learning_rate"},
    {"lr_schedule", "learning_rate_schedule"},
    {"lr_scheduler", "learning_rate_schedule"},
    {"scheduler", "learning_rate_schedule"},
    {"schedule", "learning_rate_schedule"},
    {"warmup", "num_learning_rate_warmup_epochs"},
    {"warmup_epochs", "num_learning_rate_warmup_epochs"},
    {"lr_warmup_epochs", "num_learning_rate_warmup_epochs"},
    {"epoch", "num_epochs"},
    {"epochs", "num_epochs"},
    {"max_epochs", "num_epochs"},
    {"n_epochs", "num_epochs"},
    {"steps", "num_batches"},
    {"num_steps", "num_batches"},
    {"max_steps", "num_batches"},
    {"train_steps", "num_batches"},
    {"iterations", "num_batches"},
    {"iters", "num_batches"},
    {"batch", "batch_size"},
    {"batchsize", "batch_size"},
    {"bs", "batch_size"},
    {"train_batch_size", "batch_size"},
    {"val_batch_size", "eval_batch_size"},
    {"data", "data_dir"},
    {"data_path", "data_dir"},
    {"dataset", "data_dir"},
    {"dataset_dir", "data_dir"},
    {"images", "data_dir"},
    {"image_dir", "data_dir"},
    {"input", "data_dir"},
    {"input_dir", "data_dir"},
    {"root", "data_dir"},
    {"output", "train_dir"},
    {"output_dir", "train_dir"},
    {"out", "train_dir"},
    {"out_dir", "train_dir"},
    {"save_dir", "train_dir"},
    {"model_dir", "train_dir"},
    {"log_dir", "train_dir"},
    {"logdir", "train_dir"},
    {"run_dir", "train_dir"},
    {"resume", "train_dir"},
    {"checkpoint", "train_dir"},
    {"checkpoint_dir", "train_dir"},
    {"ckpt", "train_dir"},
    {"arch", "model"},
    {"network", "model"},
    {"net", "model"},
    {"backbone", "model"},
    {"pretrained", "weights"},
    {"pretrained_weights", "weights"},
    {"opt", "optimizer"},
    {"optim", "optimizer"},
    {"wd", "weight_decay"},
    {"img_size", "image_size"},
    {"imgsz", "image_size"},
    {"resolution", "image_size"},
    {"classes", "num_classes"},
    {"seed", "tf_random_seed"},
    {"workers", "datasets_num_private_threads"},
    {"num_workers", "datasets_num_private_threads"},
    {"threads", "num_intra_threads"},
}};

core::FlagTable declare_all() {
  // In the order of --help: what every run needs first.
  core::FlagTable table;
  models::declare_flags(table);
  declare_input_flags(table);
  declare_synthetic_flag(table);
  core::flags_of<run_flags>().declare(table);
  core::flags_of<teacher_flags>().declare(table);
  core::flags_of<run_evaluation_flags>().declare(table);
  core::flags_of<line_flags>().declare(table);
  core::flags_of<saving_flags>().declare(table);
  core::flags_of<log_flags>().declare(table);
  core::flags_of<trace_flags>().declare(table);
  declare_update_flags(table);
  core::flags_of<average_flags>().declare(table);
  declare_learning_rate_flags(table);
  core::flags_of<loss_flags>().declare(table);
  declare_loss_scale_flags(table);
  optim::declare_sparsity_flags(table);
  declare_device_flags(table);
  core::flags_of<inference_flags>().declare(table);
  core::flags_of<graph_flags>().declare(table);
  declare_replica_flags(table);
  core::declare_program_flags(table);
  declare_thread_flags(table);
  declare_memory_flags(table);
  core::declare_foreign_flags(table);
  for (const auto& [wrong, right] : kOtherNames) table.suggest(wrong, right);
  return table;
}

}  // namespace

const core::FlagTable& tf_cnn_flags(Dialect dialect) {
  static const core::FlagTable tf_cnn_benchmarks = declare_all();
  static const core::FlagTable trainyard = [] {
    core::FlagTable table = declare_all();
    for (const Default& own : kTrainyardDefaults) table.set_default(own.flag, own.value);
    for (const Default& own : kTrainyardRules) table.set_automatic(own.flag, own.value);
    optim::name_optimizers_by_library(table);
    return table;
  }();
  return dialect == Dialect::kTrainyard ? trainyard : tf_cnn_benchmarks;
}

const std::vector<std::string>& common_flags(RunMode mode) {
  static const std::vector<std::string> training = {"model",
                                                    "data_dir",
                                                    "train_dir",
                                                    "num_epochs",
                                                    "num_batches",
                                                    "batch_size",
                                                    "init_learning_rate",
                                                    "learning_rate_schedule",
                                                    "num_learning_rate_warmup_epochs",
                                                    "optimizer",
                                                    "momentum",
                                                    "weight_decay",
                                                    "label_smoothing",
                                                    "weights",
                                                    "num_classes",
                                                    "image_size",
                                                    "input_preprocessor",
                                                    "distortions",
                                                    "auto_augment",
                                                    "mixup_alpha",
                                                    "ema_decay",
                                                    "device",
                                                    "use_bf16",
                                                    "use_fp16",
                                                    "keep_best",
                                                    "existing_run",
                                                    "eval_during_training_every_n_epochs",
                                                    "config"};
  static const std::vector<std::string> evaluation = {"train_dir",
                                                      "weights",
                                                      "data_dir",
                                                      "model",
                                                      "num_classes",
                                                      "eval_batch_size",
                                                      "num_eval_batches",
                                                      "image_size",
                                                      "input_preprocessor",
                                                      "eval_resize_size",
                                                      "weights_of",
                                                      "on_unknown_class",
                                                      "on_bad_sample",
                                                      "split_class_folders",
                                                      "device",
                                                      "use_bf16",
                                                      "eval_dir",
                                                      "eval_interval_secs",
                                                      "config"};
  return mode == RunMode::kEvaluation ? evaluation : training;
}

std::string tf_cnn_flags_page() {
  return core::help_markdown(tf_cnn_flags(Dialect::kTfCnnBenchmarks),
                             {.command = "trainyard train", .table = &tf_cnn_flags(Dialect::kTrainyard)});
}

}  // namespace trainyard::frontends
