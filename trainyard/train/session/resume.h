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
  // Called with the checkpoint and what it says of its model, in front of its weights. Throws where it is not this
  // run's: names that differ explain more than shapes that do not fit.
  std::function<void(const CheckpointInfo&, const CheckpointFacts&)> check{};
  std::string optimizer{};  // of the run, as --optimizer names it; empty: optimizers are not compared
  // What errors say to do instead: "... begin another run: <another_run>".
  std::string another_run = "in another directory, starting from an export of this one's weights";
};

// Loads the newest checkpoint of the directory into `state`, says so in the log and returns it; nothing where there is
// none. Reads the checkpoint's manifest once. Throws what `check` and resume_newest_checkpoint() throw. A checkpoint of
// another optimizer is named in a warning; where it lacks what this run's optimizer keeps, kInvalidArgument names both.
std::optional<CheckpointInfo> resume_run(core::Stateful& state, const ResumeOptions& options);

// Collective: does so on rank 0, and gives the others what it has read: load_shared(). Without a directory and a
// checkpoint nothing is loaded. Without `ranks` this process is alone.
std::optional<CheckpointInfo> resume_together(parallel::ProcessGroup* ranks, core::Stateful& state,
                                              const ResumeOptions& options);

}  // namespace trainyard::train
