#include "trainyard/frontends/tf_cnn/schedule.h"

#include <algorithm>
#include <ostream>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/output_path.h"
#include "trainyard/frontends/tf_cnn/schedules/schedule_plot.h"

namespace trainyard::frontends {
namespace {

// The model's rate is for a batch. One that was found by the free memory does not change it.
int64_t rated_examples_per_step(const PreparedRun& run) {
  const int64_t found = run.batch_size, examples = run.examples_per_global_step();
  if (run.options.batch_size != kLargestBatch || found == 0) return examples;
  return examples / found * run.model->default_batch_size;
}

ScheduleFacts schedule_facts(const PreparedRun& run) {
  const std::string& reduction = run.options.update.gradient_reduction;
  const DeviceOptions& device = run.options.device;
  const bool mode_sums = device.variable_update == "replicated" || device.variable_update == "collective_all_reduce" ||
                         device.variable_update == "distributed_all_reduce" ||
                         (device.variable_update == "horovod" && device.horovod_reduce == "sum");
  const bool sums = reduction == "sum" || (reduction == "auto" && mode_sums);
  const int64_t steps_counted = run.counts_all_workers() ? run.device.ranks() : 1;
  // At their own pace, servers apply the gradients of each worker by themselves.
  const int summed = run.own_pace() ? run.replicas : run.total_replicas();
  return {.model = run.model->schedule,
          .train_examples = run.train_examples,
          .examples_per_step = run.examples_per_global_step(),
          .rated_examples_per_step = rated_examples_per_step(run),
          .steps = updates_of(run) * steps_counted,
          .summed_replicas = sums ? summed : 1};
}

// Throws where the evaluations of the run would have no batch, and so an accuracy of nothing.
void require_evaluated_images(const PreparedRun& run, const train::StepPlan& plan) {
  const bool evaluates = run.mode() == RunMode::kEvaluation || run.mode() == RunMode::kTrainingAndEvaluation;
  if (!evaluates || run.eval_exact || plan.num_eval_batches > 0) return;
  const train::StepPlanOptions& steps = run.options.steps;
  const bool own = steps.num_eval_batches || steps.num_eval_epochs;
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = "the evaluation is shorter than an image",
                     .where = fmt::format("--{}={:g}", own ? "num_eval_epochs" : "num_epochs",
                                          (own ? steps.num_eval_epochs : steps.num_epochs).value_or(0)),
                     .expected = fmt::format("at least one of {} images", run.validation_examples),
                     .remedy = "pass --num_eval_batches, or a higher --num_eval_epochs"});
}

}  // namespace

int64_t updates_of(const PreparedRun& run) {
  // The warm-up of tf_cnn_benchmarks trains too and comes in front of num_batches; ours is a part of them.
  const int64_t untimed = !run.own_dialect() ? run.plan.num_warmup_batches : 0;
  return std::max<int64_t>(untimed + run.plan.num_batches, 1);
}

double batches_per_epoch(const PreparedRun& run) {
  return static_cast<double>(run.train_examples) / static_cast<double>(run.examples_per_global_step());
}

train::StepPlan make_step_plan(const PreparedRun& run) {
  train::StepPlanOptions options = run.options.steps;
  // Each update of `trainyard train` counts, so that none has to go in front of the others.
  const bool open = !options.num_warmup_batches && !options.autotune_threshold;
  if (run.own_dialect() && open && run.mode() != RunMode::kForwardOnly) {
    options.num_warmup_batches = 0;
  }
  options.global_batch_size = run.examples_per_step();
  options.global_eval_batch_size =
      run.eval_batch_size * run.replicas * (run.shares_evaluation() ? run.device.ranks() : 1);
  options.train_examples = run.train_examples;
  options.eval_examples = run.validation_examples;
  train::StepPlan plan = train::make_step_plan(options);
  if (run.eval_exact) {
    plan.num_eval_batches =
        (options.eval_examples + options.global_eval_batch_size - 1) / options.global_eval_batch_size;
    plan.num_eval_epochs = 1;
  }
  require_evaluated_images(run, plan);
  return plan;
}

RunSchedule make_schedule(const PreparedRun& run) {
  return make_run_schedule(run.options.learning_rate, schedule_facts(run));
}

void write_schedule_plot(const PreparedRun& run, std::ostream& out) {
  const SchedulePlot plot = plot_schedule(fmt::format("{} on {}", run.model->name, run.dataset_label),
                                          make_schedule(run), schedule_facts(run));
  const SchedulePlotPaths paths = schedule_plot_paths(run.options.plot_schedule);
  if (run.device.is_chief()) {
    core::write_user_output(paths.picture, plot.svg);
    core::write_user_output(paths.numbers, plot.csv);
  }
  out << plot.lines << "Picture: " << paths.picture << "\nNumbers: " << paths.numbers << std::endl;
}

}  // namespace trainyard::frontends
