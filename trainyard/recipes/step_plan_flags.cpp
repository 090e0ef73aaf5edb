#include "trainyard/recipes/step_plan_flags.h"

#include "trainyard/recipes/number_list.h"

namespace trainyard::recipes {

train::StepPlanOptions read_step_plan_options(const core::FlagValues& values) {
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

bool evaluates_during_training(const core::FlagValues& values) {
  return values.optional_integer("eval_during_training_every_n_steps").value_or(0) != 0 ||
         values.optional_real("eval_during_training_every_n_epochs").value_or(0) != 0 ||
         !values.list("eval_during_training_at_specified_steps").empty() ||
         !values.list("eval_during_training_at_specified_epochs").empty();
}

}  // namespace trainyard::recipes
