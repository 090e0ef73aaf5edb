// The checkpoints of a run's train_dir: what they hold beside the trainer (how images become input and the names
// of the labels, for predictions), and how a run goes on from the newest.
#pragma once

#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/core/base/stateful.h"
#include "trainyard/core/files/lock_file.h"
#include "trainyard/core/threads/stop_token.h"
#include "trainyard/recipes/tf_cnn/prepare.h"
#include "trainyard/train/callbacks/checkpoint_callback.h"
#include "trainyard/train/checkpoint/best_checkpoint.h"
#include "trainyard/train/loop/trainer.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::recipes {

train::CheckpointIdentity identity_of(const PreparedRun& run);

class RunState : public core::Stateful {
 public:
  RunState(train::Trainer& trainer, const PreparedRun& run)
      : trainer_(&trainer),
        trains_(run.mode() != RunMode::kForwardOnly),
        input_(run.input.transform),
        classes_(run.classes),
        identity_(identity_of(run)) {}

  void save(core::StateWriter& writer) const override;
  void load(const core::StateReader& reader) override;

 private:
  train::Trainer* trainer_;
  bool trains_;  // a run that does not leaves the input as the model was trained with it
  data::TransformOptions input_;
  ClassNames classes_;
  train::CheckpointIdentity identity_;
};

// Does as --existing_run says with a run that train_dir holds when a training begins, which may change run.train_dir().
// Throws what settle_existing_run() and ask_existing_run() throw.
void settle_train_dir(PreparedRun& run, std::ostream& out, const core::StopToken& stop);

// Makes train_dir and takes its lock, for the one process of a run that writes there; held until the run has closed its
// files. Throws kInvalidArgument when another run has it.
std::unique_ptr<core::LockFile> lock_train_dir(const PreparedRun& run);

// Makes train_dir and loads the newest checkpoint there, if there is one, into `state` and its trainer. Throws
// kInvalidArgument when the run's data have other classes than those that the checkpoint was trained on.
void resume(const PreparedRun& run, RunState& state);

// What --ignore_damaged_checkpoints asks for. writes: this process writes into the directory.
train::DamagedCheckpoints damaged_checkpoints(const PreparedRun& run, bool writes);

// Saves into train_dir by the flags, and at the end.
std::shared_ptr<train::CheckpointCallback> make_checkpoint_callback(const PreparedRun& run,
                                                                    std::shared_ptr<const RunState> state);

// Keeps the best by --keep_best in train_dir; null for none.
std::unique_ptr<train::BestKeeper> make_best_keeper(const PreparedRun& run, std::shared_ptr<const RunState> state);

// Steps after the warm-up that a run from `first_step` has to do. Where none are left, the log says what was done and
// what the flags want.
int64_t remaining_steps(const PreparedRun& run, int64_t first_step);

}  // namespace trainyard::recipes
TRAINYARD_EXPORT_END
