#include "trainyard/cli/command_flags.h"

#include <filesystem>
#include <ostream>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ostream.h>

#include "trainyard/cli/command_description.h"
#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"

namespace trainyard::cli {

std::optional<ParsedCommand> parse_command(const CommandHelp& help, core::FlagTable& table, const Arguments& arguments,
                                           Console& console) {
  table.boolean("help", false, "this text").group("General");
  if (console.descriptions != nullptr) {
    console.descriptions->push_back(
        {.name = help.name, .summary = help.summary, .positional = help.positional, .flags = table});
    return std::nullopt;
  }
  ParsedCommand parsed{core::FlagValues(table), {}};
  parsed.values = core::parse_flags(table, arguments, parsed.positional, core::Repeats::kRefused);
  if (parsed.values.boolean("help")) {
    fmt::print(console.out, "trainyard {}: {}\n\nusage: trainyard {} [--flag=value ...]{}{}\n\n{}", help.name,
               help.summary, help.name, help.positional.empty() ? "" : " ", help.positional, core::help_text(table));
    return std::nullopt;
  }
  if (help.positional.empty() && !parsed.positional.empty()) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = fmt::format("trainyard {} takes no argument '{}'", help.name, parsed.positional[0]),
                       .remedy = fmt::format("see trainyard {} --help", help.name)});
  }
  return parsed;
}

void refuse_given(const core::FlagValues& values, std::initializer_list<const char*> flags, const std::string& with) {
  for (const char* const flag : flags) {
    if (!values.given(flag)) continue;
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = fmt::format("--{} has no use with {}", flag, with), .remedy = "leave it out"});
  }
}

void require_no_folder(const std::string& flag, const std::string& path) {
  core::FileSystem& files = core::local_file_system();
  const bool folder = path.ends_with('/') || (files.exists(path) && files.info(path).is_directory);
  if (!folder) return;
  throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = fmt::format("--{} is a folder", flag),
                                                        .expected = "the name of a file to write",
                                                        .actual = path,
                                                        .remedy = "add a file's name to it"});
}

bool is_same_file(const std::string& one, const std::string& other) {
  std::error_code ignored;
  return std::filesystem::equivalent(one, other, ignored);
}

}  // namespace trainyard::cli
