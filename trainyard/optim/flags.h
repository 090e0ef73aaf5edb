// The flags of this room.
#pragma once

#include <string>

#include "trainyard/core/flags/flags.h"
#include "trainyard/optim/optimizers/optimizer_options.h"
#include "trainyard/optim/sparsity/prune.h"

namespace trainyard::optim {

// Declare --optimizer with the numbers of all optimizers, the loss scale, and 2:4 sparsity.
void declare_optimizer_flags(core::FlagTable& table);
void declare_sparsity_flags(core::FlagTable& table);

// Declares and reads --mask_algo and --asp_exclude alone, for commands that prune without training.
void declare_pruning_flags(core::FlagTable& table);
SparsityOptions read_pruning_flags(const core::FlagValues& values);

// Returns the name in optimizers() of a value of --optimizer, of tf_cnn_benchmarks' words or of former versions:
// "tf_nesterov" for "momentum". Any other value is returned as it is.
std::string optimizer_of_flag(const std::string& value);

// Makes the table's --optimizer accept the names of optimizers(); tf_cnn_benchmarks' words are accepted as former
// names.
void name_optimizers_by_library(core::FlagTable& table);

// Returns the numbers of an optimizer that flags set: their values, or the flags' defaults.
OptimizerNumbers read_optimizer_numbers(const core::FlagValues& values, const std::string& optimizer);
OptimizerNumbers default_optimizer_numbers(const std::string& optimizer);

// Throws kInvalidArgument for a flag that is set and that the optimizer of this --optimizer does not read. Those of
// tf_cnn_benchmarks, --momentum among them, may be in a file that several optimizers share; in its own dialect,
// `tf_cnn_benchmarks`, they are taken with any optimizer, as there.
void check_optimizer_flags(const core::FlagValues& values, const std::string& value, bool tf_cnn_benchmarks);

// Returns each optimizer with its source and its formula, for people to read.
std::string optimizers_help();

}  // namespace trainyard::optim
