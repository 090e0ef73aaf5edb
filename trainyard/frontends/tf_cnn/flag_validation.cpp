#include "trainyard/frontends/tf_cnn/flag_validation.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/lower_case.h"
#include "trainyard/core/flags/flag_value.h"
#include "trainyard/frontends/input/dataset_choice.h"
#include "trainyard/frontends/options/flag_ranges.h"
#include "trainyard/frontends/options/learning_rate_options.h"
#include "trainyard/frontends/tf_cnn/read_options.h"
#include "trainyard/optim/flags.h"
#include "trainyard/parallel/collectives/all_reduce_spec.h"

namespace trainyard::frontends {
namespace {

using core::FlagValues;

// Python's truth of a value: set, and neither zero nor empty.
bool truthy(const FlagValues& values, std::string_view name) {
  const core::FlagValue& value = values.value(name);
  if (const auto* boolean = std::get_if<bool>(&value)) return *boolean;
  if (const auto* integer = std::get_if<int64_t>(&value)) return *integer != 0;
  if (const auto* real = std::get_if<double>(&value)) return *real != 0;
  if (const auto* text = std::get_if<std::string>(&value)) return !text->empty();
  if (const auto* list = std::get_if<std::vector<std::string>>(&value)) return !list->empty();
  return false;
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

size_t worker_count(const FlagValues& values) {
  if (!truthy(values, "job_name")) return 1;
  return core::split_list(values.text("worker_hosts")).size();
}

// A flag that says something of a training alone. An evaluation and forward_only refuse it, and an evaluation leaves it
// out of a training's file. A new one is added here and nowhere else.
struct TrainingFlag {
  std::string_view name;
  // What the refusal says behind "--name is for trainings: ". Empty: a check of its own refuses the flag, or some of
  // its values.
  std::string_view reason{};
};

constexpr std::string_view kNothingIsTrained = "eval and forward_only train nothing";
constexpr std::string_view kNoLoss = "eval and forward_only have no loss of a step";

constexpr std::array kTrainingFlags = {
    TrainingFlag{"eval_during_training_every_n_steps"},
    TrainingFlag{"eval_during_training_every_n_epochs"},
    TrainingFlag{"eval_during_training_at_specified_steps"},
    TrainingFlag{"eval_during_training_at_specified_epochs"},
    TrainingFlag{"stop_at_top_1_accuracy"},
    TrainingFlag{"stop_after_epochs", kNothingIsTrained},
    TrainingFlag{"early_stop", kNothingIsTrained},
    TrainingFlag{"early_stop_metric"},
    TrainingFlag{"early_stop_min_delta"},
    TrainingFlag{"freeze", kNothingIsTrained},
    TrainingFlag{"freeze_until", kNothingIsTrained},
    TrainingFlag{"freeze_after", kNothingIsTrained},
    TrainingFlag{"whiten_images", kNothingIsTrained},
    TrainingFlag{"finetune"},
    TrainingFlag{"existing_run"},
    TrainingFlag{"plot_schedule", "eval and forward_only have no learning rate"},
    TrainingFlag{"describe_input", "it shows the input of their evaluations, too"},
    TrainingFlag{"trackers", "eval and forward_only record no steps"},
    TrainingFlag{"class_weights", kNoLoss},
    TrainingFlag{"balanced_sampling", kNoLoss},
    TrainingFlag{"asp"},
    TrainingFlag{"mask_algo"},
    TrainingFlag{"asp_exclude"},
    TrainingFlag{"backbone_model_path", "eval and forward_only take whole models"},
    TrainingFlag{"qat"},
    TrainingFlag{"calibration_batches"},
};

void check_training_flags(const FlagValues& values) {
  if (!values.boolean("eval") && !values.boolean("forward_only")) return;
  for (const TrainingFlag& flag : kTrainingFlags) {
    if (flag.reason.empty()) continue;
    refuse_if(truthy(values, flag.name) && values.changed(flag.name),
              fmt::format("--{} is for trainings: {}", flag.name, flag.reason));
  }
}

void check_gpu_threads(const FlagValues& values) {
  const std::string mode = core::lower_case(values.text("gpu_thread_mode"));
  refuse_if(mode != "global" && mode != "gpu_private" && mode != "gpu_shared",
            fmt::format("Invalid gpu_thread_mode: {}", values.text("gpu_thread_mode")));
  refuse_if(mode == "global" && truthy(values, "per_gpu_thread_count"),
            fmt::format("Invalid per_gpu_thread_count with gpu_thread_mode=global: {}",
                        values.integer("per_gpu_thread_count")));
}

void check_compliance_logging(const FlagValues& values) {
  const std::string model = values.text("model");
  refuse_if(values.boolean("ml_perf_compliance_logging") && model != "resnet50_v1.5" && model != "ssd300",
            "--ml_perf_compliance_logging is only compatible when --model is one of the following: resnet50_v1.5, "
            "ssd300");
}

// Flags of ours that only some optimizers read.
void check_optimizer(const FlagValues& values, Dialect dialect) {
  const std::string optimizer = values.text("optimizer");
  optim::check_optimizer_flags(values, optimizer, dialect == Dialect::kTfCnnBenchmarks);
  refuse_if(optimizer == "lars" && values.boolean("decoupled_weight_decay"),
            "--decoupled_weight_decay is not for --optimizer=lars, whose weight decay is within its rate");
  refuse_if(optimizer == "torch_momentum" && values.boolean("nesterov") && values.real("momentum_dampening") != 0,
            "--nesterov needs a --momentum_dampening of 0, as in PyTorch");
  const bool schedule_free = optimizer == "schedule_free_sgd" || optimizer == "schedule_free_adamw";
  refuse_if(schedule_free && (is_set(values, "ema_decay") || is_set(values, "swa_start_epoch")),
            "--ema_decay and --swa_start_epoch are not for --optimizer=" + optimizer +
                ", which keeps the mean that is evaluated itself");
  refuse_if(schedule_free && values.integer("lookahead_steps") > 0,
            "--lookahead_steps is not for --optimizer=" + optimizer + ", whose mean takes its place");
  refuse_if(values.changed("lookahead_alpha") && values.integer("lookahead_steps") == 0,
            "--lookahead_alpha is of --lookahead_steps: pass both, or neither");
  refuse_if(is_set(values, "lookahead_final_alpha") && values.integer("lookahead_steps") == 0,
            "--lookahead_final_alpha is of --lookahead_steps: pass both, or neither");
}

void check_precision_and_horovod(const FlagValues& values) {
  const std::string mode = values.text("variable_update");
  const bool nccl = contains(values.text("all_reduce_spec"), "nccl");
  const bool half_variables = values.boolean("use_fp16") && values.boolean("fp16_vars");
  refuse_if(half_variables && contains(mode, "replicated") && nccl, "fp16 variables are not supported with NCCL");
  refuse_if(half_variables && truthy(values, "gradient_repacking"),
            "--fp16_vars cannot be used with --gradient_repacking");
  refuse_if(mode == "horovod" && values.integer("num_gpus") > 1,
            "Horovod benchmarks require num_gpus=1 on each worker");
  refuse_if(mode == "horovod" && truthy(values, "job_name"), "job_name should not be specified for Horovod.");
  if (!values.boolean("use_fp16") || !values.boolean("fp16_enable_auto_loss_scale")) return;
  refuse_if(nccl, "Automatic loss scaling is not supported with NCCL.");
  refuse_if(mode != "parameter_server" && mode != "replicated" && mode != "independent",
            fmt::format("Automatic loss scaling is not supported with variable_update={}.", mode));
  refuse_if(values.boolean("staged_vars"), "Automatic loss scaling is not supported withstaged_vars.");
}

void check_single_flags(const FlagValues& values) {
  const std::optional<std::string> debugger = values.optional_text("debugger");
  refuse_if(debugger && *debugger != "cli" && !contains(*debugger, ":"),
            "--debugger must be \"cli\" or in the form host:port");
  refuse_if(values.boolean("hierarchical_copy") && values.integer("num_gpus") <= 1,
            "--hierarchical_copy requires --num_gpus to be greater than 1");
  refuse_if(truthy(values, "save_model_secs") && truthy(values, "save_model_steps"),
            "At most one of --save_model_secs and --save_model_steps can be specified");
}

void check_sparsity(const FlagValues& values) {
  const bool asp = values.boolean("asp");
  refuse_if(values.changed("mask_algo") && !asp, "--mask_algo is of --asp: pass both, or neither");
  refuse_if(values.given("asp_exclude") && !asp, "--asp_exclude is of --asp: pass both, or neither");
  refuse_if(asp && (values.boolean("eval") || values.boolean("forward_only")),
            "--asp prunes what a training starts from; `trainyard sparsity` prunes without training");
}

void check_evaluation_during_training(const FlagValues& values, Dialect dialect) {
  int given = 0;
  for (const char* name : {"eval_during_training_every_n_steps", "eval_during_training_every_n_epochs",
                           "eval_during_training_at_specified_steps", "eval_during_training_at_specified_epochs"}) {
    given += truthy(values, name) ? 1 : 0;
  }
  refuse_if(given > 1, "At most one flag with --eval_during_training_* prefix must be specified.");
  if (given == 1) {
    refuse_if(values.boolean("eval"), "At most one of --eval and --eval_during_training_* must be specified");
    refuse_if(values.boolean("forward_only"),
              "At most one of --forward_only and --eval_during_training_* must be specified");
    refuse_if(truthy(values, "job_name"), "--eval_during_training_* is not yet supported in distributed mode.");
    refuse_if(values.boolean("staged_vars"), "--eval_during_training_* is not currently compatible with --staged_vars");
  }
  // `trainyard train` evaluates by itself, where there are validation images: trainer_defaults.h.
  const bool may_evaluate =
      dialect == Dialect::kTrainyard && !values.boolean("eval") && !values.boolean("forward_only");
  refuse_if(truthy(values, "stop_at_top_1_accuracy") && given == 0 && !may_evaluate,
            "--stop_at_top_1_accuracy is only supported with --eval_during_training_*");
  refuse_if(values.boolean("collect_eval_results_async") && values.text("model") != "ssd300",
            "--collect_eval_results_async only works with ssd300 model currently.");
}

void check_frozen_inference(const FlagValues& values) {
  if (values.boolean("forward_only") && values.boolean("freeze_when_forward_only")) {
    refuse_if(is_set(values, "train_dir"),
              "In forward_only mode, when --freeze_when_forward_only is True, --train_dir should not be specified");
    refuse_if(truthy(values, "data_dir") && !values.boolean("datasets_use_prefetch"),
              "In forward_only mode, when --freeze_when_forward_only is True and --data_dir is set, "
              "--datasets_use_prefetch should be set to True");
    refuse_if(truthy(values, "job_name"),
              "In forward_only mode, when --freeze_when_forward_only is True, --job_name should not be specified and "
              "distributed running is not supported");
  } else {
    refuse_if(truthy(values, "trt_mode"),
              "--trt_mode should not be specified if one of --forward_only and --freeze_when_forward_only is set to "
              "False");
  }
  refuse_if(values.changed("trt_max_workspace_size_bytes") && !truthy(values, "trt_mode"),
            "--trt_max_workspace_size_bytes is of --trt_mode: pass both, or neither");
}

train::StepPlanOptions check_steps(const FlagValues& values, Dialect dialect) {
  const char* const text = "At most one of --num_batches and --num_epochs may be specified.";
  refuse_if(truthy(values, "num_batches") && truthy(values, "num_epochs"), text);
  // tf_cnn_benchmarks names the flags of the training here, too.
  refuse_if(truthy(values, "num_eval_batches") && truthy(values, "num_eval_epochs"),
            dialect == Dialect::kTfCnnBenchmarks
                ? text
                : "At most one of --num_eval_batches and --num_eval_epochs may be specified.");
  return read_step_options(values);
}

void check_all_reduce_spec(const FlagValues& values, const std::string& mode) {
  const std::string spec = values.text("all_reduce_spec");
  refuse_if(mode == "distributed_all_reduce" && spec.empty(),
            "distributed_all_reduce requires a non-empty all_reduce_spec");
  // tf_cnn_benchmarks requires it, too. Here it may be left out: gradients then leave during the backward.
  refuse_if(mode == "collective_all_reduce" && spec.empty() && is_set(values, "all_reduce_spec"),
            fmt::format("collective_all_reduce requires a non-empty all_reduce_spec: {}", spec));
  if (spec.empty() || spec == parallel::kAutoAllReduceSpec) return;
  const std::vector<parallel::AllReduceRange> ranges = parallel::parse_all_reduce_spec(spec);
  refuse_if(mode == "replicated" && ranges.size() > 1, "replicated mode does not support hybrid all-reduce strategies");
  refuse_if(mode == "collective_all_reduce" && (ranges.size() > 1 || ranges[0].algorithm != "collective"),
            fmt::format("collective_all_reduce requires one single-range all_reduce_spec {}", spec));
}

// Flags that another one leaves without use. tf_cnn_benchmarks says nothing of them.
void check_idle_exchange_flags(const FlagValues& values, Dialect dialect) {
  if (dialect != Dialect::kTrainyard) return;
  check_idle_all_reduce_flags(values);
  refuse_if(truthy(values, "compact_gradient_transfer") && values.given("compact_gradient_transfer") &&
                !values.boolean("use_bf16"),
            "--compact_gradient_transfer is of --use_bf16: pass both, or neither");
  if (values.text("variable_update") != "independent") return;
  for (const char* name : {"all_reduce_spec", "hierarchical_copy", "gradient_repacking", "agg_small_grads_max_bytes"}) {
    refuse_if(truthy(values, name),
              fmt::format("--{} is for replicas that exchange gradients, not for variable_update=independent", name));
  }
}

train::StepPlanOptions check_variable_update(const FlagValues& values, Dialect dialect) {
  const std::string mode = values.text("variable_update");
  const bool has_job = truthy(values, "job_name");
  refuse_if(mode == "distributed_all_reduce" && has_job && !truthy(values, "controller_host"),
            "When variable_update==distributed_all_reduce controller_host must also be specified.");
  refuse_if(worker_count(values) > 1 && values.text("all_reduce_spec") == "nccl",
            "--all_reduce_spec=nccl is invalid in a multi-worker job");
  train::StepPlanOptions steps = check_steps(values, dialect);
  refuse_if(values.boolean("staged_vars") && mode != "parameter_server",
            "staged_vars for now is only supported with variable_update=parameter_server");
  refuse_if((mode == "replicated" || mode == "independent" || mode == "horovod") && has_job,
            fmt::format("Invalid variable_update in distributed mode: {}", mode));
  // Upstream asserts the combinations below without a text.
  const bool synchronous =
      mode == "distributed_replicated" || mode == "distributed_all_reduce" || mode == "collective_all_reduce";
  refuse_if(synchronous && !values.boolean("cross_replica_sync"),
            fmt::format("variable_update={} requires --cross_replica_sync", mode));
  if (mode == "distributed_all_reduce") {
    for (const char* name : {"eval", "forward_only", "staged_vars"}) {
      refuse_if(values.boolean(name), fmt::format("--{} is not supported with variable_update={}", name, mode));
    }
  }
  // Ours: each replica trains a model of its own.
  refuse_if(mode == "independent" && values.boolean("sync_batch_norm"),
            "--sync_batch_norm is for replicas that train together, not for variable_update=independent");
  refuse_if(mode == "independent" && values.changed("gradient_reduction"),
            "--gradient_reduction is for replicas that exchange gradients, not for variable_update=independent");
  refuse_if(mode == "distributed_replicated" && !has_job,
            fmt::format("Invalid variable_update in local mode: {}", mode));
  check_all_reduce_spec(values, mode);
  return steps;
}

// The original says the first of it when it builds the graph.
void check_backbone(const FlagValues& values) {
  if (!truthy(values, "backbone_model_path")) return;
  refuse_if(values.text("model") != "ssd300",
            fmt::format("{} does not have backbone model. --backbone_model_path is for ssd300", values.text("model")));
  refuse_if(truthy(values, "weights"),
            "Only one of --backbone_model_path and --weights can be what a training begins with");
}

// tf_cnn_benchmarks ignores the flag where the rate is given.
void check_base_rate_flag(const FlagValues& values, Dialect dialect) {
  if (dialect != Dialect::kTrainyard || !is_set(values, "resnet_base_lr")) return;
  refuse_if(is_set(values, "init_learning_rate") || truthy(values, "piecewise_learning_rate_schedule"),
            "--resnet_base_lr is of the model's own schedule: leave it out where --init_learning_rate, "
            "--piecewise_learning_rate_schedule or --finetune gives the rate");
}

void check_stop_after_epochs(const FlagValues& values, Dialect dialect) {
  refuse_if(dialect == Dialect::kTfCnnBenchmarks && is_set(values, "stop_after_epochs"),
            "--stop_after_epochs is a flag of trainyard train");
}

void check_trackers(const FlagValues& values, Dialect dialect) {
  if (!truthy(values, "trackers")) return;
  // Said here, before the run that is in train_dir makes room for the new one; make_monitors() says it of options that
  // were filled by hand.
  const bool records = truthy(values, "train_dir") && values.integer("summary_verbosity") > 0 &&
                       values.integer("save_summaries_steps") > 0;
  if (dialect == Dialect::kTfCnnBenchmarks && !records) {
    throw core::Error(
        core::ErrorCode::kInvalidArgument,
        {.problem = kNothingToTrack, .remedy = "add --train_dir, --summary_verbosity=1 and --save_summaries_steps=10"});
  }
  refuse_if(values.given("summary_verbosity") && values.integer("summary_verbosity") <= 0,
            "--trackers has nothing to write with --summary_verbosity=0");
}

// Flags of classes that training images have in different numbers.
void check_balance(const FlagValues& values) {
  for (const char* name : {"bce_target_threshold", "bce_sum"}) {
    refuse_if(values.changed(name) && values.text("loss") != "bce", fmt::format("--{} requires --loss=bce", name));
  }
  refuse_if(values.changed("class_weights") && values.boolean("balanced_sampling"),
            "--class_weights and --balanced_sampling balance the classes twice: pass one of them");
  refuse_if(values.boolean("balanced_sampling") && values.integer("repeated_augmentation") > 1,
            "--balanced_sampling repeats images as classes need it, not with --repeated_augmentation");
}

void check_existing_run(const FlagValues& values) {
  const std::string existing = values.text("existing_run");
  if (existing == "keep" || existing == "ask") return;
  refuse_if(values.boolean("eval") || values.boolean("forward_only"),
            "--existing_run=" + existing + " is for trainings: eval and forward_only use the run that is there");
  refuse_if(!truthy(values, "train_dir"), "--existing_run=" + existing + " needs --train_dir");
}

// Ours, as the flags that they look at.
void check_clipping_and_averages(const FlagValues& values) {
  const auto count_given = [&](std::initializer_list<const char*> names) {
    return std::count_if(names.begin(), names.end(), [&](const char* name) { return is_set(values, name); });
  };
  const auto clips = count_given({"clip_norm", "clip_global_norm", "adaptive_clip"});
  refuse_if(clips > 1, "At most one of --clip_norm, --clip_global_norm and --adaptive_clip can be specified");
  refuse_if(clips == 0 && values.changed("clip_rule"),
            "--clip_rule requires --clip_norm, --clip_global_norm or --adaptive_clip");
  const auto averages = count_given({"ema_decay", "swa_start_epoch"});
  refuse_if(averages > 1, "At most one of --ema_decay and --swa_start_epoch can be specified");
  refuse_if(averages == 0 && is_set(values, "average_every"),
            "--average_every requires --ema_decay or --swa_start_epoch");
  refuse_if(values.boolean("ema_warmup") && !is_set(values, "ema_decay"), "--ema_warmup requires --ema_decay");
  if (!truthy(values, "recalibrate_batch_norm")) return;
  refuse_if(values.boolean("staged_vars"),
            "--recalibrate_batch_norm is not for --staged_vars, whose checkpoints hold the statistics of a replica");
  refuse_if(truthy(values, "job_name") && !values.boolean("cross_replica_sync"),
            "--recalibrate_batch_norm is not for --nocross_replica_sync, whose workers have no last step of their own");
}

}  // namespace

CheckedFlags validate_flags(const FlagValues& values, Dialect dialect) {
  check_compliance_logging(values);
  check_gpu_threads(values);
  named_dataset(values.text("data_name"), values.text("data_dir"));
  refuse_if(values.boolean("synthetic") && truthy(values, "data_dir"),
            "--synthetic and --data_dir exclude each other: leave one of them out");
  check_learning_rate_decay(values);
  check_optimizer(values, dialect);
  check_precision_and_horovod(values);
  check_single_flags(values);
  check_evaluation_during_training(values, dialect);
  check_frozen_inference(values);
  refuse_if(values.boolean("forward_only") && values.boolean("eval"),
            "Only one of forward_only and eval parameters is true");
  CheckedFlags checked{.steps = check_variable_update(values, dialect)};
  check_idle_exchange_flags(values, dialect);
  refuse_if(values.boolean("eval") && !truthy(values, "train_dir") && !truthy(values, "weights"),
            "Trained model directory not specified");
  refuse_if(values.boolean("eval") && truthy(values, "train_dir") && truthy(values, "weights"),
            "Only one of --train_dir and --weights can be evaluated");
  check_existing_run(values);
  check_stop_after_epochs(values, dialect);
  check_training_flags(values);
  check_balance(values);
  check_trackers(values, dialect);
  check_sparsity(values);
  check_clipping_and_averages(values);
  checked.piecewise = check_schedule_flags(values);
  check_base_rate_flag(values, dialect);
  check_backbone(values);
  check_flag_ranges(values);
  return checked;
}

bool is_training_flag(std::string_view name) {
  return std::any_of(kTrainingFlags.begin(), kTrainingFlags.end(),
                     [name](const TrainingFlag& flag) { return flag.name == name; });
}

void check_idle_all_reduce_flags(const FlagValues& values) {
  refuse_if(values.changed("network_topology") && !values.boolean("hierarchical_copy"),
            "--network_topology is of --hierarchical_copy: pass both, or neither");
  refuse_if(values.changed("agg_small_grads_max_group") && !truthy(values, "agg_small_grads_max_bytes"),
            "--agg_small_grads_max_group is of --agg_small_grads_max_bytes: pass both, or neither");
}

}  // namespace trainyard::frontends
