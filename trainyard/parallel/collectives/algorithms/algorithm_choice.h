// Selects the algorithm of a collective, by its size and by the distribution of its replicas.
#pragma once

#include "trainyard/parallel/collectives/plan/algorithm.h"

namespace trainyard::parallel {

// Returns "slices" for replicas that are threads of one process, and "chain" for processes.
const CollectiveAlgorithm& choose_algorithm(const CollectiveRequest& request);

}  // namespace trainyard::parallel
