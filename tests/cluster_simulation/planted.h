// Mistakes that are planted to show that the simulation finds them: planted_bugs.py lists them. At most one is switched
// on in a process.
#pragma once

#include <string>
#include <string_view>

namespace trainyard::cluster_simulation {

// Returns whether this mistake is switched on.
bool planted(std::string_view name);
// Switches it on; empty: none.
void plant(std::string name);

}  // namespace trainyard::cluster_simulation
