// The commands under `trainyard data`, each one file, cli/command_data_<name>.cpp; the table in command_data.cpp names
// them.
#pragma once

#include <string>

#include "trainyard/cli/command_flags.h"

namespace trainyard::cli {

int run_data_shapes(const Arguments& arguments, Console& console);
int run_data_index(const Arguments& arguments, Console& console);
int run_data_convert(const Arguments& arguments, Console& console);
int run_data_show(const Arguments& arguments, Console& console);
int run_data_verify(const Arguments& arguments, Console& console);

// The flags that say which data set is meant, and how many threads work on it.
void declare_data_flags(core::FlagTable& table);
// Of num_threads: 0 is the cores that the process may use.
int data_threads(const core::FlagValues& values);
// A flag without which the command has nothing to do. Throws kInvalidArgument.
std::string required_text(const core::FlagValues& values, const std::string& flag, const std::string& remedy);
// The one positional argument, a directory. Throws kInvalidArgument.
std::string directory_argument(const ParsedCommand& parsed, const std::string& command);

}  // namespace trainyard::cli
