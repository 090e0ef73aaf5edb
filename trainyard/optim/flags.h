// The flags of this room.
#pragma once

#include "trainyard/core/base/export.h"
#include "trainyard/core/flags/flags.h"
#include "trainyard/optim/sparsity/prune.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::optim {

void declare_flags(core::FlagTable& table);

// Declares and reads --mask_algo and --asp_exclude alone, for commands that prune without training.
void declare_pruning_flags(core::FlagTable& table);
SparsityOptions read_pruning_flags(const core::FlagValues& values);

}  // namespace trainyard::optim
TRAINYARD_EXPORT_END
