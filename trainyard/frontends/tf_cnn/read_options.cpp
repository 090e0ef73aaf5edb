#include "trainyard/frontends/tf_cnn/read_options.h"

#include <utility>

#include "trainyard/core/base/error.h"
#include "trainyard/core/flags/flag_value.h"
#include "trainyard/core/flags/option_flags.h"
#include "trainyard/frontends/options/device_options.h"
#include "trainyard/frontends/options/input_options.h"
#include "trainyard/frontends/options/learning_rate_options.h"
#include "trainyard/frontends/options/thread_options.h"
#include "trainyard/frontends/tf_cnn/fine_tuning_flags.h"
#include "trainyard/frontends/tf_cnn/flag_validation.h"
#include "trainyard/frontends/tf_cnn/run_flags.h"
#include "trainyard/frontends/tf_cnn/run_state.h"
#include "trainyard/frontends/tf_cnn/trainer_flags.h"
#include "trainyard/models/flags.h"

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
  if (tf && device.cluster.job_name.empty()) device.cluster = ClusterOptions();
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

// `given`: without what --finetune has set.
FlagRecord record_of(const core::FlagValues& values, const core::FlagValues& given) {
  FlagRecord record;
  for (const core::FlagSpec& flag : values.table().all()) {
    record.all.emplace_back(flag.name, values.value(flag.name));
    if (!given.given(flag.name)) continue;
    record.given.emplace_back(flag.name, core::format_flag_value(given.value(flag.name)));
    if (given.source(flag.name) == core::FlagSource::kCommandLine) record.command.push_back(record.given.back());
  }
  return record;
}

}  // namespace

train::StepPlanOptions read_step_options(const core::FlagValues& values) {
  TfCnnOptions options;
  read_run_flags(values, options);
  return options.steps;
}

TfCnnOptions read_options(const core::FlagValues& given, Dialect dialect) {
  const core::FlagValues values = with_fine_tuning(given, dialect);
  if (dialect == Dialect::kTrainyard) require_what_is_evaluated(values);
  CheckedFlags checked = validate_flags(values, dialect);
  if (dialect == Dialect::kTrainyard) require_what_a_trainer_needs(values);
  TfCnnOptions options;
  options.warnings = core::flag_warnings(values);
  options.dialect = dialect;
  read_run_flags(values, options);
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
  options.backbone_model_path = values.optional_text("backbone_model_path").value_or("");
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
  options.describe_input = values.boolean("describe_input");
  for (std::string& warning : learning_rate_warnings(values)) options.warnings.push_back(std::move(warning));
  options.update = read_update_options(values);
  options.loss = core::flags_of<loss_flags>().read(values);
  options.average = core::flags_of<average_flags>().read(values);
  options.distillation = core::flags_of<teacher_flags>().read(values);
  options.saving = core::flags_of<saving_flags>().read(values);
  static_cast<void>(read_best_by(options.saving.keep_best));  // refuses a name that there is not, in all modes
  options.display = read_display_options(values);
  options.fine_tune = read_fine_tuning(given, values);
  options.flags = record_of(values, given);
  if (dialect == Dialect::kTrainyard) set_trainer_defaults(values, options);
  return options;
}

}  // namespace trainyard::frontends
