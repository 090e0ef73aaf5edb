// Steps and learning rate of a benchmark run, from its flags and the model's defaults.
#include "trainyard/optim/learning_rate.h"
#include "trainyard/recipes/benchmark_settings.h"
#include "trainyard/recipes/step_plan_flags.h"

namespace trainyard::recipes {
namespace {

double batches_per_epoch(const BenchmarkSettings& settings) {
  return static_cast<double>(settings.train_examples) / static_cast<double>(settings.examples_per_step());
}

// The model's own rate (spec 3.5): scaled with the batch where it is for a batch, less where gradients are summed.
optim::LearningRate model_learning_rate(const core::FlagValues& values, const BenchmarkSettings& settings) {
  const models::DefaultSchedule& schedule = settings.model->schedule;
  double rate = schedule.learning_rate;
  if (schedule.batch_size > 0) {
    const int summed = values.text("variable_update") == "replicated" ? settings.replicas : 1;
    rate = optim::scaled_rate(values.optional_real("resnet_base_lr").value_or(rate), schedule.batch_size,
                              settings.examples_per_step(), summed);
  }
  return optim::by_epochs({.rate = rate,
                           .boundary_epochs = schedule.boundary_epochs,
                           .factors = schedule.factors,
                           .warmup_epochs = schedule.warmup_epochs},
                          batches_per_epoch(settings));
}

}  // namespace

train::StepPlan make_step_plan(const core::FlagValues& values, const BenchmarkSettings& settings) {
  train::StepPlanOptions options = read_step_plan_options(values);
  // Each update of `trainyard train` counts, so that none has to go in front of the others.
  const bool open = !values.given("num_warmup_batches") && !values.given("autotune_threshold");
  if (settings.dialect == Dialect::kTrainyard && open && settings.mode != BenchmarkMode::kForwardOnly) {
    options.num_warmup_batches = 0;
  }
  options.global_batch_size = settings.examples_per_step();
  options.global_eval_batch_size = settings.eval_batch_size * settings.replicas;
  options.train_examples = settings.train_examples;
  options.eval_examples = settings.validation_examples;
  train::StepPlan plan = train::make_step_plan(options);
  if (settings.eval_exact) {
    plan.num_eval_batches =
        (options.eval_examples + options.global_eval_batch_size - 1) / options.global_eval_batch_size;
    plan.num_eval_epochs = 1;
  }
  return plan;
}

optim::LearningRate make_learning_rate(const core::FlagValues& values, const BenchmarkSettings& settings) {
  const double per_epoch = batches_per_epoch(settings);
  const auto warmup_steps = static_cast<int64_t>(per_epoch * values.real("num_learning_rate_warmup_epochs"));
  const std::string piecewise = values.text("piecewise_learning_rate_schedule");
  if (!piecewise.empty()) {
    optim::LearningRate schedule = optim::parse_piecewise(piecewise, per_epoch);
    return optim::with_warmup(schedule, schedule(0), warmup_steps);
  }
  const auto initial = values.optional_real("init_learning_rate");
  if (!initial) return model_learning_rate(values, settings);
  const double rate = *initial;
  optim::LearningRate schedule = optim::constant(rate);
  if (values.text("learning_rate_schedule") == "cosine") {
    // The warm-up of tf_cnn_benchmarks trains too and comes in front of num_batches; ours is a part of them.
    const int64_t untimed = settings.dialect == Dialect::kTfCnnBenchmarks ? settings.plan.num_warmup_batches : 0;
    schedule = optim::cosine(rate, untimed + settings.plan.num_batches, warmup_steps);
  } else if (values.real("num_epochs_per_decay") > 0) {
    schedule =
        optim::exponential_staircase(rate, static_cast<int64_t>(per_epoch * values.real("num_epochs_per_decay")),
                                     values.real("learning_rate_decay_factor"), values.real("minimum_learning_rate"));
  }
  return optim::with_warmup(schedule, rate, warmup_steps);
}

}  // namespace trainyard::recipes
