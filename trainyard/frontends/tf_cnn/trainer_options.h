// Makes a trainer's options from a run: loss, optimizer, variable update, and the initial weights.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "trainyard/frontends/tf_cnn/prepare.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/train/step/tower_trainer.h"

namespace trainyard::frontends {

// Returns a function that loads the file of initial weights, and warns when its head is another model's; empty without
// a file.
std::function<void(nn::ParameterSet&)> make_start(const PreparedRun& run);

// Throws kInvalidArgument for values that the optimizer or the schedule rejects. Returns the number of batches of
// training data with which batch norms are recalibrated at the end of a training; 0: they are not. Throws
// kInvalidArgument when that is requested and the model has none.
int64_t recalibration_batches(const PreparedRun& run);

// Returns what makes the optimizer of the options. `graph` is that of the model, whose last layer an adaptive clip and
// muon leave out; null: there is no such clip, and muon takes all matrices. `updates` are those of the whole training;
// empty: not known, and alpha of Lookahead stays.
optim::MakeOptimizer make_optimizer(const TfCnnOptions& options, const nn::Graph* graph = nullptr,
                                    std::optional<int64_t> updates = std::nullopt);
// Throws kUnsupported for an update that parameter servers cannot make: one that needs more of the model than the part
// that a server holds.
void check_served_update(const TfCnnOptions& options);

train::TowerTrainerOptions make_trainer_options(const PreparedRun& run);

}  // namespace trainyard::frontends
