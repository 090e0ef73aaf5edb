// A checkpoint that rank 0 opens for all processes of an evaluation.
#pragma once

#include <functional>
#include <memory>

#include "trainyard/core/base/export.h"
#include "trainyard/parallel/processes/process_group.h"
#include "trainyard/recipes/shared/trained_model.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::recipes {

// Collective: `open` runs on rank 0 alone and returns a checkpoint that is open, or null: there is none. Returns the
// same on all ranks, the others' in memory. Throws what it throws.
std::shared_ptr<const OpenedModel> share_opened_model(parallel::ProcessGroup& ranks,
                                                      const std::function<std::shared_ptr<const OpenedModel>()>& open);

}  // namespace trainyard::recipes
TRAINYARD_EXPORT_END
