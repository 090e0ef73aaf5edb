#include "trainyard/frontends/session/saved_run.h"

#include <string>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/formats/tensors/tensorflow_checkpoint.h"
#include "trainyard/frontends/input/image_size.h"
#include "trainyard/frontends/options/image_options.h"
#include "trainyard/frontends/session/run_directory.h"
#include "trainyard/train/checkpoint/checkpoint_facts.h"

namespace trainyard::frontends {
namespace {

// In the error of a checkpoint that does not have what is read (CheckpointReader).
constexpr const char* kLacks = "checkpoint lacks an entry";

}  // namespace

void SavedRun::save(core::StateWriter& writer) const {
  trainer_->save(writer);
  train::save_optimizer(options_.optimizer, writer);
  train::save_input(options_.input, options_.preprocessor, writer);
  train::save_classes(options_.classes.names, options_.classes.first_output, writer);
  if (options_.averaged_weights) train::save_weights_of(*options_.averaged_weights, writer);
}

void SavedRun::load(const core::StateReader& reader) {
  trainer_->load(reader);
  const train::CheckpointFacts facts = train::read_checkpoint_facts(reader, options_.identity, "the checkpoint");
  data::TransformOptions input = options_.input;
  if (facts.input) copy_evaluation(*facts.input, input);
  if (options_.trains && options_.tells_input && !evaluation_differences(input, options_.input).empty()) {
    core::log::warning(
        "the checkpoint was trained with another --normalization, --resize_method, --eval_resize_size, "
        "--exif_orientation or --input_preprocessor");
  }
  if (facts.image_size != nn::Size2d(0)) {
    input.height = facts.image_size.height;
    input.width = facts.image_size.width;
  }
  if (!options_.trains) {
    options_.input = input;
    if (!facts.preprocessor.empty()) options_.preprocessor = facts.preprocessor;
    options_.averaged_weights = facts.averaged_weights;
    options_.optimizer = facts.optimizer;
  }
  if (options_.classes.names.empty()) {
    options_.classes = {.names = facts.classes, .first_output = facts.first_output};
  }
}

namespace {

// Looks at names before load_checkpoint() compares numbers: an error says which class was added or renamed.
void check_classes(const SavedRunOptions& run, const ResumeOptions& options, const train::CheckpointInfo& checkpoint) {
  if (run.class_count == 0) return;
  const SavedClasses saved = saved_classes(train::read_checkpoint_facts(checkpoint), checkpoint);
  if (saved.identity.dataset != run.identity.dataset) return;
  // Names of CIFAR-10 and shapes are replaced by their numbers.
  if (saved.classes.names.empty() && run.identity.dataset != "imagenet") return;
  ClassNames classes = saved.classes;
  int64_t count = std::ssize(classes.names);
  if (classes.names.empty()) {  // then they are all outputs behind the background's
    classes.first_output = run.classes.first_output;
    count = saved.identity.num_classes - classes.first_output;
  }
  check_same_classes({classes, checkpoint.path, count}, {run.classes, run.data_dir, run.class_count},
                     "train on the same classes, or begin another run: " + options.another_run);
}

// Looks at the size of the images before load_checkpoint() compares shapes. An optimizer's state cannot be
// interpolated.
void check_images(const SavedRunOptions& run, const ResumeOptions& options, const train::CheckpointInfo& checkpoint) {
  const train::CheckpointFacts facts = train::read_checkpoint_facts(checkpoint);
  const train::CheckpointIdentity& identity = facts.identity;
  if (identity.model != run.identity.model || identity.dataset != run.identity.dataset) return;
  const nn::Size2d before = check_image_size({.identity = identity,
                                              .saved = facts.image_size,
                                              .graph = *options.graph,
                                              .where = checkpoint.path,
                                              .interpolates_positions = false,
                                              .remedy = "or begin another run of that size: " + options.another_run});
  if (const nn::Size2d now = image_size_of(*options.graph); run.tells_input && now != before) {
    core::log::info("{} was trained on images of {}; this run takes {}", checkpoint.path,
                    models::image_size_text(before), models::image_size_text(now));
  }
}

}  // namespace

std::optional<train::CheckpointInfo> resume_run(SavedRun& state, const ResumeOptions& options) {
  core::local_file_system().make_directories(options.directory);
  train::CheckpointStore store(options.directory);
  const SavedRunOptions& run = state.options();
  std::string optimizer, path;  // of the checkpoint
  const auto look = [&](const train::CheckpointInfo& found) {
    check_classes(run, options, found);
    check_images(run, options, found);
    path = found.path;
    optimizer = run.trains && !run.optimizer.empty() ? train::read_checkpoint_facts(found).optimizer : "";
  };
  const auto differs = [&] { return !optimizer.empty() && optimizer != run.optimizer; };
  try {
    const auto newest = train::resume_newest_checkpoint(store, &run.identity, state, options.damaged, look);
    if (newest) core::log::info("continuing from {}", newest->path);
    if (differs()) {
      core::log::warning("the optimizer was {}, and this run continues with {}: what {} keeps of earlier steps is lost",
                         optimizer, run.optimizer, optimizer);
    }
    return newest;
  } catch (const core::Error& error) {
    const bool lacks =
        error.code() == core::ErrorCode::kCorruptData && error.detail().problem.find(kLacks) != std::string::npos;
    if (!lacks || !differs()) throw;
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "the optimizer was another one, which does not keep what this one needs",
                       .where = path,
                       .expected = "--optimizer=" + optimizer + ", as it was",
                       .actual = "--optimizer=" + run.optimizer,
                       .remedy = "continue with " + optimizer + ", or begin another run: " + options.another_run});
  }
}

std::unique_ptr<core::LockFile> lock_run_directory(const std::string& directory) {
  formats::refuse_tensorflow_checkpoint(directory);
  core::local_file_system().make_directories(directory);
  require_plain_run_files(directory);
  return std::make_unique<core::LockFile>(core::join_path(directory, "run.lock"));
}

}  // namespace trainyard::frontends
