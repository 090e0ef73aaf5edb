#include "trainyard/recipes/tf_cnn/schedule.h"

#include "trainyard/optim/schedules/learning_rate.h"

namespace trainyard::recipes {
namespace {

// The model's own rate: scaled with the batch where it is for a batch, less where gradients are summed.
optim::LearningRate model_learning_rate(const PreparedRun& run) {
  const models::DefaultSchedule& schedule = run.model->schedule;
  double rate = schedule.learning_rate;
  if (schedule.batch_size > 0) {
    const int summed = run.options.device.variable_update == "replicated" ? run.replicas : 1;
    rate = optim::scaled_rate(run.options.learning_rate.resnet_base_lr.value_or(rate), schedule.batch_size,
                              run.examples_per_step(), summed);
  }
  return optim::by_epochs({.rate = rate,
                           .boundary_epochs = schedule.boundary_epochs,
                           .factors = schedule.factors,
                           .warmup_epochs = schedule.warmup_epochs},
                          batches_per_epoch(run));
}

}  // namespace

double batches_per_epoch(const PreparedRun& run) {
  return static_cast<double>(run.train_examples) / static_cast<double>(run.examples_per_step());
}

train::StepPlan make_step_plan(const PreparedRun& run) {
  train::StepPlanOptions options = run.options.steps;
  // Each update of `trainyard train` counts, so that none has to go in front of the others.
  const bool open = !options.num_warmup_batches && !options.autotune_threshold;
  if (run.own_dialect() && open && run.mode() != RunMode::kForwardOnly) {
    options.num_warmup_batches = 0;
  }
  options.global_batch_size = run.examples_per_step();
  options.global_eval_batch_size = run.eval_batch_size * run.replicas;
  options.train_examples = run.train_examples;
  options.eval_examples = run.validation_examples;
  train::StepPlan plan = train::make_step_plan(options);
  if (run.eval_exact) {
    plan.num_eval_batches =
        (options.eval_examples + options.global_eval_batch_size - 1) / options.global_eval_batch_size;
    plan.num_eval_epochs = 1;
  }
  return plan;
}

optim::LearningRate make_learning_rate(const PreparedRun& run) {
  const LearningRateOptions& asked = run.options.learning_rate;
  const double per_epoch = batches_per_epoch(run);
  const auto warmup_steps = static_cast<int64_t>(per_epoch * asked.warmup_epochs);
  if (asked.piecewise) {
    optim::LearningRate schedule = optim::piecewise(*asked.piecewise, per_epoch);
    return optim::with_warmup(schedule, schedule(0), warmup_steps);
  }
  if (!asked.init_learning_rate) return model_learning_rate(run);
  const double rate = *asked.init_learning_rate;
  optim::LearningRate schedule = optim::constant(rate);
  if (asked.schedule == "cosine") {
    // The warm-up of tf_cnn_benchmarks trains too and comes in front of num_batches; ours is a part of them.
    const int64_t untimed = !run.own_dialect() ? run.plan.num_warmup_batches : 0;
    schedule = optim::cosine(rate, untimed + run.plan.num_batches, warmup_steps);
  } else if (asked.num_epochs_per_decay > 0) {
    schedule = optim::exponential_staircase(rate, static_cast<int64_t>(per_epoch * asked.num_epochs_per_decay),
                                            asked.decay_factor, asked.minimum);
  }
  return optim::with_warmup(schedule, rate, warmup_steps);
}

}  // namespace trainyard::recipes
