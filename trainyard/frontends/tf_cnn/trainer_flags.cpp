#include "trainyard/frontends/tf_cnn/trainer_flags.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/train/session/run_directory.h"

namespace trainyard::frontends {
namespace {

using core::Error;
using core::ErrorCode;

constexpr std::array<const char*, 4> kEvaluationFlags = {
    "eval_during_training_every_n_steps", "eval_during_training_every_n_epochs",
    "eval_during_training_at_specified_steps", "eval_during_training_at_specified_epochs"};

void require_images(const core::FlagValues& values, const char* use, const char* of_synthetic_ones) {
  if (values.boolean("describe_input") || !values.text("data_dir").empty() || values.boolean("synthetic")) return;
  throw Error(
      ErrorCode::kInvalidArgument,
      {.problem = fmt::format("there are no images to {}", use),
       .where = "--data_dir",
       .expected = "a folder of images",
       .remedy = fmt::format("pass --data_dir=DIR, or --synthetic for synthetic images, {}", of_synthetic_ones)});
}

}  // namespace

void require_what_a_trainer_needs(const core::FlagValues& values) {
  if (values.boolean("eval")) return;
  const std::string train_dir = values.text("train_dir");
  const bool resumes = !train_dir.empty() && train::holds_run(train_dir);
  if (!values.given("model") && !resumes && values.text("weights").empty()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        {.problem = "no model is named",
         .where = "--model",
         .expected = "resnet18, resnet50 or mobilenet_v2 for photographs, for example, or resnet20 for images of "
                     "32 x 32 pixels",
         .remedy = "pass --model; `trainyard models` lists all"});
  }
  const bool trains = !values.boolean("forward_only") && values.text("plot_schedule").empty();
  if (trains) require_images(values, "train on", "on which nothing is learned");
}

void require_what_is_evaluated(const core::FlagValues& values) {
  if (!values.boolean("eval")) return;
  if (!values.text("train_dir").empty() || !values.text("weights").empty()) {
    require_images(values, "evaluate on", "whose accuracy means nothing");
    return;
  }
  std::vector<std::string> runs;
  core::FileSystem& files = core::local_file_system();
  if (files.exists(kRunsFolder) && files.info(kRunsFolder).is_directory) {
    constexpr size_t kShown = 5;
    for (const std::string& name : files.list(kRunsFolder)) {
      if (runs.size() < kShown) runs.push_back(core::join_path(kRunsFolder, name));
    }
  }
  throw Error(ErrorCode::kInvalidArgument,
              {.problem = "Trained model directory not specified",
               .expected = "--train_dir=RUN, or --weights=FILE",
               .remedy = runs.empty() ? "pass one of them" : fmt::format("there are {}", fmt::join(runs, ", "))});
}

void set_trainer_defaults(const core::FlagValues& values, TfCnnOptions& options) {
  const bool trains = options.mode == RunMode::kTraining || options.mode == RunMode::kTrainingAndEvaluation;
  if (!trains) return;
  const bool says = std::any_of(kEvaluationFlags.begin(), kEvaluationFlags.end(),
                                [&](const char* flag) { return values.given(flag); });
  // Those two do not go with evaluations during a training.
  options.evaluate_each_epoch = !says && values.text("job_name").empty() && !values.boolean("staged_vars");
  if (!values.given("save_model_secs") && !values.given("save_model_steps")) {
    options.saving.save_each_epoch = true;
    options.saving.save_model_secs = kSecondsToCheckpoint;
  }
  const bool trains_now = options.plot_schedule.empty() && !options.describe_input;
  if (!values.given("train_dir") && trains_now) options.saving.new_runs_in = kRunsFolder;
}

}  // namespace trainyard::frontends
