// Names by pattern, as flags and options take them.
#pragma once

#include <string>
#include <vector>

namespace trainyard::core {

// Returns whether `pattern` describes the whole of `name`, by the shell's rules (fnmatch(3)): "*" stands for any
// characters, also none and also points, "?" for one, "[12]" for one of these, every other character for itself.
bool matches_pattern(const std::string& name, const std::string& pattern);

// Returns what to do about a pattern that describes none of `names`, for an error's remedy: the pattern that was
// probably meant ("did you mean 'layer1.*'?"), and some of the names that are near it, or of all.
[[nodiscard]] std::string names_near_pattern(const std::string& pattern, const std::vector<std::string>& names);

}  // namespace trainyard::core
