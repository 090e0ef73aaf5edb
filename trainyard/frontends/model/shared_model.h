// A checkpoint that rank 0 opens for all processes of an evaluation.
#pragma once

#include <functional>
#include <memory>

#include "trainyard/frontends/model/trained_model.h"
#include "trainyard/parallel/process_group/process_group.h"

namespace trainyard::frontends {

// Collective: `open` runs on rank 0 alone and returns an open checkpoint, or null when there is none. Returns the same
// on all ranks; other ranks get a copy in memory. Throws what `open` throws.
std::shared_ptr<const OpenedModel> share_opened_model(parallel::ProcessGroup& ranks,
                                                      const std::function<std::shared_ptr<const OpenedModel>()>& open);

}  // namespace trainyard::frontends
