#include <ostream>

#include <fmt/format.h>

#include "trainyard/cli/command.h"
#include "trainyard/cli/command_description.h"
#include "trainyard/cli/command_flags.h"
#include "trainyard/core/base/error.h"

namespace trainyard::cli {

int run_completion(const Arguments& arguments, Console& console) {
  core::FlagTable table;
  const auto parsed = parse_command({"completion", "the completion of commands and flags for a shell", "bash|zsh|fish"},
                                    table, arguments, console);
  if (!parsed) return kSuccess;
  if (parsed->positional.size() != 1) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "trainyard completion takes the name of a shell",
                       .expected = "bash, zsh or fish",
                       .actual = fmt::format("{} arguments", parsed->positional.size()),
                       .remedy = "for bash: source <(trainyard completion bash)"});
  }
  console.out << completion_script(parsed->positional[0], describe_commands());
  return kSuccess;
}

}  // namespace trainyard::cli
