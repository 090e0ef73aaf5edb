// Files that keep what was measured or found out, for later runs: in $XDG_CACHE_HOME/trainyard, else in
// ~/.cache/trainyard (the XDG base directory specification: a path that is not absolute is ignored).
#pragma once

#include <string>
#include <string_view>

namespace trainyard::core {

// Processor, cores and instruction sets that this process may use, in one line: what was measured on another kind of
// machine, or under another TRAINYARD_MAX_CPU_ISA (core/system/cpu_isa.h), does not hold here.
std::string machine_kind();

// "<folder>/<name>-<number of machine_kind()>.txt", whether it exists or not; empty when neither variable names a
// folder. `directory`: instead of the user's.
std::string user_cache_file(std::string_view name, std::string_view directory = {});

// "<folder>/<name>", a folder for what holds on any machine; empty as above.
std::string user_cache_folder(std::string_view name);

}  // namespace trainyard::core
