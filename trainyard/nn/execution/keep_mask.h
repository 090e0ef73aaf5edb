// The mask of dropout: a pure function of (seed, step, micro-step, layer, global sample index), so that masks depend
// neither on how a global batch is divided among replicas nor on the executor.
#pragma once

#include <cstdint>
#include <string_view>

#include "trainyard/nn/execution/executor.h"

namespace trainyard::nn {

// Fills mask [samples, per_sample]: each element is 0 with probability `drop`, else `kept`. Runs in parallel over
// samples.
void fill_keep_mask(float* mask, int64_t samples, int64_t per_sample, double drop, float kept, std::string_view layer,
                    const StepRandom& random);

}  // namespace trainyard::nn
