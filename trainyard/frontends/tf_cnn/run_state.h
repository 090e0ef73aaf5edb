// The checkpoints of a run's train_dir, by its options.
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

// Returns what the run saves.
std::shared_ptr<SavedRun> make_saved_run(train::Trainer& trainer, const PreparedRun& run);

// Makes the folder of a training without a train_dir, where SavingOptions::new_runs_in asks for one, and says which.
// Does as --existing_run says with a run that train_dir holds when a training begins. Both change run.train_dir().
// Throws what make_new_run_directory(), settle_existing_run() and ask_existing_run() throw. Rank 0 does it for all
// processes.
void settle_train_dir(PreparedRun& run, std::ostream& out, const core::StopToken& stop);

// Loads the newest checkpoint of train_dir, if there is one, into `state` and its trainer, as resume_run() does. Of
// several processes rank 0 reads it, and gives it to all.
void resume(const PreparedRun& run, SavedRun& state);

// What --ignore_damaged_checkpoints asks for. writes: this process writes into the directory.
train::DamagedCheckpoints damaged_checkpoints(const PreparedRun& run, bool writes);

// Saves into train_dir by the flags, and at the end.
std::shared_ptr<train::CheckpointCallback> make_checkpoint_callback(const PreparedRun& run,
                                                                    std::shared_ptr<const SavedRun> state);

// Returns what --keep_best names, "top_1" or "loss" for short; nothing for "none". Throws kInvalidArgument, with the
// names that there are, for another name without ":highest" or ":lowest" behind it, which only a model of one's own
// has.
[[nodiscard]] std::optional<train::BestBy> read_best_by(const std::string& keep_best);

// Returns what counts the evaluations of a run for --early_stop, by what --keep_best names, top-1 accuracy with none;
// null without --early_stop. Throws kInvalidArgument where nothing is evaluated during the training.
std::shared_ptr<train::ValidationRecord> make_validation_record(const PreparedRun& run);

// Freezes what --freeze names, and thaws all else, whatever a checkpoint that was loaded has frozen; the log says what
// is frozen. Throws kNotFound for a pattern that names no parameter, kUnsupported on accelerators.
void freeze_parameters(const std::vector<std::string>& patterns, train::TowerTrainer& trainer);

// Keeps the best by --keep_best in train_dir; null for none.
std::unique_ptr<train::BestKeeper> make_best_keeper(const PreparedRun& run, std::shared_ptr<const SavedRun> state);

// Steps after the warm-up that a run from `first_step` has to do. Where none are left, the log says what was done and
// what the flags want.
int64_t remaining_steps(const PreparedRun& run, int64_t first_step);

}  // namespace trainyard::frontends
