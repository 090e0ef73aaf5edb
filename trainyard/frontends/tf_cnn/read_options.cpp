#include "trainyard/frontends/tf_cnn/read_options.h"

#include <utility>

#include "trainyard/core/base/error.h"
#include "trainyard/core/flags/flag_value.h"
#include "trainyard/frontends/options/device_flags.h"
#include "trainyard/frontends/options/input_options.h"
#include "trainyard/frontends/options/learning_rate_options.h"
#include "trainyard/frontends/options/number_list.h"
#include "trainyard/frontends/options/thread_options.h"
#include "trainyard/frontends/tf_cnn/flag_validation.h"
#include "trainyard/frontends/tf_cnn/run_state.h"
#include "trainyard/frontends/tf_cnn/trainer_flags.h"
#include "trainyard/models/flags.h"
#include "trainyard/train/flags.h"

namespace trainyard::frontends {
namespace {

RunMode mode_of(const core::FlagValues& values, const train::StepPlanOptions& steps) {
  if (values.boolean("eval")) return RunMode::kEvaluation;
  if (values.boolean("forward_only")) return RunMode::kForwardOnly;
  const bool evaluates = steps.eval_every_n_steps.value_or(0) != 0 || steps.eval_every_n_epochs.value_or(0) != 0 ||
                         !steps.eval_at_steps.empty() || !steps.eval_at_epochs.empty();
  return evaluates ? RunMode::kTrainingAndEvaluation : RunMode::kTraining;
}

// Leaves out what another flag has switched off. "If use_fp16=False, no other fp16 parameters apply", says
// tf_cnn_benchmarks, and what it is told of GPUs it reads on GPUs alone. Flags of ours, and all of them in `trainyard
// train`, need that other flag on the command line: a loss scale or a GPU that is asked for is not left out in silence.
void pass_over_idle_flags(const core::FlagValues& values, Dialect dialect, DeviceOptions& device) {
  const bool tf = dialect == Dialect::kTfCnnBenchmarks;
  device.passes_over_gpu_flags = tf || device.gpu == false;
  const bool switched_off = values.given("use_fp16");
  if (device.use_fp16 || !(tf || switched_off)) return;
  device.fp16_vars = device.fp16_vars && device.use_bf16;
  device.fp16_loss_scale.reset();
  device.fp16_automatic_loss_scale = false;
  device.fp16_raise_loss_scale_after.reset();
  if (!switched_off) return;
  device.loss_scale_rule = DeviceOptions().loss_scale_rule;
  device.loss_scale_raise_factor.reset();
  device.loss_scale_lower_factor.reset();
  device.loss_scale_lower_after.reset();
  device.loss_scale_most_skips.reset();
}

FlagRecord record_of(const core::FlagValues& values) {
  FlagRecord record;
  for (const core::FlagSpec& flag : values.table().all()) {
    record.all.emplace_back(flag.name, values.value(flag.name));
    if (!values.given(flag.name)) continue;
    record.given.emplace_back(flag.name, core::format_flag_value(values.value(flag.name)));
    if (values.source(flag.name) == core::FlagSource::kCommandLine) record.command.push_back(record.given.back());
  }
  return record;
}

}  // namespace

train::StepPlanOptions read_step_options(const core::FlagValues& values) {
  train::StepPlanOptions options;
  options.num_batches = values.optional_integer("num_batches");
  options.num_epochs = values.optional_real("num_epochs");
  options.num_eval_batches = values.optional_integer("num_eval_batches");
  options.num_eval_epochs = values.optional_real("num_eval_epochs");
  options.num_warmup_batches = values.optional_integer("num_warmup_batches");
  options.autotune_threshold = values.optional_integer("autotune_threshold");
  options.batch_group_size = values.integer("batch_group_size");
  options.eval_every_n_steps = values.optional_integer("eval_during_training_every_n_steps");
  options.eval_every_n_epochs = values.optional_real("eval_during_training_every_n_epochs");
  options.eval_at_steps =
      read_numbers<int64_t>(values, "eval_during_training_at_specified_steps", core::FlagKind::kInteger, "integers");
  options.eval_at_epochs =
      read_numbers<double>(values, "eval_during_training_at_specified_epochs", core::FlagKind::kReal, "floats");
  return options;
}

TfCnnOptions read_options(const core::FlagValues& values, Dialect dialect) {
  if (dialect == Dialect::kTrainyard) require_what_is_evaluated(values);
  CheckedFlags checked = validate_flags(values, dialect);
  if (dialect == Dialect::kTrainyard) require_what_a_trainer_needs(values);
  TfCnnOptions options;
  options.warnings = core::check_dispositions(values);
  options.dialect = dialect;
  options.steps = std::move(checked.steps);
  options.mode = mode_of(values, options.steps);
  // `trainyard train` and `eval` leave it to the checkpoint, or the file of weights, where it is not given.
  const bool says_model = dialect == Dialect::kTfCnnBenchmarks || values.given("model");
  options.model = says_model ? values.text("model") : "";
  options.num_classes = values.optional_integer("num_classes");
  options.image_size = models::read_image_size(values);
  options.auxiliary_heads = values.boolean("auxiliary_heads");
  options.stochastic_depth = values.optional_real("stochastic_depth");
  options.dropout = values.optional_real("dropout");
  options.batch_norm_decay = values.optional_real("batch_norm_decay");
  options.weights = values.text("weights");
  options.batch_size = values.is_word("batch_size") ? kLargestBatch : values.integer("batch_size");
  if (const auto mebibytes = values.optional_integer("batch_size_memory_mib")) {
    options.batch_memory_bytes = *mebibytes << 20;
  }
  options.eval_batch_size = values.integer("eval_batch_size");
  options.micro_steps = static_cast<int>(values.integer("micro_steps"));
  options.data_format = values.text("data_format");
  options.input = read_input_options(values);
  options.input.images.turns_by_exif = dialect == Dialect::kTrainyard;
  // There the official models scale to 256 pixels for every model.
  options.input.images.fixed_eval_size = dialect == Dialect::kTfCnnBenchmarks && !values.given("image_size") &&
                                         options.input.images.input_preprocessor == "official_models_imagenet";
  options.device = read_device_options(values);
  pass_over_idle_flags(values, dialect, options.device);
  options.threads = read_thread_options(values);
  options.learning_rate = read_learning_rate(values);
  options.learning_rate.piecewise = std::move(checked.piecewise);
  options.plot_schedule = values.text("plot_schedule");
  for (std::string& warning : learning_rate_warnings(values)) options.warnings.push_back(std::move(warning));
  options.update = read_update_options(values);
  options.loss = read_loss_options(values);
  options.average = read_average_options(values);
  options.distillation = read_teacher_options(values);
  options.saving = read_saving_options(values);
  static_cast<void>(read_best_by(options.saving.keep_best));  // refuses a name that there is not, in all modes
  options.display = read_display_options(values);
  if (values.given("eval_exact")) options.eval_exact = values.boolean("eval_exact");
  options.eval_interval_secs = values.integer("eval_interval_secs");
  // The default is where tf_cnn_benchmarks puts them; `trainyard eval` writes no summaries where none are asked for,
  // nor where a file of all flags repeats that default.
  const bool asks = values.source("eval_dir") == core::FlagSource::kCommandLine || values.changed("eval_dir");
  if (dialect == Dialect::kTfCnnBenchmarks || asks) options.eval_dir = values.text("eval_dir");
  options.stop_at_top_1_accuracy = values.optional_real("stop_at_top_1_accuracy");
  options.early_stop = values.optional_integer("early_stop");
  options.freeze = values.list("freeze");
  options.freeze_when_forward_only = values.boolean("freeze_when_forward_only");
  options.trt_mode = values.text("trt_mode");
  options.trt_max_workspace_size_bytes = values.integer("trt_max_workspace_size_bytes");
  options.flags = record_of(values);
  if (dialect == Dialect::kTrainyard) set_trainer_defaults(values, options);
  return options;
}

}  // namespace trainyard::frontends
