// How a run continues from its newest checkpoint.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "trainyard/core/base/stateful.h"
#include "trainyard/parallel/process_group/process_group.h"
#include "trainyard/train/checkpoint/checkpoint.h"

namespace trainyard::train {

struct CheckpointFacts;

struct ResumeOptions {
  std::string directory{};  // whose newest checkpoint is loaded; made where it is missing
  // A checkpoint, or a directory of checkpoints, which must exist: it is loaded instead of the directory's newest.
  std::string checkpoint{};
  CheckpointIdentity identity{};  // of the run; fields that are set must be the saved ones
  DamagedCheckpoints damaged = DamagedCheckpoints::kStop;
  // Called with the checkpoint and its metadata before its weights are read. Throws when the checkpoint is of another
  // run, because different names explain more than shapes that do not fit.
  std::function<void(const CheckpointInfo&, const CheckpointFacts&)> check{};
  std::string optimizer{};  // of the run, as --optimizer names it; empty: optimizers are not compared
  // How errors suggest to begin another run: "... begin another run: <another_run>".
  std::string another_run = "in another directory, starting from an export of this one's weights";
};

// Loads the newest checkpoint of the directory into `state`, logs it, and returns it. Returns nothing when there is
// none. Reads the checkpoint's manifest once. Throws what `check` and resume_newest_checkpoint() throw. Warns when the
// checkpoint is of another optimizer, and throws kInvalidArgument, which names both, when it lacks state of this run's
// optimizer.
std::optional<CheckpointInfo> resume_run(core::Stateful& state, const ResumeOptions& options);

// Collective: does the same on rank 0, and sends what it has read to the other ranks (load_shared()). Loads nothing
// without a directory and a checkpoint. Without `ranks` this process is alone.
std::optional<CheckpointInfo> resume_together(parallel::ProcessGroup* ranks, core::Stateful& state,
                                              const ResumeOptions& options);

}  // namespace trainyard::train
