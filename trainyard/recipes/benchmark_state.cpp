#include "trainyard/recipes/benchmark_state.h"

#include <sstream>
#include <utility>

#include "trainyard/core/log.h"
#include "trainyard/recipes/image_options.h"

namespace trainyard::recipes {
namespace {

const std::string kLabelNames = "data/label_names";  // one a line

train::CheckpointIdentity identity_of(const BenchmarkSettings& settings) {
  return {.model = settings.model->name, .dataset = settings.dataset, .num_classes = settings.num_classes};
}

}  // namespace

void BenchmarkState::save(core::StateWriter& writer) const {
  trainer_->save(writer);
  save_evaluation_options(input_, writer);
  if (label_names_.empty()) return;
  std::string lines;
  for (const std::string& name : label_names_) lines += name + "\n";
  writer.text(kLabelNames, lines);
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
  if (label_names_.empty()) label_names_ = load_label_names(reader);
}

void resume(const BenchmarkSettings& settings, BenchmarkState& state) {
  core::local_file_system().make_directories(settings.train_dir);
  const auto latest = train::CheckpointStore(settings.train_dir).latest();
  if (!latest) return;
  const train::CheckpointIdentity expected = identity_of(settings);
  train::load_checkpoint(*latest, &expected, state);
  core::log::info("continuing from {}", latest->path);
}

std::shared_ptr<train::CheckpointCallback> make_checkpoint_callback(const core::FlagValues& values,
                                                                    const BenchmarkSettings& settings,
                                                                    std::shared_ptr<const BenchmarkState> state) {
  train::CheckpointCallbackOptions options;
  options.identity = identity_of(settings);
  options.save_steps = values.optional_integer("save_model_steps").value_or(0);
  options.save_seconds = static_cast<double>(values.integer("save_model_secs"));
  options.warmup_steps = settings.plan.num_warmup_batches;
  options.state = std::move(state);
  return std::make_shared<train::CheckpointCallback>(
      train::CheckpointStore(settings.train_dir, values.integer("max_ckpts_to_keep")), options);
}

int64_t remaining_steps(const BenchmarkSettings& settings, int64_t first_step) {
  const int64_t steps = train::end_local_step(settings.plan.num_batches, first_step);
  if (steps == 0) {
    core::log::info("nothing to do: {} is at step {} of {}", settings.train_dir, first_step, settings.plan.num_batches);
  }
  return steps;
}

std::vector<std::string> load_label_names(const core::StateReader& reader) {
  std::vector<std::string> names;
  if (!reader.has(kLabelNames)) return names;
  std::istringstream lines(reader.text(kLabelNames));
  for (std::string line; std::getline(lines, line);) names.push_back(line);
  return names;
}

}  // namespace trainyard::recipes
