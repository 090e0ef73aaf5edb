// Saves and loads the checkpoints of a run's train_dir, by its options.
#pragma once

#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainyard/core/threads/stop_token.h"
#include "trainyard/frontends/session/saved_run.h"
#include "trainyard/frontends/tf_cnn/prepare.h"
#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/evaluation/evaluator.h"
#include "trainyard/train/loop/trainer.h"
#include "trainyard/train/session/training_session.h"
#include "trainyard/train/step/tower_trainer.h"

namespace trainyard::frontends {

train::CheckpointIdentity identity_of(const PreparedRun& run);

// Returns the state that the run saves.
std::shared_ptr<SavedRun> make_saved_run(train::Trainer& trainer, const PreparedRun& run);

// Makes the folder of a training without a train_dir, if SavingOptions::new_runs_in is set, and prints it. Applies
// --existing_run to a run in train_dir when a training begins. Both change run.train_dir(). Throws what
// train::make_new_run_directory(), settle_existing_run() and ask_existing_run() throw. Rank 0 does it for all
// processes.
void settle_train_dir(PreparedRun& run, std::ostream& out, const core::StopToken& stop);

// Returns what is known of the run's session before its checkpoint is read. Borrows the run.
train::SessionOptions session_options(const PreparedRun& run, std::shared_ptr<SavedRun> state,
                                      const std::optional<train::EarlyStop>& early_stop = std::nullopt);

// Returns the treatment of damaged checkpoints by --ignore_damaged_checkpoints. `writes` says that this process writes
// into the directory.
train::DamagedCheckpoints damaged_checkpoints(const PreparedRun& run, bool writes);

// Sets when the session saves: by the flags, and at the end.
void set_checkpoint_steps(const PreparedRun& run, train::SessionSteps& steps);

// Returns the metric that --keep_best, or another flag, names ("top_1" and "loss" are short names), or nothing for
// "none". Throws kInvalidArgument, with the known names and the flag, for another name without ":highest" or ":lowest"
// at its end, which custom models and --top_k have.
[[nodiscard]] std::optional<train::BestBy> read_best_by(const std::string& keep_best,
                                                        std::string_view flag = "keep_best");

// Returns what --early_stop asks for. Throws kInvalidArgument where nothing is evaluated during the training, and that
// flag, or another one that needs evaluations, is given.
std::optional<train::EarlyStop> read_early_stop(const PreparedRun& run);

// Steps after the warm-up that a run from `first_step` has to do. Where none are left, the log says what was done and
// what the flags want.
int64_t remaining_steps(const PreparedRun& run, int64_t first_step);

}  // namespace trainyard::frontends
