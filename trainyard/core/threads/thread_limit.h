// Limits how many threads may be asked for.
#pragma once

namespace trainyard::core {

// Returns the most threads that a team or a pool may have: four times the cores, and 256 on small machines. gcc's
// OpenMP runtime overruns its stack with a hundred thousand.
int most_threads();

}  // namespace trainyard::core
