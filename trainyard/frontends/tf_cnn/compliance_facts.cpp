#include "trainyard/frontends/tf_cnn/compliance_facts.h"

#include "trainyard/frontends/tf_cnn/schedule.h"

namespace trainyard::frontends {
namespace {

// tf_cnn_benchmarks counts from the end of the first epoch.
std::optional<double> evaluation_offset(const train::StepPlanOptions& steps) {
  if (!steps.eval_at_epochs.empty()) return steps.eval_at_epochs.front() - 1;
  if (steps.eval_every_n_epochs.value_or(0) != 0) return *steps.eval_every_n_epochs - 1;
  return std::nullopt;
}

// Returns what MLPerf's logs call an optimizer: without the library that it is named for.
std::string compliance_name(const std::string& optimizer) {
  if (optimizer == "tf_nesterov") return "momentum";
  constexpr std::string_view kTensorFlow = "tf_";
  return optimizer.starts_with(kTensorFlow) ? optimizer.substr(kTensorFlow.size()) : optimizer;
}

}  // namespace

ComplianceFacts compliance_facts(const PreparedRun& run) {
  const UpdateOptions& update = run.options.update;
  const optim::OptimizerNumbers numbers = update.all_numbers();
  const auto momentum = numbers.find("momentum");
  const double goal = run.options.stop_at_top_1_accuracy.value_or(0);
  ComplianceFacts facts{
      .graph = run.graph,
      .seed = run.input.seed,
      .batch_size = run.examples_per_global_step(),
      // Synchronized batch norms see the images of all replicas.
      .batch_norm_span = run.batch_size * (run.options.device.sync_batch_norm ? run.total_replicas() : 1),
      .train_examples = run.train_examples,
      .validation_examples = run.validation_examples,
      .shuffle_buffer = run.input.shuffle_buffer,
      .channels_last = run.options.data_format == "NHWC",
      .updates = run.mode() != RunMode::kForwardOnly,
      .detector = run.model->task == models::Task::kDetection,
      .own_loss = run.own.model != nullptr && run.own.model->loss_function(),
      .optimizer = compliance_name(update.optimizer),
      .momentum = momentum == numbers.end() ? 0 : momentum->second,
      .weight_decay = update.weight_decay,
      .eval_target = goal == 0 ? std::nullopt : std::optional(goal),
      .eval_epoch_offset = evaluation_offset(run.options.steps)};
  if (!run.synthetic() && run.own.dataset == nullptr) {
    facts.images = run.input.transform;
    facts.images->training = facts.updates;
  }
  if (facts.updates && run.mode() != RunMode::kEvaluation) facts.warmup_steps = make_schedule(run).warmup_steps;
  return facts;
}

}  // namespace trainyard::frontends
