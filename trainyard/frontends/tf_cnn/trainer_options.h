// What trains the model of a run: loss, optimizer, variable update, and the weights that it starts from.
#pragma once

#include <functional>

#include "trainyard/frontends/tf_cnn/prepare.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/train/step/tower_trainer.h"

namespace trainyard::frontends {

// Returns what loads the file of weights to start from, and warns when its head is another model's; none without a
// file.
std::function<void(nn::ParameterSet&)> make_start(const PreparedRun& run);

// Throws kInvalidArgument for values that the optimizer or the schedule refuses.
// Returns over how many batches of training data batch norms are recalibrated at the end of a training; 0: they are
// not. Throws kInvalidArgument where that is asked for, and the model has none.
int64_t recalibration_batches(const PreparedRun& run);

train::TowerTrainerOptions make_trainer_options(const PreparedRun& run);

}  // namespace trainyard::frontends
