// Reads the description of a checkpoint's model, whatever command has saved it.
#pragma once

#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/model/model_description.h"

namespace trainyard::train {

// Returns the description that a checkpoint of fit() stores as texts (save_metadata()). For checkpoints without texts,
// such as those of `trainyard train`, builds it from read_checkpoint_facts() and the graph of the registered model, or
// without a graph when the checkpoint names no model. Throws kCorruptData, naming the entry, for an invalid one, and
// what models::build_model() throws: kInvalidArgument for an unregistered model.
[[nodiscard]] ModelDescription described_by(const OpenedCheckpoint& opened);

}  // namespace trainyard::train
