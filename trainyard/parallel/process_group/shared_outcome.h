// Runs work that must succeed on all ranks: when it fails on one, all end with that rank's error.
//
//   together(ranks, "opening the data", [&] { data = open(path); });
#pragma once

#include <functional>
#include <string>

#include "trainyard/parallel/process_group/process_group.h"

namespace trainyard::parallel {

// Collective: runs `work`, and waits until all ranks have done so. When it has thrown on some ranks, throws the error
// of the lowest of them on all ranks, with "rank <n>" in front of its `where`. `what` is for messages about missing
// ranks, and the same on all ranks. `work` calls nothing collective, or the same on all ranks.
void together(ProcessGroup& ranks, const std::string& what, const std::function<void()>& work);

// Collective: runs `work` on rank 0 alone and returns its text on all ranks. Throws what it threw on all ranks.
std::string on_first(ProcessGroup& ranks, const std::string& what, const std::function<std::string()>& work);

// Runs `work`. Reports its error to the other ranks, unless they have caused it, and rethrows it with "rank 1 of 4" in
// front of its `where`, unless that names a rank.
void report_what_fails(ProcessGroup& ranks, const std::function<void()>& work);

}  // namespace trainyard::parallel
