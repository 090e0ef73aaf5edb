// Gives all ranks a state that rank 0 alone has, such as the checkpoint that it has read.
#pragma once

#include <cstddef>
#include <memory>

#include "trainyard/core/base/stateful.h"
#include "trainyard/parallel/process_group/process_group.h"

namespace trainyard::parallel {

// Returns the bytes of a piece. Rank 0 may have 16 pieces for each other rank in its memory: 64 MiB for all of them
// together up to 64 others, and a mebibyte each for more.
size_t state_piece_bytes(int ranks);

// Collective: sends all entries of rank 0's `first` (null on the other ranks) in pieces of 4 MiB at most, so that none
// of them needs a buffer of the whole. Returns a copy in memory; null on rank 0, which has `first`. Throws on all ranks
// what reading `first` throws.
std::unique_ptr<core::StateReader> broadcast_state(ProcessGroup& ranks, const core::StateReader* first);

}  // namespace trainyard::parallel
