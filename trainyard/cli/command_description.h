// All commands with their flags, from the declarations that also parse them. Completions and manuals are made of these.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainyard/core/flags/flags.h"

namespace trainyard::cli {

struct CommandDescription {
  std::string name{};        // "train", "data show"
  std::string summary{};     // one line
  std::string positional{};  // as in CommandHelp
  core::FlagTable flags{};
};

// Returns every command of the program that a user starts, those with commands below them as these, in the order of
// `trainyard --help`.
[[nodiscard]] std::vector<CommandDescription> describe_commands();

// Returns the script that completes commands, flags and their values in "bash", "zsh" or "fish". Throws
// kInvalidArgument for another shell.
[[nodiscard]] std::string completion_script(std::string_view shell, std::span<const CommandDescription> commands);

struct ManualPage {
  std::string file{};  // "trainyard-train.1"
  std::string text{};  // man(7) macros
};
// Returns a page of the program and one of each command. `version` is the program's.
[[nodiscard]] std::vector<ManualPage> manual_pages(std::span<const CommandDescription> commands,
                                                   std::string_view version);

}  // namespace trainyard::cli
