// --batch_size=auto: the largest batch of a device that there is memory for.
#pragma once

#include <cstdint>

#include "trainyard/frontends/tf_cnn/prepare.h"

namespace trainyard::frontends {

// Returns it for a run that is prepared but for its batch size, and logs it with the reason. Of a training on images
// that are there it is at most a 16th of an epoch, so that an epoch has some steps; of evaluations and forward passes
// all images at most. Plans the memory of batches without taking it: parameters, gradients, the optimizer's slots,
// activations as the executor places them (on a GPU an estimate of them), the batches that the input holds, and a share
// for the program. The same batch for the same flags, budget, threads and program. With evaluations during the training
// their plan is added.
//
// Throws kNoSpace when one image does not fit, kUnsupported where the executor does not plan its memory.
int64_t find_batch_size(const PreparedRun& run);

// Throws kNoSpace, with a batch that fits, where a training on the CPU needs more than all of the memory that the
// machine has or its control groups allow. Call it before kernels are measured, which takes long.
void require_memory(const PreparedRun& run);

}  // namespace trainyard::frontends
