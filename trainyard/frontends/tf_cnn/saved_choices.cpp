#include "trainyard/frontends/tf_cnn/saved_choices.h"

#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/sockets/frame.h"
#include "trainyard/data/datasets/dataset_division.h"
#include "trainyard/formats/tensors/tensorflow_checkpoint.h"
#include "trainyard/frontends/model/trained_model.h"
#include "trainyard/frontends/session/saved_run.h"
#include "trainyard/frontends/tf_cnn/prepare.h"
#include "trainyard/parallel/process_group/shared_outcome.h"
#include "trainyard/train/checkpoint/checkpoint_facts.h"
#include "trainyard/train/checkpoint/checkpoint_manifest.h"

namespace trainyard::frontends {
namespace {

SavedChoices choices_of(const OpenedModel& opened, const std::string& model, const std::string& dataset) {
  SavedChoices choices{.origin = opened.checkpoint.path,
                       .model = opened.identity.model,
                       .dataset = opened.identity.dataset,
                       .num_classes = opened.identity.num_classes,
                       .image_size = opened.image_size};
  // Where no data say it, the model does; weights of others are of photographs.
  std::string of = !dataset.empty() ? dataset : choices.dataset;
  if (of.empty()) of = "imagenet";
  choices.input = input_of(opened, model.empty() ? choices.model : model, of);
  if (opened.reader != nullptr) choices.averaged_weights = opened.averaged_weights;
  const bool sized = choices.input && choices.image_size == nn::Size2d(0) && opened.reader == nullptr;
  if (sized) choices.image_size = {choices.input->input.height, choices.input->input.width};
  return choices;
}

// Returns what the newest checkpoint says that the run continues from; no origin: there is none.
SavedChoices of_train_dir(const PreparedRun& run) {
  const SavingOptions& saving = run.options.saving;
  const bool keeps = run.mode() == RunMode::kForwardOnly ||
                     saving.existing_run.value_or(train::ExistingRun::kKeep) == train::ExistingRun::kKeep;
  if (saving.train_dir.empty()) return {};
  formats::refuse_tensorflow_checkpoint(saving.train_dir);
  if (!keeps) return {};
  std::vector<train::CheckpointInfo> saved = train::CheckpointStore(saving.train_dir).list();
  for (; !saved.empty(); saved.pop_back()) {
    try {
      const train::CheckpointInfo& newest = saved.back();
      const train::CheckpointFacts facts = train::read_checkpoint_facts(newest);
      SavedChoices choices{.origin = newest.path,
                           .continues = true,
                           .model = facts.identity.model,
                           .dataset = facts.identity.dataset,
                           .num_classes = facts.weights_have_outputs ? facts.identity.num_classes : 0,
                           .image_size = facts.image_size,
                           .has_scales = facts.has_scales,
                           .found_batch = facts.found_batch,
                           .fine_tuning = facts.fine_tuning,
                           .division = facts.division,
                           .averaged_weights = facts.averaged_weights};
      if (facts.input) {
        choices.input = {.input = *facts.input, .preprocessor = facts.preprocessor, .origin = newest.path};
      }
      return choices;
    } catch (const core::Error& error) {
      // The run passes over it, too, and says so.
      if (!saving.ignore_damaged_checkpoints || !train::is_damage(error)) throw;
    }
  }
  return {};
}

SavedChoices of_files(const PreparedRun& run) {
  SavedChoices choices = of_train_dir(run);
  const TfCnnOptions& options = run.options;
  if (!choices.origin.empty() || options.weights.empty() || !run.own_dialect()) return choices;
  return choices_of(open_model({.path = options.weights}), options.model, run.input.dataset);
}

std::string encode(const SavedChoices& choices) {
  core::BodyWriter body;
  body.text(choices.origin).number(choices.continues).text(choices.model).text(choices.dataset);
  body.number(choices.num_classes).number(choices.image_size.height).number(choices.image_size.width);
  body.number(choices.has_scales).number(choices.found_batch).number(choices.fine_tuning.has_value());
  const train::SavedFineTuning tuned = choices.fine_tuning.value_or(train::SavedFineTuning());
  body.number(tuned.batch_size).number(tuned.num_epochs).number(tuned.early_stop);
  body.text(choices.division ? data::division_text(*choices.division) : "");
  body.number(choices.averaged_weights ? int64_t{*choices.averaged_weights} : -1);
  body.text(choices.input ? encode_trained_input(*choices.input) : "");
  return body.take();
}

// The first process says what is taken and how it differs: the input has no origin here.
SavedChoices decode(std::string_view text) {
  core::BodyReader body(text);
  SavedChoices choices;
  choices.origin = body.text();
  choices.continues = body.number() != 0;
  choices.model = body.text();
  choices.dataset = body.text();
  choices.num_classes = body.number();
  choices.image_size.height = body.number();
  choices.image_size.width = body.number();
  choices.has_scales = body.number() != 0;
  choices.found_batch = body.number();
  const bool was_fine_tuned = body.number() != 0;
  train::SavedFineTuning tuned;
  tuned.batch_size = body.number();
  tuned.num_epochs = body.number();
  tuned.early_stop = body.number();
  if (was_fine_tuned) choices.fine_tuning = tuned;
  choices.division = data::division_of_text(body.text());
  if (const int64_t averaged = body.number(); averaged >= 0) choices.averaged_weights = averaged != 0;
  if (const std::string input = body.text(); !input.empty()) choices.input = decode_trained_input(input);
  return choices;
}

// A run's files tell the flags as they come to be.
void record(PreparedRun& run, std::string_view flag, const std::string& text) {
  for (auto& [name, value] : run.options.flags.all) {
    if (name == flag) value = text;
  }
}

// A training and all evaluations of it divide the images in the same way, whatever the dialect.
void take_division(PreparedRun& run) {
  InputOptions& input = run.options.input;
  const bool evaluates = run.mode() == RunMode::kEvaluation;
  std::optional<data::Division> saved;
  if (evaluates && run.checkpoint != nullptr) saved = run.checkpoint->division;
  if (!evaluates && run.saved.continues) saved = run.saved.division;
  if (!saved || input.data_dir.empty() || !input.split_class_folders) return;
  const std::string text = data::division_flags(*saved);
  if (!input.division) {
    input.division = saved;
    input.division_is_saved = true;
    if (run.device.is_chief()) core::log::info("the images are divided as the training divided them: {}", text);
  } else if (evaluates && *input.division != *saved && run.device.is_chief()) {
    core::log::warning("the training divided its images by {}: this evaluation may have images that were trained on",
                       text);
  }
}

}  // namespace

SavedChoices read_saved_choices(const PreparedRun& run) {
  parallel::ProcessGroup* const processes = run.device.processes.get();
  if (run.mode() == RunMode::kEvaluation) {
    if (run.checkpoint == nullptr || !run.own_dialect()) return {};
    SavedChoices choices = choices_of(*run.checkpoint, run.options.model, run.input.dataset);
    if (choices.input && processes != nullptr && processes->rank() != 0) choices.input->origin.clear();
    return choices;
  }
  if (processes == nullptr) return of_files(run);
  SavedChoices own;
  const std::string text = parallel::on_first(*processes, "what the saved model says", [&] {
    own = of_files(run);
    return encode(own);
  });
  return processes->rank() == 0 ? own : decode(text);
}

void take_saved_choices(PreparedRun& run) {
  take_division(run);
  if (!run.own_dialect()) return;
  TfCnnOptions& options = run.options;
  const SavedChoices& saved = run.saved;
  if (saved.input) options.input.images.trained = saved.input;
  std::vector<std::string> taken;
  if (options.model.empty() && !saved.model.empty() && run.own.model == nullptr) {
    options.model = saved.model;
    record(run, "model", saved.model);
    taken.push_back("--model=" + saved.model);
  }
  const nn::Size2d none = 0;
  if (options.image_size == none && saved.image_size != none && options.input.epoch_sizes.empty()) {
    taken.push_back("--image_size=" + models::image_size_text(saved.image_size));
  }
  if (saved.input && !options.input.images.input_preprocessor) {
    const std::string& name = saved.input->preprocessor;
    taken.push_back(name.empty() ? "how images become input" : "--input_preprocessor=" + name);
    if (!name.empty()) record(run, "input_preprocessor", name);
  }
  const std::optional<bool> asked = options.average.averaged_weights;
  const auto kind = [](bool averaged) { return averaged ? "average" : "last"; };
  // An evaluation asks each checkpoint that it loads.
  if (run.mode() != RunMode::kEvaluation) {
    if (!asked && saved.averaged_weights == false) taken.emplace_back("--weights_of=last");
    if (!asked && saved.continues) options.average.averaged_weights = saved.averaged_weights;
  }
  if (!run.device.is_chief() || saved.origin.empty()) return;
  if (saved.continues && saved.fine_tuning && !options.fine_tune && run.mode() != RunMode::kForwardOnly) {
    core::log::warning(
        "{} was begun with --finetune, which this command lacks: its rate, length and freezing are those of its flags",
        saved.origin);
  }
  if (!taken.empty()) core::log::info("taken from {}: {}", saved.origin, fmt::join(taken, ", "));
  if (saved.input && !saved.input->choice.empty()) core::log::info("{}: {}", saved.origin, saved.input->choice);
  if (saved.continues && asked && saved.averaged_weights && *asked != *saved.averaged_weights) {
    core::log::warning("--weights_of={}, and {} was evaluated with --weights_of={}", kind(*asked), saved.origin,
                       kind(*saved.averaged_weights));
  }
}

}  // namespace trainyard::frontends
