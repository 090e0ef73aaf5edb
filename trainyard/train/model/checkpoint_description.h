// What a checkpoint says of its model, whatever has saved it.
#pragma once

#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/model/model_description.h"

namespace trainyard::train {

// Returns the description that a checkpoint holds as texts (save_metadata()), as those of fit() do. Of one that holds
// none, as those of `trainyard train`, it is what read_checkpoint_facts() finds, with the graph of the registered
// model; without a graph where the checkpoint names no model. Throws kCorruptData, naming the entry, for what cannot
// be, and what models::build_model() throws: kInvalidArgument for an unregistered one.
[[nodiscard]] ModelDescription described_by(const OpenedCheckpoint& opened);

}  // namespace trainyard::train
