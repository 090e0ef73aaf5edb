// The flags of this room.
#pragma once

#include <string>

#include "trainyard/core/flags/flags.h"
#include "trainyard/optim/sparsity/prune.h"

namespace trainyard::optim {

void declare_flags(core::FlagTable& table);

// Declares and reads --mask_algo and --asp_exclude alone, for commands that prune without training.
void declare_pruning_flags(core::FlagTable& table);
SparsityOptions read_pruning_flags(const core::FlagValues& values);

// Returns the name in optimizers() of a value of --optimizer: "nesterov" for "momentum", as in tf_cnn_benchmarks. A
// value that the flag does not have is a name in optimizers() itself.
std::string optimizer_of_flag(const std::string& value);

// Returns each value of --optimizer with its source and its formula, for people to read.
std::string optimizers_help();

}  // namespace trainyard::optim
