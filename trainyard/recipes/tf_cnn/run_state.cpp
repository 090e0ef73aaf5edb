#include "trainyard/recipes/tf_cnn/run_state.h"

#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/log.h"
#include "trainyard/recipes/shared/image_options.h"
#include "trainyard/recipes/shared/image_size.h"
#include "trainyard/recipes/shared/run_directory.h"
#include "trainyard/train/callbacks/summary_callback.h"

namespace trainyard::recipes {

train::CheckpointIdentity identity_of(const PreparedRun& run) {
  return {.model = run.model->name, .dataset = run.input.dataset, .num_classes = run.num_classes};
}

void RunState::save(core::StateWriter& writer) const {
  trainer_->save(writer);
  save_evaluation_options(input_, writer);
  save_class_names(classes_, writer);
}

void RunState::load(const core::StateReader& reader) {
  trainer_->load(reader);
  data::TransformOptions input = input_;
  load_evaluation_options(reader, input);
  if (const nn::Size2d size = saved_image_size(reader); size != nn::Size2d(0)) {
    input.height = size.height;
    input.width = size.width;
  }
  if (trains_ && !same_evaluation(input, input_)) {
    core::log::warning(
        "the checkpoint was trained with another --normalization, --resize_method or --eval_resize_size");
  }
  if (!trains_) input_ = input;
  const ClassNames saved = load_class_names(reader, identity_);
  if (classes_.names.empty()) classes_ = saved;
}

namespace {

// Looks at names before load_checkpoint() compares numbers: an error says which class was added or renamed.
void check_classes(const PreparedRun& run, const train::CheckpointInfo& checkpoint) {
  if (run.class_count == 0) return;
  const SavedClasses saved = read_saved_classes(checkpoint);
  if (saved.identity.dataset != run.input.dataset) return;
  // Names of CIFAR-10 and shapes stand for their numbers.
  if (saved.classes.names.empty() && run.input.dataset != "imagenet") return;
  ClassNames classes = saved.classes;
  int64_t count = std::ssize(classes.names);
  if (classes.names.empty()) {  // then they are all outputs behind the background's
    classes.first_output = run.classes.first_output;
    count = saved.identity.num_classes - classes.first_output;
  }
  check_same_classes({classes, checkpoint.path, count}, {run.classes, run.input.data_dir, run.class_count},
                     "train on the same classes, or begin another run: another --train_dir, with --weights=FILE to "
                     "start from this one's");
}

// Looks at the size of the images before load_checkpoint() compares shapes. An optimizer's state cannot be
// interpolated.
void check_images(const PreparedRun& run, const train::CheckpointInfo& checkpoint) {
  const train::CheckpointIdentity identity = train::read_checkpoint_identity(checkpoint);
  if (identity.model != run.model->name || identity.dataset != run.input.dataset) return;
  const nn::Size2d before =
      check_image_size({.identity = identity,
                        .saved = saved_image_size(checkpoint),
                        .graph = run.graph,
                        .where = checkpoint.path,
                        .interpolates_positions = false,
                        .remedy = "or begin another run of that size: another --train_dir, with --weights=FILE to "
                                  "start from an export of this one"});
  if (const nn::Size2d now = image_size_of(run.graph); now != before) {
    core::log::info("{} was trained on images of {}; this run takes {}", checkpoint.path,
                    models::image_size_text(before), models::image_size_text(now));
  }
}

}  // namespace

void settle_train_dir(PreparedRun& run, std::ostream& out, const core::StopToken& stop) {
  const std::optional<ExistingRun> wanted = run.options.saving.existing_run;
  const bool trains = run.mode() == RunMode::kTraining || run.mode() == RunMode::kTrainingAndEvaluation;
  if (wanted == ExistingRun::kKeep || !trains || run.train_dir().empty() || run.device.processes != nullptr) return;
  if (!holds_run(run.train_dir())) return;
  ExistingRun existing = wanted.value_or(ExistingRun::kKeep);
  if (!wanted && can_ask()) existing = ask_existing_run(run.train_dir(), out, stop);
  const std::string settled = settle_existing_run(run.train_dir(), existing, train::system_wall_clock());
  run.options.saving.train_dir = settled;
  // The run's record says where it is.
  for (auto& [name, value] : run.options.flags.all) {
    if (name == "train_dir") value = settled;
  }
}

std::unique_ptr<core::LockFile> lock_train_dir(const PreparedRun& run) {
  core::local_file_system().make_directories(run.train_dir());
  return std::make_unique<core::LockFile>(core::join_path(run.train_dir(), "run.lock"));
}

void resume(const PreparedRun& run, RunState& state) {
  core::local_file_system().make_directories(run.train_dir());
  train::CheckpointStore store(run.train_dir());
  const train::CheckpointIdentity expected = identity_of(run);
  const auto newest =
      train::resume_newest_checkpoint(store, &expected, state, damaged_checkpoints(run, run.device.is_chief()),
                                      [&](const train::CheckpointInfo& found) {
                                        check_classes(run, found);
                                        check_images(run, found);
                                      });
  if (newest) core::log::info("continuing from {}", newest->path);
}

train::DamagedCheckpoints damaged_checkpoints(const PreparedRun& run, bool writes) {
  if (!run.options.saving.ignore_damaged_checkpoints) return train::DamagedCheckpoints::kStop;
  return writes ? train::DamagedCheckpoints::kSetAside : train::DamagedCheckpoints::kPassOver;
}

std::shared_ptr<train::CheckpointCallback> make_checkpoint_callback(const PreparedRun& run,
                                                                    std::shared_ptr<const RunState> state) {
  train::CheckpointCallbackOptions options;
  options.identity = identity_of(run);
  options.save_steps = run.options.saving.save_model_steps.value_or(0);
  options.save_seconds = static_cast<double>(run.options.saving.save_model_secs);
  options.warmup_steps = run.plan.num_warmup_batches;
  options.over_all_runs = run.own_dialect() && run.mode() != RunMode::kForwardOnly;
  options.state = std::move(state);
  // A run that goes on after a NaN ends normally, with the good checkpoints that it has.
  options.non_finite_is_error = run.options.update.on_nan == train::OnNan::kStop;
  return std::make_shared<train::CheckpointCallback>(
      train::CheckpointStore(run.train_dir(), run.options.saving.max_ckpts_to_keep), options);
}

std::unique_ptr<train::BestKeeper> make_best_keeper(const PreparedRun& run, std::shared_ptr<const RunState> state) {
  const std::string metric = run.options.saving.keep_best;
  if (metric == "none") return nullptr;
  return std::make_unique<train::BestKeeper>(
      train::CheckpointStore(run.train_dir()),
      train::BestKeeperOptions{
          .by = train::best_by(metric == "loss" ? train::BestMetric::kLoss : train::BestMetric::kTop1),
          .identity = identity_of(run),
          .state = std::move(state)});
}

int64_t remaining_steps(const PreparedRun& run, int64_t first_step) {
  const int64_t steps = train::end_local_step(run.plan.num_batches, first_step);
  if (steps > 0) return steps;
  std::string wanted = "without --num_batches or --num_epochs";
  if (run.options.steps.num_batches.value_or(0) != 0) {
    wanted = fmt::format("--num_batches={}", *run.options.steps.num_batches);
  } else if (run.options.steps.num_epochs.value_or(0) != 0) {
    wanted = fmt::format("--num_epochs={} of {} examples, {} a step", *run.options.steps.num_epochs, run.train_examples,
                         run.examples_per_step());
  }
  core::log::info(
      "nothing is left to do: {} has done {} steps, and this run wants {} ({}); ask for more, or use another "
      "--train_dir",
      run.train_dir(), first_step, run.plan.num_batches, wanted);
  return 0;
}

}  // namespace trainyard::recipes
