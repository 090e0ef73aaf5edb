// The command line of `trainyard program`: the options of the example, with dashes or underscores.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "trainyard/core/flags/flags.h"
#include "trainyard/frontends/paddle/arguments.h"

namespace trainyard::frontends::program {

void declare_flags(core::FlagTable& table);
// Throws kInvalidArgument for a list that does not hold numbers, and for a text that is neither yes nor no.
Arguments read_arguments(const core::FlagValues& values);
// Returns all options by name, in the order of --help, as text in JSON, and the results of settle(). For the report.
std::vector<std::pair<std::string, std::string>> options_as_json(const Arguments& args);

}  // namespace trainyard::frontends::program
