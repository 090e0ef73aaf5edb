// Optimizers, and the schedules of their learning rates.
#pragma once

#include "trainyard/optim/optimizers/optimizer.h"         // IWYU pragma: export
#include "trainyard/optim/optimizers/optimizer_choice.h"  // IWYU pragma: export
#include "trainyard/optim/schedules/decay.h"              // IWYU pragma: export
#include "trainyard/optim/schedules/learning_rate.h"      // IWYU pragma: export
