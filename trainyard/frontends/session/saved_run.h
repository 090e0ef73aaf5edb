// What the checkpoints of a run hold beside its trainer, so that predictions, evaluations and exports need nothing but
// the checkpoint: how images become input, and what the classes are called. And how a run goes on from the newest one.
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
  data::TransformOptions input{};  // of the images; of these, what evaluations depend on is saved
  std::string preprocessor{};      // the name in data::input_presets() that `input` began from; empty: not known
  ClassNames classes{};            // of the data; without names where it has none
  std::string data_dir{};          // where they come from, for errors
  int64_t class_count = 0;         // of the data, with names or not; 0: there are no data
  bool trains = true;              // false: the run leaves the input as the model was trained with it
  bool tells_input = true;         // false: the caller has said how the input differs from the checkpoint's
  // Which weights evaluations take of a run that averages them. Unset: it averages none.
  std::optional<bool> averaged_weights{};
  std::string optimizer{};  // as --optimizer names it, for a run that continues with another one; empty: not saved
};

class SavedRun : public core::Stateful {
 public:
  // Borrows the trainer.
  SavedRun(train::Trainer& trainer, SavedRunOptions options) : trainer_(&trainer), options_(std::move(options)) {}

  const SavedRunOptions& options() const { return options_; }
  void save(core::StateWriter& writer) const override;
  void load(const core::StateReader& reader) override;

 private:
  train::Trainer* trainer_;
  SavedRunOptions options_;
};

struct ResumeOptions {
  std::string directory;             // made where it is not there
  const nn::Graph* graph = nullptr;  // of the run
  train::DamagedCheckpoints damaged = train::DamagedCheckpoints::kStop;
  // What errors say to do instead: "... begin another run: <another_run>".
  std::string another_run = "in another directory, starting from an export of this one's weights";
};
// Loads the newest checkpoint of the directory into `state` and its trainer, says so in the log and returns it; none:
// there is none. Throws kInvalidArgument when it is of another model, when the run's data have other classes than those
// that it was trained on, and where its weights do not fit images of the graph's size; and what
// train::resume_newest_checkpoint() throws. A checkpoint of another optimizer is named in a warning; where it lacks
// what this run's optimizer keeps, kInvalidArgument names both.
std::optional<train::CheckpointInfo> resume_run(SavedRun& state, const ResumeOptions& options);

// Makes the directory and takes its lock, for the one process of a run that writes there; held until the run has closed
// its files. Throws kInvalidArgument when another run has it.
std::unique_ptr<core::LockFile> lock_run_directory(const std::string& directory);

}  // namespace trainyard::frontends
