// Parses the flags of a sub-command: its own small table, positional arguments if it accepts any, and --help.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/cli/command.h"
#include "trainyard/core/flags/flags.h"

namespace trainyard::cli {

struct CommandHelp {
  std::string name;        // "predict"
  std::string summary;     // one line
  std::string positional;  // "IMAGE..." as shown in the usage; empty: none are taken
};

struct ParsedCommand {
  core::FlagValues values;
  std::vector<std::string> positional;
};

// Parses; the table must outlive the result. Prints the help and returns nothing for --help. Where the console asks for
// descriptions, adds the command's and returns nothing.
std::optional<ParsedCommand> parse_command(const CommandHelp& help, core::FlagTable& table, const Arguments& arguments,
                                           Console& console);

// Throws kInvalidArgument where one of `flags` is given, and `with`, such as "--list", leaves it without use.
void refuse_given(const core::FlagValues& values, std::initializer_list<const char*> flags, const std::string& with);

// Throws kInvalidArgument, naming --`flag`, when the file to write is a folder.
void require_no_folder(const std::string& flag, const std::string& path);

// Returns whether both paths lead to one file or folder, which is there, however they are written.
bool is_same_file(const std::string& one, const std::string& other);

}  // namespace trainyard::cli
