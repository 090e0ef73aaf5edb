#include "trainyard/frontends/tf_cnn/trainer_defaults.h"

#include <cmath>
#include <string>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"

namespace trainyard::frontends {
namespace {

using core::Error;
using core::ErrorCode;

// Says why nothing is evaluated; where an evaluation was to end the training, that is an error.
void tell_no_evaluations(const PreparedRun& run, const std::string& why) {
  if (run.options.stop_at_top_1_accuracy.value_or(0) != 0) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "--stop_at_top_1_accuracy waits for evaluations, of which "
                                                         "there will be none",
                                              .actual = why,
                                              .remedy = "pass one of --eval_during_training_*, or leave it out"});
  }
  core::log::info("nothing is evaluated during the training: {}", why);
}

// Returns after how many epochs a training evaluates: each one, unless it is so long that this is not worth a list.
double epochs_between_evaluations(const PreparedRun& run) {
  constexpr double kEvaluations = 100'000;
  const train::StepPlanOptions& steps = run.options.steps;
  const double epochs =
      train::batches_and_epochs(steps.num_batches, steps.num_epochs, run.examples_per_step(), run.train_data->size())
          .epochs;
  return std::max(1.0, std::ceil(epochs / kEvaluations));
}

void evaluate_each_epoch(PreparedRun& run, bool evaluates) {
  run.options.mode = evaluates ? RunMode::kTrainingAndEvaluation : RunMode::kTraining;
  run.options.steps.eval_every_n_epochs = std::nullopt;
  if (evaluates) {
    run.options.steps.eval_every_n_epochs = epochs_between_evaluations(run);
    if (*run.options.steps.eval_every_n_epochs > 1) {
      core::log::info(
          "the training is evaluated every {} epochs; --eval_during_training_every_n_epochs sets another number",
          *run.options.steps.eval_every_n_epochs);
    }
  }
  if (!evaluates) run.validation_data.reset();
}

}  // namespace

bool has_whole_epoch(const PreparedRun& run) {
  const train::StepPlanOptions& steps = run.options.steps;
  const int64_t examples = run.train_data->size();
  const train::BatchesAndEpochs length =
      train::batches_and_epochs(steps.num_batches, steps.num_epochs, run.examples_per_step(), examples);
  return length.batches * run.examples_per_step() >= examples;
}

void settle_evaluations(PreparedRun& run) {
  if (!run.options.evaluate_each_epoch) return;
  if (run.train_data == nullptr) return tell_no_evaluations(run, "its images are synthetic");
  // While the largest batch is searched for, the plan of the memory counts evaluations.
  const bool batch_is_known = run.options.batch_size != kLargestBatch || run.batch_size > 1;
  if (batch_is_known && !has_whole_epoch(run)) {
    evaluate_each_epoch(run, false);
    return tell_no_evaluations(run, "it has no whole epoch");
  }
  try {
    if (run.validation_data == nullptr) {
      run.validation_data = open_dataset(run.input, data::Subset::kValidation,
                                         {run.classes.names, "the training images", run.input.on_unknown_class});
    }
    evaluate_each_epoch(run, true);
  } catch (const data::NoSuchSubset&) {
    evaluate_each_epoch(run, false);
    // Images of COCO without any box are no samples.
    const char* const boxes = run.input.dataset == "coco" ? " with boxes" : "";
    tell_no_evaluations(run, fmt::format("{} has no validation images{}", run.input.data_dir, boxes));
  }
}

bool completes_epoch(int64_t step, int64_t examples_per_step, int64_t train_examples) {
  return step * examples_per_step / train_examples > (step - 1) * examples_per_step / train_examples;
}

}  // namespace trainyard::frontends
