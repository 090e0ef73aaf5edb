// The content of a run's checkpoints in addition to its trainer, so that predictions, evaluations and exports need only
// the checkpoint: how images become input, and the names of the classes. Also resumes a run from the newest checkpoint.
//
//   const auto state = std::make_shared<SavedRun>(trainer, SavedRunOptions{.identity = ..., .input = ..., ...});
//   resume_run(*state, {.directory = train_dir, .graph = &graph});
//   trainer.add(std::make_shared<train::CheckpointCallback>(store, {.identity = ..., .state = state}));
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "trainyard/core/base/stateful.h"
#include "trainyard/core/files/lock_file.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/frontends/model/class_names.h"
#include "trainyard/nn/graph/graph.h"
#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/loop/trainer.h"

namespace trainyard::frontends {

struct SavedRunOptions {
  train::CheckpointIdentity identity{};
  data::TransformOptions input{};  // options of the images; those that evaluations depend on are saved
  std::string preprocessor{};      // name in data::input_presets() that `input` is derived from; empty: not known
  ClassNames classes{};            // classes of the data; without names if it has none
  std::string data_dir{};          // origin of the data, for errors
  int64_t class_count = 0;         // number of classes of the data, with names or not; 0: no data
  bool trains = true;              // false: the run keeps the input with which the model was trained
  bool tells_input = true;         // false: the caller has logged how the input differs from the checkpoint's
  // Which weights the evaluations of a run with averaging use. Unset: no averaging.
  std::optional<bool> averaged_weights{};
  std::string optimizer{};  // value of --optimizer, for a run that continues with another one; empty: not saved
};

class SavedRun : public core::Stateful {
 public:
  // The trainer must outlive it.
  SavedRun(train::Trainer& trainer, SavedRunOptions options) : trainer_(&trainer), options_(std::move(options)) {}

  const SavedRunOptions& options() const { return options_; }
  void save(core::StateWriter& writer) const override;
  void load(const core::StateReader& reader) override;

 private:
  train::Trainer* trainer_;
  SavedRunOptions options_;
};

struct ResumeOptions {
  std::string directory;             // created if needed
  const nn::Graph* graph = nullptr;  // of the run
  train::DamagedCheckpoints damaged = train::DamagedCheckpoints::kStop;
  // The remedy in errors: "... begin another run: <another_run>".
  std::string another_run = "in another directory, starting from an export of this one's weights";
};
// Loads the newest checkpoint of the directory into `state` and its trainer, logs it and returns it, or returns nothing
// when there is none. Throws kInvalidArgument when it is of another model, when the run's data have other classes than
// those that it was trained on, and when its weights do not fit images of the graph's size; and what
// train::resume_newest_checkpoint() throws. Warns about a checkpoint of another optimizer; if it lacks the slots of
// this run's optimizer, throws kInvalidArgument, which names both.
std::optional<train::CheckpointInfo> resume_run(SavedRun& state, const ResumeOptions& options);

// Makes the directory and takes its lock, for the only process of a run that writes there. Hold it until the run has
// closed its files. Throws kInvalidArgument when another run has it.
std::unique_ptr<core::LockFile> lock_run_directory(const std::string& directory);

}  // namespace trainyard::frontends
