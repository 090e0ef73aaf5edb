// The commands that the end of a training prints: what to do with what it has left.
#pragma once

#include <string>

#include "trainyard/frontends/tf_cnn/prepare.h"

namespace trainyard::frontends {

// Returns lines as those of train::run_summary_text(), without the last line break: to evaluate, to predict, to export
// and to continue. `complete`: the training has done all of its steps, so that continuing asks for more. Every word is
// quoted as a shell needs it.
[[nodiscard]] std::string next_commands(const PreparedRun& run, bool complete);

// Returns the word as a shell takes it: in quotes where it has other characters than letters, digits and +,-./:=@_%.
[[nodiscard]] std::string shell_word(const std::string& word);

}  // namespace trainyard::frontends
