// Places memory near the thread that uses it, on machines with more than one NUMA node. The system may refuse, as
// containers often do. Memory then stays where the kernel puts it, and one warning says so.
#pragma once

#include <cstddef>

namespace trainyard::core {

// Makes memory that the calling thread touches first from now on come from `node`, while that has any. Threads that it
// starts later inherit this.
void prefer_memory_of_node(int node);

// Moves the whole pages of a block to `node`. Its first and its last page may be shared with other blocks and stay.
void move_memory_to_node(void* block, size_t bytes, int node);

}  // namespace trainyard::core
