// Files that keep measurements for later runs. They are in $XDG_CACHE_HOME/trainyard, else in ~/.cache/trainyard (the
// XDG base directory specification: a path that is not absolute is ignored).
#pragma once

#include <string>
#include <string_view>

namespace trainyard::core {

// Returns one line with the processor, the cores and the instruction sets that this process may use. Measurements from
// another kind of machine, or under another TRAINYARD_MAX_CPU_ISA (core/system/cpu_isa.h), are not valid here.
std::string machine_kind();

// Returns "<folder>/<name>-<number of machine_kind()>.txt", whether that file exists or not. Empty when neither
// variable names a folder. `directory`, where it is not empty, is used instead of the user's folder.
std::string user_cache_file(std::string_view name, std::string_view directory = {});

// Returns "<folder>/<name>", a folder or a file for data that are valid on any machine, or that name theirs. Empty as
// above.
std::string user_cache_folder(std::string_view name);

}  // namespace trainyard::core
