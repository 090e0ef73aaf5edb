// --batch_size=auto: the largest batch of a device that fits into memory.
#pragma once

#include <cstdint>

#include "trainyard/frontends/tf_cnn/prepare.h"

namespace trainyard::frontends {

// Returns it for a run that is prepared except for its batch size, and logs it with the reason. In a training on data
// it is at most a 16th of an epoch, so that an epoch has some steps; in evaluations and forward passes at most all
// images. Plans the memory of batches without allocating it: parameters, gradients, the optimizer's slots, activations
// from the executor's plan (on a GPU an estimate), the batches of the input, and a share for the program. The result is
// the same for the same flags, budget, threads and program. Evaluations during the training are included. A training on
// the CPU in a program with the caching allocator then tries sizes around the planned one (batch_trials.h).
//
// Throws kNoSpace when one image does not fit, kUnsupported when the executor does not plan its memory.
int64_t find_batch_size(const PreparedRun& run);

// Throws kNoSpace, with a batch that fits, when a training on the CPU needs more memory than the machine has or its
// control groups allow. Call it before kernels are measured, which takes long.
void require_memory(const PreparedRun& run);

}  // namespace trainyard::frontends
