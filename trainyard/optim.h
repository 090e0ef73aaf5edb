// Optimizers, and the schedules of their learning rates.
#pragma once

#include "trainyard/optim/averages/weight_average.h"       // IWYU pragma: export
#include "trainyard/optim/hyperparameters.h"               // IWYU pragma: export
#include "trainyard/optim/optimizers/optimizer.h"          // IWYU pragma: export
#include "trainyard/optim/optimizers/optimizer_options.h"  // IWYU pragma: export
#include "trainyard/optim/scaling/loss_scaler_options.h"   // IWYU pragma: export
#include "trainyard/optim/schedules/learning_rate.h"       // IWYU pragma: export
#include "trainyard/optim/sparsity/prune.h"                // IWYU pragma: export
