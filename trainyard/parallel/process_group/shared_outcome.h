// Work that must succeed on all ranks: where it fails on one, all end with that rank's error.
//
//   together(ranks, "opening the data", [&] { data = open(path); });
#pragma once

#include <functional>
#include <string>

#include "trainyard/parallel/process_group/process_group.h"

namespace trainyard::parallel {

// Collective: does `work`, and waits until all ranks have done theirs. Where it has thrown on some ranks, throws the
// error of the lowest of them on all ranks, with "rank <n>" in front of the place that it names. `what` is for messages
// about ranks that do not come, and the same on all ranks. `work` calls nothing collective, or the same on all ranks.
void together(ProcessGroup& ranks, const std::string& what, const std::function<void()>& work);

// Collective: does `work` on rank 0 alone and returns the text that it returned there, on all ranks. Throws what it
// threw on all ranks.
std::string on_first(ProcessGroup& ranks, const std::string& what, const std::function<std::string()>& work);

// Does `work`. The other ranks hear what it throws, unless they are why it failed. It is thrown on, with "rank 1 of 4"
// in front of the place that it names, unless that names a rank.
void report_what_fails(ProcessGroup& ranks, const std::function<void()>& work);

}  // namespace trainyard::parallel
