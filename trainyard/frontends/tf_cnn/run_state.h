// Saves and loads the checkpoints of a run's train_dir, by its options.
#pragma once

#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/threads/stop_token.h"
#include "trainyard/frontends/session/saved_run.h"
#include "trainyard/frontends/tf_cnn/prepare.h"
#include "trainyard/train/callbacks/checkpoint_callback.h"
#include "trainyard/train/checkpoint/best_checkpoint.h"
#include "trainyard/train/fit/validation_record.h"
#include "trainyard/train/loop/trainer.h"
#include "trainyard/train/step/tower_trainer.h"

namespace trainyard::frontends {

train::CheckpointIdentity identity_of(const PreparedRun& run);

// Returns the state that the run saves.
std::shared_ptr<SavedRun> make_saved_run(train::Trainer& trainer, const PreparedRun& run);

// Makes the folder of a training without a train_dir, if SavingOptions::new_runs_in is set, and prints it. Applies
// --existing_run to a run in train_dir when a training begins. Both change run.train_dir(). Throws what
// make_new_run_directory(), settle_existing_run() and ask_existing_run() throw. Rank 0 does it for all processes.
void settle_train_dir(PreparedRun& run, std::ostream& out, const core::StopToken& stop);

// Loads the newest checkpoint of train_dir, if there is one, into `state` and its trainer, as resume_run() does. With
// several processes rank 0 reads it for all.
void resume(const PreparedRun& run, SavedRun& state);

// Returns the treatment of damaged checkpoints by --ignore_damaged_checkpoints. `writes` says that this process writes
// into the directory.
train::DamagedCheckpoints damaged_checkpoints(const PreparedRun& run, bool writes);

// Makes the callback that saves into train_dir by the flags, and at the end.
std::shared_ptr<train::CheckpointCallback> make_checkpoint_callback(const PreparedRun& run,
                                                                    std::shared_ptr<const SavedRun> state);

// Returns the metric of --keep_best ("top_1" and "loss" are short names), or nothing for "none". Throws
// kInvalidArgument, with the known names, for another name without ":highest" or ":lowest" at its end, which only
// custom models have.
[[nodiscard]] std::optional<train::BestBy> read_best_by(const std::string& keep_best);

// Returns the record of a run's evaluations for --early_stop, by the metric of --keep_best, or by top-1 accuracy with
// "none"; null without --early_stop. Throws kInvalidArgument when nothing is evaluated during the training.
std::shared_ptr<train::ValidationRecord> make_validation_record(const PreparedRun& run);

// Freezes the parameters of --freeze, and unfreezes all others, whatever a loaded checkpoint has frozen. Logs the
// frozen ones. Throws kNotFound for a pattern that matches no parameter, kUnsupported on accelerators.
void freeze_parameters(const std::vector<std::string>& patterns, train::TowerTrainer& trainer);

// Makes the object that keeps the best checkpoint by --keep_best in train_dir; null for "none".
std::unique_ptr<train::BestKeeper> make_best_keeper(const PreparedRun& run, std::shared_ptr<const SavedRun> state);

// Returns the steps after the warm-up of a run from `first_step`. When none are left, logs the steps done and the
// requested ones.
int64_t remaining_steps(const PreparedRun& run, int64_t first_step);

}  // namespace trainyard::frontends
