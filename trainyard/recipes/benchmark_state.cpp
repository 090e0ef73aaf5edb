#include "trainyard/recipes/benchmark_state.h"

#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/log.h"
#include "trainyard/recipes/image_options.h"

namespace trainyard::recipes {

train::CheckpointIdentity identity_of(const BenchmarkSettings& settings) {
  return {.model = settings.model->name, .dataset = settings.dataset, .num_classes = settings.num_classes};
}

void BenchmarkState::save(core::StateWriter& writer) const {
  trainer_->save(writer);
  save_evaluation_options(input_, writer);
  save_class_names(classes_, writer);
}

void BenchmarkState::load(const core::StateReader& reader) {
  trainer_->load(reader);
  data::TransformOptions input = input_;
  load_evaluation_options(reader, input);
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
void check_classes(const BenchmarkSettings& settings, const train::CheckpointInfo& checkpoint) {
  if (settings.class_count == 0) return;
  const auto saved = read_saved_classes(checkpoint.path);
  if (!saved || saved->identity.dataset != settings.dataset) return;
  // Names of CIFAR-10 and shapes stand for their numbers.
  if (saved->classes.names.empty() && settings.dataset != "imagenet") return;
  ClassNames classes = saved->classes;
  int64_t count = std::ssize(classes.names);
  if (classes.names.empty()) {  // then they are all outputs behind the background's
    classes.first_output = settings.classes.first_output;
    count = saved->identity.num_classes - classes.first_output;
  }
  check_same_classes({classes, checkpoint.path, count}, {settings.classes, settings.data_dir, settings.class_count},
                     "train on the same classes, or begin another run: another --train_dir, with --weights=FILE to "
                     "start from this one's");
}

}  // namespace

std::unique_ptr<core::LockFile> lock_train_dir(const BenchmarkSettings& settings) {
  core::local_file_system().make_directories(settings.train_dir);
  return std::make_unique<core::LockFile>(core::join_path(settings.train_dir, "run.lock"));
}

void resume(const core::FlagValues& values, const BenchmarkSettings& settings, BenchmarkState& state) {
  core::local_file_system().make_directories(settings.train_dir);
  train::CheckpointStore store(settings.train_dir);
  const train::CheckpointIdentity expected = identity_of(settings);
  const auto newest =
      train::resume_newest_checkpoint(store, &expected, state, damaged_checkpoints(values, settings.device.is_chief()),
                                      [&](const train::CheckpointInfo& found) { check_classes(settings, found); });
  if (newest) core::log::info("continuing from {}", newest->path);
}

train::DamagedCheckpoints damaged_checkpoints(const core::FlagValues& values, bool writes) {
  if (!values.boolean("ignore_damaged_checkpoints")) return train::DamagedCheckpoints::kStop;
  return writes ? train::DamagedCheckpoints::kSetAside : train::DamagedCheckpoints::kPassOver;
}

std::shared_ptr<train::CheckpointCallback> make_checkpoint_callback(const core::FlagValues& values,
                                                                    const BenchmarkSettings& settings,
                                                                    std::shared_ptr<const BenchmarkState> state) {
  train::CheckpointCallbackOptions options;
  options.identity = identity_of(settings);
  options.save_steps = values.optional_integer("save_model_steps").value_or(0);
  options.save_seconds = static_cast<double>(values.integer("save_model_secs"));
  options.warmup_steps = settings.plan.num_warmup_batches;
  options.over_all_runs = settings.dialect == Dialect::kTrainyard && settings.mode != BenchmarkMode::kForwardOnly;
  options.state = std::move(state);
  // A run that goes on after a NaN ends normally, with the good checkpoints that it has.
  options.non_finite_is_error = values.text("on_nan") == "stop";
  return std::make_shared<train::CheckpointCallback>(
      train::CheckpointStore(settings.train_dir, values.integer("max_ckpts_to_keep")), options);
}

std::unique_ptr<train::BestKeeper> make_best_keeper(const core::FlagValues& values, const BenchmarkSettings& settings,
                                                    std::shared_ptr<const BenchmarkState> state) {
  const std::string metric = values.text("keep_best");
  if (metric == "none") return nullptr;
  return std::make_unique<train::BestKeeper>(
      train::CheckpointStore(settings.train_dir),
      train::BestKeeperOptions{.metric = metric == "loss" ? train::BestMetric::kLoss : train::BestMetric::kTop1,
                               .identity = identity_of(settings),
                               .state = std::move(state)});
}

int64_t remaining_steps(const core::FlagValues& values, const BenchmarkSettings& settings, int64_t first_step) {
  const int64_t steps = train::end_local_step(settings.plan.num_batches, first_step);
  if (steps > 0) return steps;
  std::string wanted = "without --num_batches or --num_epochs";
  if (values.optional_integer("num_batches").value_or(0) != 0) {
    wanted = fmt::format("--num_batches={}", values.integer("num_batches"));
  } else if (values.optional_real("num_epochs").value_or(0) != 0) {
    wanted = fmt::format("--num_epochs={} of {} examples, {} a step", values.real("num_epochs"),
                         settings.train_examples, settings.examples_per_step());
  }
  core::log::info(
      "nothing is left to do: {} has done {} steps, and this run wants {} ({}); ask for more, or use another "
      "--train_dir",
      settings.train_dir, first_step, settings.plan.num_batches, wanted);
  return 0;
}

}  // namespace trainyard::recipes
