// Memory near the thread that uses it, on machines with more than one NUMA node. The system may refuse (containers
// often do): then memory stays where the kernel puts it, and one warning says so.
#pragma once

#include <cstddef>

namespace trainyard::core {

// Memory that the calling thread touches first from now on, and threads that it starts later, comes from this node
// while that has any.
void prefer_memory_of_node(int node);

// Moves the whole pages of a block there; its first and last page may be shared with other blocks and stay.
void move_memory_to_node(void* block, size_t bytes, int node);

}  // namespace trainyard::core
