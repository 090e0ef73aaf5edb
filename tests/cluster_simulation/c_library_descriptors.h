// What simulated processes have open, for the files that define the C library's functions.
#pragma once

#include <cstdint>
#include <memory>

#include "tests/cluster_simulation/network.h"
#include "tests/cluster_simulation/world.h"

namespace trainyard::cluster_simulation {

// Returns whether a simulated thread calls with a number that is its process's own. Standard streams have the system's
// numbers where a process has been given some.
bool is_simulated(int descriptor);
// Returns true, with errno set, when a signal interrupts this call.
bool is_interrupted(World& world);
// Returns what the calling process has open under this number, or null. It lives until another thread may run.
Descriptor* find_descriptor(World& world, int number);
// Gives it the lowest free number of the calling process.
int add_descriptor(World& world, std::shared_ptr<Descriptor> descriptor);
// Returns a machine's IPv4 address (c_library_network.cpp).
uint32_t address_of(const Machine& machine);

}  // namespace trainyard::cluster_simulation
