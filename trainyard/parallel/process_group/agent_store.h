// Uses torchrun's own store (c10d::TCPStore), which occupies MASTER_PORT when torchrun serves it: rank 0 publishes
// there where the ranks meet.
#pragma once

#include <chrono>
#include <string>

#include "trainyard/parallel/process_group/process_rank.h"

namespace trainyard::parallel {

// Returns the text of rank 0. Throws kTimeout when the store, or rank 0's text in it, is not available in time.
std::string share_in_agent_store(const ProcessRank& process, const std::string& of_first,
                                 std::chrono::milliseconds deadline);

}  // namespace trainyard::parallel
