// The whole program: training and evaluation by its options, with checkpoints and a report.
#pragma once

#include <iosfwd>

#include "trainyard/core/threads/stop_token.h"
#include "trainyard/frontends/paddle/arguments.h"
#include "trainyard/frontends/paddle/executor.h"

namespace trainyard::frontends::program {

struct ProgramResult {
  Metrics train, eval;  // the best of each metric; empty if there was none
  bool stopped = false;
};

// Settles the arguments and runs them; lines go to `out` and into the report file. A checkpoint is saved every
// save_interval epochs, after the last one, and in the middle of an epoch that `stop` ends, from which the next run
// with last_epoch_of_checkpoint=auto continues. A benchmark saves none. `trainyard eval`, `predict`, `export` and
// `sparsity` open them, too.
// Throws what settle(), build_dataloader(), build(), run() and saving throw; earlier checkpoints are kept.
ProgramResult train_and_evaluate(Arguments args, std::ostream& out, const core::StopToken& stop);

}  // namespace trainyard::frontends::program
