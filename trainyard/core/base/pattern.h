// Matches names against the patterns that flags and options take.
#pragma once

#include <string>
#include <vector>

namespace trainyard::core {

// Returns whether `pattern` matches the whole `name`, by the rules of fnmatch(3): "*" matches any number of characters,
// dots included, "?" matches one, "[12]" one of these, and every other character itself.
bool matches_pattern(const std::string& name, const std::string& pattern);

// Returns the remedy for a pattern that matches none of `names`: the pattern that was probably meant ("did you mean
// 'layer1.*'?"), and some names that are similar to it, or any names when none is similar.
[[nodiscard]] std::string names_near_pattern(const std::string& pattern, const std::vector<std::string>& names);

}  // namespace trainyard::core
