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

// Declares the flags that select the data set and the number of threads.
void declare_data_flags(core::FlagTable& table);
// Returns the flag num_threads; 0 becomes the number of cores that the process may use.
int data_threads(const core::FlagValues& values);
// Returns a flag that the command requires. Throws kInvalidArgument when it is not given.
std::string required_text(const core::FlagValues& values, const std::string& flag, const std::string& remedy);
// Returns the only positional argument, a directory. Throws kInvalidArgument.
std::string directory_argument(const ParsedCommand& parsed, const std::string& command);

}  // namespace trainyard::cli
